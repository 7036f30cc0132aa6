//! Writes header blocks that refer to nothing but the static table.

use clearway_message::put_decimal;

use super::huffman;
use super::integer;
use super::static_table::number_of;

/// The first byte of the first block of a connection: the other side need not keep a table.
pub const NO_TABLE: u8 = 0x20;

/// Statuses that the static table has, with their numbers.
const STATUSES: [(u16, u8); 7] = [(200, 8), (204, 9), (206, 10), (304, 11), (400, 12), (404, 13), (500, 14)];

/// Names up to this length are made lower case without an allocation, bytes.
const SHORT_NAME_BYTES: usize = 64;

/// The number of `:status`.
const STATUS: usize = 8;

/// Writes `:status`: three digits.
pub fn push_status(out: &mut Vec<u8>, status: u16) {
    match STATUSES.iter().find(|(known, _)| *known == status) {
        Some((_, number)) => out.push(0x80 | number),
        None => {
            integer::push(out, 0, 4, STATUS);
            let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
            push_string(out, &digits);
        }
    }
}

/// Writes a field that the static table has whole, with this number: 1 to 61.
pub fn push_static(out: &mut Vec<u8>, number: u8) {
    debug_assert!((1..=61).contains(&number), "the static table has 61 fields");
    out.push(0x80 | number);
}

/// Writes a field. Its name is written in lower case.
pub fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if !name.iter().any(u8::is_ascii_uppercase) {
        return push_lower_field(out, name, value);
    }
    let mut lower = [0; SHORT_NAME_BYTES];
    match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            push_lower_field(out, lower, value);
        }
        None => push_lower_field(out, &name.to_ascii_lowercase(), value),
    }
}

fn push_lower_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match number_of(name) {
        Some(number) => integer::push(out, 0, 4, number),
        None => {
            out.push(0);
            push_string(out, name);
        }
    }
    push_string(out, value);
}

/// Names of the static table that most responses have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
#[repr(u8)]
pub enum CommonName {
    AcceptRanges = 18,
    ContentLength = 28,
    ContentType = 31,
    Date = 33,
    ETag = 34,
    LastModified = 44,
    Server = 54,
}

/// Writes a field with one of these names and a short value, as it stands: what the code would save is
/// little, and of dates it would have to be made again each second.
pub fn push_common(out: &mut Vec<u8>, name: CommonName, value: &[u8]) {
    integer::push(out, 0, 4, name as usize);
    integer::push(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

/// As [`push_common`], for a value that is a number.
pub fn push_common_number(out: &mut Vec<u8>, name: CommonName, number: u64) {
    integer::push(out, 0, 4, name as usize);
    let length_at = out.len();
    out.push(0);
    put_decimal(out, number);
    // It has 20 digits at most.
    out[length_at] = (out.len() - length_at - 1) as u8;
    debug_assert!(out[length_at] <= 20, "a number of 64 bits has 20 digits at most");
}

/// A string, by the way that is shorter.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    let encoded = huffman::encoded_len(text);
    if encoded < text.len() {
        integer::push(out, 0x80, 7, encoded);
        let before = out.len();
        huffman::encode(text, out);
        assert_eq!(out.len() - before, encoded, "the length that was written is that of the text");
    } else {
        integer::push(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_short_as_they_can_be_without_a_table() {
        let mut out = vec![NO_TABLE];
        push_status(&mut out, 200);
        push_status(&mut out, 302);
        push_field(&mut out, b"Server", b"x");
        push_field(&mut out, b"x-a", b"\xff");
        let expected = [
            &[0x20, 0x88, 0x08, 0x82, 0x64, 0x02, 0x0f, 0x27, 0x01, b'x', 0x00][..],
            &[0x03, b'x', b'-', b'a', 0x01, 0xff],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn common_names_have_their_numbers() {
        for (name, text) in [
            (CommonName::AcceptRanges, "accept-ranges"),
            (CommonName::ContentLength, "content-length"),
            (CommonName::ContentType, "content-type"),
            (CommonName::Date, "date"),
            (CommonName::ETag, "etag"),
            (CommonName::LastModified, "last-modified"),
            (CommonName::Server, "server"),
        ] {
            assert_eq!(number_of(text.as_bytes()), Some(name as usize));
        }
        let mut out = Vec::new();
        push_common(&mut out, CommonName::ContentLength, b"10");
        assert_eq!(out, [0x0f, 0x0d, 2, b'1', b'0']);
        for number in [0, 10, u64::MAX] {
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            push_common_number(&mut out, CommonName::ContentLength, number);
            push_common(&mut expected, CommonName::ContentLength, number.to_string().as_bytes());
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn long_names_are_written_in_lower_case() {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        push_field(&mut out, &[b'A'; SHORT_NAME_BYTES + 1], b"x");
        push_field(&mut expected, &[b'a'; SHORT_NAME_BYTES + 1], b"x");
        assert_eq!(out, expected);
    }
}
