//! Invariants for any text, checked by the fuzz target `charset`.

use super::tables::{Decoded, decode};

/// Takes a text apart.
///
/// # Panics
/// If a character is another one than by the rules of UTF-8, or text is lost.
pub fn check(text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        // ASCII never comes to it.
        if rest[0] < 0x80 {
            rest = &rest[1..];
            continue;
        }
        let len = match decode(rest) {
            Decoded::Incomplete => {
                assert!(rest.len() < 4);
                return;
            }
            Decoded::Invalid(len) => len,
            Decoded::Character(number, len) => {
                if let Ok(valid) = std::str::from_utf8(&rest[..len]) {
                    assert_eq!(valid.chars().map(u32::from).collect::<Vec<_>>(), [number]);
                }
                len
            }
        };
        assert!((1..=rest.len()).contains(&len));
        rest = &rest[len..];
    }
}
