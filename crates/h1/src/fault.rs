//! Faults of a request: the status for the client, and the words for the error log. Plain data; any thread.

use std::fmt;

/// Why a request was refused. Always the client's fault; the connection cannot be used for another
/// request afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A byte in the method that is neither an upper case letter nor `_` nor `-`.
    InvalidMethod,
    /// The request line is malformed elsewhere.
    InvalidRequest,
    /// The major version is above 1.
    InvalidVersion,
    /// No version, and a method other than GET.
    InvalidMethodInHttp09,
    /// The host of an absolute target is not valid.
    InvalidHostInRequestLine,
    /// The request line does not fit in a large buffer, or no buffer is left for it.
    UriTooLong,
    /// A header line does not fit in a large buffer, or no buffer is left for it.
    HeaderLineTooLong,
    /// More header lines than `max_headers`.
    TooManyHeaders,
    /// A control byte or space in a header name, NUL in a value, CR that is not followed by LF.
    InvalidHeaderLine,
    /// A second line of a header that may be there only once.
    DuplicateHeader,
    /// A second `Host`.
    DuplicateHost,
    /// `Host` is empty or not valid.
    InvalidHost,
    /// HTTP/1.1 without `Host`.
    NoHost,
    /// `Content-Length` is not a decimal number below 2^63.
    InvalidContentLength,
    /// `Transfer-Encoding` in HTTP/1.0.
    TransferEncodingInHttp10,
    /// `Transfer-Encoding: chunked` together with `Content-Length`.
    ContentLengthAndTransferEncoding,
    /// `Transfer-Encoding` other than `chunked`.
    UnknownTransferEncoding,
    /// The method is CONNECT, and the owner carries no tunnels; or in another version than HTTP/1.1.
    Connect,
    /// A body is announced behind CONNECT.
    ConnectWithBody,
    /// The method is TRACE.
    Trace,
    /// The framing of a chunked body is wrong, or exceeds a limit of the decoder.
    InvalidChunkedBody,
    /// The announced length exceeds the owner's limit.
    BodyTooLarge,
    /// The chunks exceed the owner's limit.
    ChunkedBodyTooLarge,
}

impl Fault {
    /// The code that `error_page` and the built-in page go by. It is what the peer sees, except that
    /// 494 (a head that is too large) has a page of its own and goes out as 400.
    pub fn page(self) -> u16 {
        match self {
            Fault::HeaderLineTooLong | Fault::TooManyHeaders => 494,
            Fault::UriTooLong => 414,
            Fault::InvalidVersion => 505,
            Fault::UnknownTransferEncoding => 501,
            Fault::Connect | Fault::Trace => 405,
            Fault::BodyTooLarge | Fault::ChunkedBodyTooLarge => 413,
            _ => 400,
        }
    }

    /// The status that the peer gets.
    pub fn status(self) -> u16 {
        match self.page() {
            494 => 400,
            code => code,
        }
    }

    /// Whether the request's remaining bytes are read and thrown away for a while before the connection
    /// is closed, so that a client which is still writing gets the answer (`lingering_close on`).
    pub fn lingers(self) -> bool {
        matches!(
            self,
            Fault::HeaderLineTooLong
                | Fault::TooManyHeaders
                | Fault::BodyTooLarge
                | Fault::ChunkedBodyTooLarge
        )
    }

    /// Whether nginx logs it at `error`; the others are `info`.
    pub fn is_logged_as_error(self) -> bool {
        matches!(self, Fault::BodyTooLarge | Fault::ChunkedBodyTooLarge | Fault::InvalidChunkedBody)
    }

    /// The beginning of the message for the error log, in nginx's words. `RequestHead::describe` adds
    /// what was received.
    pub fn message(self) -> &'static str {
        match self {
            Fault::InvalidMethod => "client sent invalid method",
            Fault::InvalidRequest => "client sent invalid request",
            Fault::InvalidVersion => "client sent invalid version",
            Fault::InvalidMethodInHttp09 => "client sent invalid method in HTTP/0.9 request",
            Fault::InvalidHostInRequestLine => "client sent invalid host in request line",
            Fault::UriTooLong => "client sent too long URI",
            Fault::HeaderLineTooLong => "client sent too long header line",
            Fault::TooManyHeaders => "client sent too many header lines",
            Fault::InvalidHeaderLine => "client sent invalid header line",
            Fault::DuplicateHeader => "client sent duplicate header line",
            Fault::DuplicateHost => "client sent duplicate host header",
            Fault::InvalidHost => "client sent invalid host header",
            Fault::NoHost => "client sent HTTP/1.1 request without \"Host\" header",
            Fault::InvalidContentLength => "client sent invalid \"Content-Length\" header",
            Fault::TransferEncodingInHttp10 => {
                "client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
            Fault::ContentLengthAndTransferEncoding => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            Fault::UnknownTransferEncoding => "client sent unknown \"Transfer-Encoding\"",
            Fault::Connect => "client sent CONNECT method",
            Fault::ConnectWithBody => "client sent CONNECT request with body",
            Fault::Trace => "client sent TRACE method",
            Fault::InvalidChunkedBody => "client sent invalid chunked body",
            Fault::BodyTooLarge => "client intended to send too large body",
            Fault::ChunkedBodyTooLarge => "client intended to send too large chunked body",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Fault {}
