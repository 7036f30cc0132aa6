//! Responses: the head, written into the caller's buffer in the order the caller chooses, the chunked
//! coding, and the rules that say how a body is framed and whether the connection stays. Pure functions;
//! any thread.
//!
//! Invariant: no byte of a value can end its line, whatever the value was made of.

use clearway_base::date::HTTP_DATE_LEN;
use clearway_message::{Method, Version, push_line_text};

/// Sent when a handler reads the body of a request that `expects_continue` (RFC 9110 §15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Behind the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk of a body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Whether `Transfer-Encoding: chunked` may be used (`chunked_transfer_encoding`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkedEncoding {
    /// Where the client understands it.
    On,
    /// Never: a body of unknown length ends with the connection.
    Off,
}

/// Room made at once for what most heads have, bytes.
const HEAD_BYTES: usize = 256;

/// How a response body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body, whatever the handler writes.
    NoBody {
        /// The `Content-Length` to send all the same: that of the body that GET would have got.
        content_length: Option<u64>,
    },
    /// A body of so many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All bytes up to the end of the connection.
    UntilClose,
}

impl Framing {
    /// The framing of a final response (RFC 9112 §6.3). `length` is that of the body in bytes, if known.
    pub fn choose(
        method: Method,
        version: Version,
        status: u16,
        length: Option<u64>,
        chunked: ChunkedEncoding,
    ) -> Framing {
        if matches!(status, 100..=199 | 204) {
            return Framing::NoBody { content_length: None };
        }
        if method == Method::Head || status == 304 {
            return Framing::NoBody { content_length: length };
        }
        match length {
            Some(bytes) => Framing::Length(bytes),
            None if version >= Version::HTTP_11 && chunked == ChunkedEncoding::On => Framing::Chunked,
            None => Framing::UntilClose,
        }
    }

    /// The value of `Content-Length`, if it is to be sent.
    #[inline]
    pub fn content_length(self) -> Option<u64> {
        match self {
            Framing::NoBody { content_length } => content_length,
            Framing::Length(bytes) => Some(bytes),
            Framing::Chunked | Framing::UntilClose => None,
        }
    }

    /// Whether the client can tell where the response ends, so that the connection may stay.
    pub fn is_delimited(self) -> bool {
        self != Framing::UntilClose
    }
}

/// Whether the connection is closed after an error response with this status (of nginx's list; 495 to 497
/// stand for their pages).
pub fn closes_connection(status: u16) -> bool {
    matches!(status, 400 | 413 | 414 | 495..=497 | 500 | 501)
}

/// The value of the `Connection` header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionHeader {
    /// `close`.
    Close,
    /// `keep-alive`, and a `Keep-Alive: timeout=` line where seconds are given.
    KeepAlive(Option<u64>),
    /// `upgrade`, with status 101.
    Upgrade,
}

/// Appends a response head to a buffer, line by line.
///
/// ```
/// use clearway_h1::{ConnectionHeader, HeadWriter};
///
/// let mut out = Vec::new();
/// HeadWriter::new(&mut out, 200, "OK")
///     .header(b"Server", b"clearway")
///     .content_length(2)
///     .connection(ConnectionHeader::KeepAlive(None))
///     .finish();
/// out.extend_from_slice(b"ok");
/// assert!(out.starts_with(b"HTTP/1.1 200 OK\r\nServer: clearway\r\nContent-Length: 2\r\n"));
/// ```
#[derive(Debug)]
pub struct HeadWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> HeadWriter<'a> {
    /// Writes the status line. A status without a phrase has a space behind it all the same.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, status: u16, reason: &str) -> HeadWriter<'a> {
        let mut start = *b"HTTP/1.1 000 ";
        start[9] = b'0' + (status / 100 % 10) as u8;
        start[10] = b'0' + (status / 10 % 10) as u8;
        start[11] = b'0' + (status % 10) as u8;
        out.reserve(HEAD_BYTES);
        out.extend_from_slice(&start);
        push_line_text(out, reason.as_bytes());
        out.extend_from_slice(b"\r\n");
        HeadWriter { out }
    }

    /// Writes a status line that was received, from the status on.
    pub fn received_status(out: &'a mut Vec<u8>, line: &[u8]) -> HeadWriter<'a> {
        out.reserve(HEAD_BYTES);
        out.extend_from_slice(b"HTTP/1.1 ");
        push_line_text(out, line);
        out.extend_from_slice(b"\r\n");
        HeadWriter { out }
    }

    /// Goes on behind a status line, and perhaps further lines, that were made before and are well formed.
    #[inline]
    pub fn with_lines(out: &'a mut Vec<u8>, lines: &[u8]) -> HeadWriter<'a> {
        out.reserve(HEAD_BYTES);
        HeadWriter { out }.lines(lines)
    }

    /// Writes a header line. CR, LF and NUL become spaces (RFC 9110 §5.5), so that nothing made of a
    /// request can split the response.
    pub fn header(self, name: &[u8], value: &[u8]) -> HeadWriter<'a> {
        push_header(self.out, name, value);
        self
    }

    /// Writes `Content-Type`, as `header` does.
    #[inline]
    pub fn content_type(self, value: &[u8]) -> HeadWriter<'a> {
        self.out.extend_from_slice(b"Content-Type: ");
        push_line_text(self.out, value);
        self.lines(b"\r\n")
    }

    /// Writes `ETag`, as `header` does.
    #[inline]
    pub fn etag(self, value: &[u8]) -> HeadWriter<'a> {
        self.out.extend_from_slice(b"ETag: ");
        push_line_text(self.out, value);
        self.lines(b"\r\n")
    }

    /// Writes `Last-Modified`: a date as HTTP writes it.
    #[inline]
    pub fn last_modified(self, date: &[u8; HTTP_DATE_LEN]) -> HeadWriter<'a> {
        debug_assert!(date.is_ascii() && !date.iter().any(u8::is_ascii_control));
        const NAME: &[u8] = b"Last-Modified: ";
        let mut line = [b'\n'; NAME.len() + HTTP_DATE_LEN + 2];
        line[..NAME.len()].copy_from_slice(NAME);
        line[NAME.len()..][..HTTP_DATE_LEN].copy_from_slice(date);
        line[NAME.len() + HTTP_DATE_LEN] = b'\r';
        self.lines(&line)
    }

    /// Writes header lines that are known to be well formed, each with its CRLF: such as the `Server` and
    /// `Date` lines that are made once for many responses.
    #[inline]
    pub fn lines(self, lines: &[u8]) -> HeadWriter<'a> {
        debug_assert!(lines.is_empty() || lines.ends_with(b"\r\n"));
        self.out.extend_from_slice(lines);
        self
    }

    /// Writes `Content-Length`.
    #[inline]
    pub fn content_length(self, bytes: u64) -> HeadWriter<'a> {
        self.out.extend_from_slice(b"Content-Length: ");
        push_decimal(self.out, bytes);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Writes `Transfer-Encoding: chunked`.
    #[inline]
    pub fn chunked(self) -> HeadWriter<'a> {
        self.lines(b"Transfer-Encoding: chunked\r\n")
    }

    /// Writes `Connection`, and `Keep-Alive` where wanted.
    #[inline]
    pub fn connection(self, connection: ConnectionHeader) -> HeadWriter<'a> {
        match connection {
            ConnectionHeader::Close => self.lines(b"Connection: close\r\n"),
            ConnectionHeader::KeepAlive(None) => self.lines(b"Connection: keep-alive\r\n"),
            ConnectionHeader::Upgrade => self.lines(b"Connection: upgrade\r\n"),
            ConnectionHeader::KeepAlive(Some(seconds)) => {
                self.out.extend_from_slice(b"Connection: keep-alive\r\nKeep-Alive: timeout=");
                push_decimal(self.out, seconds);
                self.out.extend_from_slice(b"\r\n");
                self
            }
        }
    }

    /// Writes the empty line.
    #[inline]
    pub fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The most that says how long a chunk is, bytes.
pub const CHUNK_SIZE_MAX_BYTES: usize = 18;

/// Writes what begins a chunk of `len` bytes to the end of `out`; the data and [`CHUNK_END`] follow. `len` is
/// not 0: an empty chunk would be the last one.
pub fn chunk_size(out: &mut [u8; CHUNK_SIZE_MAX_BYTES], len: u64) -> &[u8] {
    assert!(len > 0, "an empty chunk ends the body");
    *out = *b"0000000000000000\r\n";
    let digits = (u64::BITS - len.leading_zeros()).div_ceil(4) as usize;
    for place in 0..digits {
        out[15 - place] = b"0123456789abcdef"[(len >> (place * 4) & 0xf) as usize];
    }
    &out[16 - digits..]
}

/// Appends the same.
pub fn push_chunk_size(out: &mut Vec<u8>, len: u64) {
    out.extend_from_slice(chunk_size(&mut [0; CHUNK_SIZE_MAX_BYTES], len));
}

/// Ends a chunked body with these trailers.
pub fn push_last_chunk<'t>(out: &mut Vec<u8>, trailers: impl IntoIterator<Item = (&'t [u8], &'t [u8])>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        push_header(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn push_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    push_line_text(out, name);
    out.extend_from_slice(b": ");
    push_line_text(out, value);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn push_decimal(out: &mut Vec<u8>, number: u64) {
    if number < 100 {
        // Small bodies and timeouts, without a division of 64 bits.
        let number = number as u8;
        if number >= 10 {
            out.push(b'0' + number / 10);
        }
        out.push(b'0' + number % 10);
        return;
    }
    push_long_decimal(out, number);
}

fn push_long_decimal(out: &mut Vec<u8>, number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(method: Method, version: Version, status: u16, length: Option<u64>) -> Framing {
        Framing::choose(method, version, status, length, ChunkedEncoding::On)
    }

    #[test]
    fn framing_follows_method_status_and_version() {
        let (get, head) = (Method::Get, Method::Head);
        let (v10, v11) = (Version::HTTP_10, Version::HTTP_11);
        let none = Framing::NoBody { content_length: None };
        let shown = Framing::NoBody { content_length: Some(5) };
        assert_eq!(choose(get, v11, 200, Some(5)), Framing::Length(5));
        assert_eq!(choose(get, v11, 200, None), Framing::Chunked);
        assert_eq!(choose(get, v10, 200, None), Framing::UntilClose);
        assert_eq!(choose(head, v11, 200, Some(5)), shown);
        assert_eq!(choose(head, v10, 200, None), none);
        assert_eq!(choose(get, v11, 304, Some(5)), shown);
        assert_eq!(choose(get, v11, 204, Some(5)), none);
        assert_eq!(choose(get, v11, 101, None), none);
        let off = Framing::choose(get, v11, 200, None, ChunkedEncoding::Off);
        assert_eq!(off, Framing::UntilClose);
        assert!(!off.is_delimited());
        assert_eq!(shown.content_length(), Some(5));
    }

    #[test]
    fn lines_of_files_are_those_of_any_header() {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        for tag in [&b"\"2ebc9e81-400\""[..], b"", b"\"a\r\nX: y\0\""] {
            let (mut short, mut long) = (Vec::new(), Vec::new());
            HeadWriter::with_lines(&mut short, b"").last_modified(date).etag(tag).finish();
            let writer = HeadWriter::with_lines(&mut long, b"");
            writer.header(b"Last-Modified", date).header(b"ETag", tag).finish();
            assert_eq!(short, long);
        }
    }

    #[test]
    fn a_head_is_written_as_it_goes_out() {
        let mut out = b"before ".to_vec();
        HeadWriter::new(&mut out, 599, "")
            .lines(b"Server: s\r\n")
            .header(b"X-A", b"1")
            .chunked()
            .connection(ConnectionHeader::KeepAlive(Some(75)))
            .content_length(u64::MAX)
            .finish();
        let expected = "before HTTP/1.1 599 \r\nServer: s\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\
                        Connection: keep-alive\r\nKeep-Alive: timeout=75\r\n\
                        Content-Length: 18446744073709551615\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn values_cannot_split_the_response() {
        let mut out = Vec::new();
        HeadWriter::new(&mut out, 302, "x\r\ny").header(b"Lo\ncation", b"/a\r\nSet-Cookie: b\0").finish();
        assert_eq!(out, b"HTTP/1.1 302 x  y\r\nLo cation: /a  Set-Cookie: b \r\n\r\n");
        for len in 1..40 {
            for (at, byte) in (0..len).flat_map(|at| [(at, b'\r'), (at, b'\n'), (at, 0), (at, b'\t')]) {
                let mut value = vec![b'x'; len];
                value[at] = byte;
                let mut out = Vec::new();
                HeadWriter::with_lines(&mut out, b"").content_type(&value).finish();
                value[at] = if byte == b'\t' { b'\t' } else { b' ' };
                assert_eq!(out, [b"Content-Type: ", &value[..], b"\r\n\r\n"].concat());
            }
        }
    }

    #[test]
    fn chunks_are_written_in_lower_case_hex() {
        for (len, text) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0xabc_def0, "abcdef0\r\n")] {
            let mut out = Vec::new();
            push_chunk_size(&mut out, len);
            assert_eq!(out, text.as_bytes());
        }
        let mut out = Vec::new();
        push_chunk_size(&mut out, u64::MAX);
        assert_eq!(out, b"ffffffffffffffff\r\n");
        let mut out = Vec::new();
        push_last_chunk(&mut out, []);
        assert_eq!(out, LAST_CHUNK);
        let mut out = Vec::new();
        push_last_chunk(&mut out, [(&b"X"[..], &b"1\r\n"[..])]);
        assert_eq!(out, b"0\r\nX: 1  \r\n\r\n");
    }
}
