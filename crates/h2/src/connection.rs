//! The server's side of a connection: bytes in, events and frames out. It knows no socket and no clock, and
//! of requests their numbers and windows only. Owned by the connection's task.
//!
//! 1. A stream is open from its head until its owner [closes](Connection::close) it, which it does when the
//!    request is over on both sides. A stream that the client has reset counts until then, so that requests
//!    which are begun and cancelled do not become more than there may be.
//! 2. Header blocks are read in the order of their arrival whatever becomes of them: later ones refer to
//!    earlier ones.
//! 3. What makes this side work without asking for anything is counted ([`Meter`]), and has a limit.
//! 4. Control frames are gathered in one buffer. Its owner reads nothing more while it is
//!    [full](Connection::is_congested).

mod failure;
pub(crate) mod meter;
mod sending;
mod streams;

pub use failure::{Failure, Note, Reason};
pub use meter::{RESETS_MAX, USELESS_FRAMES_MAX};

use crate::flow::{WINDOW_FIRST_BYTES, Window};
use crate::frame::{
    Block, ErrorCode, Frame, FrameHead, HEAD_BYTES, PAYLOAD_MIN_MAX_BYTES, PREFACE, Rest, STREAM_MAX,
    Violation, flag, kind, rest,
};
use crate::hpack::{Decoder, look_ahead};
use crate::passing::Passing;
use crate::push;
use crate::request::{HeadFault, HeadLimits, HeadReader, Unreadable};
use crate::schedule::{Schedule, Urgency};
use crate::settings::{Priorities, Settings, push_settings_ack};
use clearway_message::RequestHead;
use meter::Meter;
use streams::{Ended, Streams};

/// The table of the client's header fields, bytes; no more is announced, and no more is kept.
const TABLE_BYTES: usize = 4096;
/// The longest payload that the client may send, bytes: longer ones would save little.
const PAYLOAD_MAX_BYTES: u32 = PAYLOAD_MIN_MAX_BYTES;
/// The longest part of a header block that is taken, bytes: heads may be larger than what was announced, and
/// clients of nginx have sent them in one frame.
const BLOCK_MAX_BYTES: u32 = 1 << 20;
/// The most bytes of a frame beside its part of a header block: padding and a priority.
const BLOCK_OVERHEAD_BYTES: usize = 261;
/// Bytes of an incomplete header block that are looked at.
const LOOKED_AT_BYTES: usize = 64;
/// Frames that a header block may consist of besides the first one.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Control frames that wait for the client to read, bytes: with more, nothing is read from it.
pub const CONTROL_MAX_BYTES: usize = 64 * 1024;

/// Limits that the owner of a connection sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams that are open at once (`http2_max_concurrent_streams`).
    pub streams: u32,
    /// The first window of a stream (`http2_body_preread_size`), bytes.
    pub window_bytes: u32,
    /// How large heads may be.
    pub head: HeadLimits,
}

/// The bytes that were received.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// More bytes are needed.
    Need,
    /// A request has begun; its head is to be [read](Connection::read_head) now.
    Head(u32, Rest),
    /// A part of its body, which may be empty where it is the last.
    Data(u32, &'i [u8], Rest),
    /// Its body is over; what came as trailers is left out.
    End(u32),
    /// The client wants nothing of it any more, and says why with a code.
    Reset(u32, u32),
    /// The client has violated the rules of one stream, which is refused or, if it was open, reset.
    Cut(u32, Note),
    /// A window has grown.
    Opened,
}

/// The kind of frame that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Preface,
    Frame,
    /// Another part of a header block.
    Continuation(Pending),
}

/// A header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    stream: u32,
    rest: Rest,
    kind: Kind,
    continuations: u32,
}

/// The meaning of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The head of a request.
    Head,
    /// Trailers of one.
    Trailers,
    /// A frame that nobody needs.
    Dropped,
}

/// Whether a body is taken.
enum Taken<'i> {
    /// Its windows have room for it.
    Yes,
    /// The body is not wanted; the event is for the owner, if there is one.
    Not(Option<Event<'i>>),
}

/// Whether new streams are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Stays,
    /// The client was told that it will be over; what it sends until it has seen that is taken.
    Announced,
    /// The client was told that it is over (GOAWAY).
    Told,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    expected: Expected,
    leave: Leave,
    decoder: Decoder,
    /// The header block under way.
    block: Vec<u8>,
    /// The payload under way.
    passing: Option<Passing>,
    streams: Streams,
    schedule: Schedule,
    meter: Meter,
    /// The bytes that this side may send.
    send_window: Window,
    /// The bytes that the client may send.
    receive_window: Window,
    /// The client's settings, or what they are where it has said nothing.
    first_window_bytes: u32,
    payload_max_bytes: u32,
    has_acknowledged: bool,
    /// A stream whose head has not come in time, and is dropped when it comes.
    late: Option<u32>,
    /// Whether the next header block says that this side has no table.
    says_no_table: bool,
    control: Vec<u8>,
    scratch: Vec<u8>,
}

impl Connection {
    /// A connection that begins; the settings of the server are to be sent first.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut control = Vec::new();
        let settings = Settings {
            concurrent_streams: Some(limits.streams),
            window_bytes: Some(limits.window_bytes),
            payload_max_bytes: Some(PAYLOAD_MAX_BYTES),
            ..Settings::default()
        };
        settings.push_frame(&mut control);
        push::window_update(&mut control, 0, STREAM_MAX - WINDOW_FIRST_BYTES);
        Self {
            limits,
            expected: Expected::Preface,
            leave: Leave::Stays,
            decoder: Decoder::new(TABLE_BYTES),
            block: Vec::new(),
            passing: None,
            streams: Streams::default(),
            schedule: Schedule::default(),
            meter: Meter::new(limits.streams),
            send_window: Window::new(WINDOW_FIRST_BYTES),
            receive_window: Window::new(STREAM_MAX),
            first_window_bytes: WINDOW_FIRST_BYTES,
            payload_max_bytes: PAYLOAD_MIN_MAX_BYTES,
            has_acknowledged: false,
            late: None,
            says_no_table: true,
            control,
            scratch: Vec::new(),
        }
    }

    /// How many streams are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Which of them sends next.
    pub fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// Whether the client was told that no more streams are taken.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leave == Leave::Told
    }

    /// Whether a header block is incomplete.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        matches!(self.expected, Expected::Continuation(_))
    }

    /// Gives memory back while there are no streams.
    pub fn rest(&mut self) {
        self.schedule.rest();
        self.streams.rest();
        self.decoder.rest();
        debug_assert!(!self.is_in_block(), "a block belongs to a stream that begins");
        (self.block, self.scratch) = (Vec::new(), Vec::new());
        self.control.shrink_to_fit();
    }

    /// Whether nothing more should be read before the client has taken control frames.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.control.len() >= CONTROL_MAX_BYTES
    }

    /// Something was received, `count` bytes: what it asks for is counted from here on.
    ///
    /// # Errors
    /// There is too much of it that asks for nothing.
    pub fn begin_read(&mut self, count: usize) -> Result<(), Failure> {
        self.meter.begin_read(count).map_err(Failure::from)
    }

    /// Takes the next frame that means something from the front of `input`, which keeps what is incomplete.
    ///
    /// # Errors
    /// The connection has to end, as is to be [said](Self::go_away) to the client.
    pub fn receive<'i>(&mut self, input: &mut &'i [u8]) -> Result<Event<'i>, Failure> {
        if self.expected == Expected::Preface && !self.take_preface(input)? {
            return Ok(Event::Need);
        }
        loop {
            if let Some(passing) = self.passing.take() {
                let (part, left) = passing.take(input);
                self.passing = left;
                match part {
                    Some((stream, bytes, rest)) => return Ok(Event::Data(stream, bytes, rest)),
                    None if self.passing.is_some() => return Ok(Event::Need),
                    None => {}
                }
            }
            let Some(bytes) = input.first_chunk() else { return Ok(Event::Need) };
            let head = FrameHead::read(bytes);
            if self.is_passed(head) {
                head.check(PAYLOAD_MAX_BYTES)?;
                let begins_with_padding = head.kind == kind::DATA && head.is_padded() && head.length > 0;
                if begins_with_padding && input.len() == HEAD_BYTES {
                    return Ok(Event::Need);
                }
                *input = &input[HEAD_BYTES..];
                if let Some(event) = self.begin_passing(head, input)? {
                    return Ok(event);
                }
                continue;
            }
            self.check(head)?;
            let end = HEAD_BYTES + head.length as usize;
            let Some(payload) = input.get(HEAD_BYTES..end) else {
                look_at_part(head, &input[HEAD_BYTES..])?;
                return Ok(Event::Need);
            };
            debug_assert_eq!(payload.len(), head.length as usize, "a frame is taken as a whole");
            *input = &input[end..];
            if let Some(event) = self.take(head, payload)? {
                return Ok(event);
            }
        }
    }

    /// Whether a payload is not waited for.
    fn is_passed(&self, head: FrameHead) -> bool {
        let is_known = head.kind <= kind::CONTINUATION || head.kind == kind::PRIORITY_UPDATE;
        let is_passed = head.kind == kind::DATA || !is_known || head.kind == kind::GOAWAY && head.length > 8;
        is_passed && !self.is_in_block()
    }

    /// Looks at a frame before its payload has come.
    fn check(&self, head: FrameHead) -> Result<(), Failure> {
        if self.is_in_block() {
            if head.kind != kind::CONTINUATION {
                return Err(Reason::Interleaved.into());
            }
        } else {
            head.check_kind()?;
        }
        match head.kind {
            kind::HEADERS | kind::CONTINUATION => {
                head.check(BLOCK_MAX_BYTES)?;
                let most = self.limits.head.head_bytes.saturating_add(BLOCK_OVERHEAD_BYTES);
                if head.length as usize > most {
                    return Err(Reason::Unreadable(Unreadable::LargeHead).into());
                }
            }
            _ => head.check(PAYLOAD_MIN_MAX_BYTES)?,
        }
        Ok(())
    }

    /// Whether all of it is there.
    fn take_preface(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(Reason::Preface.into());
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        *input = &input[length..];
        self.expected = Expected::Frame;
        Ok(true)
    }

    fn take<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Result<Option<Event<'i>>, Failure> {
        let frame = Frame::read(head, payload);
        if let Expected::Continuation(pending) = self.expected {
            return match frame {
                Ok(Frame::Continuation(part, block)) if head.stream == pending.stream => {
                    self.continue_block(pending, part, block)
                }
                Ok(Frame::Continuation(..)) => Err(Reason::ContinuationIdentifier.into()),
                _ => Err(Reason::Interleaved.into()),
            };
        }
        let stream = head.stream;
        match frame? {
            Frame::Data(..) => unreachable!("bodies are handed on as they come"),
            Frame::Headers(part, priority, block, rest) => {
                let begun = self.begin_block(stream, (part, block), rest);
                if let (Ok(_), Some(priority)) = (&begun, priority) {
                    self.schedule.place(stream, priority);
                }
                begun
            }
            Frame::Continuation(..) => Err(Reason::UnexpectedContinuation.into()),
            Frame::Reset(code) => self.take_reset(stream, code),
            Frame::Settings(settings) => self.take_settings(settings).map(Some),
            Frame::SettingsAck => {
                self.has_acknowledged = true;
                self.meter.useless().map(|()| None).map_err(Failure::from)
            }
            Frame::Ping(bytes) => {
                push::ping_ack(&mut self.control, bytes);
                self.meter.useless().map(|()| None).map_err(Failure::from)
            }
            Frame::WindowUpdate(increment) => self.widen_send_window(stream, increment),
            Frame::Priority(priority) => {
                self.meter.priority()?;
                self.schedule.place(stream, priority);
                Ok(None)
            }
            Frame::PriorityUpdate(of, value) => {
                self.meter.priority()?;
                self.schedule.set_urgency(of, Urgency::parse(value));
                Ok(None)
            }
            Frame::PingAck(bytes) if self.is_farewell(bytes) => {
                self.go_away(ErrorCode::NoError);
                Ok(None)
            }
            Frame::PingAck(_) | Frame::GoAway(..) | Frame::Unknown => {
                self.meter.useless().map(|()| None).map_err(Failure::from)
            }
        }
    }
}

/// Heads.
impl Connection {
    fn begin_block<'i>(
        &mut self,
        stream: u32,
        (part, block): (&[u8], Block),
        rest: Rest,
    ) -> Result<Option<Event<'i>>, Failure> {
        let last = self.streams.last();
        let kind = if self.streams.find(stream).is_some() {
            Kind::Trailers
        } else if stream.is_multiple_of(2) || stream <= last {
            return Err(match self.streams.ended(stream) {
                Some(Ended::ByReset) => Reason::ClosedStream(stream).into(),
                _ => Reason::StreamIdentifier(stream, last).into(),
            });
        } else {
            self.streams.note_last(stream);
            let is_late = self.late.take_if(|late| *late == stream).is_some();
            if is_late || self.leave == Leave::Told { Kind::Dropped } else { Kind::Head }
        };
        self.block.clear();
        let pending = Pending { stream, rest, kind, continuations: 0 };
        self.add_to_block(pending, part, block)
    }

    fn continue_block<'i>(
        &mut self,
        mut pending: Pending,
        part: &[u8],
        block: Block,
    ) -> Result<Option<Event<'i>>, Failure> {
        pending.continuations += 1;
        if pending.continuations > CONTINUATIONS_MAX {
            return Err(Reason::Unreadable(Unreadable::LargeHead).into());
        }
        if part.is_empty() {
            self.meter.useless()?;
        }
        self.add_to_block(pending, part, block)
    }

    fn add_to_block<'i>(
        &mut self,
        pending: Pending,
        part: &[u8],
        block: Block,
    ) -> Result<Option<Event<'i>>, Failure> {
        if self.block.len() + part.len() > self.limits.head.head_bytes {
            return Err(Reason::Unreadable(Unreadable::LargeHead).into());
        }
        self.block.extend_from_slice(part);
        debug_assert!(pending.continuations <= CONTINUATIONS_MAX, "a block has so many parts at most");
        if block == Block::GoesOn {
            self.expected = Expected::Continuation(pending);
            return Ok(None);
        }
        self.expected = Expected::Frame;
        match pending.kind {
            Kind::Head => self.accept(pending.stream, pending.rest).map(Some),
            Kind::Dropped => {
                self.drop_block()?;
                self.meter.useless()?;
                Ok(None)
            }
            Kind::Trailers => self.take_trailers(pending.stream, pending.rest),
        }
    }

    /// Opens a stream, if there may be one more.
    fn accept<'i>(&mut self, stream: u32, rest: Rest) -> Result<Event<'i>, Failure> {
        let limit = self.limits.streams as usize;
        let is_early =
            !self.has_acknowledged && rest == Rest::Open && self.limits.window_bytes < WINDOW_FIRST_BYTES;
        let note = if self.streams.len() >= limit {
            Note::Concurrent(self.streams.len())
        } else if self.meter.begin_stream() {
            Note::AtOnce
        } else if is_early {
            Note::Early
        } else {
            self.meter.useful(self.block.len());
            self.streams.open(stream, self.first_window_bytes, self.limits.window_bytes, rest);
            self.schedule.open(stream);
            debug_assert!(self.streams.len() <= limit, "no more streams are open than there may be");
            debug_assert_eq!(
                stream,
                self.streams.last(),
                "the head that is read next is that of the last stream"
            );
            return Ok(Event::Head(stream, rest));
        };
        self.drop_block()?;
        self.meter.refuse()?;
        push::reset(&mut self.control, stream, ErrorCode::RefusedStream);
        Ok(Event::Cut(stream, note))
    }

    /// Reads the head of the request that has begun last: `text` and `head`, which are empty, become its own.
    /// With a fault they have what came before it, and it is to be answered. The length of the block, bytes,
    /// comes with it.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn read_head(
        &mut self,
        reader: &mut HeadReader,
        rest: Rest,
        (text, head): (&mut Vec<u8>, &mut RequestHead),
    ) -> Result<(Option<HeadFault>, usize), Failure> {
        debug_assert!(!self.is_in_block(), "a block is read when it is complete");
        let block = std::mem::take(&mut self.block);
        let read = reader.read((&mut self.decoder, &block), rest, &self.limits.head, (text, head));
        let length = block.len();
        self.block = block;
        if let Some(urgency) = reader.urgency() {
            self.schedule.set_urgency(self.streams.last(), urgency);
        }
        read.map(|fault| (fault, length)).map_err(|reason| Reason::Unreadable(reason).into())
    }

    /// Reads a block for the sake of those that follow.
    fn drop_block(&mut self) -> Result<(), Failure> {
        let (mut text, mut head) = (Vec::new(), RequestHead::default());
        self.read_head(&mut HeadReader::default(), Rest::Open, (&mut text, &mut head)).map(drop)
    }

    /// The head has not come in time of which there is a part: its stream is reset, and what comes of it is
    /// dropped. `input` is what was received and not taken. Whether there is one.
    ///
    /// # Errors
    /// There were too many of them.
    pub fn give_up_head(&mut self, input: &[u8]) -> Result<bool, Failure> {
        let stream = match &mut self.expected {
            Expected::Continuation(pending) if pending.kind == Kind::Head => {
                pending.kind = Kind::Dropped;
                pending.stream
            }
            Expected::Frame if self.passing.is_none() => {
                let head = input.first_chunk().map(FrameHead::read);
                let is_new =
                    |head: &FrameHead| head.kind == kind::HEADERS && head.stream > self.streams.last();
                let head = head.filter(|head| is_new(head) && !head.stream.is_multiple_of(2));
                let Some(head) = head.filter(|head| self.late != Some(head.stream)) else { return Ok(false) };
                self.late = Some(head.stream);
                head.stream
            }
            _ => return Ok(false),
        };
        self.meter.reset()?;
        push::reset(&mut self.control, stream, ErrorCode::ProtocolError);
        Ok(true)
    }

    fn take_trailers<'i>(&mut self, stream: u32, rest: Rest) -> Result<Option<Event<'i>>, Failure> {
        self.drop_block()?;
        let open = self.streams.find_mut(stream).expect("it was found when the block began");
        let was_open = std::mem::replace(&mut open.input, Rest::Ended) == Rest::Open;
        if !was_open {
            return Ok(Some(self.violate(
                stream,
                ErrorCode::StreamClosed,
                Note::HalfClosed("HEADERS", stream),
            )?));
        }
        if rest == Rest::Open {
            return Ok(Some(self.violate(stream, ErrorCode::ProtocolError, Note::OpenTrailers(stream))?));
        }
        Ok(Some(Event::End(stream)))
    }
}

/// Bodies and windows.
impl Connection {
    /// Begins to hand on a body, or to skip what means nothing.
    fn begin_passing<'i>(
        &mut self,
        head: FrameHead,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'i>>, Failure> {
        let FrameHead { stream, length, .. } = head;
        if head.kind != kind::DATA {
            if head.kind == kind::GOAWAY && stream != 0 {
                return Err(Violation::Identifier(head).into());
            }
            self.passing = Some(Passing::skip(length));
            return self.meter.useless().map(|()| None).map_err(Failure::from);
        }
        let padding = head.padding(input.first().copied())?;
        if padding > 0 {
            *input = &input[1..];
        }
        self.passing = Some(Passing::skip(length - padding.min(1)));
        if let Taken::Not(event) = self.take_window(head)? {
            return Ok(event);
        }
        let open = self.streams.find_mut(stream).expect("its window was taken");
        let rest = rest(head);
        open.input = rest;
        assert!(padding <= length, "padding lies within its frame");
        let left = length - padding;
        self.passing = Some(Passing { stream, left, padding: padding.saturating_sub(1), rest });
        if left == 0 {
            self.meter.useless()?;
        } else {
            self.meter.useful(left as usize);
        }
        // Padding takes room that nobody gives back by reading.
        if padding > 0 && rest == Rest::Open {
            self.widen(stream, padding);
        }
        Ok(None)
    }

    /// Counts a DATA frame against its windows. Where its body is not wanted, what comes of that.
    fn take_window<'i>(&mut self, head: FrameHead) -> Result<Taken<'i>, Failure> {
        let FrameHead { stream, length, .. } = head;
        if self.receive_window.take(length).is_err() {
            return Err(Reason::ConnectionWindow(length, self.receive_window.available()).into());
        }
        let left = self.receive_window.available();
        if left < STREAM_MAX / 4 {
            push::window_update(&mut self.control, 0, STREAM_MAX - left);
            self.receive_window = Window::new(STREAM_MAX);
        }
        debug_assert!(self.receive_window.available() >= STREAM_MAX / 4, "bodies of all streams have room");
        let Some(open) = self.streams.find_mut(stream) else {
            self.meter.useless()?;
            return self.take_unknown("DATA", stream).map(Taken::Not);
        };
        if open.input == Rest::Ended {
            let note = Note::HalfClosed("DATA", stream);
            return self.violate(stream, ErrorCode::StreamClosed, note).map(|event| Taken::Not(Some(event)));
        }
        if open.receive_window.take(length).is_err() {
            let note = Note::Window(stream, length, open.receive_window.available());
            return self
                .violate(stream, ErrorCode::FlowControlError, note)
                .map(|event| Taken::Not(Some(event)));
        }
        Ok(Taken::Yes)
    }

    /// Takes a frame for a stream that is not open: it never was, or it is over.
    fn take_unknown<'i>(&mut self, frame: &'static str, stream: u32) -> Result<Option<Event<'i>>, Failure> {
        if stream > self.streams.last() || stream.is_multiple_of(2) {
            return Err(Reason::Idle(frame, stream).into());
        }
        if frame == "DATA" && matches!(self.streams.ended(stream), Some(Ended::ByClient | Ended::ByReset)) {
            return Err(Reason::ClosedStream(stream).into());
        }
        Ok(None)
    }

    fn take_reset<'i>(&mut self, stream: u32, code: u32) -> Result<Option<Event<'i>>, Failure> {
        self.meter.useless()?;
        let Some(open) = self.streams.find_mut(stream) else {
            return self.take_unknown("RST_STREAM", stream);
        };
        if !open.end_by_client() {
            return Ok(None);
        }
        self.meter.reset()?;
        Ok(Some(Event::Reset(stream, code)))
    }

    fn take_settings<'i>(&mut self, settings: Settings) -> Result<Event<'i>, Failure> {
        self.meter.useless()?;
        if let Some(bytes) = settings.window_bytes {
            let before = std::mem::replace(&mut self.first_window_bytes, bytes);
            for stream in self.streams.iter_mut() {
                stream.send_window.resize(before, bytes).map_err(|_| Reason::SettingsWindow(bytes))?;
            }
        }
        if let Some(bytes) = settings.payload_max_bytes {
            self.payload_max_bytes = bytes;
        }
        if settings.priorities == Some(Priorities::NoTree) {
            self.schedule.leave_tree();
        }
        self.says_no_table |= settings.header_table_bytes.is_some();
        push_settings_ack(&mut self.control);
        Ok(Event::Opened)
    }

    fn widen_send_window<'i>(&mut self, stream: u32, increment: u32) -> Result<Option<Event<'i>>, Failure> {
        self.meter.useless()?;
        if stream == 0 {
            let window = self.send_window.available();
            let widened = self.send_window.widen(increment);
            return widened
                .map(|()| Some(Event::Opened))
                .map_err(|_| Reason::ConnectionIncrement(increment, window).into());
        }
        let Some(open) = self.streams.find_mut(stream) else {
            return self.take_unknown("WINDOW_UPDATE", stream);
        };
        let window = open.send_window.available();
        if open.send_window.widen(increment).is_err() {
            let note = Note::Increment(stream, increment, window);
            return self.violate(stream, ErrorCode::FlowControlError, note).map(Some);
        }
        Ok(Some(Event::Opened))
    }

    /// Resets a stream whose rules the client has violated, which counts as if it had done so itself.
    fn violate<'i>(&mut self, stream: u32, code: ErrorCode, note: Note) -> Result<Event<'i>, Failure> {
        self.meter.reset()?;
        self.reset(stream, code);
        if let Some(open) = self.streams.find_mut(stream) {
            open.end_by_client();
        }
        Ok(Event::Cut(stream, note))
    }
}

/// Refuses a header block that cannot become right before all of it has come.
fn look_at_part(head: FrameHead, part: &[u8]) -> Result<(), Failure> {
    if head.kind != kind::HEADERS || head.flags & (flag::PADDED | flag::PRIORITY) != 0 {
        return Ok(());
    }
    let part = &part[..part.len().min(LOOKED_AT_BYTES)];
    look_ahead(part).map_err(|fault| Reason::Unreadable(Unreadable::Compression(fault)).into())
}

#[cfg(test)]
mod tests;
