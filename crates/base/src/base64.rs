//! Base64 (RFC 4648) as nginx reads and writes it. Pure functions.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The alphabet: the two forms of base64 differ in the last two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// `+` and `/`.
    Standard,
    /// `-` and `_`, which mean nothing in a URL.
    Url,
}

/// The bytes that the text stands for, if it is base64. Padding may be missing, and text behind it is
/// ignored.
#[must_use]
pub fn decode(text: &[u8], alphabet: Alphabet) -> Option<Vec<u8>> {
    let digits = text.split(|&byte| byte == b'=').next().unwrap_or_default();
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &byte in group {
            let digit = match (byte, alphabet) {
                (b'A'..=b'Z', _) => byte - b'A',
                (b'a'..=b'z', _) => byte - b'a' + 26,
                (b'0'..=b'9', _) => byte - b'0' + 52,
                (b'+', Alphabet::Standard) | (b'-', Alphabet::Url) => 62,
                (b'/', Alphabet::Standard) | (b'_', Alphabet::Url) => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        // A digit alone makes no byte.
        let count = group.len().checked_sub(1).filter(|&count| count > 0)?;
        out.extend_from_slice(&bytes[1..=count]);
    }
    Some(out)
}

/// The bytes in the standard alphabet, with padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(word);
        let digit = |place: usize| DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
        out.extend((0..4).map(|place| if place <= group.len() { digit(place) } else { b'=' }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_padding() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9vYmE", Some(b"fooba")),
            ("Zm9v=garbage", Some(b"foo")),
            ("Zm9vY", None),
            ("Zm9 ", None),
            ("+/+/", Some(b"\xfb\xff\xbf")),
            ("-_-_", None),
        ] {
            assert_eq!(decode(text.as_bytes(), Alphabet::Standard).as_deref(), bytes, "{text}");
        }
        assert_eq!(decode(b"-_-_", Alphabet::Url).as_deref(), Some(&b"\xfb\xff\xbf"[..]));
        assert_eq!(decode(b"+/+/", Alphabet::Url), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(encode(b"f"), b"Zg==");
        assert_eq!(encode(b"fo"), b"Zm8=");
        assert_eq!(encode(b"foo"), b"Zm9v");
        for length in 0..40_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(89)).collect();
            assert_eq!(decode(&encode(&bytes), Alphabet::Standard), Some(bytes));
        }
    }
}
