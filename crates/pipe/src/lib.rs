//! Pipes: one way for bytes between two tasks, which may run on different threads. Nothing in here waits for
//! the other side, whatever it is doing. A pipe of a stream (HTTP/2 and what is like it) is one.
//!
//! 1. A pipe has one task that fills it and one that empties it.
//! 2. The filler pushes a piece, or stores the end behind the last one, and then takes the waker that waits.
//! 3. A waiter stores its waker and then looks again. Both are exchanges of one word, so either the filler
//!    finds the waker, or the second look finds what it has pushed.
//! 4. The emptier reads the end before it looks for a piece: an end that was seen has nothing behind it.
//! 5. What is on its way is bounded by bytes, counted before they are pushed and after they are taken.
#![forbid(unsafe_code)]

mod pieces;
mod ready;

pub use ready::{READY_BITS, Ready};

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use pieces::Pieces;

/// Bytes that a pipe holds before its filler has to wait.
pub const WINDOW_BYTES: usize = 64 * 1024;
/// How far the filler of a pipe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FillerState {
    /// More bytes may come.
    Open,
    /// The filler has pushed all that there is.
    Ended,
    /// The other end is gone.
    Broken,
}

/// A cell for one value, which is exchanged.
#[cfg(not(loom))]
type Slot<T> = crossbeam_utils::atomic::AtomicCell<Option<Box<T>>>;

/// The cell for models: loom tries all orders of its uses.
#[cfg(loom)]
struct Slot<T>(loom::sync::Mutex<Option<Box<T>>>);

#[cfg(loom)]
impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(loom::sync::Mutex::new(None))
    }
}

#[cfg(loom)]
impl<T> Slot<T> {
    fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        std::mem::replace(&mut *self.0.lock().expect("no model panics in here"), value)
    }
}

/// One way for bytes. One task fills it, another one empties it.
pub struct Pipe {
    pieces: Pieces,
    /// In `pieces`, and about to be.
    bytes: AtomicUsize,
    state: AtomicU8,
    filler: Waiting,
    taker: Waiting,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            pieces: Pieces::default(),
            bytes: AtomicUsize::new(0),
            state: AtomicU8::new(FillerState::Open as u8),
            filler: Waiting::default(),
            taker: Waiting::default(),
        }
    }
}

/// The filler's side.
impl Pipe {
    /// How many bytes can be pushed; none where too many small pieces are on their way.
    pub fn room(&self) -> usize {
        let is_full = self.pieces.is_full();
        let room = WINDOW_BYTES.saturating_sub(self.bytes.load(Ordering::Acquire));
        if is_full { 0 } else { room }
    }

    /// Hands on a piece.
    ///
    /// # Errors
    /// There are too many; it is given back. Bytes are not counted against the window.
    pub fn push(&self, piece: Bytes) -> Result<(), Bytes> {
        let count = piece.len();
        self.bytes.fetch_add(count, Ordering::AcqRel);
        self.pieces.push(piece).inspect_err(|_| {
            self.bytes.fetch_sub(count, Ordering::AcqRel);
        })?;
        self.taker.wake();
        Ok(())
    }

    /// Waits until `look` finds something in the room; it looks again after a waker is there, which is woken
    /// when there is more.
    pub fn poll_room<T>(&self, cx: &mut Context<'_>, mut look: impl FnMut() -> Option<T>) -> Poll<T> {
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        self.filler.register(cx.waker());
        look().map_or(Poll::Pending, Poll::Ready)
    }

    /// Nothing follows: what was said first holds, but for what breaks. Any task may say so.
    pub fn end(&self, how: FillerState) {
        self.state.fetch_max(how as u8, Ordering::AcqRel);
        self.taker.wake();
    }

    /// How far the filler is, or whether the pipe is broken.
    pub fn state(&self) -> FillerState {
        match self.state.load(Ordering::Acquire) {
            0 => FillerState::Open,
            1 => FillerState::Ended,
            _ => FillerState::Broken,
        }
    }
}

/// The taker's side.
impl Pipe {
    /// Takes the next piece.
    pub fn pop(&self) -> Option<Bytes> {
        let piece = self.pieces.pop()?;
        self.bytes.fetch_sub(piece.len(), Ordering::AcqRel);
        self.filler.wake();
        Some(piece)
    }

    /// Bytes on their way; perhaps more than were pushed so far.
    pub fn len(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Waits until `look` finds something, given the earlier state; it looks again after a waker is there.
    pub fn poll<T>(&self, cx: &mut Context<'_>, look: impl Fn(FillerState) -> Option<T>) -> Poll<T> {
        let look = || look(self.state());
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        self.taker.register(cx.waker());
        look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Functions of both ends.
impl Pipe {
    /// Has the taker look: something beside the pipe has changed.
    pub fn wake_taker(&self) {
        self.taker.wake();
    }

    /// Wakes the task that fills the pipe.
    pub fn wake_filler(&self) {
        self.filler.wake();
    }
}

/// The task that waits for something, if one does.
#[derive(Default)]
pub struct Waiting(Slot<Waker>);

impl Waiting {
    /// Has this task woken, in place of the one before it; what it waits for it looks for once more now.
    pub fn register(&self, waker: &Waker) {
        self.0.swap(Some(Box::new(waker.clone())));
    }

    /// Has none woken.
    pub fn forget(&self) {
        drop(self.0.swap(None));
    }

    /// Wakes it, once.
    pub fn wake(&self) {
        if let Some(waker) = self.0.swap(None) {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crossbeam_utils::atomic::AtomicCell;

    use super::pieces::PIECES_MAX;
    use super::*;

    #[test]
    fn an_end_is_seen_behind_everything_and_what_breaks_before_it() {
        let pipe = Pipe::default();
        let mut cx = Context::from_waker(Waker::noop());
        let take = |state| match pipe.pop() {
            Some(piece) => Some((piece.len(), state)),
            None if state == FillerState::Open => None,
            None => Some((0, state)),
        };
        assert!(pipe.poll(&mut cx, take).is_pending());
        pipe.push(Bytes::from_static(b"abc")).unwrap();
        pipe.end(FillerState::Ended);
        assert_eq!(pipe.poll(&mut cx, take), Poll::Ready((3, FillerState::Ended)));
        assert_eq!(pipe.poll(&mut cx, take), Poll::Ready((0, FillerState::Ended)));
        pipe.end(FillerState::Broken);
        pipe.end(FillerState::Ended);
        assert_eq!(pipe.state(), FillerState::Broken);
    }

    #[test]
    fn a_pipe_is_bounded_by_bytes_and_pieces() {
        let pipe = Pipe::default();
        pipe.push(Bytes::from(vec![0; WINDOW_BYTES])).unwrap();
        assert_eq!(pipe.room(), 0);
        assert!(pipe.pop().is_some());
        assert_eq!(pipe.room(), WINDOW_BYTES);
        for _ in 0..PIECES_MAX {
            pipe.push(Bytes::from_static(b"x")).unwrap();
        }
        pipe.push(Bytes::from_static(b"x")).unwrap_err();
        assert_eq!(pipe.room(), 0);
        assert!(pipe.pop().is_some());
        assert_eq!(pipe.room(), WINDOW_BYTES - (PIECES_MAX - 1), "what was refused is not counted");
        const { assert!(AtomicCell::<Option<Box<Waker>>>::is_lock_free()) };
        const { assert!(AtomicCell::<Option<Box<Bytes>>>::is_lock_free()) };
    }

    #[test]
    fn pieces_come_in_their_order_round_after_round() {
        let pipe = Pipe::default();
        let (mut pushed, mut taken) = (0_u32, 0_u32);
        for round in 0..3 * PIECES_MAX {
            for _ in 0..=round % (PIECES_MAX + 1) {
                pushed += u32::from(pipe.push(Bytes::copy_from_slice(&pushed.to_be_bytes())).is_ok());
            }
            // Some are left for the next round, and none in the last one.
            let left = if round + 1 < 3 * PIECES_MAX { round as u32 % 3 } else { 0 };
            while pushed - taken > left {
                assert_eq!(pipe.pop().as_deref(), Some(&taken.to_be_bytes()[..]));
                taken += 1;
            }
        }
        assert!(pipe.is_empty() && pipe.pop().is_none());
        assert_eq!(pipe.len(), 0, "no byte is counted any more");
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::future::poll_fn;

    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    static WINDOW: [u8; WINDOW_BYTES] = [0; WINDOW_BYTES];

    /// Takes the next bytes, or the end.
    fn take(pipe: &Pipe, cx: &mut Context<'_>) -> Poll<Result<usize, FillerState>> {
        pipe.poll(cx, |state| match (pipe.pop(), state) {
            (Some(piece), _) => Some(Ok(piece.len())),
            (None, FillerState::Open) => None,
            (None, end) => Some(Err(end)),
        })
    }

    /// A taker that waits is woken for each piece, and sees the end behind the last one.
    #[test]
    fn what_is_pushed_comes_before_the_end() {
        loom::model(|| {
            let pipe = Arc::new(Pipe::default());
            let filler = {
                let pipe = Arc::clone(&pipe);
                thread::spawn(move || {
                    pipe.push(Bytes::from_static(b"ab")).expect("there is room");
                    pipe.push(Bytes::from_static(b"c")).expect("there is room");
                    pipe.end(FillerState::Ended);
                })
            };
            let mut taken = Vec::new();
            let end = block_on(poll_fn(|cx| {
                loop {
                    match std::task::ready!(take(&pipe, cx)) {
                        Ok(count) => taken.push(count),
                        Err(end) => return Poll::Ready(end),
                    }
                }
            }));
            assert_eq!((taken, end), (vec![2, 1], FillerState::Ended));
            filler.join().expect("it ends");
        });
    }

    /// A filler that is faster than its taker fills all places again and again, and no piece is lost, read
    /// twice or out of its order.
    #[test]
    fn places_are_used_again() {
        loom::model(|| {
            let pipe = Arc::new(Pipe::default());
            let filler = {
                let pipe = Arc::clone(&pipe);
                thread::spawn(move || {
                    let pieces: [&'static [u8]; 3] = [b"a", b"bc", b"def"];
                    for piece in pieces {
                        let mut rest = Some(Bytes::from_static(piece));
                        block_on(poll_fn(|cx| {
                            pipe.poll_room(cx, || {
                                rest = pipe.push(rest.take().expect("it is kept")).err();
                                rest.is_none().then_some(())
                            })
                        }));
                    }
                    pipe.end(FillerState::Ended);
                })
            };
            let mut taken = Vec::new();
            block_on(poll_fn(|cx| {
                while let Ok(count) = std::task::ready!(take(&pipe, cx)) {
                    taken.push(count);
                }
                Poll::Ready(())
            }));
            assert_eq!(taken, [1, 2, 3]);
            filler.join().expect("it ends");
        });
    }

    /// A filler that waits for room is woken when there is some, and never has more on its way than the
    /// window.
    #[test]
    fn a_filler_waits_for_room_and_is_woken() {
        loom::model(|| {
            let pipe = Arc::new(Pipe::default());
            pipe.push(Bytes::from_static(&WINDOW)).expect("there is room");
            let taker = {
                let pipe = Arc::clone(&pipe);
                thread::spawn(move || pipe.pop().map(|piece| piece.len()))
            };
            let room = block_on(poll_fn(|cx| {
                pipe.poll_room(cx, || Some(pipe.room()).filter(|&room| room >= WINDOW.len()))
            }));
            assert_eq!(room, WINDOW.len());
            pipe.push(Bytes::from_static(&WINDOW)).expect("there is room");
            assert_eq!(taker.join().expect("it ends"), Some(WINDOW.len()));
            assert_eq!(pipe.room(), 0);
        });
    }

    /// If both ends of a pipe act at the same time, the end that breaks the pipe wins, and a waiting taker
    /// learns of it.
    #[test]
    fn what_breaks_is_seen_by_a_taker_that_waits() {
        loom::model(|| {
            let pipe = Arc::new(Pipe::default());
            let others = [FillerState::Ended, FillerState::Broken].map(|how| {
                let pipe = Arc::clone(&pipe);
                thread::spawn(move || pipe.end(how))
            });
            let end = block_on(poll_fn(|cx| take(&pipe, cx)));
            assert!(matches!(end, Err(FillerState::Ended | FillerState::Broken)));
            others.into_iter().for_each(|other| other.join().expect("it ends"));
            assert_eq!(pipe.state(), FillerState::Broken);
        });
    }
}
