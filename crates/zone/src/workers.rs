//! Which processes count in a zone, so that what a process leaves behind that was killed counts no more.
//! Lock-free, any thread of any process.
//!
//! Rules.
//! 1. A process takes a place, a word with its pid and a number, before it counts for the first time. No
//!    number is given twice in the life of a zone, and later ones are larger.
//! 2. What it counts stands under its number, and nobody else changes that. What all count is the sum over
//!    those that have a place.
//! 3. Who reaps a process frees its place, before another one can have its pid. What it had counted stands
//!    under a number that nobody asks for any more, in slots that are as good as free once no process with
//!    a smaller number is left.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a process, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Worker(u32);

impl Worker {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The places of a zone.
#[derive(Clone, Copy)]
pub(crate) struct Workers<'a> {
    last: &'a AtomicU64,
    /// 0: free. Else the pid in the upper half, the number in the lower.
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
        if let Some(place) = self.taken().find(|&place| pid_of(place) == pid) {
            return Some(worker_of(place));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        let place = u64::from(pid) << 32 | u64::from(number);
        let takes =
            |word: &AtomicU64| word.compare_exchange(0, place, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.places.iter().any(takes).then_some(Worker(number))
    }

    /// Rule 3.
    pub(crate) fn forget(self, pid: u32) {
        for word in self.places {
            let place = word.load(Ordering::Acquire);
            if place != 0 && pid_of(place) == pid {
                // Who fails here finds that somebody else has done it.
                let _ = word.compare_exchange(place, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// All that have a place.
    pub(crate) fn all(self) -> impl Iterator<Item = Worker> + use<'a> {
        self.taken().map(worker_of)
    }

    fn taken(self) -> impl Iterator<Item = u64> + use<'a> {
        self.places.iter().map(|word| word.load(Ordering::Acquire)).filter(|&place| place != 0)
    }
}

#[cfg(test)]
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
        workers.forget(7);
        workers.forget(9);
        assert_eq!(workers.all().collect::<Vec<_>>(), [second]);
        let again = workers.enlist(7).unwrap();
        assert!(again > second, "a number is never given twice");
    }
}
