//! Byte classes and scanners of the head parser. Tables are built at compile time; targets are looked up four
//! bytes at a time, names and values of header lines are searched eight and more bytes at a time in words.
//! Pure functions of the bytes: any thread.

/// Class of a byte inside a request target. The order matters: see [`skip_args`].
pub(crate) mod target {
    pub(crate) const PLAIN: u8 = 0;
    pub(crate) const SLASH: u8 = 1;
    pub(crate) const DOT: u8 = 2;
    pub(crate) const PERCENT: u8 = 3;
    pub(crate) const QUESTION: u8 = 4;
    pub(crate) const HASH: u8 = 5;
    pub(crate) const SPACE: u8 = 6;
    pub(crate) const CR: u8 = 7;
    pub(crate) const LF: u8 = 8;
    pub(crate) const BAD: u8 = 9;
}

/// Class of a byte inside the name of a header line.
pub(crate) mod name {
    /// Letters, digits and `-`.
    pub(crate) const VALID: u8 = 0;
    pub(crate) const UNDERSCORE: u8 = 1;
    pub(crate) const COLON: u8 = 2;
    pub(crate) const CR: u8 = 3;
    pub(crate) const LF: u8 = 4;
    /// Makes the name invalid; the line can still be skipped.
    pub(crate) const INVALID: u8 = 5;
    /// Control bytes, space and DEL: the request is refused.
    pub(crate) const FATAL: u8 = 6;
}

pub(crate) static TARGET: [u8; 256] = target_table();
pub(crate) static NAME: [u8; 256] = name_table();

const fn target_table() -> [u8; 256] {
    let mut table = [target::PLAIN; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = target::BAD;
        byte += 1;
    }
    table[0x7f] = target::BAD;
    table[b'/' as usize] = target::SLASH;
    table[b'.' as usize] = target::DOT;
    table[b'%' as usize] = target::PERCENT;
    table[b'?' as usize] = target::QUESTION;
    table[b'#' as usize] = target::HASH;
    table[b' ' as usize] = target::SPACE;
    table[b'\r' as usize] = target::CR;
    table[b'\n' as usize] = target::LF;
    table
}

const fn name_table() -> [u8; 256] {
    let mut table = [name::INVALID; 256];
    let mut byte = 0;
    while byte <= 0x20 {
        table[byte] = name::FATAL;
        byte += 1;
    }
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = name::VALID;
        }
        byte += 1;
    }
    table[0x7f] = name::FATAL;
    table[b'-' as usize] = name::VALID;
    table[b'_' as usize] = name::UNDERSCORE;
    table[b':' as usize] = name::COLON;
    table[b'\r' as usize] = name::CR;
    table[b'\n' as usize] = name::LF;
    table
}

/// How long the path is whose first slash is before `text`, up to a byte that cannot be in a plain one, and
/// whether it is plain so far: no segment is empty or begins with a dot. `None` where it does not end.
#[inline]
pub(crate) fn path_len(text: &[u8]) -> Option<(usize, bool)> {
    let (mut previous, mut is_plain) = (b'/', true);
    for (len, &byte) in text.iter().enumerate() {
        let class = TARGET[usize::from(byte)];
        if class != target::PLAIN {
            if class > target::DOT {
                return Some((len, is_plain));
            }
            is_plain &= previous != b'/';
        }
        previous = byte;
    }
    None
}

/// Index of the first byte at or after `pos` that is not plain in a path, or the length of `buf`.
#[inline]
pub(crate) fn skip_plain(buf: &[u8], pos: usize) -> usize {
    skip_target(buf, pos, target::PLAIN)
}

/// Index of the first byte at or after `pos` that ends a query string (`#`, space, CR, LF or a bad byte).
#[inline]
pub(crate) fn skip_args(buf: &[u8], pos: usize) -> usize {
    skip_target(buf, pos, target::QUESTION)
}

/// Index of the first byte at or after `pos` that ends the target itself (space, CR, LF or a bad byte).
#[inline]
pub(crate) fn skip_fragment(buf: &[u8], pos: usize) -> usize {
    skip_target(buf, pos, target::HASH)
}

/// Index of the first byte at or after `pos` whose class is beyond `last`, four at a time while they last.
#[inline]
fn skip_target(buf: &[u8], pos: usize, last: u8) -> usize {
    let is_skipped = |byte: u8| TARGET[usize::from(byte)] <= last;
    let mut at = pos;
    while let Some(&[a, b, c, d]) = buf.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        if !(is_skipped(a) && is_skipped(b) && is_skipped(c) && is_skipped(d)) {
            break;
        }
        at += 4;
    }
    skip_while(buf, at, is_skipped)
}

/// How many bytes a text begins with that are letters, digits or `-`.
#[inline]
pub(crate) fn name_len(text: &[u8]) -> usize {
    let (blocks, rest) = text.as_chunks();
    let mut at = 0;
    for block in blocks {
        let len = name_len_in(block);
        at += len;
        if len < block.len() {
            return at;
        }
    }
    at + rest.iter().take_while(|&&byte| NAME[usize::from(byte)] == name::VALID).count()
}

const HIGH_BITS: u64 = repeat(0x80);

const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// How many bytes a block begins with that are letters, digits or `-`. Without its highest bit, a byte does
/// not overflow into the next one: what is added takes those from a limit on to the highest bit.
#[inline]
fn name_len_in(block: &[u8; 8]) -> usize {
    let word = u64::from_le_bytes(*block);
    let low = word & !HIGH_BITS;
    let folded = low | repeat(0x20);
    let letters = (folded + repeat(0x80 - b'a')) & !(folded + repeat(0x7f - b'z'));
    let digits = (low + repeat(0x80 - b'0')) & !(low + repeat(0x7f - b'9'));
    let others = (low ^ repeat(b'-')) + repeat(0x7f);
    let invalid = (!(letters | digits) & others | word) & HIGH_BITS;
    invalid.trailing_zeros() as usize / 8
}

/// How many bytes a text begins with that are not CR, LF or NUL.
#[inline]
pub(crate) fn value_len(text: &[u8]) -> usize {
    let mut at = 0;
    for blocks in text.as_chunks::<32>().0 {
        // As one question about all of them, which takes a few instructions.
        if blocks.iter().fold(false, |found, &byte| found | (byte < b' ')) {
            break;
        }
        at += blocks.len();
    }
    while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let offset = first_control(block);
        at += offset;
        match block.get(offset) {
            None => {}
            Some(&byte) if ends_value(byte) => return at,
            // A tab or another control byte that values may have.
            Some(_) => at += 1,
        }
    }
    skip_while(text, at, |byte| !ends_value(byte))
}

/// Index of the first byte below space, or 8.
#[inline]
fn first_control(block: &[u8; 8]) -> usize {
    controls(block).trailing_zeros() as usize / 8
}

/// The highest bit of each byte below space, up to the first one at least. Subtracting 0x20 from each byte
/// sets it in those that are below (and have not got it already); a borrow can spoil only the bytes behind.
#[inline]
fn controls(block: &[u8; 8]) -> u64 {
    let word = u64::from_le_bytes(*block);
    word.wrapping_sub(repeat(0x20)) & !word & HIGH_BITS
}

#[inline]
fn ends_value(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

#[inline]
pub(crate) fn skip_while(buf: &[u8], pos: usize, keep: impl Fn(u8) -> bool) -> usize {
    match buf[pos..].iter().position(|&byte| !keep(byte)) {
        Some(offset) => pos + offset,
        None => buf.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_ends_at_the_first_terminator_whatever_its_place_in_a_block() {
        for len in 0..70 {
            for end in [b'\r', b'\n', 0] {
                let mut line = vec![b'\t'; len];
                line.push(end);
                line.extend_from_slice(b"rest\r\n");
                assert_eq!(value_len(&line), len);
            }
            assert_eq!(value_len(&vec![b'x'; len]), len);
        }
    }

    #[test]
    fn bytes_that_a_value_may_have_do_not_end_it() {
        for byte in (0..=255).filter(|&byte| !ends_value(byte)) {
            for at in 0..20 {
                let mut line = vec![b'x'; 24];
                line[at] = byte;
                line[at + 1] = byte;
                line.push(b'\n');
                assert_eq!(value_len(&line), 24, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn name_ends_at_the_first_other_byte_whatever_its_place_in_a_block() {
        for byte in 0..=255 {
            for at in 0..20 {
                let mut line = b"aZ-09zA5bY-18xB4cX27".to_vec();
                line[at] = byte;
                let end = if byte.is_ascii_alphanumeric() || byte == b'-' { line.len() } else { at };
                assert_eq!(name_len(&line), end, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn high_bytes_are_plain_in_a_target_and_invalid_in_a_name() {
        assert_eq!(TARGET[0x80], target::PLAIN);
        assert_eq!(TARGET[0x7f], target::BAD);
        assert_eq!(TARGET[b'\t' as usize], target::BAD);
        assert_eq!(NAME[0xff], name::INVALID);
        assert_eq!(NAME[b' ' as usize], name::FATAL);
        assert_eq!(NAME[b'\t' as usize], name::FATAL);
    }
}
