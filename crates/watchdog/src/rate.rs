//! How often stalls may be reported: a bucket of tokens. Pure; the caller has the clock.

use std::time::Duration;

/// So many per period, all of them at once if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least 1.
    pub count: u32,
    /// In which time.
    pub per: Duration,
}

/// The rest of a rate.
pub(crate) struct Bucket {
    /// In nanoseconds of the period: one report takes its share of it.
    left_ns: u64,
    last_ns: u64,
}

impl Bucket {
    /// A full one at that moment.
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { left_ns: u64::MAX, last_ns: now_ns }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, rate: Rate, now_ns: u64) -> bool {
        let full_ns = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX).max(1);
        let price_ns = (full_ns / u64::from(rate.count.max(1))).max(1);
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        self.left_ns = self.left_ns.saturating_add(passed_ns).min(full_ns);
        let Some(left_ns) = self.left_ns.checked_sub(price_ns) else { return false };
        self.left_ns = left_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_at_once_as_in_a_period_and_then_one_by_one() {
        let rate = Rate { count: 3, per: Duration::from_nanos(300) };
        let mut bucket = Bucket::new(1000);
        assert_eq!([1000; 4].map(|now| bucket.take(rate, now)), [true, true, true, false]);
        assert_eq!([1099, 1100, 1101].map(|now| bucket.take(rate, now)), [false, true, false]);
        assert_eq!([9000; 4].map(|now| bucket.take(rate, now)), [true, true, true, false]);
    }
}
