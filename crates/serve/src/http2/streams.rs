//! The streams of a connection: what moves between their requests and its frames. Owned by the connection's
//! task; the other side of each is its request's, which says in [`Ready`] when there is something to look at.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use clearway_h2::connection::Connection as Protocol;
use clearway_h2::flow::WINDOW_FIRST_BYTES;
use clearway_h2::frame::{ErrorCode, Rest, STREAM_MAX};
use clearway_http::{
    Headers, Intake, READY_BITS, Ready, STREAM_WINDOW_BYTES, Stream, StreamFault, StreamOutput,
};

use crate::metrics;

/// How a body is cut where its response does not say, bytes.
const CHUNK_BYTES: usize = 8 * 1024;
/// Statuses below are of interim responses.
const FINAL_STATUS: u16 = 200;
/// Bytes that a client may send of bodies that are read, besides [`WINDOW_FIRST_BYTES`] of each.
const SHARED_WINDOW_BYTES: u32 = 1 << 20;
/// The share of that for one of them, bytes.
const SHARE_MAX_BYTES: u32 = SHARED_WINDOW_BYTES / 4;

/// All streams of a connection.
pub(super) struct Streams {
    /// The streams by number.
    open: VecDeque<Open>,
    /// Bytes that a client may send of a body before something reads it.
    window_bytes: u32,
    /// Which of them have something to look at.
    ready: Arc<Ready>,
    /// Whether windows have grown, so that what was stalled is looked at again.
    is_opened: bool,
}

/// An open stream.
struct Open {
    id: u32,
    stream: Arc<Stream>,
    /// Bytes of the body that have arrived and have no room yet.
    backlog: Vec<u8>,
    /// Whether more of it comes.
    input: Input,
    intake: Intake,
    /// Bytes that the client may send of the body beyond the window of each stream.
    shared_bytes: u32,
    /// Whether the client was sent the last frame, though the request goes on.
    output: Rest,
    /// Bytes of the body that were sent.
    sent_bytes: u64,
    /// The next part of the response.
    next: Option<StreamOutput>,
    /// Since when it has something to send and no window, on the clock of the loop.
    stalled_since_ms: Option<u64>,
    state: StreamState,
}

/// How far the body of a request is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// All has come; the request is told behind the backlog.
    Ending,
    Over,
}

/// The event that a stream waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    Answering,
    /// No more output is sent; the request's task is to end.
    Leaving,
    /// The stream is over.
    Closed,
}

impl Streams {
    pub(super) fn new(window_bytes: u32) -> Self {
        Self { open: VecDeque::new(), window_bytes, ready: Arc::default(), is_opened: false }
    }

    /// Gives memory back while there are none.
    pub(super) fn rest(&mut self) {
        debug_assert!(self.open.is_empty(), "an idle connection has no streams");
        self.open = VecDeque::new();
    }

    /// Whether no stream is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |open| open.id).ok()
    }

    /// Opens one, which was just made, for a request whose body is as `rest` says.
    pub(super) fn open(&mut self, id: u32, rest: Rest, stream: Stream, window_bytes: u32) -> Arc<Stream> {
        debug_assert!(id % 2 == 1, "a client begins streams with odd numbers: {id}");
        assert!(
            self.open.back().is_none_or(|last| last.id < id),
            "streams are opened in the order of their numbers, which finds them"
        );
        stream.allow(window_bytes.into());
        let stream = Arc::new(stream.announced(Arc::clone(&self.ready), bit(id)));
        let input = match rest {
            Rest::Open => Input::Open,
            Rest::Ended => {
                stream.end_body();
                Input::Over
            }
        };
        self.open.push_back(Open {
            id,
            stream: Arc::clone(&stream),
            backlog: Vec::new(),
            input,
            intake: Intake::default(),
            shared_bytes: 0,
            output: Rest::Open,
            sent_bytes: 0,
            next: None,
            stalled_since_ms: None,
            state: StreamState::Answering,
        });
        stream
    }

    /// A part of a body has come: its window had room for it.
    pub(super) fn take_data(&mut self, id: u32, bytes: &[u8], rest: Rest) {
        let Some(at) = self.position(id) else { return };
        let open = &mut self.open[at];
        if open.state == StreamState::Answering {
            open.backlog.extend_from_slice(bytes);
        }
        if rest == Rest::Ended && open.input == Input::Open {
            open.input = Input::Ending;
        }
    }

    /// The stream was reset: the request's task is told so.
    pub(super) fn reset(&mut self, id: u32) {
        let Some(at) = self.position(id) else { return };
        self.open[at].leave();
        // The stream may have ended already.
        self.ready.mark(bit(id));
    }

    /// The connection is gone: nothing of the streams is wanted any more.
    pub(super) fn reset_all(&mut self) {
        self.open.iter_mut().for_each(Open::leave);
        self.forget_ended();
    }

    /// Lets go of those whose requests have ended, behind [`reset_all`](Self::reset_all); whether none is
    /// left.
    pub(super) fn forget_ended(&mut self) -> bool {
        self.ready.take();
        self.open.retain(|open| !open.stream.has_left());
        self.open.is_empty()
    }

    /// Ends the requests that are left, whatever they do.
    pub(super) fn cut_all(&self) {
        self.open.iter().for_each(|open| open.stream.cut());
    }

    /// Windows have grown.
    pub(super) fn note_opened(&mut self) {
        self.is_opened = true;
    }

    /// Since when the first of those waits that have no window.
    pub(super) fn first_stall_ms(&self) -> Option<u64> {
        self.open.iter().filter_map(|open| open.stalled_since_ms).min()
    }

    /// Gives up those that have waited for a window since then or longer; whether there is one.
    pub(super) fn cut_stalled(&mut self, protocol: &mut Protocol, since_ms: u64) -> bool {
        let mut is_cut = false;
        for open in &mut self.open {
            if open.stalled_since_ms.is_some_and(|stalled_ms| stalled_ms <= since_ms) {
                metrics::STREAMS_STALLED.increment();
                protocol.reset(open.id, ErrorCode::Cancel);
                open.leave();
                self.ready.mark(bit(open.id));
                is_cut = true;
            }
        }
        is_cut
    }

    /// Hands bodies on, and lets clients send more where they are read.
    pub(super) fn feed(&mut self, protocol: &mut Protocol) {
        let mut shared_bytes: u32 = self.open.iter().map(|open| open.shared_bytes).sum();
        for open in &mut self.open {
            if open.input == Input::Over || open.state != StreamState::Answering {
                continue;
            }
            shared_bytes -= open.shared_bytes;
            open.feed();
            if open.input == Input::Over {
                open.shared_bytes = 0;
            } else {
                let left_bytes = SHARED_WINDOW_BYTES.saturating_sub(shared_bytes);
                open.widen(protocol, self.window_bytes, left_bytes.min(SHARE_MAX_BYTES));
            }
            shared_bytes += open.shared_bytes;
        }
    }

    /// Has the task polled when a stream has something, unless one does now.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.ready.poll(cx)
    }

    /// The task is polled: nothing has to wake it.
    pub(super) fn begin_poll(&self) {
        self.ready.forget_waker();
    }

    /// Looks at those that have something, and at all where windows have grown.
    fn look(&mut self, protocol: &mut Protocol, now_ms: u64) {
        let bits = self.ready.take();
        let is_opened = std::mem::take(&mut self.is_opened);
        if bits == 0 && !is_opened {
            return;
        }
        let mut at = 0;
        while let Some(open) = self.open.get_mut(at) {
            if is_opened {
                open.stream.allow(open.sent_bytes + u64::from(protocol.window(open.id)));
            }
            if is_opened || bits & 1 << bit(open.id) != 0 {
                open.look(protocol, now_ms);
                if open.state == StreamState::Closed {
                    protocol.close(open.id);
                    self.open.remove(at);
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Writes frames of what streams have, one of the stream whose turn it is, until `room` bytes are filled.
    pub(super) fn gather(&mut self, protocol: &mut Protocol, out: &mut Vec<u8>, room: usize, now_ms: u64) {
        let full_at = out.len() + room;
        self.look(protocol, now_ms);
        while out.len() < full_at
            && let Some(id) = protocol.schedule().next_ready()
        {
            let Some(at) = self.position(id) else { continue };
            let (open, before) = (&mut self.open[at], out.len());
            open.send(protocol, out);
            debug_assert!(out.len() >= before, "a frame is appended");
            protocol.schedule().charge(id, out.len() - before);
            open.look(protocol, now_ms);
            if open.state == StreamState::Closed {
                protocol.close(id);
                self.open.remove(at);
            }
        }
    }
}

/// The bit of a stream: numbers of clients' streams are odd.
fn bit(id: u32) -> u32 {
    id / 2 % READY_BITS
}

impl Open {
    fn leave(&mut self) {
        if self.state == StreamState::Answering {
            self.stream.reset();
            self.state = StreamState::Leaving;
            (self.next, self.stalled_since_ms, self.shared_bytes) = (None, None, 0);
            self.backlog = Vec::new();
        }
    }

    fn feed(&mut self) {
        self.intake = self.stream.intake();
        if self.intake.is_over {
            // The request is answered, and wants no more of it.
            self.backlog = Vec::new();
            self.input = Input::Over;
            return;
        }
        debug_assert!(self.intake.room <= STREAM_WINDOW_BYTES, "a body has its window at most");
        let count = self.backlog.len().min(self.intake.room);
        if count > 0 {
            let piece = match count == self.backlog.len() {
                true => Bytes::from(std::mem::take(&mut self.backlog)),
                false => Bytes::from(self.backlog.drain(..count).collect::<Vec<_>>()),
            };
            // There is room, which only this side makes less.
            let pushed = self.stream.push_body(piece);
            debug_assert!(pushed.is_ok(), "so much has room");
            self.intake.room -= count;
        }
        if self.backlog.is_empty() && self.input == Input::Ending {
            self.stream.end_body();
            self.input = Input::Over;
        }
    }

    /// Lets the client send as much as there is room for, once that is worth a frame. A body that is read may
    /// have `share_bytes` beyond what each has.
    fn widen(&mut self, protocol: &mut Protocol, window_bytes: u32, share_bytes: u32) {
        debug_assert!(share_bytes <= SHARE_MAX_BYTES, "a body has its share at most");
        let Some(receivable) = protocol.receivable(self.id) else { return };
        let first_bytes = window_bytes.max(WINDOW_FIRST_BYTES);
        let wanted_bytes = if self.intake.is_wanted { first_bytes + share_bytes } else { window_bytes };
        let wanted_bytes = wanted_bytes.min(STREAM_MAX);
        let held = self.backlog.len() + STREAM_WINDOW_BYTES.saturating_sub(self.intake.room);
        let used_bytes = receivable + u32::try_from(held).unwrap_or(u32::MAX);
        let increment = wanted_bytes.saturating_sub(used_bytes);
        if increment > 0 && (receivable == 0 || increment >= wanted_bytes / 2) {
            protocol.widen(self.id, increment);
            self.shared_bytes = wanted_bytes.saturating_sub(first_bytes);
        } else {
            self.shared_bytes = used_bytes.saturating_sub(first_bytes);
        }
    }

    /// Looks what there is, and says whether it may be sent.
    fn look(&mut self, protocol: &mut Protocol, now_ms: u64) {
        match self.state {
            StreamState::Closed => return,
            StreamState::Leaving => {
                if self.stream.has_left() {
                    self.state = StreamState::Closed;
                }
                return;
            }
            StreamState::Answering => {}
        }
        self.fetch();
        let may_be_sent = match &self.next {
            None => return,
            Some(StreamOutput::Data(_)) => protocol.sendable(self.id) > 0,
            Some(_) => true,
        };
        if may_be_sent {
            self.stalled_since_ms = None;
            protocol.schedule().make_ready(self.id);
        } else {
            self.stalled_since_ms.get_or_insert(now_ms);
        }
    }

    /// Takes what comes next, unless that is known.
    fn fetch(&mut self) {
        if self.next.is_none() {
            self.next = self.stream.next_output();
        }
    }

    /// Sends one frame of what there is, which may be sent.
    fn send(&mut self, protocol: &mut Protocol, out: &mut Vec<u8>) {
        match self.next.take() {
            None => {}
            Some(StreamOutput::Head(head)) => {
                self.fetch();
                debug_assert!(self.output == Rest::Open, "no head follows the end of a response");
                let is_over = head.status >= FINAL_STATUS && self.take_end();
                let rest = if is_over || head.is_last { Rest::Ended } else { Rest::Open };
                protocol.push_head(out, self.id, head.status, &head.block, rest);
                self.output = rest;
                if is_over {
                    self.conclude(protocol, rest);
                }
            }
            Some(StreamOutput::Data(bytes)) => self.send_data(protocol, out, bytes),
            Some(StreamOutput::End(_)) if self.output == Rest::Ended => self.conclude(protocol, Rest::Ended),
            Some(StreamOutput::End(trailers)) => {
                if trailers.is_empty() {
                    protocol.push_data(out, self.id, b"", Rest::Ended);
                } else {
                    protocol.push_trailers(out, self.id, trailers.iter());
                }
                self.conclude(protocol, Rest::Ended);
            }
            Some(StreamOutput::Reset(fault)) => {
                let code = match fault {
                    StreamFault::TimedOut => ErrorCode::ProtocolError,
                    StreamFault::Other => ErrorCode::InternalError,
                };
                if self.output == Rest::Open {
                    protocol.reset(self.id, code);
                }
                self.state = StreamState::Closed;
            }
        }
    }

    /// Sends a frame of what there is, in as many pieces as it comes.
    fn send_data(&mut self, protocol: &mut Protocol, out: &mut Vec<u8>, first: Bytes) {
        debug_assert!(self.output == Rest::Open, "no body follows the end of a response");
        let chunk_bytes = self.stream.chunk_bytes(CHUNK_BYTES);
        // Other streams may have taken the connection's window since this was looked at.
        let mut room = protocol.sendable(self.id).min(chunk_bytes);
        self.next = Some(StreamOutput::Data(first));
        if room == 0 {
            return;
        }
        let frame = protocol.begin_data(out, self.id);
        while room > 0
            && let Some(mut bytes) = self.take_data()
        {
            let count = bytes.len().min(room);
            out.extend_from_slice(&bytes[..count]);
            self.sent_bytes += count as u64;
            room -= count;
            if count < bytes.len() {
                bytes.advance(count);
                self.next = Some(StreamOutput::Data(bytes));
            } else {
                self.fetch();
            }
        }
        let rest = if self.take_end() { Rest::Ended } else { Rest::Open };
        protocol.end_data(out, frame, rest);
        self.conclude(protocol, rest);
    }

    /// Takes a part of the body where it comes next.
    fn take_data(&mut self) -> Option<Bytes> {
        let next = self.next.take_if(|next| matches!(next, StreamOutput::Data(_)))?;
        let StreamOutput::Data(bytes) = next else { return None };
        Some(bytes)
    }

    /// Takes the end where it comes next, and nothing is to be said with it.
    fn take_end(&mut self) -> bool {
        self.next
            .take_if(|next| matches!(next, StreamOutput::End(lines) if Headers::is_empty(lines)))
            .is_some()
    }

    fn conclude(&mut self, protocol: &mut Protocol, rest: Rest) {
        if rest == Rest::Ended {
            debug_assert!(self.state == StreamState::Answering, "a response ends once");
            debug_assert!(self.next.is_none(), "nothing follows the end of a response");
            protocol.note_answered();
            if self.stream.is_malformed() {
                protocol.reset(self.id, ErrorCode::ProtocolError);
            }
            self.state = StreamState::Closed;
        }
    }
}
