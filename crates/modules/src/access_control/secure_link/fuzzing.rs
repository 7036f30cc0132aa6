//! Invariants for any links, checked by the fuzz target `header_values`.

use md5::{Digest, Md5};

use super::{HASH_MAX_CHARS, Link, MD5_BYTES, link_of};

const SECRET: &[u8] = b"secret";

/// # Panics
/// If a link is taken that has no hash or the wrong one, or one with the right hash is not.
pub fn check(input: &[u8]) {
    if let Some(link) = Link::parse(input) {
        let expires = link.expires.map(|(text, seconds)| {
            assert!(seconds > 0 && text.iter().all(u8::is_ascii_digit));
            let number = String::from_utf8_lossy(text).trim_start_matches('0').to_owned();
            assert_eq!(number, seconds.to_string());
            [b",", text].concat()
        });
        assert_eq!([link.hash, &expires.unwrap_or_default()].concat(), input);
        let hash = link.hash();
        assert!(hash.is_none_or(|hash| hash.len() == MD5_BYTES && link.hash.len() <= HASH_MAX_CHARS));
    }
    check_older_form(input);
}

fn check_older_form(input: &[u8]) {
    if let Some(link) = link_of(input, SECRET) {
        assert!(!link.is_empty() && input.ends_with(&[b"/", link].concat()));
    }
    let digest = Md5::new().chain_update(input).chain_update(SECRET).finalize();
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let target = |hash: &str| [b"/p/", hash.as_bytes(), b"/", input].concat();
    assert_eq!(link_of(&target(&hash), SECRET), Some(input).filter(|link| !link.is_empty()));
    assert_eq!(link_of(&target(&hash), b"another"), None);
    let digit = if hash.ends_with('0') { "1" } else { "0" };
    assert_eq!(link_of(&target(&[&hash[..31], digit].concat()), SECRET), None);
}
