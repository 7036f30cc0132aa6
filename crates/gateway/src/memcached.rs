//! memcached's text protocol, of which one command is used: `get`. The answer is a line, the value and
//! `END`, or `END` alone.

use std::fmt;
use std::ops::Range;

use clearway_base::log::Verbatim;
use clearway_base::units::parse_number;

/// The bytes behind a value.
const TRAILER: &[u8] = b"\r\nEND\r\n";

/// The answer for a key that does not exist.
const NOT_FOUND: &[u8] = b"END\r";

/// Writes the request for a key (`$memcached_key`), in which what memcached cannot take is written as `%XX`;
/// returns where the key stands in `out`.
pub fn push_get(key: &[u8], out: &mut Vec<u8>) -> Range<usize> {
    out.extend_from_slice(b"get ");
    let start = out.len();
    push_key(key, out);
    let end = out.len();
    out.extend_from_slice(b"\r\n");
    start..end
}

/// Writes a key, in which what memcached cannot take is written as `%XX`.
pub fn push_key(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        if byte <= b' ' || byte == b'%' {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
}

/// The meaning of the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A value of so many bytes.
    Found {
        /// Its length.
        bytes: u64,
        /// Flags that the client stored with it, where they are asked for (`memcached_gzip_flag`).
        flags: u64,
    },
    /// There is no such key.
    NotFound,
}

/// The first line, and how many bytes of the input it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its meaning.
    pub answer: Answer,
    /// Its length with the line end, bytes. Of a key that is not there it is the whole answer.
    pub len: usize,
}

/// Whether the flags of a value are looked at: those of nginx's users are not numbers always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// They are.
    Wanted,
    /// They are not.
    Ignored,
}

/// A fault of an answer. Its text is nginx's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The value of another key.
    Key {
        /// The line that came.
        line: Vec<u8>,
        /// The key that was asked for.
        key: Vec<u8>,
    },
    /// Flags that are no number.
    Flags {
        /// The line that came.
        line: Vec<u8>,
        /// The key that was asked for.
        key: Vec<u8>,
    },
    /// A length that is no number.
    Length {
        /// The line that came.
        line: Vec<u8>,
        /// The key that was asked for.
        key: Vec<u8>,
    },
    /// No answer to `get`.
    Response {
        /// The line that came.
        line: Vec<u8>,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, line, key) = match self {
            Self::Key { line, key } => ("key in ", line, Some(key)),
            Self::Flags { line, key } => ("flags in ", line, Some(key)),
            Self::Length { line, key } => ("length in ", line, Some(key)),
            Self::Response { line } => ("", line, None),
        };
        match key {
            Some(key) => {
                let (line, key) = (Verbatim(line), Verbatim(key));
                write!(f, "memcached sent invalid {what}response \"{line}\" for key \"{key}\"")
            }
            None => write!(f, "memcached sent invalid response: \"{}\"", Verbatim(line)),
        }
    }
}

impl std::error::Error for Fault {}

/// Reads the first line of the answer for a key as it was sent; `None`: more bytes are needed.
///
/// # Errors
/// See [`Fault`].
pub fn read_head(input: &[u8], key: &[u8], flags: Flags) -> Result<Option<Head>, Fault> {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let line = &input[..end];
    let len = end + 1;
    if line == NOT_FOUND {
        return Ok(Some(Head { answer: Answer::NotFound, len }));
    }
    // nginx shows a line without CR whole, and others without theirs.
    let Some(text) = line.strip_suffix(b"\r") else { return Err(Fault::Response { line: line.to_vec() }) };
    let Some(value) = text.strip_prefix(b"VALUE ") else {
        return Err(Fault::Response { line: text.to_vec() });
    };
    let (line, owned_key) = (|| text.to_vec(), || key.to_vec());
    let Some(rest) = value.strip_prefix(key) else {
        return Err(Fault::Key { line: line(), key: owned_key() });
    };
    let parts = rest.strip_prefix(b" ").and_then(|rest| {
        let at = rest.iter().position(|&byte| byte == b' ')?;
        Some((&rest[..at], &rest[at + 1..]))
    });
    let Some((said_flags, length)) = parts else { return Err(Fault::Response { line: line() }) };
    let flags = match flags {
        Flags::Ignored => 0,
        Flags::Wanted => {
            parse_digits(said_flags).ok_or_else(|| Fault::Flags { line: line(), key: owned_key() })?
        }
    };
    let bytes = parse_digits(length).ok_or_else(|| Fault::Length { line: line(), key: owned_key() })?;
    Ok(Some(Head { answer: Answer::Found { bytes, flags }, len }))
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    parse_number(text).filter(|&number| i64::try_from(number).is_ok())
}

/// The meaning of the next bytes behind the first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many of the input were looked at.
    pub consumed: usize,
    /// The bytes that belong to the value.
    pub data: Range<usize>,
}

/// Something else than `END` stands behind a value: `memcached sent invalid trailer`. What came before it
/// holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTrailer;

impl fmt::Display for InvalidTrailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memcached sent invalid trailer")
    }
}

impl std::error::Error for InvalidTrailer {}

/// Reads a value and what stands behind it.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    left: u64,
    trailer_at: usize,
}

impl Value {
    /// A value of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { left: bytes, trailer_at: 0 }
    }

    /// Bytes of the value that have not come.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether the answer is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.trailer_at == TRAILER.len()
    }

    /// The next bytes. Those behind the end are not consumed.
    ///
    /// # Errors
    /// The bytes of the value in this input come first: it fails when it is called for those behind them.
    pub fn next(&mut self, input: &[u8]) -> Result<Step, InvalidTrailer> {
        if self.left > 0 {
            let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
            self.left -= take as u64;
            return Ok(Step { consumed: take, data: 0..take });
        }
        let rest = &TRAILER[self.trailer_at..];
        let take = rest.len().min(input.len());
        if input[..take] != rest[..take] {
            return Err(InvalidTrailer);
        }
        self.trailer_at += take;
        Ok(Step { consumed: take, data: 0..0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_so_that_they_stay_one_word() {
        let mut out = Vec::new();
        let range = push_get(b"/a b%20\r\nset\x7f\xff", &mut out);
        assert_eq!(out, b"get /a%20b%2520%0D%0Aset\x7f\xff\r\n");
        assert_eq!(&out[range], b"/a%20b%2520%0D%0Aset\x7f\xff");
    }

    fn head(input: &str, flags: Flags) -> Result<Option<Head>, String> {
        read_head(input.as_bytes(), b"/key", flags).map_err(|fault| fault.to_string())
    }

    #[test]
    fn answers_are_read() {
        let found = |bytes, flags, len| Ok(Some(Head { answer: Answer::Found { bytes, flags }, len }));
        assert_eq!(head("VALUE /key 0 12\r", Flags::Ignored), Ok(None));
        assert_eq!(head("VALUE /key 0 12\r\nrest", Flags::Ignored), found(12, 0, 17));
        assert_eq!(head("VALUE /key 3 0\r\n", Flags::Wanted), found(0, 3, 16));
        assert_eq!(head("VALUE /key x 5\r\n", Flags::Ignored), found(5, 0, 16));
        assert_eq!(head("END\r\n", Flags::Wanted), Ok(Some(Head { answer: Answer::NotFound, len: 5 })));
    }

    #[test]
    fn what_is_wrong_is_named_as_nginx_names_it() {
        let fault = |input: &str| head(input, Flags::Wanted).expect_err("it is refused");
        let of_key = |what: &str, line: &str| {
            format!("memcached sent invalid {what} in response \"{line}\" for key \"/key\"")
        };
        assert_eq!(fault("VALUE /other 0 1\r\n"), of_key("key", "VALUE /other 0 1"));
        assert_eq!(fault("VALUE /key x 1\r\n"), of_key("flags", "VALUE /key x 1"));
        for length in ["x", "", "-1", "5 6", "99999999999999999999"] {
            let line = format!("VALUE /key 0 {length}");
            assert_eq!(fault(&format!("{line}\r\n")), of_key("length", &line));
        }
        for line in ["ERROR", "", "VALUE /key", "VALUE /key2 0 1", "VALUE /key 0", "END "] {
            let said = format!("memcached sent invalid response: \"{line}\"");
            assert_eq!(fault(&format!("{line}\r\n")), said);
        }
        assert_eq!(fault("END\n"), "memcached sent invalid response: \"END\"");
    }

    #[test]
    fn a_value_ends_with_its_trailer_however_it_is_split() {
        let input = b"0123456789\r\nEND\r\nmore";
        for size in 1..=input.len() {
            let (mut value, mut data) = (Value::new(10), Vec::new());
            let mut at = 0;
            while !value.is_done() {
                let piece = &input[at..input.len().min(at + size)];
                let step = value.next(piece).expect("a valid trailer");
                data.extend_from_slice(&piece[step.data]);
                at += step.consumed;
            }
            assert_eq!((&data[..], &input[at..]), (&b"0123456789"[..], &b"more"[..]));
            assert_eq!(value.next(b"more"), Ok(Step { consumed: 0, data: 0..0 }));
        }
        let mut value = Value::new(2);
        assert_eq!(value.next(b"ab\r\nENT\r\n"), Ok(Step { consumed: 2, data: 0..2 }));
        assert_eq!(value.next(b"\r\nENT\r\n"), Err(InvalidTrailer));
        assert_eq!(value.left(), 0);
    }
}
