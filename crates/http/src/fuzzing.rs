//! Invariants for any arguments, cookies and credentials, checked by the fuzz target `header_values`.

use clearway_base::base64::{self, Alphabet};

use crate::variables::core_variables::{Credentials, find_arg, find_cookie};

/// The first line is a name, the rest arguments, and cookies.
///
/// # Panics
/// If something else is found than by looking at each argument, and each cookie, by itself.
pub fn check_lookup(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (name, text) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    if name.is_empty() || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return;
    }
    let is_start = |&at: &usize| at == 0 || text[at - 1] == b'&';
    let found = (0..text.len()).filter(is_start).find_map(|at| {
        let value = strip_name(&text[at..], name)?.strip_prefix(b"=")?;
        value.split(|&byte| byte == b'&').next()
    });
    assert_eq!(find_arg(text, name), found);
    assert_eq!(find_cookie(text, name), cookie(text, name));
}

/// A name that stands alone takes the cookie behind it along.
fn cookie<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut items = text.split(|&byte| byte == b';').enumerate();
    while let Some((at, item)) = items.next() {
        let item = if at == 0 { item } else { skip_spaces(item) };
        match strip_name(item, name).map(skip_spaces) {
            Some([b'=', value @ ..]) => return Some(skip_spaces(value)),
            Some([]) => drop(items.next()),
            _ => {}
        }
    }
    None
}

fn strip_name<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, behind) = text.split_at_checked(name.len())?;
    found.eq_ignore_ascii_case(name).then_some(behind)
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&byte| byte == b' ').count()..]
}

/// An `Authorization`.
///
/// # Panics
/// If credentials are not what was encoded, or what was encoded is not found.
pub fn check_credentials(value: &[u8]) {
    if let Some(Credentials { user, password }) = Credentials::parse(value) {
        assert!(!user.is_empty() && !user.contains(&b':'));
        let written = base64::encode(&[&user[..], b":", &password].concat());
        let digits = |text: &[u8]| text.iter().filter(|&&byte| byte != b'=').count();
        let encoded = skip_spaces(&value[6..]);
        let encoded = encoded.split(|&byte| byte == b'=').next().unwrap_or_default();
        let count = digits(&written);
        // The last digit may have bits that mean nothing.
        assert_eq!((encoded.len(), &encoded[..count - 1]), (count, &written[..count - 1]));
    }
    for alphabet in [Alphabet::Standard, Alphabet::Url] {
        let encoded = base64::encode(value).into_iter().map(|byte| match (byte, alphabet) {
            (b'+', Alphabet::Url) => b'-',
            (b'/', Alphabet::Url) => b'_',
            _ => byte,
        });
        assert_eq!(base64::decode(&encoded.collect::<Vec<u8>>(), alphabet).as_deref(), Some(value));
    }
    let found = Credentials::parse(&[b"basic ", &base64::encode(value)[..]].concat());
    let parts = value.iter().position(|&byte| byte == b':').filter(|&colon| colon > 0);
    let parts = parts.map(|colon| (value[..colon].to_vec(), value[colon + 1..].to_vec()));
    assert_eq!(found.map(|found| (found.user, found.password)), parts);
}
