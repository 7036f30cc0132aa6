//! How the head of a response is written in HTTP/1: nginx's headers in nginx's order. Runs once for each
//! response, in the task of the request.

use clearway_base::date;
use clearway_h1::{ConnectionHeader, Framing, HeadWriter};
use clearway_message::{HeaderName, Headers, Known, Piece, Ranges, ResponseHead, Varies, status};

use super::passed::Places;
use crate::link::stream::StreamHead;
use crate::request::Request;
use crate::response::with_charset;
use clearway_site::Signature;

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
    let mut writer = if head.status == 200 && places.are_usual() {
        HeadWriter::with_lines(out, signature.ok_lines())
    } else {
        begin_head(out, (head.status, places), signature)
    };
    if !places.has(Known::Date) {
        writer = writer.lines(&request.parts.date.at(request.now_unix_s()));
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
        writer = writer.lines(b"Accept-Ranges: bytes\r\n");
    }
    writer.finish();
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
#[cold]
pub(super) fn list_head(
    (head, places): (&ResponseHead<'_>, Places<'_>),
    request: &Request<'_>,
    framing: Framing,
) -> StreamHead {
    let mut text = Vec::new();
    write_head(&mut text, (head, places), request, framing, ConnectionHeader::Close);
    let mut lines = Headers::default();
    // The first one is the status line, the last one is empty.
    for line in text.split(|&byte| byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii_start());
        if ![&b"Connection"[..], b"Keep-Alive", b"Transfer-Encoding"].contains(&name) {
            lines.add(name, value);
        }
    }
    StreamHead { status: head.status, lines, is_last: matches!(framing, Framing::NoBody { .. }) }
}
