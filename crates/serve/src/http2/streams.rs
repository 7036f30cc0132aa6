//! The streams of a connection: what moves between their requests and its frames. Owned by the connection's
//! task; the other side of each is its request's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use clearway_h2::connection::Connection as Protocol;
use clearway_h2::flow::WINDOW_FIRST_BYTES;
use clearway_h2::frame::{ErrorCode, Rest, STREAM_MAX};
use clearway_http::{Headers, Intake, STREAM_WINDOW_BYTES, Stream, StreamFault, StreamOutput, Tls};
use clearway_runtime::LoopRef;

/// How a body is cut where its response does not say, bytes.
const CHUNK_BYTES: usize = 8 * 1024;
/// Statuses below are of interim responses.
const FINAL_STATUS: u16 = 200;
/// What a client may send of bodies that are read, besides [`WINDOW_FIRST_BYTES`] of each, bytes.
const SHARED_WINDOW_BYTES: u32 = 1 << 20;
/// What one of them may have of that, bytes.
const SHARE_MAX_BYTES: u32 = SHARED_WINDOW_BYTES / 4;

/// All of a connection.
pub(super) struct Streams {
    /// By number.
    open: Vec<Open>,
    /// What a client may send of a body before something reads it, bytes.
    window_bytes: u32,
    /// Which of them is the first to send.
    turn: usize,
    /// Whether windows have grown, so that what was stalled is looked at again.
    is_opened: bool,
}

/// One that is open.
struct Open {
    id: u32,
    stream: Arc<Stream>,
    /// What has come of the body and has no room yet.
    backlog: Vec<u8>,
    /// Whether more of it comes.
    input: Input,
    intake: Intake,
    /// What the client may send of the body beyond what each stream has, bytes.
    shared_bytes: u32,
    /// Whether the client was sent the last frame, though the request goes on.
    output: Rest,
    /// What comes next of the response.
    next: Option<StreamOutput>,
    /// Since when it has something to send and no window, on the clock of the loop.
    stalled_since_ms: Option<u64>,
    state: State,
}

/// How far the body of a request is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// All has come; the request is told behind the backlog.
    Ending,
    Over,
}

/// What a stream waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Answering,
    /// Nothing is sent any more; the request's task is to come to its end.
    Leaving,
    /// It is over.
    Closed,
}

/// What came of an attempt to send something of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Something,
    /// There is nothing now, or no window for it.
    Nothing,
}

impl Streams {
    pub(super) fn new(window_bytes: u32) -> Self {
        Self { open: Vec::new(), window_bytes, turn: 0, is_opened: false }
    }

    /// Gives memory back while there are none.
    pub(super) fn rest(&mut self) {
        debug_assert!(self.open.is_empty(), "an idle connection has no streams");
        self.open = Vec::new();
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |open| open.id).ok()
    }

    /// Opens one for a request whose body is as `rest` says.
    pub(super) fn open(
        &mut self,
        id: u32,
        rest: Rest,
        (home, local): (LoopRef, Option<SocketAddr>),
        tls: Option<Arc<Tls>>,
    ) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(home, local).secured(tls));
        let input = match rest {
            Rest::Open => Input::Open,
            Rest::Ended => {
                stream.end_body();
                Input::Over
            }
        };
        self.open.push(Open {
            id,
            stream: Arc::clone(&stream),
            backlog: Vec::new(),
            input,
            intake: Intake::default(),
            shared_bytes: 0,
            output: Rest::Open,
            next: None,
            stalled_since_ms: None,
            state: State::Answering,
        });
        stream
    }

    /// A part of a body has come: its window had room for it.
    pub(super) fn take_data(&mut self, id: u32, bytes: &[u8], rest: Rest) {
        let Some(at) = self.position(id) else { return };
        let open = &mut self.open[at];
        if open.state == State::Answering {
            open.backlog.extend_from_slice(bytes);
        }
        if rest == Rest::Ended && open.input == Input::Open {
            open.input = Input::Ending;
        }
    }

    /// Nothing of a stream is wanted any more.
    pub(super) fn reset(&mut self, id: u32, cx: &mut Context<'_>) {
        let Some(at) = self.position(id) else { return };
        self.open[at].leave();
        // From here on its end is waited for.
        let _ = self.open[at].stream.poll_left(cx);
    }

    /// The connection is gone.
    pub(super) fn reset_all(&mut self) {
        self.open.drain(..).for_each(|open| open.stream.reset());
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
                protocol.reset(open.id, ErrorCode::Cancel);
                open.leave();
                is_cut = true;
            }
        }
        is_cut
    }

    /// Hands bodies on, and lets clients send more where they are read.
    pub(super) fn feed(&mut self, protocol: &mut Protocol, cx: &mut Context<'_>) {
        let mut shared_bytes: u32 = self.open.iter().map(|open| open.shared_bytes).sum();
        for open in &mut self.open {
            if open.input == Input::Over || open.state != State::Answering {
                continue;
            }
            shared_bytes -= open.shared_bytes;
            open.feed(cx);
            if open.input == Input::Over {
                open.shared_bytes = 0;
            } else {
                let left_bytes = SHARED_WINDOW_BYTES.saturating_sub(shared_bytes);
                open.widen(protocol, self.window_bytes, left_bytes.min(SHARE_MAX_BYTES));
            }
            shared_bytes += open.shared_bytes;
        }
    }

    /// Writes frames of what streams have, one of each in turn, until `room` bytes are filled.
    pub(super) fn gather(
        &mut self,
        protocol: &mut Protocol,
        out: &mut Vec<u8>,
        room: usize,
        now_ms: u64,
        cx: &mut Context<'_>,
    ) {
        let full_at = out.len() + room;
        if std::mem::take(&mut self.is_opened) {
            self.open.iter_mut().for_each(|open| open.look_again(protocol));
        }
        let mut idle = 0;
        while out.len() < full_at && idle < self.open.len() {
            self.turn %= self.open.len();
            let open = &mut self.open[self.turn];
            match open.send(protocol, out, now_ms, cx) {
                Sent::Something => idle = 0,
                Sent::Nothing => idle += 1,
            }
            if open.state == State::Closed {
                protocol.close(open.id);
                self.open.remove(self.turn);
            } else {
                self.turn += 1;
            }
        }
    }
}

impl Open {
    fn leave(&mut self) {
        if self.state == State::Answering {
            self.stream.reset();
            self.state = State::Leaving;
            (self.next, self.stalled_since_ms, self.shared_bytes) = (None, None, 0);
            self.backlog = Vec::new();
        }
    }

    fn feed(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(intake) = self.stream.poll_intake(cx, self.intake) {
            self.intake = intake;
            if intake.is_over {
                // The request is answered, and wants no more of it.
                self.backlog = Vec::new();
                self.input = Input::Over;
                return;
            }
        }
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

    /// Windows have grown: it may not be stalled any more.
    fn look_again(&mut self, protocol: &Protocol) {
        if protocol.sendable(self.id) > 0 {
            self.stalled_since_ms = None;
        }
    }

    /// Sends one frame of what there is.
    fn send(
        &mut self,
        protocol: &mut Protocol,
        out: &mut Vec<u8>,
        now_ms: u64,
        cx: &mut Context<'_>,
    ) -> Sent {
        if self.state == State::Leaving {
            let has_left = self.stream.poll_left(cx).is_ready();
            self.state = if has_left { State::Closed } else { State::Leaving };
            return Sent::Nothing;
        }
        self.look(cx);
        match self.next.take() {
            None => Sent::Nothing,
            Some(StreamOutput::Head(head)) => {
                self.look(cx);
                let is_over = head.status >= FINAL_STATUS && self.take_end();
                let rest = if is_over || head.is_last { Rest::Ended } else { Rest::Open };
                protocol.push_head(out, self.id, head.status, head.lines.iter(), rest);
                self.output = rest;
                if is_over {
                    self.conclude(protocol, rest);
                }
                Sent::Something
            }
            Some(StreamOutput::Data(bytes)) => self.send_data(protocol, out, bytes, now_ms, cx),
            Some(StreamOutput::End(_)) if self.output == Rest::Ended => {
                self.conclude(protocol, Rest::Ended);
                Sent::Something
            }
            Some(StreamOutput::End(trailers)) => {
                if trailers.is_empty() {
                    protocol.push_data(out, self.id, b"", Rest::Ended);
                } else {
                    protocol.push_head(out, self.id, 0, trailers.iter(), Rest::Ended);
                }
                self.conclude(protocol, Rest::Ended);
                Sent::Something
            }
            Some(StreamOutput::Reset(fault)) => {
                let code = match fault {
                    StreamFault::TimedOut => ErrorCode::ProtocolError,
                    StreamFault::Other => ErrorCode::InternalError,
                };
                if self.output == Rest::Open {
                    protocol.reset(self.id, code);
                }
                self.state = State::Closed;
                Sent::Something
            }
        }
    }

    fn send_data(
        &mut self,
        protocol: &mut Protocol,
        out: &mut Vec<u8>,
        mut bytes: Bytes,
        now_ms: u64,
        cx: &mut Context<'_>,
    ) -> Sent {
        let chunk_bytes = self.stream.chunk_bytes(CHUNK_BYTES);
        let count = bytes.len().min(protocol.sendable(self.id)).min(chunk_bytes);
        if count == 0 {
            self.next = Some(StreamOutput::Data(bytes));
            self.stalled_since_ms.get_or_insert(now_ms);
            return Sent::Nothing;
        }
        self.stalled_since_ms = None;
        let mut rest = Rest::Open;
        if count == bytes.len() {
            self.look(cx);
            if self.take_end() {
                rest = Rest::Ended;
            }
            protocol.push_data(out, self.id, &bytes, rest);
        } else {
            protocol.push_data(out, self.id, &bytes[..count], rest);
            bytes.advance(count);
            self.next = Some(StreamOutput::Data(bytes));
        }
        self.conclude(protocol, rest);
        Sent::Something
    }

    /// Asks for what comes next, unless that is known.
    fn look(&mut self, cx: &mut Context<'_>) {
        if self.next.is_none()
            && let Poll::Ready(next) = self.stream.poll_output(cx)
        {
            self.next = Some(next);
        }
    }

    /// Takes the end where it comes next, and nothing is to be said with it.
    fn take_end(&mut self) -> bool {
        self.next
            .take_if(|next| matches!(next, StreamOutput::End(lines) if Headers::is_empty(lines)))
            .is_some()
    }

    fn conclude(&mut self, protocol: &mut Protocol, rest: Rest) {
        if rest == Rest::Ended {
            protocol.note_answered();
            self.state = State::Closed;
        }
    }
}
