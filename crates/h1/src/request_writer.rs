//! Requests to upstream servers: the head, written into the caller's buffer in the order the caller chooses.
//! Bodies are framed by the functions that frame those of responses. Pure functions; any thread.
//!
//! Invariant: one head comes of it, whatever names, values, method and target were made of. A byte that could
//! end a line or part a request line does not reach the wire.

use clearway_message::Version;

use crate::encode::HeadWriter;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Begins a request: the head's lines follow, by the same writer as those of a response.
///
/// In the method a space or control byte is sent as `_`; in the target as `%XX`, so that a name that was
/// decoded and put into `proxy_pass` by a variable stays in its place.
///
/// ```
/// use clearway_h1::begin_request;
/// use clearway_message::Version;
///
/// let mut out = Vec::new();
/// begin_request(&mut out, b"GET", b"/a b", Version::HTTP_11).header(b"Host", b"h").finish();
/// assert_eq!(out, b"GET /a%20b HTTP/1.1\r\nHost: h\r\n\r\n");
/// ```
pub fn begin_request<'a>(
    out: &'a mut Vec<u8>,
    method: &[u8],
    target: &[u8],
    version: Version,
) -> HeadWriter<'a> {
    out.reserve(method.len() + target.len() + b"  HTTP/1.1\r\n".len());
    if method.iter().copied().any(parts_line) {
        out.extend(method.iter().map(|&byte| if parts_line(byte) { b'_' } else { byte }));
    } else {
        out.extend_from_slice(method);
    }
    out.push(b' ');
    push_target(out, target);
    let version: &[u8] = if version >= Version::HTTP_11 { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" };
    HeadWriter::with_lines(out, version)
}

fn push_target(out: &mut Vec<u8>, target: &[u8]) {
    let mut rest = target;
    while let Some(at) = rest.iter().position(|&byte| parts_line(byte)) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn parts_line(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}
