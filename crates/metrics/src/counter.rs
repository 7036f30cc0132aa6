//! A counter of the whole process, for events that are rare enough to share one cache line. Any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::family::{Family, Kind};

/// A number that only grows.
#[derive(Debug)]
pub struct Counter {
    /// Its description.
    pub family: Family,
    value: AtomicU64,
}

impl Counter {
    /// Declares a counter; use it for a `static`.
    #[must_use]
    pub const fn new(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { family: Family::new(Kind::Counter, name, unit, help), value: AtomicU64::new(0) }
    }

    /// Counts one event.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts several at once.
    pub fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
    }

    /// The count since the process started.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Adds to a number that one thread writes at a time: a load and a store, which others may read between.
/// Where two might write at once something would be lost, so not for what tasks count: a task may be
/// polled away from its loop while the loop goes on.
#[inline]
pub fn count_alone(number: &AtomicU64, n: u64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        static SEEN: Counter = Counter::new("seen_total", "things", "Things that were seen.");
        SEEN.increment();
        SEEN.add(2);
        assert_eq!(SEEN.value(), 3);
        let number = AtomicU64::new(u64::MAX);
        count_alone(&number, 3);
        assert_eq!(number.load(Ordering::Relaxed), 2);
    }
}
