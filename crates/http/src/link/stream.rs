//! A stream: what carries one of several requests of a connection at once. Two tasks have it, which may run
//! on different threads: the request's, which reads the body and makes the response, and the connection's,
//! which moves both between the stream and its frames. Nothing in here waits for the other side, whatever
//! it is doing.
//!
//! 1. A direction has one task that fills it and one that empties it.
//! 2. The filler pushes a piece, or stores the end behind the last one, and then takes the waker that waits.
//! 3. A waiter stores its waker and then looks again. Both are exchanges of one word, so either the filler
//!    finds the waker, or the second look finds what it has pushed.
//! 4. The emptier reads the end before it looks for a piece: an end that was seen has nothing behind it.
//! 5. What is on its way is bounded by bytes, counted before they are pushed and after they are taken.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clearway_message::Headers;
use clearway_runtime::{LoopRef, Timer};
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;

use super::departure::Deeds;

/// What a stream holds in each direction before its filler has to wait, bytes.
pub const STREAM_WINDOW_BYTES: usize = 64 * 1024;
/// The largest piece that a response is cut into, bytes.
const PIECE_MAX_BYTES: usize = 16 * 1024;
/// Pieces on their way; a filler that makes smaller ones than that takes waits for the pieces.
const PIECES_MAX: usize = 64;
/// Heads that the client has not been given: of the response, `100 Continue` before it, and other interim
/// ones, which are left out where there is no room for them.
const HEADS_MAX: usize = 8;
/// Of these, `100 Continue` and the head of the response.
const RESERVED_HEADS: usize = 2;

/// Linux's number, as logs show it.
const ECONNRESET: i32 = 104;

const OPEN: u8 = 0;
/// The filler has pushed all that there is.
const ENDED: u8 = 1;
/// Nobody is at the other end any more.
const BROKEN: u8 = 2;

/// A head on its way to the client.
#[derive(Debug)]
pub struct StreamHead {
    /// The status.
    pub status: u16,
    /// The header lines, in the order in which they are sent.
    pub lines: Headers,
}

/// What a connection is to send of a stream.
#[derive(Debug)]
pub enum StreamOutput {
    /// The head of the response, or an interim one (`100 Continue`, 103).
    Head(StreamHead),
    /// A part of the body.
    Data(Bytes),
    /// The response is complete.
    End,
    /// The response cannot be completed.
    Reset,
}

/// The client sends more of a body than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowExceeded;

/// What makes the request of a stream.
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
    pub(super) timer: Timer,
    pub(super) deeds: Deeds,
    heads: ArrayQueue<StreamHead>,
    input: Direction,
    output: Direction,
    /// The request's task waits for its client to leave.
    departure: Waiting,
}

impl Stream {
    /// Of a connection whose loop is `home`, and that was made to the address `local`.
    pub fn new(home: LoopRef, local: Option<SocketAddr>) -> Self {
        Self::made_by(Maker::Client, home, local)
    }

    /// Of no connection: its request is made by the server itself, and has no body.
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
            timer: Timer::new(home),
            deeds: Deeds::default(),
            heads: ArrayQueue::new(HEADS_MAX),
            input: Direction::new(),
            output: Direction::new(),
            departure: Waiting::default(),
        }
    }
}

/// The connection's side.
impl Stream {
    /// Hands on a part of the request's body.
    ///
    /// # Errors
    /// There is more on its way than the client was told that it may send.
    pub fn push_body(&self, piece: Bytes) -> Result<(), WindowExceeded> {
        if piece.is_empty() || self.output.state() != OPEN {
            // A request that is answered wants no more of it.
            return Ok(());
        }
        if piece.len() > self.input.room() {
            return Err(WindowExceeded);
        }
        self.input.push(piece).map_err(|_| WindowExceeded)
    }

    /// The body is complete.
    pub fn end_body(&self) {
        self.input.end(ENDED);
    }

    /// The client wants nothing of the response any more, or the connection is gone.
    pub fn reset(&self) {
        self.input.end(BROKEN);
        self.output.end(BROKEN);
        self.output.filler.wake();
        self.departure.wake();
    }

    /// Ready when so many bytes of the body can be pushed in one piece, or nobody wants them.
    pub fn poll_window(&self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        let has_room =
            || self.output.state() != OPEN || (self.input.room() >= bytes && !self.input.pieces.is_full());
        if !has_room() {
            self.input.filler.register(cx.waker());
            if !has_room() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// What is to be sent next.
    pub fn poll_output(&self, cx: &mut Context<'_>) -> Poll<StreamOutput> {
        self.output.poll(cx, |state| {
            if let Some(head) = self.heads.pop() {
                return Some(StreamOutput::Head(head));
            }
            if let Some(piece) = self.output.pop() {
                return Some(StreamOutput::Data(piece));
            }
            match state {
                OPEN => None,
                ENDED => Some(StreamOutput::End),
                _ => Some(StreamOutput::Reset),
            }
        })
    }
}

/// The request's side.
impl Stream {
    pub(super) fn home(&self) -> LoopRef {
        self.home
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Whether the server itself makes the request.
    pub(crate) fn is_internal(&self) -> bool {
        self.maker == Maker::Server
    }

    /// Whether the body had ended when its request began: there is none.
    pub fn is_bodiless(&self) -> bool {
        self.input.state() != OPEN && self.input.pieces.is_empty()
    }

    pub(super) fn is_reset(&self) -> bool {
        self.output.state() == BROKEN
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

    /// The next part of the body; none at its end.
    pub(crate) fn poll_body(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.input.poll(cx, |state| match (self.input.pop(), state) {
            (Some(piece), _) => Some(Ok(Some(piece))),
            (None, OPEN) => None,
            (None, ENDED) => Some(Ok(None)),
            (None, _) => Some(Err(was_reset())),
        })
    }

    /// Sends a head, before everything that is written behind it.
    pub(crate) fn push_head(&self, head: StreamHead) {
        debug_assert!(self.output.pieces.is_empty(), "a head would overtake what is on its way");
        // `100 Continue` is said once, a response has one, and others have left room for them.
        let pushed = self.heads.push(head);
        debug_assert!(pushed.is_ok(), "a response has one head");
        self.output.taker.wake();
    }

    /// Sends an interim head, unless many of them wait already.
    pub(crate) fn push_interim(&self, head: StreamHead) {
        if self.heads.len() + RESERVED_HEADS < HEADS_MAX {
            self.push_head(head);
        }
    }

    /// Sends some of the first of these that are not empty; how many bytes it was.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut sent = self.write(pieces);
        if matches!(sent, Ok(0)) {
            self.output.filler.register(cx.waker());
            sent = self.write(pieces);
        }
        match sent {
            Ok(0) => Poll::Pending,
            sent => Poll::Ready(sent),
        }
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for mut rest in pieces.iter().map(|piece| &piece[..]) {
            while !rest.is_empty() {
                if self.is_reset() {
                    return Err(was_reset());
                }
                let count = rest.len().min(self.output.room()).min(PIECE_MAX_BYTES);
                if count == 0 || self.output.push(Bytes::copy_from_slice(&rest[..count])).is_err() {
                    return Ok(sent);
                }
                sent += count;
                rest = &rest[count..];
            }
        }
        Ok(sent)
    }

    /// The response is complete, and all of it was written. What is left of the body is dropped.
    pub fn finish(&self) {
        self.output.end(ENDED);
        self.input.filler.wake();
    }

    /// The response is complete, and the body may go on.
    pub(crate) fn end_output(&self) {
        self.output.end(ENDED);
    }

    /// The response cannot be completed.
    pub fn abort(&self) {
        self.output.end(BROKEN);
        self.input.filler.wake();
    }
}

/// What is told of a stream that was reset: the same as of a connection that was.
pub(super) fn was_reset() -> io::Error {
    io::Error::from_raw_os_error(ECONNRESET)
}

/// One way through a stream.
struct Direction {
    pieces: ArrayQueue<Bytes>,
    /// In `pieces`, and about to be.
    bytes: AtomicUsize,
    state: AtomicU8,
    filler: Waiting,
    taker: Waiting,
}

impl Direction {
    fn new() -> Self {
        Self {
            pieces: ArrayQueue::new(PIECES_MAX),
            bytes: AtomicUsize::new(0),
            state: AtomicU8::new(OPEN),
            filler: Waiting::default(),
            taker: Waiting::default(),
        }
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    fn room(&self) -> usize {
        STREAM_WINDOW_BYTES.saturating_sub(self.bytes.load(Ordering::Acquire))
    }

    fn push(&self, piece: Bytes) -> Result<(), Bytes> {
        let count = piece.len();
        self.bytes.fetch_add(count, Ordering::AcqRel);
        self.pieces.push(piece).inspect_err(|_| {
            self.bytes.fetch_sub(count, Ordering::AcqRel);
        })?;
        self.taker.wake();
        Ok(())
    }

    fn pop(&self) -> Option<Bytes> {
        let piece = self.pieces.pop()?;
        self.bytes.fetch_sub(piece.len(), Ordering::AcqRel);
        self.filler.wake();
        Some(piece)
    }

    /// What was said first holds, but for what breaks.
    fn end(&self, how: u8) {
        self.state.fetch_max(how, Ordering::AcqRel);
        self.taker.wake();
    }

    /// What `look` finds when it is given the state as it was before; looks again once a waker is there.
    fn poll<T>(&self, cx: &mut Context<'_>, look: impl Fn(u8) -> Option<T>) -> Poll<T> {
        let look = || look(self.state());
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        self.taker.register(cx.waker());
        look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The task that waits for something, if one does.
#[derive(Default)]
struct Waiting(AtomicCell<Option<Box<Waker>>>);

impl Waiting {
    fn register(&self, waker: &Waker) {
        self.0.swap(Some(Box::new(waker.clone())));
    }

    fn wake(&self) {
        if let Some(waker) = self.0.swap(None) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_seen_behind_everything_and_what_breaks_before_it() {
        let direction = Direction::new();
        let mut cx = Context::from_waker(Waker::noop());
        let take = |state| match direction.pop() {
            Some(piece) => Some((piece.len(), state)),
            None if state == OPEN => None,
            None => Some((0, state)),
        };
        assert!(direction.poll(&mut cx, take).is_pending());
        direction.push(Bytes::from_static(b"abc")).unwrap();
        direction.end(ENDED);
        assert_eq!(direction.poll(&mut cx, take), Poll::Ready((3, ENDED)));
        assert_eq!(direction.poll(&mut cx, take), Poll::Ready((0, ENDED)));
        direction.end(BROKEN);
        direction.end(ENDED);
        assert_eq!(direction.state(), BROKEN);
    }

    #[test]
    fn a_direction_is_bounded_by_bytes_and_pieces() {
        let direction = Direction::new();
        direction.push(Bytes::from(vec![0; STREAM_WINDOW_BYTES])).unwrap();
        assert_eq!(direction.room(), 0);
        assert!(direction.pop().is_some());
        assert_eq!(direction.room(), STREAM_WINDOW_BYTES);
        for _ in 0..PIECES_MAX {
            direction.push(Bytes::from_static(b"x")).unwrap();
        }
        direction.push(Bytes::from_static(b"x")).unwrap_err();
        assert_eq!(direction.room(), STREAM_WINDOW_BYTES - PIECES_MAX, "what was refused is not counted");
        const { assert!(AtomicCell::<Option<Box<Waker>>>::is_lock_free()) };
    }
}
