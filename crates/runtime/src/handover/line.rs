//! A line of those that wait for something of which there is not enough: a turn (turns.rs), a spare carrier
//! (waiting.rs), a token (token.rs). Any thread.
//!
//! 1. A [`Place`] is WAITING until one swap makes it GRANTED, by the thread whose turn it is to grant, or
//!    LEFT, by its task, which has given up or is dropped. Who leaves a place that was GRANTED passes on what
//!    it was granted.
//! 2. The task registers its waker, then looks at the state; the granting thread changes the state, then
//!    takes the waker. One of the two sees the other (rule 3 of waker_cell.rs).
//! 3. A place that was left stays in the line until it is met, which costs its few words only: it keeps no
//!    task. When such places outnumber the others the line is swept.
//! 4. What a sweep holds is in nobody's sight: who sweeps looks again afterwards, like one who has joined.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::io::waker_cell::WakerCell;
use crate::sync::{AtomicU32, Ordering, fence};

#[cfg(not(loom))]
use crossbeam_queue::SegQueue as Queue;
#[cfg(loom)]
use loom_queue::Queue;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const LEFT: u32 = 2;

/// Fewer places that were left than this are not worth a sweep.
const SWEPT_MIN: u32 = if cfg!(loom) { 1 } else { 64 };

/// What can stand in a line.
pub(crate) trait Waits {
    /// Lets it go on; `false` if it has left.
    fn grant(self) -> bool;
    /// Whether it has left.
    fn has_left(&self) -> bool;
}

/// One who waits inside a poll, and may give up.
pub(crate) struct Place {
    state: AtomicU32,
    waker: WakerCell,
}

impl Place {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(WAITING), waker: WakerCell::new() })
    }

    /// Ready when it was granted what it waits for. Rule 2, the task's side.
    pub(crate) fn poll_granted(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_granted() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.state.load(Ordering::Acquire) == GRANTED
    }

    /// Rule 1, the task's side.
    #[must_use]
    pub(crate) fn leave(&self) -> Departure {
        let before = self.state.swap(LEFT, Ordering::AcqRel);
        drop(self.waker.take());
        match before {
            WAITING => Departure::InLine,
            GRANTED => Departure::Granted,
            _ => Departure::Left,
        }
    }
}

/// In what state a place was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It is still in the line.
    InLine,
    /// It had been granted what it waited for, which is to be passed on.
    Granted,
    /// It had been left before.
    Left,
}

impl Waits for Arc<Place> {
    fn grant(self) -> bool {
        let granted =
            self.state.compare_exchange(WAITING, GRANTED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if granted && let Some(waker) = self.waker.take() {
            waker.wake();
        }
        granted
    }

    fn has_left(&self) -> bool {
        self.state.load(Ordering::Acquire) == LEFT
    }
}

/// See the file's head.
pub(crate) struct Line<T> {
    queue: Queue<T>,
    /// Places in the queue that were left, about: less than none for a moment where one is met before it is
    /// counted.
    left: AtomicU32,
    /// 1: somebody sweeps.
    sweeping: AtomicU32,
}

impl<T: Waits> Line<T> {
    pub(crate) fn new() -> Self {
        Self { queue: Queue::new(), left: AtomicU32::new(0), sweeping: AtomicU32::new(0) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn push(&self, who: T) {
        self.queue.push(who);
    }

    /// Lets go on who has waited longest; `false` if nobody waits.
    #[must_use]
    pub(crate) fn grant_first(&self) -> bool {
        while let Some(first) = self.queue.pop() {
            if first.grant() {
                return true;
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        false
    }

    /// A place in the line was left. `true`: the line was swept, look again (rule 4).
    #[must_use]
    pub(crate) fn note_left(&self) -> bool {
        let left = self.left.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_worth_it =
            left.cast_signed() >= SWEPT_MIN.cast_signed() && left as usize * 2 > self.queue.len();
        is_worth_it && self.sweep()
    }

    #[cold]
    fn sweep(&self) -> bool {
        if self.sweeping.swap(1, Ordering::AcqRel) == 1 {
            return false;
        }
        for _ in 0..self.queue.len() {
            let Some(who) = self.queue.pop() else { break };
            if who.has_left() {
                self.left.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.queue.push(who);
            }
        }
        self.sweeping.store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(loom)]
mod loom_queue {
    use std::collections::VecDeque;

    use loom::sync::Mutex;

    /// Stands for the queue, which is not what is modelled.
    pub(crate) struct Queue<T>(Mutex<VecDeque<T>>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(VecDeque::new()))
        }

        pub(crate) fn push(&self, item: T) {
            self.0.lock().expect("no panic under it").push_back(item);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().expect("no panic under it").pop_front()
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().expect("no panic under it").is_empty()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.lock().expect("no panic under it").len()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_is_skipped_and_swept() {
        let line = Line::new();
        let places: Vec<_> = (0..200).map(|_| Place::new()).collect();
        places.iter().for_each(|place| line.push(Arc::clone(place)));
        let (leaving, staying) = places.split_at(150);
        let sweeps: usize = leaving
            .iter()
            .map(|place| {
                assert_eq!(place.leave(), Departure::InLine);
                usize::from(line.note_left())
            })
            .sum();
        assert!(sweeps > 0 && line.queue.len() < 2 * staying.len() + SWEPT_MIN as usize);
        for place in staying {
            assert!(!place.is_granted() && line.grant_first() && place.is_granted(), "in their order");
        }
        assert!(!line.grant_first());
        assert_eq!(line.left.load(Ordering::Relaxed), 0);
        assert_eq!(staying[0].leave(), Departure::Granted);
    }
}
