//! The common part of the protocols.

use std::fmt;

/// The parameters of a request are longer than the protocol can say, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// How the log calls the request.
    pub(crate) what: &'static str,
    /// Their length.
    pub bytes: usize,
}

impl fmt::Display for TooBig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is too big: {}", self.what, self.bytes)
    }
}

impl std::error::Error for TooBig {}

/// The parameter that a header line of the client becomes: `Accept-Language` is `HTTP_ACCEPT_LANGUAGE`
/// (RFC 3875 §4.1.18).
pub fn push_header_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP_");
    out.extend(name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_become_parameters() {
        let mut out = Vec::new();
        push_header_name(b"X-Forwarded_for2", &mut out);
        assert_eq!(out, b"HTTP_X_FORWARDED_FOR2");
    }
}
