//! How long things took, as a histogram: counted by pool threads, read by whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets, the last one without an upper bound.
pub const BUCKETS: usize = 12;

/// Durations in buckets of powers of four microseconds, and their sum.
#[derive(Debug)]
pub(crate) struct Times {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// What a [`Times`] had counted at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many durations were in each bucket and in none before it; see [`Histogram::bound_us`].
    pub counts: [u64; BUCKETS],
    /// Sum of all durations, ns.
    pub sum_ns: u64,
}

impl Histogram {
    /// The longest duration that is in a bucket, microseconds: 4, 16, 64, … ; `None` for the last one.
    #[must_use]
    pub fn bound_us(bucket: usize) -> Option<u64> {
        (bucket + 1 < BUCKETS).then(|| 4 << (2 * bucket))
    }

    /// How many durations there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Times {
    pub(crate) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

fn bucket(ns: u64) -> usize {
    // What is above a bound by less than a microsecond is above it.
    let us = ns.div_ceil(1000).max(1);
    let power_of_four = (us - 1).checked_ilog2().map_or(0, |log| log as usize / 2);
    power_of_four.min(BUCKETS - 1)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_keeps() {
        for at in 0..BUCKETS - 1 {
            let bound_ns = Histogram::bound_us(at).unwrap() * 1000;
            assert_eq!([bucket(bound_ns), bucket(bound_ns + 1)], [at, at + 1]);
        }
        assert_eq!([bucket(0), bucket(u64::MAX)], [0, BUCKETS - 1]);
        assert_eq!(Histogram::bound_us(BUCKETS - 1), None);
    }

    #[test]
    fn durations_are_counted_and_added() {
        let times = Times::new();
        [1, 3_000, 5_000].into_iter().for_each(|ns| times.note(ns));
        let read = times.read();
        assert_eq!((read.count(), read.sum_ns, read.counts[0], read.counts[1]), (3, 8001, 2, 1));
    }
}
