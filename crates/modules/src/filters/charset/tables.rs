//! `charset_map`: how the characters of one charset are written in another. Filled at load.

use clearway_conf::error::message;
use clearway_conf::{Body, Directive, Error};
use smallvec::SmallVec;

/// Longest character in UTF-8 that a map may have, bytes: those of the basic plane.
const UTF8_MAX_BYTES: usize = 3;

/// A map between two charsets, both ways. What it does not mention below 128 is the same in both; for
/// what is above there is a question mark.
pub(super) enum Table {
    Bytes(Box<ByteTable>),
    Utf8(Box<Utf8Table>),
}

/// Between charsets of one byte per character.
pub(super) struct ByteTable {
    pub(super) there: [u8; 256],
    pub(super) back: [u8; 256],
}

/// Between one of them and UTF-8.
pub(super) struct Utf8Table {
    pub(super) there: [SmallVec<[u8; UTF8_MAX_BYTES]>; 256],
    /// The bytes by the upper and the lower half of a code point; 0: no byte.
    back: [Option<Box<[u8; 256]>>; 256],
}

impl Utf8Table {
    /// Says how a character of the basic plane is written in the other charset.
    pub(super) fn add(&mut self, byte: u8, number: u32) {
        let half = self.back[number as usize >> 8].get_or_insert_with(|| Box::new([0; 256]));
        half[number as usize & 0xff] = byte;
    }

    /// The character of the other charset, if it has it.
    pub(super) fn byte(&self, number: u32) -> Option<u8> {
        let upper = usize::try_from(number >> 8).ok()?;
        let byte = self.back.get(upper)?.as_ref()?[number as usize & 0xff];
        (byte != 0).then_some(byte)
    }
}

impl Table {
    pub(super) fn bytes() -> Self {
        let same = std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { b'?' });
        Self::Bytes(Box::new(ByteTable { there: same, back: same }))
    }

    pub(super) fn utf8() -> Self {
        let there =
            std::array::from_fn(|byte| SmallVec::from_slice(&[if byte < 128 { byte as u8 } else { b'?' }]));
        let mut back = [const { None }; 256];
        back[0] = Some(Box::new(std::array::from_fn(|byte| if byte < 128 { byte as u8 } else { 0 })));
        Self::Utf8(Box::new(Utf8Table { there, back }))
    }

    /// Adds a line: two characters in hexadecimal digits.
    pub(super) fn read(&mut self, line: &Directive) -> Result<(), Error> {
        // No `include` is known in here.
        if line.args.len() != 1 {
            return Err(line.error("invalid parameters number"));
        }
        let target = &line.args[0];
        let invalid = |text: &[u8]| line.error(message(&[&"invalid value \"", &text, &"\""]));
        let is_line = matches!(line.body, Body::Semicolon);
        let from = parse_byte(&line.name).filter(|_| is_line).ok_or_else(|| invalid(&line.name))?;
        match self {
            Self::Bytes(table) => {
                let to = parse_byte(target).ok_or_else(|| invalid(target))?;
                table.there[usize::from(from)] = to;
                table.back[usize::from(to)] = from;
            }
            Self::Utf8(table) => {
                let to = parse_bytes(target).ok_or_else(|| invalid(target))?;
                let Decoded::Character(number @ ..=0xffff, _) = decode(&to) else {
                    return Err(invalid(target));
                };
                table.there[usize::from(from)] = to;
                table.add(from, number);
            }
        }
        Ok(())
    }
}

fn parse_byte(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(text, 16).ok()
}

fn parse_bytes(digits: &[u8]) -> Option<SmallVec<[u8; UTF8_MAX_BYTES]>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.is_empty() || pairs.len() > UTF8_MAX_BYTES || !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|pair| parse_byte(pair)).collect()
}

/// The first character of a text in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A character, by its number, and its length in bytes.
    Character(u32, usize),
    /// So many bytes that are none.
    Invalid(usize),
    /// A character that goes on behind the end.
    Incomplete,
}

/// Decodes the first character of a text that is not empty, in nginx's way: it takes the bytes of a
/// character that is none up to the first one that cannot belong to it, and with that.
pub(super) fn decode(text: &[u8]) -> Decoded {
    let (bits, len, least) = match text[0] {
        first @ 0xc2..=0xdf => (first & 0x1f, 2, 0x80),
        first @ 0xe0..=0xef => (first & 0x0f, 3, 0x800),
        first @ 0xf0..=0xf7 => (first & 0x07, 4, 0x1_0000),
        _ => return Decoded::Invalid(1),
    };
    let Some(rest) = text.get(1..len) else { return Decoded::Incomplete };
    let mut number = u32::from(bits);
    for (at, &byte) in rest.iter().enumerate() {
        if byte < 0x80 {
            return Decoded::Invalid(at + 2);
        }
        number = number << 6 | u32::from(byte & 0x3f);
    }
    if (least..=0x10_ffff).contains(&number) {
        Decoded::Character(number, len)
    } else {
        Decoded::Invalid(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_decoded_as_in_nginx() {
        for (text, decoded) in [
            (&b"\xc3\xa9x"[..], Decoded::Character(0xe9, 2)),
            (b"\xd0\x96", Decoded::Character(0x416, 2)),
            (b"\xe2\x82\xac", Decoded::Character(0x20ac, 3)),
            (b"\xf0\x9f\x98\x80", Decoded::Character(0x1_f600, 4)),
            (b"\xf4\x90\x80\x80", Decoded::Invalid(4)),
            (b"\xe0\x80\x80", Decoded::Invalid(3)),
            (b"\xe2\x41\x42", Decoded::Invalid(2)),
            (b"\xe2\x82", Decoded::Incomplete),
            (b"\xc0\x80", Decoded::Invalid(1)),
            (b"\x80", Decoded::Invalid(1)),
            (b"\xff", Decoded::Invalid(1)),
            (b"A", Decoded::Invalid(1)),
        ] {
            assert_eq!(decode(text), decoded, "{text:x?}");
        }
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(
            (parse_byte(b"e9"), parse_byte(b"E9"), parse_byte(b"0E9")),
            (Some(0xe9), Some(0xe9), Some(0xe9))
        );
        assert_eq!(
            (parse_byte(b"100"), parse_byte(b""), parse_byte(b"+1"), parse_byte(b"g")),
            (None, None, None, None)
        );
        assert_eq!(parse_bytes(b"d096").as_deref(), Some(&[0xd0, 0x96][..]));
        assert_eq!((parse_bytes(b""), parse_bytes(b"d09"), parse_bytes(b"01020304")), (None, None, None));
    }
}
