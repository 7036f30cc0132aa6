//! Expands file name masks as glob(3) does in the C locale without flags: `*`, `?` and `[…]` match within one
//! component, a leading dot is matched by a dot only, a backslash makes the next byte an ordinary one,
//! results are sorted by their bytes.
//!
//! Knows no file system: the caller lists directories (`Directory`).

/// The tree of directories that masks are expanded in.
pub(crate) trait Directory {
    /// The names in a directory in any order; empty if it cannot be listed.
    fn names(&self, directory: &[u8]) -> Vec<Vec<u8>>;
    /// Whether there is anything at this path.
    fn exists(&self, path: &[u8]) -> bool;
}

/// Whether a name is a mask.
pub(crate) fn is_mask(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The paths that a mask matches, sorted.
pub(crate) fn expand(pattern: &[u8], tree: &dyn Directory) -> Vec<Vec<u8>> {
    // Each candidate is a path up to and including the slash before the next component.
    let mut candidates: Vec<Vec<u8>> = vec![Vec::new()];
    for (index, component) in pattern.split(|&byte| byte == b'/').enumerate() {
        if index > 0 {
            candidates.iter_mut().for_each(|path| path.push(b'/'));
        }
        if !is_mask(component) {
            let name = without_backslashes(component);
            candidates.iter_mut().for_each(|path| path.extend_from_slice(&name));
            continue;
        }
        candidates = candidates.iter().flat_map(|path| matching_names(path, component, tree)).collect();
    }
    candidates.retain(|path| tree.exists(path));
    candidates.sort_unstable();
    candidates
}

fn matching_names(directory: &[u8], component: &[u8], tree: &dyn Directory) -> Vec<Vec<u8>> {
    let listed: &[u8] = if directory.is_empty() { b"." } else { directory };
    let names = tree.names(listed).into_iter();
    names.filter(|name| matches(component, name)).map(|name| [directory, &name].concat()).collect()
}

fn without_backslashes(component: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(component.len());
    let mut bytes = component.iter();
    while let Some(&byte) = bytes.next() {
        name.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    name
}

/// Whether one component of a mask matches a name.
fn matches(mask: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && !mask.starts_with(b".") && !mask.starts_with(b"\\.") {
        return false;
    }
    // Where to go on when the text behind the last star does not match: the star takes one byte more. Only
    // the last star ever has to be tried again.
    let mut retry: Option<(usize, usize)> = None;
    let (mut at_mask, mut at_name) = (0, 0);
    loop {
        if mask.get(at_mask) == Some(&b'*') {
            at_mask += 1;
            retry = Some((at_mask, at_name));
            continue;
        }
        match (match_one(&mask[at_mask..], name.get(at_name)), retry) {
            (One::End, _) => return true,
            (One::Match(length), _) => {
                at_mask += length;
                at_name += 1;
            }
            (One::Mismatch, Some((star, taken))) if taken < name.len() => {
                retry = Some((star, taken + 1));
                (at_mask, at_name) = (star, taken + 1);
            }
            (One::Mismatch, _) => return false,
        }
    }
}

enum One {
    /// A match of so many bytes of the mask with one byte of the name.
    Match(usize),
    Mismatch,
    /// Mask and name have both ended.
    End,
}

fn match_one(mask: &[u8], byte: Option<&u8>) -> One {
    let Some(&byte) = byte else {
        return if mask.is_empty() { One::End } else { One::Mismatch };
    };
    let (matched, length) = match mask {
        [] => return One::Mismatch,
        [b'?', ..] => (true, 1),
        [b'\\', escaped, ..] => (*escaped == byte, 2),
        [b'[', set @ ..] => match match_set(set, byte) {
            Some((matched, length)) => (matched, length + 1),
            // A bracket that is not closed is an ordinary byte.
            None => (byte == b'[', 1),
        },
        [literal, ..] => (*literal == byte, 1),
    };
    if matched { One::Match(length) } else { One::Mismatch }
}

/// Whether the set behind `[` holds `byte`, and how long it is with its `]`.
fn match_set(set: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let mut at = first;
    let mut found = false;
    loop {
        if set.get(at)? == &b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if let Some((class, length)) = class_name(&set[at..]) {
            match in_class(class, byte) {
                Some(member) => found |= member,
                // A set with an unknown class matches nothing that stands behind the class.
                None if !found => return Some((false, at)),
                None => {}
            }
            at += length;
            continue;
        }
        let (low, behind) = set_byte(set, at)?;
        at = behind;
        let mut high = low;
        if set.get(at) == Some(&b'-') && set.get(at + 1).is_some_and(|&end| end != b']') {
            (high, at) = set_byte(set, at + 1)?;
        }
        found |= (low..=high).contains(&byte);
    }
}

/// A member of a set, and where the next one begins.
fn set_byte(set: &[u8], at: usize) -> Option<(u8, usize)> {
    match set.get(at)? {
        b'\\' => Some((*set.get(at + 1)?, at + 2)),
        &byte => Some((byte, at + 1)),
    }
}

/// The name in `[:name:]`, and its length with the brackets.
fn class_name(set: &[u8]) -> Option<(&[u8], usize)> {
    let name = set.strip_prefix(b"[:")?;
    let length = name.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    name[length..].starts_with(b":]").then(|| (&name[..length], length + 4))
}

/// Whether `byte` is in the class; `None` if there is no such class.
fn in_class(class: &[u8], byte: u8) -> Option<bool> {
    Some(match class {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components() {
        for (mask, yes, no) in [
            ("*.conf", "a.conf a.conf.conf", ".conf .a.conf a.conf~ conf"),
            ("a*b*c", "abc aXbYc abcbc aXbbbc", "ab acb abcd"),
            ("?", "a", "ab ."),
            ("[abc]x", "ax bx", "dx x"),
            ("[!a]x", "bx", "ax"),
            ("[^a]x", "bx", "ax"),
            ("[a-c]", "a b c", "d -"),
            ("[]a]", "] a", "b"),
            ("[a-]", "a -", "b"),
            ("[[:digit:]x]", "5 x", "a :"),
            ("[[:none:]b]", "", "a b"),
            ("[![:none:]b]", "", "a b"),
            ("[a", "[a", "a"),
            ("\\*", "*", "a"),
            ("[\\]]", "]", "\\"),
            (".*", ".a", "a"),
            ("*", "a", ".a"),
        ] {
            for name in yes.split_terminator(' ') {
                assert!(matches(mask.as_bytes(), name.as_bytes()), "{mask} matches {name}");
            }
            for name in no.split_terminator(' ') {
                assert!(!matches(mask.as_bytes(), name.as_bytes()), "{mask} does not match {name}");
            }
        }
    }

    #[test]
    fn many_stars_end_soon() {
        let name = vec![b'a'; 255];
        let mask: Vec<u8> = b"a*".repeat(60).into_iter().chain(*b"b").collect();
        assert!(!matches(&mask, &name));
    }
}
