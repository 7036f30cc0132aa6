//! A line of those that wait for something of which there is not enough: a turn (turns.rs), a spare carrier
//! (waiting.rs), a token (token.rs). Any thread.
//!
//! 1. A task that leaves stays in the line until it is met, which costs the few words of its place only
//!    (place.rs). When such places outnumber the others the line is swept.
//! 2. What a sweep holds is in nobody's sight: the sweeping thread looks again afterwards, like one that has
//!    joined.

use crate::sync::{AtomicU32, Ordering, fence};

#[cfg(not(loom))]
use crossbeam_queue::SegQueue as Queue;
#[cfg(loom)]
use loom_queue::Queue;

/// Fewer places that were left than this are not worth a sweep.
pub(crate) const SWEPT_MIN: u32 = if cfg!(loom) { 1 } else { 64 };

/// An entry that can stand in a line.
pub(crate) trait Waits {
    /// Lets it go on; `false` if it has left.
    fn grant(self) -> bool;
    /// Whether it has left.
    fn has_left(&self) -> bool;
}

/// A line of waiters, first come first served.
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

    /// How many there are, those included that have left.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&self, who: T) {
        self.queue.push(who);
    }

    /// Lets the longest waiter go on; `false` if there is none.
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

    /// A place in the line was left. `true`: the line was swept, look again (rule 2).
    #[must_use]
    pub(crate) fn note_left(&self) -> bool {
        let left = self.left.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_worth_it = left.cast_signed() >= SWEPT_MIN.cast_signed() && left as usize * 2 > self.len();
        is_worth_it && self.sweep()
    }

    #[cold]
    fn sweep(&self) -> bool {
        if self.sweeping.swap(1, Ordering::AcqRel) == 1 {
            return false;
        }
        for _ in 0..self.len() {
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
    use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Stands for the queue, which is not what is modelled: a thread that finds it empty synchronises with
    /// nobody, so that the fences around it are all that orders the two.
    pub(crate) struct Queue<T> {
        items: Mutex<VecDeque<T>>,
        len: AtomicUsize,
    }

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Self { items: Mutex::new(VecDeque::new()), len: AtomicUsize::new(0) }
        }

        pub(crate) fn push(&self, item: T) {
            let mut items = self.items.lock().expect("no panic under it");
            items.push_back(item);
            self.len.fetch_add(1, Relaxed);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            if self.is_empty() {
                return None;
            }
            let mut items = self.items.lock().expect("no panic under it");
            let item = items.pop_front()?;
            self.len.fetch_sub(1, Relaxed);
            Some(item)
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub(crate) fn len(&self) -> usize {
            self.len.load(Relaxed)
        }
    }
}
