//! The head of a response, and how it is written in HTTP/1: nginx's headers in nginx's order. Owned
//! by the task of the request; filled by handlers and header filters, written once.

pub(crate) mod chunk;
pub(crate) mod file_bytes;
pub(crate) mod file_part;
pub(crate) mod file_sender;
pub(crate) mod parts;
pub mod status;

use std::borrow::Cow;

use clearway_base::date;
use clearway_h1::{ConnectionHeader, Framing, HeadWriter};
use smallvec::SmallVec;

use crate::request::Request;
use crate::snapshot::RedirectUrl;

/// A text of a response's head; what the configuration owns is borrowed from it.
pub type Text<'c> = Cow<'c, [u8]>;

/// Whether parts of a response may be asked for (`Range`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// No: its body is made, or changed on its way.
    #[default]
    Refused,
    /// Yes, the body is pushed as it is, in one chunk.
    Allowed,
    /// Yes, but one part only: the body is pushed in several chunks.
    OnePart,
    /// Yes, and the client is told so (`Accept-Ranges`).
    Announced,
}

/// What a response depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Varies {
    /// Nothing that caches have to be told.
    #[default]
    No,
    /// `Accept-Encoding`.
    ByEncoding,
}

/// The head of a response until it is sent.
#[derive(Default)]
pub struct ResponseHead<'c> {
    /// Status code; 0 until a handler has chosen one.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<Text<'c>>,
    /// The charset that is sent behind it.
    pub charset: Option<Text<'c>>,
    /// `Content-Length` in bytes; `None` when it is not known ahead.
    pub content_length: Option<u64>,
    /// `Last-Modified`, seconds since the epoch.
    pub last_modified: Option<i64>,
    /// `Location`. One that begins with `/` is made absolute when it is written.
    pub location: Option<Text<'c>>,
    /// `ETag` with its quotes.
    pub etag: Option<Text<'c>>,
    /// Whether it may be sent in parts.
    pub ranges: Ranges,
    /// `Content-Encoding`: how whoever made the body, or a filter, has encoded it.
    pub content_encoding: Option<Text<'c>>,
    /// Whether another `Accept-Encoding` may get another response, which `Vary` tells caches.
    pub varies: Varies,
    /// What else is sent, in this order, behind `Connection`. A `Last-Modified` in here is sent in place of
    /// the date above.
    pub headers: Vec<(Text<'c>, Text<'c>)>,
}

impl ResponseHead<'_> {
    /// Whether the list of other headers has one of this name.
    fn has(&self, name: &[u8]) -> bool {
        self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Has its tag say that the body is not the same bytes any more, but means the same. One that is not
    /// written as tags are is dropped.
    pub fn weaken_etag(&mut self) {
        self.etag = match self.etag.take() {
            Some(etag) if etag.starts_with(b"W/") && etag.len() > 2 => Some(etag),
            Some(etag) if etag.starts_with(b"\"") => Some([b"W/", &etag[..]].concat().into()),
            _ => None,
        };
    }

    /// Forgets what describes a body that is not sent after all, such as that of a file when an error
    /// page takes its place.
    pub fn clear_entity(&mut self) {
        self.content_type = None;
        self.charset = None;
        self.content_length = None;
        self.last_modified = None;
        self.etag = None;
        self.content_encoding = None;
        self.ranges = Ranges::Refused;
    }
}

/// Writes status line and headers. HTTP/0.9 has none: its caller writes nothing.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    request: &Request<'_>,
    framing: Framing,
    connection: ConnectionHeader,
) {
    let signature = request.snapshot.product.signature(*request.location().core.server_tokens);
    let mut writer = if head.status == 200 {
        HeadWriter::with_lines(out, signature.ok_lines())
    } else {
        let line = status::status_line(head.status);
        let reason = line.and_then(|line| line.get(4..)).unwrap_or_default();
        HeadWriter::new(out, head.status, reason).lines(signature.server_line())
    };
    writer = writer.lines(&request.parts.date.at(request.now_unix_s()));
    if let Some(content_type) = &head.content_type {
        writer = match &head.charset {
            None => writer.content_type(content_type),
            Some(charset) => writer.content_type(&with_charset(content_type, charset)),
        };
    }
    if let Some(bytes) = framing.content_length() {
        writer = writer.content_length(bytes);
    }
    if let Some(last_modified) = head.last_modified.filter(|_| !head.has(b"Last-Modified")) {
        writer = writer.last_modified(&date::http_date(last_modified));
    }
    let url = head.location.as_deref().and_then(|location| absolute(request, location));
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
    if let Some(etag) = &head.etag {
        writer = writer.etag(etag);
    }
    if let Some(encoding) = &head.content_encoding {
        writer = writer.header(b"Content-Encoding", encoding);
    }
    for (name, value) in &head.headers {
        writer = writer.header(name, value);
    }
    if head.ranges == Ranges::Announced {
        writer = writer.lines(b"Accept-Ranges: bytes\r\n");
    }
    writer.finish();
}

/// The value of `Content-Type` with a charset.
pub(crate) fn with_charset(content_type: &[u8], charset: &[u8]) -> SmallVec<[u8; 64]> {
    let mut value = SmallVec::new();
    for part in [content_type, b"; charset=", charset] {
        value.extend_from_slice(part);
    }
    value
}

/// The URL that is sent for a `Location` that a handler gave as a path.
pub(crate) fn absolute(request: &Request<'_>, location: &[u8]) -> Option<Vec<u8>> {
    let core = &request.location().core;
    if location.first() != Some(&b'/') || *core.redirect_url == RedirectUrl::AsGiven {
        return None;
    }
    let mut url = b"http://".to_vec();
    request.put_redirect_host(&mut url);
    url.extend_from_slice(location);
    Some(url)
}

/// Writes a number in decimal.
pub fn put_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        for number in [0, 7, 10, 65535, u64::MAX] {
            let mut out = Vec::new();
            put_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
