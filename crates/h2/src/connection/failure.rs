//! Why a connection, or one of its streams, comes to an early end, in nginx's words where it has some.

use std::fmt;

use crate::frame::{ErrorCode, Violation};
use crate::hpack::CompressionFault;
use crate::request::Unreadable;

/// The connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code for the client.
    pub code: ErrorCode,
    /// The reason for the log.
    pub reason: Reason,
}

/// Why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The connection does not begin with the preface of HTTP/2.
    Preface,
    /// A frame that may not be.
    Frame(Violation),
    /// Another frame in the middle of a header block.
    Interleaved,
    /// A part of another header block.
    ContinuationIdentifier,
    /// A part of no header block.
    UnexpectedContinuation,
    /// A stream's number is not higher than the one before.
    StreamIdentifier(u32, u32),
    /// A frame for a stream that never was: its name and number.
    Idle(&'static str, u32),
    /// A stream that the client itself has ended.
    ClosedStream(u32),
    /// A header block that cannot be read.
    Unreadable(Unreadable),
    /// A frame exceeds the window of the connection: the frame's length and the window, bytes.
    ConnectionWindow(u32, u32),
    /// The window would become too large: by how much, and what it was, bytes.
    ConnectionIncrement(u32, u32),
    /// As above, caused by a setting: the increment, bytes.
    SettingsWindow(u32),
    /// Too many streams that were refused.
    Refused,
    /// Too many streams that were reset.
    Resets,
    /// Too many PRIORITY frames.
    Priorities,
    /// Too many frames that ask for nothing.
    Useless,
    /// Too many bytes that are no head and no body.
    Flood,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        let code = match reason {
            Reason::Frame(violation) => violation.code(),
            // A block that is shorter than it says is to nginx a frame that is.
            Reason::Unreadable(Unreadable::Compression(CompressionFault::TruncatedNumber)) => {
                ErrorCode::FrameSizeError
            }
            Reason::Unreadable(Unreadable::Compression(_)) => ErrorCode::CompressionError,
            Reason::Unreadable(Unreadable::LargeField | Unreadable::LargeHead)
            | Reason::Resets
            | Reason::Priorities
            | Reason::Useless => ErrorCode::EnhanceYourCalm,
            Reason::ConnectionWindow(..) | Reason::ConnectionIncrement(..) | Reason::SettingsWindow(_) => {
                ErrorCode::FlowControlError
            }
            Reason::ClosedStream(_) => ErrorCode::StreamClosed,
            Reason::Refused | Reason::Flood => ErrorCode::NoError,
            Reason::Preface
            | Reason::Interleaved
            | Reason::ContinuationIdentifier
            | Reason::UnexpectedContinuation
            | Reason::StreamIdentifier(..)
            | Reason::Idle(..)
            | Reason::Unreadable(Unreadable::EmptyName) => ErrorCode::ProtocolError,
        };
        Self { code, reason }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Reason::Frame(violation).into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Preface => f.write_str("invalid connection preface"),
            Reason::Frame(violation) => violation.fmt(f),
            Reason::Interleaved => {
                f.write_str("client sent inappropriate frame while CONTINUATION was expected")
            }
            Reason::ContinuationIdentifier => {
                f.write_str("client sent CONTINUATION frame with incorrect identifier")
            }
            Reason::UnexpectedContinuation => f.write_str("client sent unexpected CONTINUATION frame"),
            Reason::StreamIdentifier(stream, last) => {
                write!(f, "client sent HEADERS frame with incorrect identifier {stream}, ")?;
                write!(f, "the last was {last}")
            }
            Reason::Idle(frame, stream) => write!(f, "client sent {frame} frame for idle stream {stream}"),
            Reason::ClosedStream(stream) => write!(f, "client sent frame for closed stream {stream}"),
            Reason::Unreadable(reason) => match reason {
                Unreadable::Compression(fault) => write!(f, "client sent {fault}"),
                Unreadable::EmptyName => f.write_str("client sent zero header name length"),
                Unreadable::LargeField => f.write_str("client sent too large header field"),
                Unreadable::LargeHead => f.write_str("client sent too large header"),
            },
            Reason::ConnectionWindow(length, window) => {
                f.write_str("client violated connection flow control: ")?;
                write!(f, "received DATA frame length {length}, available window {window}")
            }
            Reason::ConnectionIncrement(increment, window) => {
                f.write_str("client violated connection flow control: received WINDOW_UPDATE frame ")?;
                write!(f, "with window increment {increment} not allowed for window {window}")
            }
            Reason::SettingsWindow(bytes) => {
                write!(f, "client violated flow control with INITIAL_WINDOW_SIZE value {bytes}")
            }
            Reason::Refused => f.write_str("client sent too many refused streams"),
            Reason::Resets => f.write_str("client reset too many streams"),
            Reason::Priorities => f.write_str("client sent too many PRIORITY frames"),
            Reason::Useless | Reason::Flood => f.write_str("http2 flood detected"),
        }
    }
}

impl std::error::Error for Failure {}

/// A fault of the client on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The limit of concurrent streams is reached: so many are open already.
    Concurrent(usize),
    /// Too many begin in one read.
    AtOnce,
    /// The request has a body though the client may not know its window yet.
    Early,
    /// A frame exceeds the window of the stream: the stream's number, the frame's length and the window,
    /// bytes.
    Window(u32, u32, u32),
    /// The window would become too large: the stream's number, by how much, and what the window was, bytes.
    Increment(u32, u32, u32),
    /// A frame of this kind came behind the end of the request's body.
    HalfClosed(&'static str, u32),
    /// Trailers that are not the end.
    OpenTrailers(u32),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Concurrent(open) => write!(f, "concurrent streams exceeded {open}"),
            Self::AtOnce => f.write_str("client sent too many streams at once"),
            Self::Early => f.write_str("client sent stream with data before settings were acknowledged"),
            Self::Window(stream, length, window) => {
                write!(f, "client violated flow control for stream {stream}: ")?;
                write!(f, "received DATA frame length {length}, available window {window}")
            }
            Self::Increment(stream, increment, window) => {
                write!(f, "client violated flow control for stream {stream}: received WINDOW_UPDATE frame ")?;
                write!(f, "with window increment {increment} not allowed for window {window}")
            }
            Self::HalfClosed(frame, stream) => {
                write!(f, "client sent {frame} frame for half-closed stream {stream}")
            }
            Self::OpenTrailers(stream) => {
                write!(f, "client sent HEADERS frame for stream {stream} without its end")
            }
        }
    }
}
