//! The seal of a file shows that it was written completely, and not cut short by a power failure or a full
//! disk. It is a header line at the end of the stored head, `X-Pad: cw1 …`, with the body's length and
//! checksums. nginx reads files with a seal and hides the line from clients of `proxy_pass`. It writes files
//! without one, which are trusted as nginx trusts them.
//!
//! The line covers the key and the head in front of it, not the fixed header: nginx writes that anew when a
//! response is validated.

use std::ops::Range;

use crate::header::HEADER_BYTES;

/// The beginning of the line.
const BEGIN: &[u8] = b"X-Pad: cw1 ";

/// Its length with the line end, bytes: two checksums, a length and two spaces.
pub const LINE_BYTES: usize = BEGIN.len() + 8 + 1 + 8 + 1 + 16 + 2;

/// The checksums of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// CRC-32 of the key and the head in front of the line.
    pub head_crc: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
    /// Length of the body, bytes.
    pub body_bytes: u64,
}

/// Whether a file is complete, by its beginning and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soundness {
    /// Head and length are as they were written; the body can be compared with this.
    Sealed(Seal),
    /// The file has no seal, because nginx has written it.
    Unsealed,
    /// The contents have changed since the file was written: it is to be removed.
    Broken,
}

/// Leaves room for the seal at the end of a head as it came from the server, before the empty line that
/// ends it.
pub fn reserve(head: &mut Vec<u8>) {
    let before = head.len();
    let empty_line = if head.ends_with(b"\r\n") { 2 } else { 1 };
    let end: Vec<u8> = head.split_off(head.len().saturating_sub(empty_line));
    head.extend_from_slice(BEGIN);
    head.resize(head.len() + LINE_BYTES - BEGIN.len() - 2, b' ');
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(&end);
    assert_eq!(head.len(), before + LINE_BYTES, "the seal has exactly its room");
}

/// The seal for a file whose body is complete: what to write, and where in the file. `beginning` is
/// everything up to the body; `None` where no room was left in it.
#[must_use]
pub fn close(beginning: &[u8], body_crc: u32, body_bytes: u64) -> Option<(Vec<u8>, usize)> {
    let line = line_of(beginning)?;
    let head_crc = crc32fast::hash(&beginning[HEADER_BYTES..line.start]);
    let text = format!("{head_crc:08x} {body_crc:08x} {body_bytes:016x}");
    assert_eq!(text.len(), LINE_BYTES - BEGIN.len() - 2, "the seal fits into its line");
    Some((text.into_bytes(), line.start + BEGIN.len()))
}

/// Looks at everything up to the body of a file, and how long its body is, bytes.
#[must_use]
pub fn check(beginning: &[u8], body_bytes: u64) -> Soundness {
    let Some(line) = line_of(beginning) else { return Soundness::Unsealed };
    let Some(seal) = parse(&beginning[line.start + BEGIN.len()..line.end - 2]) else {
        return Soundness::Broken;
    };
    let head_crc = crc32fast::hash(&beginning[HEADER_BYTES..line.start]);
    let is_sound = seal.head_crc == head_crc && seal.body_bytes == body_bytes;
    if is_sound { Soundness::Sealed(seal) } else { Soundness::Broken }
}

/// The response's head as it came: from this place of a file's beginning on, without the line.
#[must_use]
pub fn without(beginning: &[u8], head_start: usize) -> Vec<u8> {
    let line = line_of(beginning).filter(|line| line.start >= head_start);
    let (before, behind) = line.map_or((beginning.len(), beginning.len()), |line| (line.start, line.end));
    [&beginning[head_start..before], &beginning[behind..]].concat()
}

/// The last line of the head, if it is a seal.
fn line_of(beginning: &[u8]) -> Option<Range<usize>> {
    let empty_line = if beginning.ends_with(b"\r\n") { 2 } else { 1 };
    let end = beginning.len().checked_sub(empty_line)?;
    let start = end.checked_sub(LINE_BYTES).filter(|&start| start >= HEADER_BYTES)?;
    let line = &beginning[start..end];
    let is_line = line.starts_with(BEGIN) && line.ends_with(b"\r\n") && beginning[start - 1] == b'\n';
    is_line.then_some(start..end)
}

fn parse(text: &[u8]) -> Option<Seal> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let mut word = |digits: usize| words.next().filter(|word| word.len() == digits);
    let (head, body, length) = (word(8)?, word(8)?, word(16)?);
    Some(Seal {
        head_crc: u32::from_str_radix(head, 16).ok()?,
        body_crc: u32::from_str_radix(body, 16).ok()?,
        body_bytes: u64::from_str_radix(length, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"hello, cache\n";

    /// A file with a seal, up to its body.
    fn sealed(head: &[u8]) -> Vec<u8> {
        let mut head = head.to_vec();
        reserve(&mut head);
        let mut beginning = vec![5; HEADER_BYTES];
        beginning.extend_from_slice(b"\nKEY: /\n");
        beginning.extend_from_slice(&head);
        assert_eq!(check(&beginning, 0), Soundness::Broken, "its body was never complete");
        let (text, at) = close(&beginning, crc32fast::hash(BODY), BODY.len() as u64).expect("there is room");
        beginning[at..at + text.len()].copy_from_slice(&text);
        beginning
    }

    #[test]
    fn a_head_stays_one() {
        let room = " ".repeat(34);
        for (head, end) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n", "\r\n"),
            ("HTTP/1.1 200 OK\nA: b\n", "\n"),
            ("Status: 200\r\n", "\r\n"),
        ] {
            let mut with_room = format!("{head}{end}").into_bytes();
            reserve(&mut with_room);
            assert_eq!(with_room, format!("{head}X-Pad: cw1 {room}\r\n{end}").into_bytes());
        }
    }

    #[test]
    fn a_head_is_taken_out_as_it_came() {
        let start = HEADER_BYTES + b"\nKEY: /\n".len();
        for head in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n"] {
            assert_eq!(without(&sealed(head.as_bytes()), start), head.as_bytes());
        }
        let mut unsealed = vec![5; start];
        unsealed.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(without(&unsealed, start), b"HTTP/1.1 200 OK\r\n\r\n");
    }

    #[test]
    fn a_sealed_file_is_known_again() {
        for head in ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n"] {
            let file = sealed(head.as_bytes());
            let seal = Seal { body_bytes: 13, body_crc: crc32fast::hash(BODY), ..of(&file) };
            assert_eq!(check(&file, 13), Soundness::Sealed(seal));
        }
    }

    fn of(file: &[u8]) -> Seal {
        match check(file, 13) {
            Soundness::Sealed(seal) => seal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_cut_or_changed_is_broken() {
        let file = sealed(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
        for body_bytes in [0, 12, 14, u64::MAX] {
            assert_eq!(check(&file, body_bytes), Soundness::Broken, "{body_bytes}");
        }
        for at in HEADER_BYTES..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert_ne!(check(&changed, 13), check(&file, 13), "byte {at}");
        }
        let mut validated = file.clone();
        validated[8] = 77;
        assert_eq!(check(&validated, 13), check(&file, 13), "nginx has written the header anew");
    }

    #[test]
    fn files_of_nginx_have_no_seal() {
        for head in
            ["HTTP/1.1 200 OK\r\n\r\n", "\r\n", "", "HTTP/1.1 200 OK\r\nX-Pad: avoid browser bug\r\n\r\n"]
        {
            let mut beginning = vec![5; HEADER_BYTES];
            beginning.extend_from_slice(head.as_bytes());
            assert_eq!(check(&beginning, 13), Soundness::Unsealed);
            assert_eq!(close(&beginning, 0, 13), None);
        }
        assert_eq!(check(b"short", 0), Soundness::Unsealed);
    }
}
