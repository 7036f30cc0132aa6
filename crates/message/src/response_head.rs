//! The head of a response. Owned by the task of the request; filled by handlers and header filters, written
//! once by the codec of its connection.

use std::borrow::Cow;

use crate::header_lines::Headers;

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
    /// As above, and the pushed bytes begin at this byte of the body.
    OneFrom(u64),
    /// Yes, and the client is told so (`Accept-Ranges`).
    Announced,
    /// The value in the passed head is right.
    Passed,
}

/// The request headers that a response depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Varies {
    /// No message for caches.
    #[default]
    No,
    /// `Accept-Encoding`.
    ByEncoding,
}

/// Which server judges what the request asks under a condition (`If-Modified-Since`, `If-Match` and others).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// This server.
    #[default]
    JudgedHere,
    /// The server that the response comes from, which has judged them.
    JudgedThere,
}

/// The head of a response until it is sent.
#[derive(Default)]
pub struct ResponseHead<'c> {
    /// Status code; 0 until a handler has chosen one.
    pub status: u16,
    /// The text of the status line, such as `404 Gone Fishing`; sent while that is the status.
    pub status_line: Option<Box<StatusLine>>,
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
    /// `Content-Encoding`: how the handler that made the body, or a filter, has encoded it.
    pub content_encoding: Option<Text<'c>>,
    /// Whether another `Accept-Encoding` may get another response, which `Vary` tells caches.
    pub varies: Varies,
    /// Which server has judged the conditions of the request, or will.
    pub conditions: Conditions,
    /// Other lines, in this order, behind `Connection`. A `Last-Modified` in here is sent in place of the
    /// date above.
    pub headers: Headers,
}

/// The text of a status line behind the version. Few responses have one of their own, so that the head has
/// room for a pointer to it alone.
#[derive(Debug)]
pub struct StatusLine(pub Box<[u8]>);

impl ResponseHead<'_> {
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
