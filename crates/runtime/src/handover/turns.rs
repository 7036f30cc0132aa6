//! Turns of suspects that burn CPU: as many of them are polled away from their loops at a time as there
//! are processors or loops, the others stand in a line. More of them would only take turns on the same
//! processors, end later, and not in the order in which they came. Who sleeps needs no turn, and no turn
//! lasts for ever (detach.rs).
//!
//! 1. `taken` counts the turns that a carrier holds, or that were granted to a task in the line.
//! 2. Who finds no turn joins the line, then looks again: a turn may have become free meanwhile.
//! 3. A turn that is given back goes to who has stood in the line longest without becoming free, so that
//!    nobody who comes later is faster. Who finds nobody gives it up, then looks again at the line.
//! 4. Each side of rules 2 and 3 has a SeqCst fence between what it writes and what it reads.
//! 5. A task in the line is not polled (`Place::InLine`, turn.rs), so it is still there when its turn
//!    comes, and it is in the line once.

use crate::sync::{AtomicU32, Ordering, fence};

#[cfg(not(loom))]
use crossbeam_queue::SegQueue as Line;
#[cfg(loom)]
use loom_line::Line;

/// See the file's head. `T` wakes a task.
pub(crate) struct Turns<T> {
    limit: u32,
    taken: AtomicU32,
    line: Line<T>,
}

/// Where a task stands; written by who polls it, and by who grants its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    /// Not in the line.
    Outside = 0,
    /// In it: not to be polled.
    InLine = 1,
    /// Its turn has come: it is polled next, and takes the turn or gives it back.
    Granted = 2,
}

impl Place {
    pub(crate) fn of(value: u32) -> Self {
        match value {
            0 => Self::Outside,
            1 => Self::InLine,
            _ => Self::Granted,
        }
    }
}

impl<T> Turns<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit.max(1)).unwrap_or(u32::MAX);
        Self { limit, taken: AtomicU32::new(0), line: Line::new() }
    }

    /// Takes a turn unless others stand in the line.
    pub(crate) fn take(&self) -> bool {
        self.line.is_empty() && self.take_free()
    }

    fn take_free(&self) -> bool {
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken < self.limit {
            match self.taken.compare_exchange(taken, taken + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// Rule 2: joins the line. Somebody's turn may come at once: that is for the caller to grant.
    #[must_use]
    pub(crate) fn join(&self, who: T) -> Option<T> {
        self.line.push(who);
        fence(Ordering::SeqCst);
        if self.take_free() { self.give_back() } else { None }
    }

    /// Rule 3: gives a turn back. Whose turn it is now; the caller grants it.
    #[must_use]
    pub(crate) fn give_back(&self) -> Option<T> {
        loop {
            if let Some(next) = self.line.pop() {
                return Some(next);
            }
            self.taken.fetch_sub(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if self.line.is_empty() || !self.take_free() {
                return None;
            }
        }
    }
}

#[cfg(loom)]
mod loom_line {
    use std::collections::VecDeque;

    use loom::sync::Mutex;

    /// Stands for the queue, which is not what is modelled.
    pub(crate) struct Line<T>(Mutex<VecDeque<T>>);

    impl<T> Line<T> {
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
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_nobody_gets_ahead() {
        let turns = Turns::new(2);
        assert!(turns.take() && turns.take() && !turns.take());
        assert_eq!((turns.join(1), turns.join(2)), (None, None));
        assert_eq!(turns.give_back(), Some(1));
        // The turn was handed on, not freed.
        assert!(!turns.take());
        assert_eq!(turns.give_back(), Some(2));
        assert_eq!((turns.give_back(), turns.give_back()), (None, None));
        assert!(turns.take());
        assert_eq!(turns.join(3), Some(3));
        assert_eq!(turns.give_back(), None);
        assert_eq!(Turns::<u32>::new(0).limit, 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Takes a turn or joins the line; how many turns it was given to grant or to end.
    fn come(turns: &Turns<u32>, me: u32) -> u32 {
        if turns.take() {
            return finish(turns);
        }
        turns.join(me).map_or(0, |_| finish(turns))
    }

    /// Gives back one turn, and plays all to whom it passes.
    fn finish(turns: &Turns<u32>) -> u32 {
        let mut played = 1;
        while turns.give_back().is_some() {
            played += 1;
        }
        played
    }

    /// Whoever comes while a turn is given back plays once, and no turn is lost.
    #[test]
    fn loom_nobody_is_left_in_the_line() {
        loom::model(|| {
            let turns = Arc::new(Turns::new(1));
            let others: Vec<_> = (1..3)
                .map(|me| {
                    let turns = Arc::clone(&turns);
                    thread::spawn(move || come(&turns, me))
                })
                .collect();
            let mut played = come(&turns, 0);
            for other in others {
                played += other.join().unwrap();
            }
            assert_eq!(played, 3);
            assert!(turns.take());
        });
    }
}
