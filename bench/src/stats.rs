//! Latencies and what tables print of them.

use std::time::Duration;

/// The limit of the promise: a cheap request that takes longer was held up.
const LATE: Duration = Duration::from_millis(10);

/// A set of latencies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    pub(crate) fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self { sorted: all }
    }

    pub(crate) fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The value below which that share (0 to 1) of all lies, in milliseconds; not a number if there
    /// is none.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        let index = (self.sorted.len() as f64 * share) as usize;
        self.sorted.get(index.min(self.sorted.len().saturating_sub(1))).map_or(f64::NAN, milliseconds)
    }

    /// The largest, in milliseconds; not a number if there is none.
    pub(crate) fn max_ms(&self) -> f64 {
        self.sorted.last().map_or(f64::NAN, milliseconds)
    }

    /// Those later than 10 ms, in percent of `due` (what was never answered is late too).
    pub(crate) fn late_percent(&self, due: usize) -> f64 {
        let in_time = self.sorted.partition_point(|latency| *latency <= LATE);
        due.saturating_sub(in_time) as f64 * 100.0 / due.max(1) as f64
    }
}

fn milliseconds(latency: &Duration) -> f64 {
    latency.as_secs_f64() * 1e3
}

/// The middle one; the mean of the two in the middle of an even number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let all = Latencies::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!((all.count(), all.quantile_ms(0.5), all.quantile_ms(0.99)), (100, 51.0, 100.0));
        assert_eq!(all.max_ms(), 100.0);
        assert_eq!(all.late_percent(100), 90.0);
        assert_eq!(all.late_percent(200), 95.0);
        assert!(Latencies::default().quantile_ms(0.5).is_nan());
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
