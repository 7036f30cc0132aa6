//! The head of a request, whatever carries it: filled by a codec, read by the engine. Its parts are ranges of
//! the received bytes, which their owner keeps. One value per request, owned by the request.

use crate::header::{Known, Span};
use crate::header_lines::HeaderLines;
use crate::host::Host;
use crate::method::{Method, TargetForm, Version};

/// The parts of a request line, or their equivalents in other versions of the protocol. Spans of absent parts
/// are empty.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// The method; `Other` has its name in `method_name`.
    pub method: Method,
    /// Form of the target.
    pub form: TargetForm,
    /// The version; HTTP/1.0 until it is known.
    pub version: Version,
    /// Whether decoding and normalizing would leave the path as it is: no escape, no empty segment, no
    /// segment that begins with a dot.
    pub path_is_plain: bool,
    /// The line without its end; empty until it is complete.
    pub line: Span,
    /// The method as received.
    pub method_name: Span,
    /// The scheme of an absolute target.
    pub scheme: Span,
    /// Host and port of an absolute target, as received.
    pub authority: Span,
    /// The target without scheme and host: `$request_uri`. Begins with `?` where an absolute target has no
    /// path but a query string.
    pub raw: Span,
    /// The path as received, without query string and fragment. Always begins with a slash.
    pub path: Span,
    /// The query string without `?` and without fragment.
    pub args: Span,
    /// The version as received, such as `HTTP/1.1`; empty in HTTP/0.9.
    pub protocol: Span,
}

impl Default for RequestLine {
    fn default() -> Self {
        Self {
            method: Method::Other,
            form: TargetForm::Origin,
            version: Version::HTTP_10,
            path_is_plain: true,
            line: Span::default(),
            method_name: Span::default(),
            scheme: Span::default(),
            authority: Span::default(),
            raw: Span::default(),
            path: Span::default(),
            args: Span::default(),
            protocol: Span::default(),
        }
    }
}

/// How the body of a request is framed (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    #[default]
    Empty,
    /// `Content-Length`, in bytes; may be 0.
    Length(u64),
    /// Its end is told when it comes (`Transfer-Encoding: chunked`).
    Chunked,
}

/// A request head. After a fault it holds what was parsed so far, for the answer and the log.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The request line.
    pub line: RequestLine,
    /// The header lines in the order received.
    pub headers: HeaderLines,
    /// The host that the request is for: of the absolute target, else of `Host`. Absent only where neither
    /// was sent (HTTP/1.0 and 0.9) or the head is incomplete.
    pub host: Option<Host>,
    /// Framing of the body.
    pub body: BodyLength,
}

impl RequestHead {
    /// An empty head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it ready for the next request without giving up its memory.
    pub fn clear(&mut self) {
        self.line = RequestLine::default();
        self.headers.clear();
        self.host = None;
        self.body = BodyLength::Empty;
    }

    /// The method; `Other` has its name in `line.method_name`.
    #[inline]
    #[must_use]
    pub fn method(&self) -> Method {
        self.line.method
    }

    /// The version; HTTP/1.0 until it is known.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// Whether a header is there.
    #[inline]
    #[must_use]
    pub fn has(&self, known: Known) -> bool {
        self.headers.has(known)
    }

    /// The value of the first line with that header.
    #[inline]
    #[must_use]
    pub fn find<'a>(&'a self, received: &'a [u8], known: Known) -> Option<&'a [u8]> {
        self.headers.first_known(received, known)
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self, received: &[u8]) -> bool {
        self.version() > Version::HTTP_10
            && self
                .find(received, Known::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }
}
