//! How long things took, counted in buckets. Log-linear: each power of two of microseconds is cut in two
//! halves, so a duration is known to a third at worst, from 4 microseconds to 67 seconds, in 50 numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counter::count_alone;

/// Buckets; the last one has no upper bound.
pub const BUCKETS: usize = 50;

/// The power of two that is the bound of the first bucket, in microseconds.
const FIRST_POWER: u32 = 2;

/// The longest duration that is in a bucket, microseconds: 4, 6, 8, 12, 16, 24 and so on up to 2^26;
/// `None` for the last bucket.
#[must_use]
pub const fn bound_us(bucket: usize) -> Option<u64> {
    match bucket {
        0 => Some(1 << FIRST_POWER),
        1.. if bucket + 1 < BUCKETS => {
            let (power, half) = (FIRST_POWER as usize + (bucket - 1) / 2, (bucket - 1) % 2);
            Some((1 << (power - 1)) * (3 + half as u64))
        }
        _ => None,
    }
}

/// The bucket of a duration.
fn bucket(ns: u64) -> usize {
    // What is above a bound by less than a microsecond is above it.
    let above = ns.div_ceil(1000).saturating_sub(1);
    if above < 1 << FIRST_POWER {
        return 0;
    }
    let power = above.ilog2();
    let half = (above >> (power - 1)) & 1;
    (((power - FIRST_POWER) * 2) as usize + half as usize + 1).min(BUCKETS - 1)
}

/// Durations in buckets, and their sum.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The counts of a [`Histogram`] at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// How many were in each bucket and in none before it; see [`bound_us`].
    pub counts: [u64; BUCKETS],
    /// Sum of all durations, ns.
    pub sum_ns: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Durations {
    /// How many durations there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// A histogram without values.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    /// Counts a duration. Any thread.
    pub fn note(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// As [`note`](Self::note), if one thread counts at a time (see [`count_alone`]).
    pub fn note_alone(&self, ns: u64) {
        count_alone(&self.counts[bucket(ns)], 1);
        count_alone(&self.sum_ns, ns);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_keeps() {
        for at in 0..BUCKETS - 1 {
            let bound_ns = bound_us(at).unwrap() * 1000;
            assert_eq!([bucket(bound_ns), bucket(bound_ns + 1)], [at, at + 1], "{bound_ns}");
        }
        assert_eq!([bucket(0), bucket(u64::MAX)], [0, BUCKETS - 1]);
        assert_eq!(bound_us(BUCKETS - 1), None);
        assert_eq!([0, 1, 2, 3, 4, 48].map(|at| bound_us(at).unwrap()), [4, 6, 8, 12, 16, 1 << 26]);
    }

    #[test]
    fn durations_are_counted_and_added() {
        let histogram = Histogram::new();
        [1, 3_000, 5_000].into_iter().for_each(|ns| histogram.note(ns));
        histogram.note_alone(6_000);
        let read = histogram.read();
        assert_eq!((read.count(), read.sum_ns, read.counts[0], read.counts[1]), (4, 14_001, 2, 2));
    }
}
