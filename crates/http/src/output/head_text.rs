//! How the head of a response is written, in HTTP/1 and for a stream: nginx's headers in nginx's order. Runs
//! once for each response, in the task of the request.

use std::borrow::Cow;

use clearway_base::date::{self, HTTP_DATE_LEN};
use clearway_h1::{ConnectionHeader, Framing, HeadWriter};
use clearway_h2::hpack::{CommonName, push_common, push_common_number, push_field};
use clearway_message::{
    HeaderName, Headers, Known, Piece, Ranges, ResponseHead, Varies, push_line_text, status,
};

use super::passed::Places;
use crate::link::stream::StreamHead;
use crate::request::Request;
use crate::response::with_charset;
use clearway_site::Signature;

/// Room made at once for what the heads of most streams have, bytes.
const BLOCK_BYTES: usize = 192;

const LAST_MODIFIED: HeaderName<'_> = HeaderName::new(b"Last-Modified");

/// Writes status line and headers. HTTP/0.9 has none: its caller writes nothing.
#[inline]
pub(super) fn write_head(
    out: &mut Vec<u8>,
    (head, places): (&ResponseHead<'_>, Places<'_>),
    request: &Request<'_>,
    framing: Framing,
    connection: ConnectionHeader,
) {
    let signature = request.snapshot.product.signature(*request.location().core.server_tokens);
    let writer = if head.status == 200 && places.are_usual() {
        HeadWriter::with_lines(out, signature.ok_lines())
    } else {
        begin_head(out, (head.status, places), signature)
    };
    write_lines(writer, (head, places), request, framing, connection).finish();
}

/// Writes what stands behind the line that says whose answer it is.
#[inline]
fn write_lines<L: HeadLines>(
    mut writer: L,
    (head, places): (&ResponseHead<'_>, Places<'_>),
    request: &Request<'_>,
    framing: Framing,
    connection: ConnectionHeader,
) -> L {
    if !places.has(Known::Date) {
        writer = writer.date(&request.parts.date.at(request.now_unix_s()));
    }
    if let Some(content_type) = places.content_type {
        writer = writer.content_type(content_type);
    } else if let Some(content_type) = &head.content_type {
        writer = match &head.charset {
            None => writer.content_type(content_type),
            Some(charset) => writer.content_type(&with_charset(content_type, charset)),
        };
    }
    if let Some(bytes) = framing.content_length() {
        writer = writer.content_length(bytes);
    }
    if let Some(last_modified) = head.last_modified.filter(|_| !head.headers.has(LAST_MODIFIED)) {
        writer = writer.last_modified(&date::http_date(last_modified));
    }
    let url = head.location.as_deref().and_then(|location| request.absolute_url(location));
    if let Some(url) = &url {
        writer = writer.header(b"Location", url);
    }
    if framing == Framing::Chunked {
        writer = writer.chunked();
    }
    writer = writer.connection(connection);
    if head.varies == Varies::ByEncoding {
        writer = writer.lines(b"Vary: Accept-Encoding\r\n");
    }
    if let Some(location) = head.location.as_deref().filter(|_| url.is_none()) {
        writer = writer.header(b"Location", location);
    }
    if let Some(etag) = head.etag.as_ref().filter(|_| !places.has(Known::ETag)) {
        writer = writer.etag(etag);
    }
    if let Some(encoding) = head.content_encoding.as_ref().filter(|_| !places.has(Known::ContentEncoding)) {
        writer = writer.header(b"Content-Encoding", encoding);
    }
    for piece in head.headers.pieces() {
        writer = match piece {
            Piece::Lines(lines) => writer.lines(lines),
            Piece::Line(name, value) => writer.header(name, value),
        };
    }
    if head.ranges == Ranges::Announced {
        writer = writer.accept_ranges();
    }
    writer
}

/// Writes the status line, as it was received where it is passed, and says whose answer it is.
fn begin_head<'o>(
    out: &'o mut Vec<u8>,
    (code, places): (u16, Places<'_>),
    signature: &Signature,
) -> HeadWriter<'o> {
    let writer = match places.status_line {
        Some(line) => HeadWriter::received_status(out, line),
        None => {
            let line = status::status_line(code);
            HeadWriter::new(out, code, line.and_then(|line| line.get(4..)).unwrap_or_default())
        }
    };
    if places.has(Known::Server) { writer } else { writer.lines(signature.server_line()) }
}

/// The same head for a stream: its lines, without what only concerns a connection of HTTP/1.
pub(super) fn encode_head(
    (head, places): (&ResponseHead<'_>, Places<'_>),
    request: &Request<'_>,
    framing: Framing,
) -> StreamHead {
    let mut writer = BlockWriter(Vec::with_capacity(BLOCK_BYTES));
    if !places.has(Known::Server) {
        let signature = request.snapshot.product.signature(*request.location().core.server_tokens);
        writer = writer.server(signature.server_line());
    }
    let BlockWriter(block) = write_lines(writer, (head, places), request, framing, ConnectionHeader::Close);
    StreamHead { status: head.status, block, is_last: matches!(framing, Framing::NoBody { .. }) }
}

/// The head of an interim response for a stream.
pub(super) fn encode_interim(status: u16, lines: &Headers) -> StreamHead {
    let writer = BlockWriter(Vec::new());
    let BlockWriter(block) = lines.iter().fold(writer, |writer, line| writer.header(line.name, line.value));
    StreamHead { status, block, is_last: false }
}

/// A writer of lines, in one of the ways in which heads are written.
trait HeadLines: Sized {
    /// CR, LF and NUL become spaces.
    fn header(self, name: &[u8], value: &[u8]) -> Self;
    /// Lines that are well formed, each with its CRLF.
    fn lines(self, lines: &[u8]) -> Self;
    /// The line with the date, with its CRLF.
    fn date(self, line: &[u8]) -> Self;
    fn content_type(self, value: &[u8]) -> Self;
    fn content_length(self, bytes: u64) -> Self;
    fn last_modified(self, date: &[u8; HTTP_DATE_LEN]) -> Self;
    fn etag(self, value: &[u8]) -> Self;
    fn accept_ranges(self) -> Self;
    fn chunked(self) -> Self;
    fn connection(self, connection: ConnectionHeader) -> Self;
}

impl HeadLines for HeadWriter<'_> {
    fn header(self, name: &[u8], value: &[u8]) -> Self {
        self.header(name, value)
    }

    #[inline]
    fn lines(self, lines: &[u8]) -> Self {
        self.lines(lines)
    }

    #[inline]
    fn date(self, line: &[u8]) -> Self {
        self.lines(line)
    }

    #[inline]
    fn content_type(self, value: &[u8]) -> Self {
        self.content_type(value)
    }

    #[inline]
    fn content_length(self, bytes: u64) -> Self {
        self.content_length(bytes)
    }

    #[inline]
    fn last_modified(self, date: &[u8; HTTP_DATE_LEN]) -> Self {
        self.last_modified(date)
    }

    #[inline]
    fn etag(self, value: &[u8]) -> Self {
        self.etag(value)
    }

    #[inline]
    fn accept_ranges(self) -> Self {
        self.lines(b"Accept-Ranges: bytes\r\n")
    }

    #[inline]
    fn chunked(self) -> Self {
        self.chunked()
    }

    #[inline]
    fn connection(self, connection: ConnectionHeader) -> Self {
        self.connection(connection)
    }
}

/// Writes fields as HPACK has them, which refer to no table.
struct BlockWriter(Vec<u8>);

/// Headers of HTTP/1 that streams have no use for.
const OF_CONNECTION: [&[u8]; 4] = [b"Connection", b"Keep-Alive", b"Transfer-Encoding", b"Upgrade"];

impl BlockWriter {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if OF_CONNECTION.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            return;
        }
        push_field(&mut self.0, name, &clean(value));
    }

    fn common(mut self, name: CommonName, value: &[u8]) -> Self {
        push_common(&mut self.0, name, &clean(value));
        self
    }

    /// The line that says whose answer it is, with its CRLF.
    fn server(self, line: &[u8]) -> Self {
        match line.strip_prefix(b"Server:") {
            Some(value) => self.common(CommonName::Server, value),
            None => self.lines(line),
        }
    }
}

/// A value as it may stand in a field.
#[inline]
fn clean(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0')) {
        let mut clean = Vec::new();
        push_line_text(&mut clean, value);
        return Cow::Owned(clean.trim_ascii().to_vec());
    }
    Cow::Borrowed(value)
}

impl HeadLines for BlockWriter {
    fn header(mut self, name: &[u8], value: &[u8]) -> Self {
        self.field(name, value);
        self
    }

    fn lines(mut self, lines: &[u8]) -> Self {
        for line in lines.split(|&byte| byte == b'\n') {
            if let Some(colon) = line.iter().position(|&byte| byte == b':') {
                self.field(&line[..colon], &line[colon + 1..]);
            }
        }
        self
    }

    #[inline]
    fn date(mut self, line: &[u8]) -> Self {
        push_common(&mut self.0, CommonName::Date, line[b"Date:".len()..].trim_ascii());
        self
    }

    fn content_type(self, value: &[u8]) -> Self {
        self.common(CommonName::ContentType, value)
    }

    #[inline]
    fn content_length(mut self, bytes: u64) -> Self {
        push_common_number(&mut self.0, CommonName::ContentLength, bytes);
        self
    }

    #[inline]
    fn last_modified(mut self, date: &[u8; HTTP_DATE_LEN]) -> Self {
        push_common(&mut self.0, CommonName::LastModified, date);
        self
    }

    fn etag(self, value: &[u8]) -> Self {
        self.common(CommonName::ETag, value)
    }

    fn accept_ranges(self) -> Self {
        self.common(CommonName::AcceptRanges, b"bytes")
    }

    fn chunked(self) -> Self {
        self
    }

    fn connection(self, _: ConnectionHeader) -> Self {
        self
    }
}
