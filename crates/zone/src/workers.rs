//! Which processes count in a zone, so that the remains of a killed process count no more. Lock-free, any
//! thread of any process.
//!
//! Rules.
//! 1. Before it counts for the first time a process takes a place, a word with its pid, and then draws a
//!    number, which it writes there. No number is given twice in the life of a zone, later ones are larger.
//! 2. What it counts stands under its number, and nobody else changes that. What all count is the sum over
//!    those that have a place.
//! 3. The master frees the place of a process when it reaps it, before another one can have its pid. What it
//!    had counted stands under a number that is never asked for again, in slots that are as good as free once
//!    no process with a smaller number is left.
//! 4. A process that looks for the smallest number has drawn its own before. If it does not see a place, that
//!    process draws a larger number later (two fences, as in Dekker's algorithm); if it sees one without a
//!    number, that may become any.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of a process, from 1; 0 while it draws one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Worker(u32);

impl Worker {
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The process with this number, if it is one.
    pub(crate) fn numbered(number: u32) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Whether it has not counted anything yet.
    pub(crate) fn is_pending(self) -> bool {
        self.0 == 0
    }
}

/// The places of a zone.
#[derive(Clone, Copy)]
pub(crate) struct Workers<'a> {
    last: &'a AtomicU64,
    /// 0: free. Else the pid in the upper half, the number in the lower, 0 at first.
    places: &'a [AtomicU64],
}

fn pid_of(place: u64) -> u32 {
    (place >> 32) as u32
}

fn worker_of(place: u64) -> Worker {
    Worker(place as u32)
}

impl<'a> Workers<'a> {
    pub(crate) fn new(last: &'a AtomicU64, places: &'a [AtomicU64]) -> Self {
        Self { last, places }
    }

    /// The place of a process, which it may have already. `None`: all are taken.
    pub(crate) fn enlist(self, pid: u32) -> Option<Worker> {
        let mine = self.taken().find(|&place| pid_of(place) == pid && !worker_of(place).is_pending());
        if let Some(place) = mine {
            return Some(worker_of(place));
        }
        let pending = u64::from(pid) << 32;
        let takes = |word: &&AtomicU64| {
            word.compare_exchange(0, pending, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let word = self.places.iter().find(takes)?;
        // Rule 4, of the process that comes.
        fence(Ordering::SeqCst);
        let number = self.last.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        word.store(pending | u64::from(number), Ordering::Release);
        // Rule 4, of the process that looks from here on.
        fence(Ordering::SeqCst);
        Some(Worker(number))
    }

    /// Gives the place of a number back under which nothing was counted.
    pub(crate) fn leave(self, pid: u32, worker: Worker) {
        let place = u64::from(pid) << 32 | u64::from(worker.number());
        for word in self.places {
            // All others are somebody else's.
            let _ = word.compare_exchange(place, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Rule 3.
    pub(crate) fn forget(self, pid: u32) {
        for word in self.places {
            let place = word.load(Ordering::Acquire);
            if place != 0 && pid_of(place) == pid {
                // Where it fails somebody else has done it.
                let _ = word.compare_exchange(place, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// All that have a place, those included that have no number yet.
    pub(crate) fn all(self) -> impl Iterator<Item = Worker> + use<'a> {
        self.taken().map(worker_of)
    }

    /// Which of the places this one has.
    pub(crate) fn place_of(self, worker: Worker) -> Option<usize> {
        self.places.iter().position(|word| worker_of(word.load(Ordering::Acquire)) == worker)
    }

    /// The places that are taken, with the pid and the number of each.
    pub(crate) fn placed(self) -> impl Iterator<Item = (usize, u32, Worker)> + use<'a> {
        let all = self.places.iter().map(|word| word.load(Ordering::Acquire)).enumerate();
        all.filter(|(_, place)| *place != 0).map(|(at, place)| (at, pid_of(place), worker_of(place)))
    }

    fn taken(self) -> impl Iterator<Item = u64> + use<'a> {
        self.places.iter().map(|word| word.load(Ordering::Acquire)).filter(|&place| place != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_and_given_back() {
        let (last, places) = (AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]);
        let workers = Workers::new(&last, &places);
        let first = workers.enlist(7).unwrap();
        assert_eq!(workers.enlist(7), Some(first));
        let second = workers.enlist(8).unwrap();
        assert!(second > first);
        assert_eq!(workers.enlist(9), None);
        assert_eq!(workers.place_of(second), Some(1));
        workers.forget(7);
        workers.forget(9);
        assert_eq!(workers.place_of(first), None);
        assert_eq!(workers.placed().collect::<Vec<_>>(), [(1, 8, second)]);
        assert_eq!(workers.all().collect::<Vec<_>>(), [second]);
        let again = workers.enlist(7).unwrap();
        assert!(again > second, "a number is never given twice");
        workers.leave(7, again);
        workers.leave(7, second);
        assert_eq!(workers.all().collect::<Vec<_>>(), [second], "that is not its own");
    }
}
