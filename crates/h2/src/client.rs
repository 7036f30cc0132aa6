//! The client's side of a connection, for upstream servers: frames in, events and frames out. It knows no
//! socket and no clock, and of requests their numbers, windows and how far their answers are. Owned by the
//! connection's task.
//!
//! 1. A stream is open from [`open`](Client::open) until its owner [closes](Client::close) it, also where
//!    the server has reset it or the connection is about to end.
//! 2. Header blocks are read in the order of their arrival whatever becomes of them: later ones refer to
//!    earlier ones.
//! 3. A malformed response ends its stream, which is reset; what breaks the connection's rules ends the
//!    connection. Neither can be made to look like a complete response.
//! 4. The server may not push. What it sends that answers nothing is counted and has a limit.
//! 5. Control frames are gathered in one buffer. Its owner reads nothing more while it is
//!    [full](Client::is_congested).

mod failure;
mod head;
mod sending;
mod streams;

pub use failure::{Failure, HeadFault, Note, Reason};
pub use head::ResponseHead;
pub use sending::{RequestLine, Unopened};

use crate::connection::meter::Meter;
use crate::connection::{CONTINUATIONS_MAX, CONTROL_MAX_BYTES};
use crate::flow::{WINDOW_FIRST_BYTES, Window};
use crate::frame::{
    Block, ErrorCode, Frame, FrameHead, HEAD_BYTES, PAYLOAD_MIN_MAX_BYTES, PREFACE, Rest, STREAM_MAX,
    Violation, block, kind, rest,
};
use crate::hpack::Decoder;
use crate::passing::{Part, Passing};
use crate::push;
use crate::settings::{Push, Settings, push_settings_ack};
use head::HeadReader;
use streams::{Phase, Streams};

/// The table of the server's header fields, bytes; no more is announced, and no more is kept.
const TABLE_BYTES: usize = 4096;
/// The longest payload that the server may send, bytes.
const PAYLOAD_MAX_BYTES: u32 = PAYLOAD_MIN_MAX_BYTES;
/// How many interim responses (1xx) may come before the one that answers a request.
pub const INTERIM_HEADS_MAX: u32 = 1000;
/// Streams that are opened before the server has said how many it takes.
pub const STREAMS_FIRST_MAX: u32 = 100;

/// Limits that the owner of a connection sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams that are open at once, whatever more the server allows.
    pub streams: u32,
    /// The first window of a stream, bytes.
    pub window_bytes: u32,
    /// A header block as it is sent, and its names and values as they are read, bytes.
    pub head_bytes: usize,
    /// Fields of a header block.
    pub fields: usize,
}

/// The bytes that were received.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// More bytes are needed.
    Need,
    /// An interim response (1xx), whose [head](Client::head) is there up to the next event.
    Interim(u32),
    /// A response has begun; its [head](Client::head) is there up to the next event.
    Head(u32, Rest),
    /// A part of its body, which may be empty where it is the last.
    Data(u32, &'i [u8], Rest),
    /// Its body is over, and its trailers are the [head](Client::head) up to the next event.
    Trailers(u32),
    /// The server wants nothing of the request any more, and says why with a code. Where its response is
    /// complete this is no failure.
    Reset(u32, u32),
    /// The server has violated the rules of one stream, which is reset.
    Cut(u32, Note),
    /// A window has grown, or more streams may be opened.
    Opened,
    /// The server takes no more streams: the last one that it deals with, and the code of an error. It has
    /// done nothing for streams with higher numbers.
    Leaving(u32, u32),
}

/// The kind of frame that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The server's settings come before anything else.
    Settings,
    Frame,
    /// Another part of a header block.
    Continuation(Pending),
}

/// A header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    stream: u32,
    rest: Rest,
    continuations: u32,
}

/// Whether more streams may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Stays,
    /// The server deals with streams up to this one.
    Leaves(u32),
}

/// Whether this side has said that it opens no more streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Unsaid,
    Said,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    expected: Expected,
    leave: Leave,
    has_acknowledged: bool,
    farewell: Farewell,
    decoder: Decoder,
    /// The header block under way.
    block: Vec<u8>,
    /// The head that was read last.
    head: HeadReader,
    /// The payload under way.
    passing: Option<Passing>,
    streams: Streams,
    meter: Meter,
    /// The bytes that this side may send.
    send_window: Window,
    /// The bytes that the server may send.
    receive_window: Window,
    /// The server's settings, or what they are where it has said nothing.
    first_window_bytes: u32,
    payload_max_bytes: u32,
    streams_max: u32,
    /// Whether the next header block says that this side has no table.
    says_no_table: bool,
    control: Vec<u8>,
}

impl Client {
    /// A connection that begins; the preface and the settings of the client are to be sent first.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut control = PREFACE.to_vec();
        let settings = Settings {
            push: Some(Push::Disabled),
            window_bytes: Some(limits.window_bytes),
            ..Settings::default()
        };
        settings.push_frame(&mut control);
        push::window_update(&mut control, 0, STREAM_MAX - WINDOW_FIRST_BYTES);
        Self {
            limits,
            expected: Expected::Settings,
            leave: Leave::Stays,
            has_acknowledged: false,
            farewell: Farewell::Unsaid,
            decoder: Decoder::new(TABLE_BYTES),
            block: Vec::new(),
            head: HeadReader::default(),
            passing: None,
            streams: Streams::default(),
            meter: Meter::new(limits.streams),
            send_window: Window::new(WINDOW_FIRST_BYTES),
            receive_window: Window::new(STREAM_MAX),
            first_window_bytes: WINDOW_FIRST_BYTES,
            payload_max_bytes: PAYLOAD_MIN_MAX_BYTES,
            streams_max: STREAMS_FIRST_MAX,
            says_no_table: true,
            control,
        }
    }

    /// How many streams are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the server has seen this side's settings.
    #[must_use]
    pub fn has_acknowledged(&self) -> bool {
        self.has_acknowledged
    }

    /// Whether the server deals with a stream that is open, as far as it has said.
    #[must_use]
    pub fn is_dealt_with(&self, stream: u32) -> bool {
        self.leave == Leave::Stays || matches!(self.leave, Leave::Leaves(last) if stream <= last)
    }

    /// The text and the head of the last event that has one.
    #[must_use]
    pub fn head(&self) -> (&[u8], &ResponseHead) {
        self.head.read_last()
    }

    /// Whether nothing more should be read before the server has taken control frames.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.control.len() >= CONTROL_MAX_BYTES
    }

    /// Gives memory back while there are no streams.
    pub fn rest(&mut self) {
        self.streams.rest();
        self.decoder.rest();
        self.head = HeadReader::default();
        self.block = Vec::new();
        self.control.shrink_to_fit();
    }

    /// Something was received, `count` bytes: what answers nothing is counted from here on.
    ///
    /// # Errors
    /// There is too much of it.
    pub fn begin_read(&mut self, count: usize) -> Result<(), Failure> {
        self.meter.begin_read(count).map_err(|_| Reason::Useless.into())
    }

    /// Takes the next frame that means something from the front of `input`, which keeps what is incomplete.
    ///
    /// # Errors
    /// The connection has to end, as is to be [said](Self::go_away) to the server.
    pub fn receive<'i>(&mut self, input: &mut &'i [u8]) -> Result<Event<'i>, Failure> {
        loop {
            if let Some(passing) = self.passing.take() {
                let (part, left) = passing.take(input);
                self.passing = left;
                match part {
                    Some(part) => return Ok(self.take_part(part)),
                    None if self.passing.is_some() => return Ok(Event::Need),
                    None => {}
                }
            }
            let Some(bytes) = input.first_chunk() else { return Ok(Event::Need) };
            let head = FrameHead::read(bytes);
            self.check(head)?;
            if is_passed(head) {
                if head.kind == kind::DATA && head.is_padded() && head.length > 0 && input.len() == HEAD_BYTES
                {
                    return Ok(Event::Need);
                }
                *input = &input[HEAD_BYTES..];
                if let Some(event) = self.begin_passing(head, input)? {
                    return Ok(event);
                }
                continue;
            }
            let end = HEAD_BYTES + head.length as usize;
            let Some(payload) = input.get(HEAD_BYTES..end) else { return Ok(Event::Need) };
            debug_assert_eq!(payload.len(), head.length as usize, "a frame is taken as a whole");
            *input = &input[end..];
            if let Some(event) = self.take(head, payload)? {
                return Ok(event);
            }
        }
    }

    /// Looks at a frame before its payload has come.
    fn check(&self, head: FrameHead) -> Result<(), Failure> {
        head.check(PAYLOAD_MAX_BYTES)?;
        match self.expected {
            Expected::Settings if head.kind != kind::SETTINGS => return Err(Reason::NoSettings.into()),
            Expected::Continuation(pending)
                if head.kind != kind::CONTINUATION || head.stream != pending.stream =>
            {
                return Err(Reason::Interleaved.into());
            }
            Expected::Frame if head.kind == kind::CONTINUATION => {
                return Err(Reason::UnexpectedContinuation.into());
            }
            _ => {}
        }
        if head.kind == kind::PRIORITY_UPDATE {
            return Err(Reason::PriorityUpdate.into());
        }
        head.check_kind().map_err(Failure::from)
    }

    fn take<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        let stream = head.stream;
        match Frame::read(head, payload) {
            Ok(Frame::Data(..) | Frame::Unknown | Frame::PriorityUpdate(..)) => {
                unreachable!("they are passed on or refused before")
            }
            Ok(Frame::Headers(part, _, block, rest)) => self.begin_block(stream, (part, block), rest),
            // Trailers may have no fields.
            Err(Violation::EmptyBlock(head)) => self.begin_block(stream, (b"", block(head)), rest(head)),
            Ok(Frame::Continuation(part, block)) => self.continue_block(part, block),
            Ok(Frame::Reset(code)) => self.take_reset(stream, code),
            Ok(Frame::Settings(settings)) => self.take_settings(settings).map(Some),
            Ok(Frame::SettingsAck) => {
                if self.expected == Expected::Settings {
                    return Err(Reason::NoSettings.into());
                }
                self.has_acknowledged = true;
                self.useless().map(|()| None)
            }
            Ok(Frame::Ping(bytes)) => {
                self.useless()?;
                push::ping_ack(&mut self.control, bytes);
                Ok(None)
            }
            Ok(Frame::PingAck(_) | Frame::Priority(_)) => self.useless().map(|()| None),
            Ok(Frame::GoAway(last, code)) => self.take_go_away(last, code).map(Some),
            Ok(Frame::WindowUpdate(increment)) => self.widen_send_window(stream, increment),
            Err(Violation::ZeroIncrement(head)) if stream != 0 => {
                if self.streams.find(stream).is_none() {
                    return self.take_unknown(stream).map(|()| None);
                }
                let note = Note::Violation(Violation::ZeroIncrement(head));
                Ok(Some(self.violate(stream, ErrorCode::ProtocolError, note)))
            }
            Err(violation) => Err(violation.into()),
        }
    }

    fn useless(&mut self) -> Result<(), Failure> {
        self.meter.useless().map_err(|_| Reason::Useless.into())
    }

    /// Takes a frame for a stream that is not open. It is dropped if the stream existed.
    fn take_unknown(&mut self, stream: u32) -> Result<(), Failure> {
        if !self.streams.was_opened(stream) {
            return Err(Reason::UnknownStream(stream).into());
        }
        self.useless()
    }
}

/// Whether a payload is not waited for.
fn is_passed(head: FrameHead) -> bool {
    let is_known = head.kind <= kind::CONTINUATION || head.kind == kind::PRIORITY_UPDATE;
    head.kind == kind::DATA || !is_known
}

/// Heads.
impl Client {
    fn begin_block<'i>(
        &mut self,
        stream: u32,
        (part, block): (&[u8], Block),
        rest: Rest,
    ) -> Result<Option<Event<'i>>, Failure> {
        if !self.streams.was_opened(stream) {
            return Err(Reason::UnknownStream(stream).into());
        }
        self.block.clear();
        self.add_to_block(Pending { stream, rest, continuations: 0 }, part, block)
    }

    fn continue_block<'i>(&mut self, part: &[u8], block: Block) -> Result<Option<Event<'i>>, Failure> {
        let Expected::Continuation(mut pending) = self.expected else {
            return Err(Reason::UnexpectedContinuation.into());
        };
        pending.continuations += 1;
        if pending.continuations > CONTINUATIONS_MAX {
            return Err(Reason::LargeHead.into());
        }
        if part.is_empty() {
            self.useless()?;
        }
        self.add_to_block(pending, part, block)
    }

    fn add_to_block<'i>(
        &mut self,
        pending: Pending,
        part: &[u8],
        block: Block,
    ) -> Result<Option<Event<'i>>, Failure> {
        if self.block.len() + part.len() > self.limits.head_bytes {
            return Err(Reason::LargeHead.into());
        }
        self.block.extend_from_slice(part);
        debug_assert!(self.block.len() <= self.limits.head_bytes, "a block is so long at most");
        if block == Block::GoesOn {
            self.expected = Expected::Continuation(pending);
            return Ok(None);
        }
        self.expected = Expected::Frame;
        self.take_block(pending.stream, pending.rest)
    }

    /// A block is complete: what it is depends on how far its stream is.
    fn take_block<'i>(&mut self, stream: u32, rest: Rest) -> Result<Option<Event<'i>>, Failure> {
        let phase = self.streams.find(stream).map(|open| open.phase);
        let wanted = match phase {
            Some(Phase::Body) => head::Wanted::Trailers,
            _ => head::Wanted::Head,
        };
        let read = self.head.read((&mut self.decoder, &self.block), wanted, &self.limits)?;
        let Some(open) = self.streams.find_mut(stream) else {
            return self.useless().map(|()| None);
        };
        let phase = open.phase;
        if phase == Phase::Ended {
            let note = Note::HalfClosed("HEADERS");
            return Ok(Some(self.violate(stream, ErrorCode::StreamClosed, note)));
        }
        let taken = read.map_err(Note::Head).and_then(|()| open.take_head(self.head.last(), rest));
        match taken {
            Ok(taken) => {
                self.meter.useful(self.block.len());
                Ok(Some(match taken {
                    streams::Taken::Interim => Event::Interim(stream),
                    streams::Taken::Final => Event::Head(stream, rest),
                    streams::Taken::Trailers => Event::Trailers(stream),
                }))
            }
            Err(note) => Ok(Some(self.violate(stream, ErrorCode::ProtocolError, note))),
        }
    }
}

/// Bodies and windows.
impl Client {
    /// Begins to hand on a body, or to skip what means nothing.
    fn begin_passing<'i>(
        &mut self,
        head: FrameHead,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'i>>, Failure> {
        let FrameHead { stream, length, .. } = head;
        if head.kind != kind::DATA {
            self.passing = Some(Passing::skip(length));
            return self.useless().map(|()| None);
        }
        let padding = head.padding(input.first().copied())?;
        if padding > 0 {
            *input = &input[1..];
        }
        self.passing = Some(Passing::skip(length - padding.min(1)));
        if self.receive_window.take(length).is_err() {
            return Err(Reason::ConnectionWindow(length, self.receive_window.available()).into());
        }
        let left = self.receive_window.available();
        if left < STREAM_MAX / 4 {
            push::window_update(&mut self.control, 0, STREAM_MAX - left);
            self.receive_window = Window::new(STREAM_MAX);
        }
        let Some(open) = self.streams.find_mut(stream) else {
            return self.take_unknown(stream).map(|()| None);
        };
        let rest = rest(head);
        if let Err((code, note)) = open.take_data(length, length - padding, rest) {
            return Ok(Some(self.violate(stream, code, note)));
        }
        let left = length - padding;
        self.passing = Some(Passing { stream, left, padding: padding.saturating_sub(1), rest });
        if left == 0 {
            self.useless()?;
        } else {
            self.meter.useful(left as usize);
        }
        // Padding takes room that nobody gives back by reading.
        if padding > 0 && rest == Rest::Open {
            self.widen(stream, padding);
        }
        Ok(None)
    }

    /// Hands on a part of a body.
    fn take_part<'i>(&mut self, (stream, bytes, rest): Part<'i>) -> Event<'i> {
        if rest == Rest::Ended {
            let open = self.streams.find_mut(stream).expect("what comes for none is skipped");
            if let Err(note) = open.end() {
                return self.violate(stream, ErrorCode::ProtocolError, note);
            }
        }
        Event::Data(stream, bytes, rest)
    }

    fn take_reset<'i>(&mut self, stream: u32, code: u32) -> Result<Option<Event<'i>>, Failure> {
        self.useless()?;
        let Some(open) = self.streams.find_mut(stream) else {
            return self.take_unknown(stream).map(|()| None);
        };
        Ok(open.end_by_server().then_some(Event::Reset(stream, code)))
    }

    fn take_settings<'i>(&mut self, settings: Settings) -> Result<Event<'i>, Failure> {
        self.useless()?;
        if settings.push == Some(Push::Enabled) {
            return Err(Violation::Setting("ENABLE_PUSH", 1).into());
        }
        let is_first = self.expected == Expected::Settings;
        if is_first {
            self.expected = Expected::Frame;
        }
        if let Some(bytes) = settings.window_bytes {
            let before = std::mem::replace(&mut self.first_window_bytes, bytes);
            for stream in self.streams.iter_mut() {
                stream.send_window.resize(before, bytes).map_err(|_| Reason::SettingsWindow(bytes))?;
            }
        }
        if let Some(bytes) = settings.payload_max_bytes {
            self.payload_max_bytes = bytes;
        }
        match settings.concurrent_streams {
            Some(streams) => self.streams_max = streams,
            None if is_first => self.streams_max = STREAM_MAX,
            None => {}
        }
        self.says_no_table |= settings.header_table_bytes.is_some();
        push_settings_ack(&mut self.control);
        Ok(Event::Opened)
    }

    fn widen_send_window<'i>(&mut self, stream: u32, increment: u32) -> Result<Option<Event<'i>>, Failure> {
        self.useless()?;
        if stream == 0 {
            let window = self.send_window.available();
            let widened = self.send_window.widen(increment);
            return widened
                .map(|()| Some(Event::Opened))
                .map_err(|_| Reason::ConnectionIncrement(increment, window).into());
        }
        let Some(open) = self.streams.find_mut(stream) else {
            return self.take_unknown(stream).map(|()| None);
        };
        let window = open.send_window.available();
        if open.send_window.widen(increment).is_err() {
            let note = Note::Increment(increment, window);
            return Ok(Some(self.violate(stream, ErrorCode::FlowControlError, note)));
        }
        Ok(Some(Event::Opened))
    }

    fn take_go_away<'i>(&mut self, last: u32, code: u32) -> Result<Event<'i>, Failure> {
        self.useless()?;
        // It may name fewer streams later on, and never more.
        let last = if let Leave::Leaves(before) = self.leave { before.min(last) } else { last };
        self.leave = Leave::Leaves(last);
        Ok(Event::Leaving(last, code))
    }

    /// Resets a stream whose rules the server has violated.
    fn violate<'i>(&mut self, stream: u32, code: ErrorCode, note: Note) -> Event<'i> {
        self.reset(stream, code);
        if let Some(open) = self.streams.find_mut(stream) {
            open.end_by_server();
        }
        Event::Cut(stream, note)
    }
}

#[cfg(test)]
mod pair;
#[cfg(test)]
mod tests;
