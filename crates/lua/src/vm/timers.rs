//! The common state of a configuration's timers: how many there are on each loop, and what tells those that
//! wait that it ends. Any thread.
//!
//! 1. A timer counts as pending from `begin` on, then as running, then not at all: [`Count`] sees to it.
//! 2. One that begins, and is not to run at once, puts its bell into `bells`, then looks at `is_ending`; what
//!    ends the configuration sets `is_ending`, then rings all bells. With a fence between the two steps on
//!    either side no timer is missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use crossbeam_queue::SegQueue;

use crate::waiter::Bell;

/// The state that the timers of one configuration share.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    of_loops: Box<[OfLoop]>,
    bells: SegQueue<Bell>,
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct OfLoop {
    pending: AtomicUsize,
    running: AtomicUsize,
}

/// The count of one loop's timers, while one of them exists.
#[derive(Debug)]
pub(crate) struct Count {
    timers: Arc<Timers>,
    of_loop: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pending,
    Running,
}

impl Timers {
    pub(crate) fn new(loops: usize) -> Arc<Self> {
        let of_loops = std::iter::repeat_with(OfLoop::default).take(loops).collect();
        Arc::new(Self { of_loops, ..Self::default() })
    }

    pub(crate) fn pending(&self, of_loop: usize) -> usize {
        self.of_loops[of_loop].pending.load(Ordering::Relaxed)
    }

    /// The number of pending timers on all loops.
    pub(crate) fn all_pending(&self) -> usize {
        self.of_loops.iter().map(|of_loop| of_loop.pending.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn running(&self, of_loop: usize) -> usize {
        self.of_loops[of_loop].running.load(Ordering::Relaxed)
    }

    /// Whether the configuration is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Whether a timer waits or runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.of_loops.iter().any(|of_loop| {
            of_loop.pending.load(Ordering::SeqCst) > 0 || of_loop.running.load(Ordering::SeqCst) > 0
        })
    }

    /// Counts one more that waits; `None` where there are `most`.
    pub(crate) fn begin(self: &Arc<Self>, of_loop: usize, most: usize) -> Option<Count> {
        debug_assert!(of_loop < self.of_loops.len(), "a timer is of a loop");
        let pending = &self.of_loops[of_loop].pending;
        if pending.fetch_add(1, Ordering::SeqCst) >= most {
            pending.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(Count { timers: Arc::clone(self), of_loop, stage: Stage::Pending })
    }

    /// Rings the bell when the configuration ends (rule 2).
    pub(crate) fn ring_at_end(&self, bell: Bell) {
        self.bells.push(bell);
        // Wakers of timers that are over are removed, two for each new one.
        if self.bells.len() > 2 * self.all_pending() + 64 {
            for bell in std::iter::repeat_with(|| self.bells.pop()).take(3).flatten() {
                if bell.is_waited_for() {
                    self.bells.push(bell);
                }
            }
        }
        fence(Ordering::SeqCst);
        if self.is_ending() {
            self.end();
        }
    }

    /// Has all that wait run now, as their configuration ends.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while let Some(bell) = self.bells.pop() {
            bell.ring();
        }
    }
}

impl Count {
    /// Begins to run the timer, unless `most` run already.
    pub(crate) fn run(&mut self, most: usize) -> bool {
        let of_loop = &self.timers.of_loops[self.of_loop];
        if of_loop.running.fetch_add(1, Ordering::SeqCst) >= most {
            of_loop.running.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        debug_assert!(self.stage == Stage::Pending, "a timer runs once");
        let pending = of_loop.pending.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(pending > 0, "a timer that runs has waited");
        self.stage = Stage::Running;
        true
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let of_loop = &self.timers.of_loops[self.of_loop];
        let counter = if self.stage == Stage::Pending { &of_loop.pending } else { &of_loop.running };
        let before = counter.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "each timer is counted until it is over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_and_those_that_run_have_their_limits() {
        let timers = Timers::new(2);
        let mut first = timers.begin(1, 2).unwrap();
        let mut second = timers.begin(1, 2).unwrap();
        assert!(timers.begin(1, 2).is_none());
        assert_eq!((timers.pending(1), timers.pending(0)), (2, 0));
        assert!(first.run(1));
        assert!(!second.run(1));
        assert_eq!((timers.pending(1), timers.running(1)), (1, 1));
        drop((first, second));
        assert!(!timers.is_busy());
    }
}
