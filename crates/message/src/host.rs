//! Validation of a host (RFC 3986 §3.2.2, RFC 9110 §7.2) as it stands in `Host` or in an absolute target:
//! what nginx takes for one, without port and trailing dot. Pure functions; any thread.

use std::fmt;

use smallvec::SmallVec;

use crate::header::Span;

/// A valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name or address (brackets included) without port and without one trailing dot, never empty.
    pub name: Span,
    /// The port, 0 if there is none.
    pub port: u16,
    /// Whether the name has no upper case letter, so that no copy has to be made to compare it.
    pub is_lowercase: bool,
}

/// The latest valid host, which those of the requests that follow mostly equal. Outlives requests.
#[derive(Clone, Default)]
pub struct LatestHost {
    text: SmallVec<[u8; KEPT_INLINE_BYTES]>,
    /// As if `text` were all that was received.
    host: Option<Host>,
}

/// Hosts are kept in place up to this length, bytes.
const KEPT_INLINE_BYTES: usize = 32;
/// Longer ones are not kept, bytes.
const KEPT_MAX_BYTES: usize = 256;

/// Shows no contents: the value does not describe a request.
impl fmt::Debug for LatestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LatestHost")
    }
}

impl LatestHost {
    /// Does what [`validate_host`] does.
    #[inline]
    pub fn validate(&mut self, text: &[u8], start: usize) -> Option<Host> {
        let host = match self.host {
            Some(host) if *self.text == *text => host,
            _ => self.validate_other(text)?,
        };
        Some(Host { name: Span::new(start, start + host.name.len()), ..host })
    }

    #[cold]
    fn validate_other(&mut self, text: &[u8]) -> Option<Host> {
        let host = validate_host(text, 0)?;
        if text.len() <= KEPT_MAX_BYTES {
            self.text.clear();
            self.text.extend_from_slice(text);
            self.host = Some(host);
        }
        Some(host)
    }
}

/// Validates `text`, which begins at offset `start` of the received bytes.
pub fn validate_host(text: &[u8], start: usize) -> Option<Host> {
    let (name_len, uppercase) = match text.first() {
        Some(b'[') => literal(text)?,
        _ => name(text)?,
    };
    let port = match text.get(name_len) {
        None => 0,
        Some(b':') => port(&text[name_len + 1..])?,
        Some(_) => return None,
    };
    let len = match text[..name_len].last() {
        Some(b'.') => name_len - 1,
        _ => name_len,
    };
    if len == 0 {
        return None;
    }
    Some(Host { name: Span::new(start, start + len), port, is_lowercase: !uppercase })
}

/// Length of the name up to a colon or the end, and whether it has upper case letters.
fn name(text: &[u8]) -> Option<(usize, bool)> {
    scan(text, |byte| byte == b'%', |byte| byte == b':')
}

/// Length of an address in brackets, and whether it has upper case letters; the colons inside belong to it.
fn literal(text: &[u8]) -> Option<(usize, bool)> {
    let (len, uppercase) = scan(&text[1..], |byte| byte == b':', |byte| byte == b']')?;
    // The length without the closing bracket: both brackets count.
    (text.get(len + 1) == Some(&b']')).then_some((len + 2, uppercase))
}

fn scan(text: &[u8], also: impl Fn(u8) -> bool, ends: impl Fn(u8) -> bool) -> Option<(usize, bool)> {
    let mut uppercase = false;
    let mut previous = 0;
    for (at, &byte) in text.iter().enumerate() {
        if ends(byte) {
            return Some((at, uppercase));
        }
        match HOST[usize::from(byte)] {
            PLAIN => {}
            UPPER => uppercase = true,
            DOT if previous != b'.' => {}
            _ if also(byte) => {}
            _ => return None,
        }
        previous = byte;
    }
    Some((text.len(), uppercase))
}

/// Decimal digits (none is port 0) up to 65535.
fn port(digits: &[u8]) -> Option<u16> {
    let mut port = 0;
    for digit in digits {
        port = port * 10 + u32::from(digit.wrapping_sub(b'0'));
        if !digit.is_ascii_digit() || port > u32::from(u16::MAX) {
            return None;
        }
    }
    Some(port as u16)
}

const BAD: u8 = 0;
const PLAIN: u8 = 1;
const UPPER: u8 = 2;
const DOT: u8 = 3;

static HOST: [u8; 256] = host_table();

/// Unreserved characters and sub-delims of RFC 3986; `%` and `:` depend on the place.
const fn host_table() -> [u8; 256] {
    let mut table = [BAD; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => PLAIN,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => PLAIN,
            b'A'..=b'Z' => UPPER,
            b'.' => DOT,
            _ => BAD,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(&str, u16)> {
        validate_host(text.as_bytes(), 0).map(|host| (&text[..host.name.end()], host.port))
    }

    #[test]
    fn valid_hosts_lose_port_and_trailing_dot() {
        let cases = [
            ("a", ("a", 0)),
            ("example.com.", ("example.com", 0)),
            ("example.com.:80", ("example.com", 80)),
            ("a:", ("a", 0)),
            ("a:0000065535", ("a", 65535)),
            ("[::1]", ("[::1]", 0)),
            ("[::1]:8080", ("[::1]", 8080)),
            ("[]", ("[]", 0)),
            ("a_b~c%20", ("a_b~c%20", 0)),
            (".a", (".a", 0)),
        ];
        for (text, expected) in cases {
            assert_eq!(parts(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        let cases = [
            "",
            ".",
            ":80",
            ".:80",
            "..",
            "a..b",
            "a..",
            "a/b",
            "a b",
            "a\tb",
            "a@b",
            "a?b",
            "a#b",
            "a\"b",
            "a:65536",
            "a:655350",
            "a:99999999999",
            "a:8x",
            "a:80:90",
            "[::1",
            "[::1]x",
            "[::1]]",
            "[a/b]",
            "[%31]",
            "a[",
            "[..]",
            "é",
        ];
        for text in cases {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    #[test]
    fn the_latest_host_is_that_of_the_text() {
        let mut latest = LatestHost::default();
        let long = format!("{}:80", "a".repeat(300));
        for text in ["", "a.:80", "a.:80", "a.:81", "b", "..", "b", "Bb", &long, "Bb", "bb", &long, "[::1]:8"]
        {
            assert_eq!(latest.validate(text.as_bytes(), 7), validate_host(text.as_bytes(), 7), "{text}");
        }
    }

    #[test]
    fn upper_case_is_reported() {
        assert!(!validate_host(b"Example.com", 0).unwrap().is_lowercase);
        assert!(validate_host(b"example.com", 7).unwrap().is_lowercase);
        assert_eq!(validate_host(b"example.com", 7).unwrap().name, Span::new(7, 18));
    }
}
