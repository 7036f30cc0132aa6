//! Why a connection to a server, or one of its streams, comes to an early end, in nginx's words where it has
//! some.

use std::fmt;

use crate::frame::{ErrorCode, Violation};
use crate::hpack::CompressionFault;

/// The connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code for the server.
    pub code: ErrorCode,
    /// The reason for the log.
    pub reason: Reason,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first frame is no settings frame.
    NoSettings,
    /// A frame that may not be.
    Frame(Violation),
    /// Another frame in the middle of a header block.
    Interleaved,
    /// A part of no header block.
    UnexpectedContinuation,
    /// Servers say nothing of priorities.
    PriorityUpdate,
    /// A frame for a stream that never was.
    UnknownStream(u32),
    /// A header block that cannot be read.
    Compression(CompressionFault),
    /// A header block that is longer than the owner allows.
    LargeHead,
    /// A frame exceeds the window of the connection: the frame's length and the window, bytes.
    ConnectionWindow(u32, u32),
    /// The window would become too large: by how much, and what it was, bytes.
    ConnectionIncrement(u32, u32),
    /// As above, caused by a setting: the increment, bytes.
    SettingsWindow(u32),
    /// Too many frames, or bytes, that answer nothing.
    Useless,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        let code = match reason {
            Reason::Frame(violation) => violation.code(),
            Reason::Compression(_) => ErrorCode::CompressionError,
            Reason::LargeHead | Reason::Useless => ErrorCode::EnhanceYourCalm,
            Reason::ConnectionWindow(..) | Reason::ConnectionIncrement(..) | Reason::SettingsWindow(_) => {
                ErrorCode::FlowControlError
            }
            Reason::NoSettings
            | Reason::Interleaved
            | Reason::UnexpectedContinuation
            | Reason::PriorityUpdate
            | Reason::UnknownStream(_) => ErrorCode::ProtocolError,
        };
        Self { code, reason }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Reason::Frame(violation).into()
    }
}

impl From<CompressionFault> for Reason {
    fn from(fault: CompressionFault) -> Self {
        Self::Compression(fault)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream sent ")?;
        match self.reason {
            Reason::NoSettings => f.write_str("no settings frame first"),
            Reason::Frame(violation) => violation.write_what(f),
            Reason::Interleaved => f.write_str("unexpected http2 frame while a continuation was expected"),
            Reason::UnexpectedContinuation => f.write_str("unexpected continuation frame"),
            Reason::PriorityUpdate => f.write_str("unexpected priority update frame"),
            Reason::UnknownStream(stream) => write!(f, "frame for unknown stream {stream}"),
            Reason::Compression(fault) => fault.fmt(f),
            Reason::LargeHead => f.write_str("too large http2 header"),
            Reason::ConnectionWindow(length, window) => {
                write!(f, "data frame of {length} bytes while the connection's window has {window}")
            }
            Reason::ConnectionIncrement(increment, window) => {
                write!(f, "too large window update {increment} for a window of {window}")
            }
            Reason::SettingsWindow(bytes) => {
                write!(f, "settings frame with too large initial window size: {bytes}")
            }
            Reason::Useless => f.write_str("too many frames that answer nothing"),
        }
    }
}

impl std::error::Error for Failure {}

/// A fault of the server on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A malformed head, or malformed trailers.
    Head(HeadFault),
    /// A frame that may not be there.
    Violation(Violation),
    /// A body before its head.
    EarlyData,
    /// More interim heads than there may be.
    InterimHeads,
    /// A frame of this kind came behind the end of the response.
    HalfClosed(&'static str),
    /// A frame exceeds the window of the stream: the frame's length and the window, bytes.
    Window(u32, u32),
    /// The window would become too large: by how much, and what it was, bytes.
    Increment(u32, u32),
    /// The body is longer than its head has announced, or there is a body where none may be.
    LongBody,
    /// Less of it.
    ShortBody,
    /// Trailers that are not the end.
    OpenTrailers,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream sent ")?;
        match *self {
            Self::Head(fault) => fault.fmt(f),
            Self::Violation(violation) => violation.write_what(f),
            Self::EarlyData => f.write_str("data frame before the response header"),
            Self::InterimHeads => f.write_str("too many interim responses"),
            Self::HalfClosed(frame) => write!(f, "{frame} frame for closed stream"),
            Self::Window(length, window) => {
                write!(f, "data frame of {length} bytes while the stream's window has {window}")
            }
            Self::Increment(increment, window) => {
                write!(f, "too large window update {increment} for a window of {window}")
            }
            Self::LongBody => f.write_str("response body larger than indicated content length"),
            Self::ShortBody => f.write_str("response body smaller than indicated content length"),
            Self::OpenTrailers => f.write_str("trailer without end stream flag"),
        }
    }
}

/// A malformed part of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// There is no status, or a field before it.
    NoStatus,
    /// There are two.
    DuplicateStatus,
    /// A status that is not a number of three digits, or stands behind other fields.
    InvalidStatus,
    /// A status that HTTP/2 does not have (101).
    UnexpectedStatus,
    /// A pseudo-header field that responses do not have.
    UnknownPseudo,
    /// A byte in a name that no name has.
    InvalidName,
    /// A byte in a value that would end its line.
    InvalidValue,
    /// A length that is no number, or two of them.
    InvalidLength,
    /// The head has more fields, or more bytes in them, than the owner allows.
    Large,
    /// An interim response with the end of its stream.
    InterimEnd,
}

impl fmt::Display for HeadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoStatus => "no :status header",
            Self::DuplicateStatus => "duplicate :status header",
            Self::InvalidStatus => "invalid :status",
            Self::UnexpectedStatus => "unexpected :status",
            Self::UnknownPseudo => "invalid header: an unknown pseudo-header",
            Self::InvalidName => "invalid header: a byte in its name",
            Self::InvalidValue => "invalid header: a byte in its value",
            Self::InvalidLength => "invalid \"Content-Length\" header",
            Self::Large => "too large http2 header",
            Self::InterimEnd => "interim response with end stream flag",
        })
    }
}
