//! Frames (RFC 9113 §4, §6): what a whole frame says, and whether it may say it whatever came before. What
//! depends on the state of a stream or of the connection is asked elsewhere.

use std::fmt;

use crate::settings::Settings;

/// Length of what is in front of each payload, bytes.
pub const HEAD_BYTES: usize = 9;

/// The longest payload that anybody may send without being asked, bytes.
pub const PAYLOAD_MIN_MAX_BYTES: u32 = 16_384;

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub mod flag {
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// Why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum ErrorCode {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    SettingsTimeout = 4,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    Cancel = 8,
    CompressionError = 9,
    ConnectError = 10,
    EnhanceYourCalm = 11,
    InadequateSecurity = 12,
    Http11Required = 13,
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload, bytes: up to 2^24 − 1.
    pub length: u32,
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads a head.
    #[must_use]
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Self {
        let &[a, b, c, kind, flags, stream @ ..] = bytes;
        let length = u32::from_be_bytes([0, a, b, c]);
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & STREAM_MAX }
    }

    /// Writes the head behind what `out` holds.
    pub fn push(self, out: &mut Vec<u8>) {
        debug_assert!(self.length < 1 << 24 && self.stream <= STREAM_MAX, "they fit their fields");
        out.extend_from_slice(&self.length.to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
    }

    /// Looks at the length before the payload has come.
    ///
    /// # Errors
    /// The payload is longer than this side takes, bytes.
    pub fn check(self, payload_max_bytes: u32) -> Result<(), Violation> {
        if self.length > payload_max_bytes { Err(Violation::TooLong(self)) } else { Ok(()) }
    }

    /// Looks at what no payload can make right.
    ///
    /// # Errors
    /// Clients do not push, and most frames have one length.
    pub fn check_kind(self) -> Result<(), Violation> {
        let is_possible = match self.kind {
            kind::PUSH_PROMISE => return Err(Violation::PushPromise),
            kind::PRIORITY => self.length == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.length == 4,
            kind::PING => self.length == 8,
            kind::GOAWAY => self.length >= 8,
            _ => true,
        };
        if is_possible { Ok(()) } else { Err(Violation::Length(self)) }
    }

    /// Looks at a DATA frame of which the first byte has come, if it has one that says how much padding there
    /// is: how much of it is no body.
    ///
    /// # Errors
    /// It has no stream, or more padding than payload.
    pub(crate) fn padding(self, first: Option<u8>) -> Result<u32, Violation> {
        if self.stream == 0 {
            return Err(Violation::Identifier(self));
        }
        if !self.has(flag::PADDED) {
            return Ok(0);
        }
        let padding = first.filter(|_| self.length > 0).ok_or(Violation::Padding(self, 0))?;
        if u32::from(padding) < self.length {
            Ok(1 + u32::from(padding))
        } else {
            Err(Violation::Padding(self, padding))
        }
    }

    /// Whether a byte in front says how much padding there is.
    pub(crate) fn is_padded(self) -> bool {
        self.has(flag::PADDED)
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The largest number of a stream, and of an increment of a window.
pub const STREAM_MAX: u32 = 0x7fff_ffff;

/// The dependency of a stream (RFC 7540 §5.3; RFC 9113 wants it to be read and no more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The stream that it depends on; 0 is the root.
    pub depends_on: u32,
    /// Whether it takes that stream's other dependents for its own.
    pub placing: Placing,
    /// Its part against its siblings, 1 to 256.
    pub weight: u16,
}

/// How a stream takes its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Beside the others.
    Shared,
    /// Between them and what they depend on.
    Exclusive,
}

/// Whether more frames of the stream follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// More of the message may follow.
    Open,
    /// This was the last part of the message.
    Ended,
}

/// Whether the header block goes on in a CONTINUATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The header block is complete.
    Complete,
    /// The header block goes on in the next frame; no other frame may come before.
    GoesOn,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'p> {
    /// A piece of a body. All of the payload counts against the windows, padding as well.
    Data(&'p [u8], Rest),
    /// The beginning of a header block.
    Headers(&'p [u8], Option<Priority>, Block, Rest),
    /// See [`Priority`].
    Priority(Priority),
    /// The stream is over, with this code of an error.
    Reset(u32),
    /// The settings of the other side.
    Settings(Settings),
    /// The peer has seen this side's settings.
    SettingsAck,
    /// The peer wants these bytes back.
    Ping([u8; 8]),
    /// The peer returns the bytes of a PING.
    PingAck([u8; 8]),
    /// The peer is about to close: the last stream that it deals with, and the code of an error.
    GoAway(u32, u32),
    /// So many further bytes may be sent.
    WindowUpdate(u32),
    /// Another part of a header block.
    Continuation(&'p [u8], Block),
    /// The priority of a stream (RFC 9218 §7.1): its number and the field's value.
    PriorityUpdate(u32, &'p [u8]),
    /// A frame of unknown type, to be skipped (RFC 9113 §5.5).
    Unknown,
}

/// A frame may not be. All of these end the connection but the one that says it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Its length is not the one that its type has.
    Length(FrameHead),
    /// Its type has no stream, or must have one.
    Identifier(FrameHead),
    /// Padding that is longer than the payload.
    Padding(FrameHead, u8),
    /// There is nothing of a header block in it.
    EmptyBlock(FrameHead),
    /// A stream that depends on itself.
    Dependency(FrameHead),
    /// An acknowledgement that says something.
    AckLength(FrameHead),
    /// A setting with a value that it may not have.
    Setting(&'static str, u32),
    /// Clients do not push.
    PushPromise,
    /// An increment of nothing. It ends the stream if it is one's, else the connection.
    ZeroIncrement(FrameHead),
    /// Longer than this side has said that a frame may be.
    TooLong(FrameHead),
}

/// How nginx calls frames in its log.
fn name(kind: u8) -> &'static str {
    match kind {
        kind::DATA => "DATA",
        kind::HEADERS => "HEADERS",
        kind::PRIORITY => "PRIORITY",
        kind::RST_STREAM => "RST_STREAM",
        kind::SETTINGS => "SETTINGS",
        kind::PUSH_PROMISE => "PUSH_PROMISE",
        kind::PING => "PING",
        kind::GOAWAY => "GOAWAY",
        kind::WINDOW_UPDATE => "WINDOW_UPDATE",
        kind::CONTINUATION => "CONTINUATION",
        kind::PRIORITY_UPDATE => "PRIORITY_UPDATE",
        _ => "unknown",
    }
}

impl Violation {
    /// The code that the stream or the connection ends with.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Padding(head, _) if head.length > 0 => ErrorCode::ProtocolError,
            Self::Length(_)
            | Self::Padding(..)
            | Self::EmptyBlock(_)
            | Self::AckLength(_)
            | Self::TooLong(_) => ErrorCode::FrameSizeError,
            Self::Setting("INITIAL_WINDOW_SIZE", _) => ErrorCode::FlowControlError,
            Self::Identifier(_)
            | Self::Dependency(_)
            | Self::Setting(..)
            | Self::PushPromise
            | Self::ZeroIncrement(_) => ErrorCode::ProtocolError,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("client sent ")?;
        self.write_what(f)
    }
}

impl Violation {
    /// Writes the fault without saying which side has committed it.
    pub(crate) fn write_what(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(head) => {
                write!(f, "{} frame with incorrect length {}", name(head.kind), head.length)
            }
            Self::Identifier(head) => {
                write!(f, "{} frame with incorrect identifier", name(head.kind))
            }
            Self::Padding(head, _) if head.length == 0 => {
                write!(f, "padded {} frame with incorrect length: 0", name(head.kind))
            }
            Self::Padding(head, padding) => {
                let name = name(head.kind);
                write!(f, "padded {name} frame with incorrect length: ")?;
                write!(f, "{}, padding: {padding}", head.length)
            }
            Self::EmptyBlock(_) => f.write_str("HEADERS frame with empty header block"),
            Self::Dependency(head) => {
                write!(f, "{} frame for stream {} ", name(head.kind), head.stream)?;
                f.write_str("with incorrect dependency")
            }
            Self::AckLength(_) => f.write_str("SETTINGS frame with the ACK flag and nonzero length"),
            Self::Setting(name, value) => {
                write!(f, "SETTINGS frame with incorrect {name} value {value}")
            }
            Self::PushPromise => f.write_str("PUSH_PROMISE frame"),
            Self::ZeroIncrement(_) => f.write_str("WINDOW_UPDATE frame with incorrect window increment 0"),
            Self::TooLong(head) => {
                write!(f, "{} frame that is too long: {}", name(head.kind), head.length)
            }
        }
    }
}

impl std::error::Error for Violation {}

impl<'p> Frame<'p> {
    /// Reads a frame whose payload is complete.
    ///
    /// # Errors
    /// See [`Violation`].
    pub fn read(head: FrameHead, payload: &'p [u8]) -> Result<Self, Violation> {
        debug_assert_eq!(payload.len(), head.length as usize, "the payload is complete");
        let of_stream = head.stream != 0;
        match head.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION
                if !of_stream =>
            {
                Err(Violation::Identifier(head))
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE if of_stream => {
                Err(Violation::Identifier(head))
            }
            kind::DATA => Ok(Self::Data(without_padding(head, payload, 0)?, rest(head))),
            kind::HEADERS => Self::headers(head, payload),
            kind::PRIORITY => Ok(Self::Priority(priority(head, exact(head, payload)?)?)),
            kind::RST_STREAM => Ok(Self::Reset(u32::from_be_bytes(*exact(head, payload)?))),
            kind::SETTINGS => Self::settings(head, payload),
            kind::PUSH_PROMISE => Err(Violation::PushPromise),
            kind::PING if head.has(flag::ACK) => Ok(Self::PingAck(*exact(head, payload)?)),
            kind::PING => Ok(Self::Ping(*exact(head, payload)?)),
            kind::GOAWAY => {
                let (last, rest) = payload.split_first_chunk().ok_or(Violation::Length(head))?;
                let code = rest.first_chunk().ok_or(Violation::Length(head))?;
                Ok(Self::GoAway(u32::from_be_bytes(*last) & STREAM_MAX, u32::from_be_bytes(*code)))
            }
            kind::WINDOW_UPDATE => match u32::from_be_bytes(*exact(head, payload)?) & STREAM_MAX {
                0 => Err(Violation::ZeroIncrement(head)),
                increment => Ok(Self::WindowUpdate(increment)),
            },
            kind::CONTINUATION => Ok(Self::Continuation(payload, block(head))),
            kind::PRIORITY_UPDATE => {
                let (stream, value) = payload.split_first_chunk().ok_or(Violation::Length(head))?;
                Ok(Self::PriorityUpdate(u32::from_be_bytes(*stream) & STREAM_MAX, value))
            }
            _ => Ok(Self::Unknown),
        }
    }

    fn headers(head: FrameHead, payload: &'p [u8]) -> Result<Self, Violation> {
        let of_priority = if head.has(flag::PRIORITY) { PRIORITY_BYTES } else { 0 };
        let padded = usize::from(head.has(flag::PADDED));
        if payload.len() < of_priority + padded {
            return Err(Violation::Length(head));
        }
        if payload.len() == of_priority + padded {
            return Err(Violation::EmptyBlock(head));
        }
        let content = without_padding(head, payload, of_priority)?;
        let (priority, fragment) = match content.split_first_chunk() {
            Some((bytes, fragment)) if of_priority > 0 => (Some(priority(head, bytes)?), fragment),
            _ => (None, content),
        };
        Ok(Self::Headers(fragment, priority, block(head), rest(head)))
    }

    fn settings(head: FrameHead, payload: &'p [u8]) -> Result<Self, Violation> {
        if head.has(flag::ACK) {
            return if payload.is_empty() { Ok(Self::SettingsAck) } else { Err(Violation::AckLength(head)) };
        }
        if !payload.len().is_multiple_of(Settings::ENTRY_BYTES) {
            return Err(Violation::Length(head));
        }
        Settings::read(payload).map(Self::Settings)
    }
}

/// Length of a priority, bytes.
const PRIORITY_BYTES: usize = 5;

fn priority(head: FrameHead, bytes: &[u8; PRIORITY_BYTES]) -> Result<Priority, Violation> {
    let &[a, b, c, d, weight] = bytes;
    let word = u32::from_be_bytes([a, b, c, d]);
    let depends_on = word & STREAM_MAX;
    if depends_on == head.stream {
        return Err(Violation::Dependency(head));
    }
    let placing = if word > STREAM_MAX { Placing::Exclusive } else { Placing::Shared };
    Ok(Priority { depends_on, placing, weight: u16::from(weight) + 1 })
}

/// A payload that has one length.
fn exact<const N: usize>(head: FrameHead, payload: &[u8]) -> Result<&[u8; N], Violation> {
    payload.try_into().map_err(|_| Violation::Length(head))
}

/// The payload without padding, of which at least `least` bytes have to be left.
fn without_padding(head: FrameHead, payload: &[u8], least: usize) -> Result<&[u8], Violation> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, content) = payload.split_first().ok_or(Violation::Padding(head, 0))?;
    let end = content.len().checked_sub(usize::from(padding)).filter(|&end| end >= least);
    end.map(|end| &content[..end]).ok_or(Violation::Padding(head, padding))
}

pub(crate) fn rest(head: FrameHead) -> Rest {
    if head.has(flag::END_STREAM) { Rest::Ended } else { Rest::Open }
}

pub(crate) fn block(head: FrameHead) -> Block {
    if head.has(flag::END_HEADERS) { Block::Complete } else { Block::GoesOn }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame<'_>, String> {
        let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
        let mut bytes = Vec::new();
        head.push(&mut bytes);
        let again = FrameHead::read(bytes[..].try_into().expect("nine bytes"));
        assert_eq!(again, head);
        Frame::read(head, payload).map_err(|violation| violation.to_string())
    }

    #[test]
    fn frames_are_read() {
        assert_eq!(read(0, 0, 1, b"abc"), Ok(Frame::Data(b"abc", Rest::Open)));
        assert_eq!(read(0, 9, 1, b"\x02abc\0\0"), Ok(Frame::Data(b"abc", Rest::Ended)));
        assert_eq!(read(0, 8, 1, b"\x01\0"), Ok(Frame::Data(b"", Rest::Open)));
        assert_eq!(read(1, 4, 1, b"xy"), Ok(Frame::Headers(b"xy", None, Block::Complete, Rest::Open)));
        let priority = Priority { depends_on: 3, placing: Placing::Exclusive, weight: 256 };
        let with_priority = Frame::Headers(b"x", Some(priority), Block::GoesOn, Rest::Ended);
        assert_eq!(read(1, 0x29, 5, b"\x01\x80\0\0\x03\xffx\0"), Ok(with_priority));
        assert_eq!(read(2, 0, 5, b"\x80\0\0\x03\xff"), Ok(Frame::Priority(priority)));
        assert_eq!(read(3, 0, 1, &[0, 0, 0, 8]), Ok(Frame::Reset(8)));
        assert_eq!(read(4, 1, 0, b""), Ok(Frame::SettingsAck));
        assert_eq!(read(6, 0, 0, b"12345678"), Ok(Frame::Ping(*b"12345678")));
        assert_eq!(read(6, 1, 0, b"12345678"), Ok(Frame::PingAck(*b"12345678")));
        assert_eq!(read(7, 0, 0, &[0x80, 0, 0, 7, 0, 0, 0, 11, b'?']), Ok(Frame::GoAway(7, 11)));
        assert_eq!(read(8, 0, 0, &[0x80, 0, 1, 0]), Ok(Frame::WindowUpdate(256)));
        assert_eq!(read(9, 0, 1, b""), Ok(Frame::Continuation(b"", Block::GoesOn)));
        assert_eq!(read(16, 0, 0, &[0, 0, 0, 3, b'u', b'=', b'1']), Ok(Frame::PriorityUpdate(3, b"u=1")));
        assert_eq!(read(99, 255, 7, b"?"), Ok(Frame::Unknown));
    }

    #[test]
    fn what_may_not_be_is_named_as_nginx_names_it() {
        let wrong =
            |kind, flags, stream, payload: &[u8]| read(kind, flags, stream, payload).expect_err("refused");
        assert_eq!(wrong(0, 8, 1, b""), "client sent padded DATA frame with incorrect length: 0");
        let padding = "client sent padded DATA frame with incorrect length: 2, padding: 2";
        assert_eq!(wrong(0, 8, 1, b"\x02\0"), padding);
        assert_eq!(wrong(0, 0, 0, b"x"), "client sent DATA frame with incorrect identifier");
        assert_eq!(wrong(1, 0x20, 1, b"\0\0\0\x03"), "client sent HEADERS frame with incorrect length 4");
        assert_eq!(wrong(1, 0x20, 1, b"\0\0\0\x03\0"), "client sent HEADERS frame with empty header block");
        let padding = "client sent padded HEADERS frame with incorrect length: 8, padding: 3";
        assert_eq!(wrong(1, 0x28, 1, b"\x03\0\0\0\x03\0xx"), padding);
        let itself = "client sent HEADERS frame for stream 1 with incorrect dependency";
        assert_eq!(wrong(1, 0x20, 1, b"\0\0\0\x01\0x"), itself);
        assert_eq!(wrong(2, 0, 1, b"\0\0\0\x03"), "client sent PRIORITY frame with incorrect length 4");
        assert_eq!(wrong(3, 0, 0, b"\0\0\0\x08"), "client sent RST_STREAM frame with incorrect identifier");
        let ack = "client sent SETTINGS frame with the ACK flag and nonzero length";
        assert_eq!(wrong(4, 1, 0, b"x"), ack);
        assert_eq!(wrong(4, 0, 0, b"x"), "client sent SETTINGS frame with incorrect length 1");
        assert_eq!(wrong(5, 0, 1, b""), "client sent PUSH_PROMISE frame");
        assert_eq!(wrong(6, 0, 0, b"1234567"), "client sent PING frame with incorrect length 7");
        assert_eq!(wrong(7, 0, 0, b"1234567"), "client sent GOAWAY frame with incorrect length 7");
        let increment = "client sent WINDOW_UPDATE frame with incorrect window increment 0";
        assert_eq!(wrong(8, 0, 1, &[0x80, 0, 0, 0]), increment);
        assert_eq!(wrong(9, 0, 0, b"x"), "client sent CONTINUATION frame with incorrect identifier");
    }

    #[test]
    fn a_payload_that_is_too_long_is_not_waited_for() {
        let head = FrameHead { length: 16_385, kind: kind::DATA, flags: 0, stream: 1 };
        let violation = head.check(PAYLOAD_MIN_MAX_BYTES).expect_err("refused");
        assert_eq!(violation.to_string(), "client sent DATA frame that is too long: 16385");
        assert_eq!(head.check(16_385), Ok(()));
    }

    proptest! {
        #[test]
        fn any_payload_is_a_frame_or_a_violation(
            kind in 0u8..18, flags in any::<u8>(), stream in 0u32..4,
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
            if let Err(violation) = Frame::read(head, &payload) {
                prop_assert!(!violation.to_string().is_empty());
                prop_assert_ne!(violation.code(), ErrorCode::NoError);
            }
        }
    }
}
