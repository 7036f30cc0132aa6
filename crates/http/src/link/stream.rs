//! A stream: it carries one of several concurrent requests of a connection. Two tasks share it, which may run
//! on different threads: the request's, which reads the body and makes the response, and the connection's,
//! which moves both between the stream and its frames. No call in here waits for the other task, whatever
//! that does; the rules for this are those of the pipes (`clearway-pipe`).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clearway_message::Headers;
pub use clearway_pipe::WINDOW_BYTES as STREAM_WINDOW_BYTES;
use clearway_pipe::{FillerState, Pipe, Ready, Waiting};
use clearway_runtime::{LoopRef, Timer};
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;

use super::departure::Deeds;
use super::tls::Tls;

/// The largest piece that a response is cut into, bytes.
const PIECE_MAX_BYTES: usize = 16 * 1024;
/// The most interim heads that wait to be sent: `100 Continue`, and others, which are left out if there is no
/// room for them.
const INTERIM_HEADS_MAX: usize = 8;
/// The room that is kept for `100 Continue`.
const RESERVED_HEADS: usize = 1;
/// Lower statuses are those of interim responses.
const FINAL_STATUS: u16 = 200;

/// The number in Linux, as logs show it.
const ECONNRESET: i32 = 104;

/// A head on its way to the client.
#[derive(Debug)]
pub struct StreamHead {
    /// The status.
    pub status: u16,
    /// The header lines, in the order in which they are sent, as HPACK writes them without a table.
    pub block: Vec<u8>,
    /// Whether neither a body nor trailers follow.
    pub is_last: bool,
}

/// Output of a stream, for its connection.
#[derive(Debug)]
pub enum StreamOutput {
    /// The head of the response, or an interim one (`100 Continue`, 103).
    Head(StreamHead),
    /// A part of the body.
    Data(Bytes),
    /// The response is complete, with these trailers.
    End(Headers),
    /// The response cannot be completed.
    Reset(Fault),
}

/// The side whose fault it is that a response cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client's: it sent nothing for too long.
    TimedOut,
    /// The server's, or another's.
    Other,
}

/// The client sends more of a body than its window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowExceeded;

/// The state of a request's body, as far as the connection has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// How many bytes can be handed on now.
    pub room: usize,
    /// Whether the request's task reads the body, or waits for it.
    pub is_wanted: bool,
    /// Whether nobody will read the body, as the response is over.
    pub is_over: bool,
}

/// The request's task reads the body.
const WANTED: u8 = 1;
/// The request's task has ended its work.
const LEFT: u8 = 2;
/// The wait for the client timed out.
const TIMED_OUT: u8 = 4;
/// The head of the response was made.
const HEAD: u8 = 8;
/// The request is malformed.
const MALFORMED: u8 = 16;

/// Other tasks had a turn since the request began, or foreign code ran for it.
const ACTED: u8 = 32;
/// The request is to end now, whatever it is doing.
const CUT: u8 = 64;

/// The function that makes the request of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Client,
    /// The server itself: there is no client.
    Server,
}

/// One request, and its response, among others of a connection.
pub struct Stream {
    home: LoopRef,
    maker: Maker,
    local: Option<SocketAddr>,
    /// Made when a task waits for the body.
    timer: OnceLock<Timer>,
    pub(super) deeds: Deeds,
    /// The interim heads, made with the first of them, and the head of the response, stored before [`HEAD`]
    /// is set.
    interim_heads: OnceLock<Box<ArrayQueue<StreamHead>>>,
    head: AtomicCell<Option<Box<StreamHead>>>,
    input: Pipe,
    output: Pipe,
    /// The trailers, written before the end of the output.
    trailers: AtomicCell<Option<Box<Headers>>>,
    /// The request's task waits for its client to leave.
    departure: Waiting,
    /// The request's task, whatever it waits for: it is woken when [`CUT`] is set.
    cutting: Waiting,
    tls: Option<Arc<Tls>>,
    /// The longest piece that the body is to be cut into (`http2_chunk_size`), bytes; 0 while that is not
    /// known.
    chunk_bytes: AtomicU32,
    /// How much of the body the client may be sent, from its beginning, bytes: a request waits for more, so
    /// that it is not over before its client has said that it takes all of the response.
    allowed: AtomicU64,
    /// How many bytes of the response were written, by the request's task.
    written: AtomicU64,
    /// [`WANTED`], [`LEFT`] and the others.
    marks: AtomicU8,
    /// Where the connection looks for what has changed, and the bit of this stream.
    ready: Option<(Arc<Ready>, u32)>,
    /// When the head of the request was received, nanoseconds of the monotonic clock.
    arrived_ns: Option<u64>,
}

impl Stream {
    /// A stream of a connection whose loop is `home` and whose local address is `local`.
    pub fn new(home: LoopRef, local: Option<SocketAddr>) -> Self {
        Self::made_by(Maker::Client, home, local)
    }

    /// Adds that the connection has TLS, with the facts about it.
    #[must_use]
    pub fn secured(mut self, tls: Option<Arc<Tls>>) -> Self {
        debug_assert!(self.maker == Maker::Client, "the server speaks no TLS to itself");
        self.tls = tls;
        self
    }

    /// Adds that the connection looks for changes in `ready`; `bit` is this stream's.
    #[must_use]
    pub fn announced(mut self, ready: Arc<Ready>, bit: u32) -> Self {
        self.ready = Some((ready, bit));
        self
    }

    /// Adds the time at which the request was received, nanoseconds of the monotonic clock.
    #[must_use]
    pub fn arrived(mut self, at_ns: u64) -> Self {
        self.arrived_ns = Some(at_ns);
        self
    }

    /// A stream without a connection: the server itself makes the request, which has no body.
    pub fn internal(home: LoopRef) -> Self {
        let stream = Self::made_by(Maker::Server, home, None);
        stream.end_body();
        stream
    }

    fn made_by(maker: Maker, home: LoopRef, local: Option<SocketAddr>) -> Self {
        Self {
            home,
            maker,
            local,
            timer: OnceLock::new(),
            deeds: Deeds::default(),
            interim_heads: OnceLock::new(),
            head: AtomicCell::new(None),
            input: Pipe::default(),
            output: Pipe::default(),
            trailers: AtomicCell::new(None),
            departure: Waiting::default(),
            cutting: Waiting::default(),
            tls: None,
            chunk_bytes: AtomicU32::new(0),
            allowed: AtomicU64::new(u64::MAX),
            written: AtomicU64::new(0),
            marks: AtomicU8::new(0),
            ready: None,
            arrived_ns: None,
        }
    }

    /// Tells the connection that the stream has changed.
    fn announce(&self) {
        if let Some((ready, bit)) = &self.ready {
            ready.mark(*bit);
        }
    }
}

/// The connection's side.
impl Stream {
    /// Hands on a part of the request's body.
    ///
    /// # Errors
    /// If the client sends more than its window allows.
    pub fn push_body(&self, piece: Bytes) -> Result<(), WindowExceeded> {
        if piece.is_empty() || self.output.state() != FillerState::Open {
            // A request that is answered needs no more of the body.
            return Ok(());
        }
        if piece.len() > self.input.room() {
            return Err(WindowExceeded);
        }
        self.input.push(piece).map_err(|_| WindowExceeded)
    }

    /// The body is complete.
    pub fn end_body(&self) {
        self.input.end(FillerState::Ended);
    }

    /// The client has reset the stream, or the connection is gone.
    pub fn reset(&self) {
        self.input.end(FillerState::Broken);
        self.output.end(FillerState::Broken);
        self.output.wake_filler();
        self.departure.wake();
    }

    /// Has the request end now: its future is dropped.
    pub fn cut(&self) {
        self.marks.fetch_or(CUT, Ordering::AcqRel);
        self.reset();
        self.cutting.wake();
    }

    /// Ready when so many bytes of the body can be pushed in one piece, or nobody will read them.
    pub fn poll_window(&self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        self.input.poll_room(cx, || {
            let has_room = self.output.state() != FillerState::Open || self.input.room() >= bytes;
            has_room.then_some(())
        })
    }

    /// The state of the request's body.
    pub fn intake(&self) -> Intake {
        Intake {
            room: self.input.room(),
            is_wanted: self.has_mark(WANTED),
            is_over: self.output.state() != FillerState::Open,
        }
    }

    fn has_mark(&self, mark: u8) -> bool {
        self.marks.load(Ordering::Acquire) & mark != 0
    }

    /// The client may be sent so many bytes of the body, from its beginning.
    pub fn allow(&self, bytes: u64) {
        if self.allowed.swap(bytes, Ordering::AcqRel) < bytes {
            self.output.wake_filler();
        }
    }

    /// Bytes of the response that wait to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.output.len()
    }

    /// Whether the stream is to be reset behind its response, as its request is malformed (RFC 9113 §8.1.1).
    pub fn is_malformed(&self) -> bool {
        self.has_mark(MALFORMED)
    }

    /// Whether the request's task has ended its work, whether or not the response is complete.
    pub fn has_left(&self) -> bool {
        self.has_mark(LEFT)
    }

    /// The longest piece that the body is to be cut into, bytes, or `usual` where the response does not say.
    pub fn chunk_bytes(&self, usual: usize) -> usize {
        match self.chunk_bytes.load(Ordering::Relaxed) {
            0 => usual,
            bytes => bytes as usize,
        }
    }

    /// The next output.
    pub fn poll_output(&self, cx: &mut Context<'_>) -> Poll<StreamOutput> {
        self.output.poll(cx, |state| self.take_output(state))
    }

    /// The next output, if there is one. For a stream that [announces](Self::announced) its changes, `ready`
    /// says when to look again.
    pub fn next_output(&self) -> Option<StreamOutput> {
        self.take_output(self.output.state())
    }

    /// The state was read before the pipe: if it says that the output has ended, nothing follows the output
    /// that is found.
    fn take_output(&self, state: FillerState) -> Option<StreamOutput> {
        // A piece that is there now follows its head; one that comes later may come with its head.
        let has_pieces = !self.output.is_empty();
        if let Some(head) = self.take_head() {
            return Some(StreamOutput::Head(head));
        }
        if has_pieces && let Some(piece) = self.output.pop() {
            return Some(StreamOutput::Data(piece));
        }
        match state {
            FillerState::Open => None,
            FillerState::Ended => {
                Some(StreamOutput::End(self.trailers.take().map(|lines| *lines).unwrap_or_default()))
            }
            FillerState::Broken => Some(StreamOutput::Reset(match self.has_mark(TIMED_OUT) {
                false => Fault::Other,
                true => Fault::TimedOut,
            })),
        }
    }

    fn take_head(&self) -> Option<StreamHead> {
        // Interim heads are stored before the head of the response, so all of them are there if it is.
        let has_head = self.has_mark(HEAD);
        let interim = self.interim_heads.get().and_then(|heads| heads.pop());
        let own = || if has_head { self.head.take().map(|head| *head) } else { None };
        interim.or_else(own)
    }
}

/// The request's side.
impl Stream {
    pub(super) fn home(&self) -> LoopRef {
        self.home
    }

    pub(super) fn timer(&self) -> &Timer {
        self.timer.get_or_init(|| Timer::new(self.home))
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.local
    }

    pub(super) fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns.filter(|_| !self.has_mark(ACTED))
    }

    /// Notes that other tasks have a turn before the request goes on, or that foreign code runs for it: facts
    /// that were looked up since the request came may be out of date.
    pub fn note_acted(&self) {
        if !self.has_mark(ACTED) {
            self.marks.fetch_or(ACTED, Ordering::AcqRel);
        }
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// Whether the server itself makes the request.
    pub(crate) fn is_internal(&self) -> bool {
        self.maker == Maker::Server
    }

    /// Whether the body had ended when its request began, so that there is none.
    pub fn is_bodiless(&self) -> bool {
        self.input.state() != FillerState::Open && self.input.is_empty()
    }

    /// Whether all of the body was taken, and no more comes.
    pub(crate) fn is_body_over(&self) -> bool {
        self.input.state() == FillerState::Ended && self.input.is_empty()
    }

    pub(super) fn is_reset(&self) -> bool {
        self.output.state() == FillerState::Broken
    }

    /// Ready when the client has reset the stream.
    pub(super) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_reset() {
            self.departure.register(cx.waker());
            if !self.is_reset() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Whether the request is to end now; if not, its task is woken when it is.
    pub fn is_cut_or_register(&self, waker: &Waker) -> bool {
        self.cutting.register(waker);
        self.is_cut()
    }

    /// Whether the request is to end now, whatever it does.
    pub fn is_cut(&self) -> bool {
        self.has_mark(CUT)
    }

    /// The next part of the body; none at its end.
    pub(crate) fn poll_body(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.marks.load(Ordering::Relaxed) & WANTED == 0 {
            self.marks.fetch_or(WANTED, Ordering::AcqRel);
            self.input.wake_filler();
            self.announce();
        }
        self.input.poll(cx, |state| match (self.input.pop(), state) {
            (Some(piece), _) => {
                self.announce();
                Some(Ok(Some(piece)))
            }
            (None, FillerState::Open) => None,
            (None, FillerState::Ended) => Some(Ok(None)),
            (None, _) => Some(Err(was_reset())),
        })
    }

    /// Has the body cut into pieces of so many bytes at most; before its head is sent.
    pub(crate) fn cut_into(&self, chunk_bytes: u32) {
        self.chunk_bytes.store(chunk_bytes, Ordering::Relaxed);
    }

    /// The request is malformed, whatever it is answered with; before the end of the response.
    pub fn note_malformed(&self) {
        self.marks.fetch_or(MALFORMED, Ordering::AcqRel);
    }

    /// Has these lines follow the body; before its end.
    pub(crate) fn put_trailers(&self, lines: Headers) {
        debug_assert!(self.output.state() != FillerState::Ended, "trailers come before the end");
        self.trailers.store(Some(Box::new(lines)));
    }

    /// Sends a head, before everything that is written behind it.
    pub(crate) fn push_head(&self, head: StreamHead) {
        debug_assert!(!self.has_mark(LEFT), "a request that has left makes no head");
        debug_assert!(self.output.is_empty(), "a head would overtake what is on its way");
        if head.status < FINAL_STATUS {
            // `100 Continue` is sent once, and room is kept for it.
            let heads = self.interim_heads.get_or_init(|| Box::new(ArrayQueue::new(INTERIM_HEADS_MAX)));
            let pushed = heads.push(head);
            debug_assert!(pushed.is_ok(), "there is room for one");
        } else {
            let before = self.head.swap(Some(Box::new(head)));
            debug_assert!(before.is_none(), "a response has one head");
            self.marks.fetch_or(HEAD, Ordering::AcqRel);
        }
        self.output.wake_taker();
        self.announce();
    }

    /// Sends an interim head, unless many of them wait already.
    pub(crate) fn push_interim(&self, head: StreamHead) {
        let waiting = self.interim_heads.get().map_or(0, |heads| heads.len());
        if waiting + RESERVED_HEADS < INTERIM_HEADS_MAX {
            self.push_head(head);
        }
    }

    /// Sends bytes of the first of these pieces that are not empty. Returns how many.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.output.poll_room(cx, || match self.write(pieces) {
            Ok(0) => None,
            sent => {
                self.announce();
                Some(sent)
            }
        })
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        debug_assert!(self.has_mark(HEAD), "a body follows its head");
        debug_assert!(!self.has_mark(LEFT), "a request that has left writes nothing");
        let mut sent = 0;
        for mut rest in pieces.iter().map(|piece| &piece[..]) {
            while !rest.is_empty() {
                if self.is_reset() {
                    return Err(was_reset());
                }
                let count = rest.len().min(self.output_room()).min(PIECE_MAX_BYTES);
                if count == 0 || self.output.push(Bytes::copy_from_slice(&rest[..count])).is_err() {
                    return Ok(sent);
                }
                self.written.fetch_add(count as u64, Ordering::Relaxed);
                sent += count;
                rest = &rest[count..];
            }
        }
        Ok(sent)
    }

    fn output_room(&self) -> usize {
        let allowed = self.allowed.load(Ordering::Acquire);
        let left = allowed.saturating_sub(self.written.load(Ordering::Relaxed));
        self.output.room().min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// The response is complete, and all of it was written. The rest of the request's body is dropped. The
    /// last call of the request's task.
    pub fn finish(&self) {
        debug_assert!(!self.has_mark(LEFT), "a request leaves once");
        self.marks.fetch_or(LEFT, Ordering::AcqRel);
        self.output.end(FillerState::Ended);
        self.input.wake_filler();
        self.announce();
    }

    /// The response is complete, and the body may go on.
    pub(crate) fn end_output(&self) {
        self.output.end(FillerState::Ended);
        self.announce();
    }

    /// The response cannot be completed. The last call of the request's task.
    pub fn abort(&self, fault: Fault) {
        debug_assert!(!self.has_mark(LEFT), "a request leaves once");
        let mark = if fault == Fault::TimedOut { TIMED_OUT } else { 0 };
        self.marks.fetch_or(LEFT | mark, Ordering::AcqRel);
        self.output.end(FillerState::Broken);
        self.input.wake_filler();
        self.announce();
    }
}

/// The error for a stream that was reset: the same as for a connection.
pub(super) fn was_reset() -> io::Error {
    io::Error::from_raw_os_error(ECONNRESET)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request allocates a stream: aligned to cache lines, the allocation would be slower.
    #[test]
    fn a_stream_is_a_small_allocation() {
        let (bytes, align) = (size_of::<Stream>(), align_of::<Stream>());
        assert!(bytes <= 640 && align <= align_of::<u64>(), "{bytes} bytes, aligned to {align}");
    }
}
