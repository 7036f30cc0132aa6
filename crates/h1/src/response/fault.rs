//! Faults of a response, and the words for the error log. Plain data; any thread.

use std::fmt;

/// Why a response was refused. Always the upstream server's fault: its connection cannot be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseFault {
    /// The head is not complete within `proxy_buffer_size`.
    TooBigHeader,
    /// A control byte or space in a header's name, NUL in a value, CR that is not followed by LF.
    InvalidHeader,
    /// A second `Content-Length` or `Transfer-Encoding`.
    DuplicateHeader,
    /// `Content-Length` and `Transfer-Encoding`.
    ContentLengthAndTransferEncoding,
    /// `Content-Length` is not a decimal number below 2^63.
    InvalidContentLength,
    /// `Transfer-Encoding` other than `chunked`.
    UnknownTransferEncoding,
    /// A `Status` that does not begin with three digits (CGI).
    InvalidStatus,
    /// 103 in HTTP/1.0.
    EarlyHintsInHttp10,
    /// More interim responses than [`INTERIM_HEADS_MAX`](super::INTERIM_HEADS_MAX).
    TooManyInterim,
    /// The framing of a chunked body is wrong, or exceeds a limit of the decoder.
    InvalidChunked,
    /// As `InvalidHeader`, behind the last chunk.
    InvalidTrailer,
    /// The trailer section is longer than `proxy_buffer_size`.
    TooBigTrailers,
}

impl ResponseFault {
    /// The message for the error log, or its beginning, in nginx's words.
    /// [`ResponseParser::describe`](super::ResponseParser::describe) adds what was received.
    pub fn message(self) -> &'static str {
        match self {
            ResponseFault::TooBigHeader => "upstream sent too big header",
            ResponseFault::InvalidHeader => "upstream sent invalid header",
            ResponseFault::DuplicateHeader => "upstream sent duplicate header line",
            ResponseFault::ContentLengthAndTransferEncoding => {
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            ResponseFault::InvalidContentLength => "upstream sent invalid \"Content-Length\" header",
            ResponseFault::UnknownTransferEncoding => "upstream sent unknown \"Transfer-Encoding\"",
            ResponseFault::InvalidStatus => "upstream sent invalid status",
            ResponseFault::EarlyHintsInHttp10 => "upstream sent HTTP/1.0 response with early hints",
            ResponseFault::TooManyInterim => "upstream sent too many interim responses",
            ResponseFault::InvalidChunked => "upstream sent invalid chunked response",
            ResponseFault::InvalidTrailer => "upstream sent invalid trailer",
            ResponseFault::TooBigTrailers => "upstream sent too big trailers",
        }
    }
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for ResponseFault {}
