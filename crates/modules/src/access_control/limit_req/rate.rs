//! The arithmetic of a limit: nginx's leaky bucket, kept in one number. Pure functions.
//!
//! nginx keeps for a key its `excess` (requests beyond the rate, in thousandths) and the time `last` at
//! which it was so. What is kept here is the moment at which that excess will have drained, `last +
//! excess / rate`, from which both are computed again whenever a request comes. It stays true when the
//! rate changes, and the key whose excess drains first is the one whose state matters least.

/// A moment is counted in ticks of 32 ns: with 55 bits for it (`PAYLOAD_MAX`) it lasts for 36 years after
/// the machine was started.
const TICKS_PER_S: i128 = 31_250_000;
const TICKS_PER_MS: u64 = 31_250;

/// One request in the unit that excess is counted in.
pub(crate) const REQUEST: u64 = 1000;

/// How many thousandths of a request pass per second; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

impl Rate {
    /// A rate of so many requests in so many seconds.
    ///
    /// # Panics
    /// If that is less than a thousandth of a request per second.
    pub(crate) fn new(requests: u64, seconds: u64) -> Self {
        let rate = requests.saturating_mul(REQUEST) / seconds;
        assert!(rate > 0, "at least one request per minute");
        Self(rate)
    }

    /// The excess after one more request at `now_ms`, in thousandths of a request; `drained` is what is
    /// kept for its key. The request after a pause costs nothing.
    pub(crate) fn excess(self, drained: Option<u64>, now_ms: u64) -> u64 {
        let Some(drained) = drained else { return 0 };
        let ahead = i128::from(drained) - i128::from(ticks(now_ms));
        // The moment was rounded by half a tick at most. nginx rounds what has drained down.
        let rounding = (i128::from(self.0) / 2 + 1).min(TICKS_PER_S / 2);
        let drains = ahead.saturating_mul(i128::from(self.0)).saturating_sub(rounding);
        let before = drains.saturating_add(TICKS_PER_S - 1).div_euclid(TICKS_PER_S);
        u64::try_from(before.saturating_add(i128::from(REQUEST)).max(0)).unwrap_or(u64::MAX)
    }

    /// The number to store for a key that has this excess at `now_ms`.
    pub(crate) fn drained(self, excess: u64, now_ms: u64) -> u64 {
        let rate = u128::from(self.0);
        let drains_in = (u128::from(excess) * TICKS_PER_S.unsigned_abs() + rate / 2) / rate;
        ticks(now_ms).saturating_add(u64::try_from(drains_in).unwrap_or(u64::MAX))
    }

    /// A stored number below this is as good as none: the next request has no excess either way.
    pub(crate) fn forgotten_below(self, now_ms: u64) -> u64 {
        let of_a_request = self.drained(REQUEST, 0).saturating_add(1);
        ticks(now_ms).saturating_sub(of_a_request)
    }

    /// How long a request has to wait that exceeds what passes at once by `excess`, milliseconds.
    pub(crate) fn delay_ms(self, excess: u64) -> u64 {
        excess.saturating_mul(1000) / self.0
    }
}

fn ticks(now_ms: u64) -> u64 {
    now_ms.saturating_mul(TICKS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The numbers that nginx stores for a key, and its arithmetic.
    #[derive(Clone, Copy)]
    struct Reference {
        excess: i64,
        last_ms: i64,
    }

    impl Reference {
        fn excess(self, rate: i64, now_ms: i64) -> i64 {
            (self.excess - rate * (now_ms - self.last_ms) / 1000 + 1000).max(0)
        }
    }

    fn compare(rate: Rate, burst: u64, gaps: &[u64]) -> Result<(), TestCaseError> {
        // A machine that has been up for a while.
        let mut now_ms = 86_400_123;
        let mut reference: Option<Reference> = None;
        let mut kept: Option<u64> = None;
        for gap in gaps {
            now_ms += gap;
            let now = now_ms as i64;
            let expected = reference.map_or(0, |reference| reference.excess(rate.0 as i64, now));
            let excess = rate.excess(kept, now_ms);
            prop_assert_eq!(excess as i64, expected);
            if kept.is_some_and(|kept| kept < rate.forgotten_below(now_ms)) {
                prop_assert_eq!(excess, 0);
            }
            if excess <= burst * REQUEST {
                reference = Some(Reference { excess: expected, last_ms: now });
                kept = Some(rate.drained(excess, now_ms));
            }
        }
        Ok(())
    }

    fn gaps(longest_ms: u64) -> impl Strategy<Value = Vec<u64>> {
        let short = 0..3_u64;
        prop::collection::vec(prop_oneof![short, 0..longest_ms, 0..100 * longest_ms], 1..200)
    }

    proptest! {
        /// To the thousandth, for every rate up to 31 requests per second.
        #[test]
        fn counts_as_nginx_does(per_minute in 1..1860_u64, burst in 0..2000_u64, gaps in gaps(2000)) {
            compare(Rate::new(per_minute, 60), burst, &gaps)?;
        }

        /// And for whole requests per second up to 25,000.
        #[test]
        fn counts_fast_ones_too(per_second in 1..25_000_u64, burst in 0..100_000_u64, gaps in gaps(20)) {
            compare(Rate::new(per_second, 1), burst, &gaps)?;
        }

        /// Whatever a configuration asks for, nothing overflows, and no request is free of charge.
        #[test]
        fn extremes_are_numbers(requests in 1..=u64::MAX, excess: u64, now_ms: u64, kept: u64) {
            let rate = Rate::new(requests, 1);
            rate.excess(Some(kept), now_ms);
            rate.delay_ms(excess);
            prop_assert!(rate.drained(excess, now_ms) >= rate.forgotten_below(now_ms));
        }
    }

    #[test]
    fn a_client_that_keeps_to_the_rate_is_never_in_excess() {
        let rate = Rate::new(2, 1);
        let mut kept = None;
        for now_ms in (1000..20_000).step_by(500) {
            assert_eq!(rate.excess(kept, now_ms), 0);
            kept = Some(rate.drained(0, now_ms));
        }
        assert_eq!(rate.excess(kept, 19_500 + 250), 500);
    }

    #[test]
    fn another_rate_keeps_the_time_to_wait() {
        let kept = Some(Rate::new(1, 1).drained(10 * REQUEST, 5000));
        assert_eq!(Rate::new(2, 1).excess(kept, 5000), 21 * REQUEST);
        assert_eq!(Rate::new(30, 60).excess(kept, 5000), 6 * REQUEST);
    }

    #[test]
    fn delays() {
        assert_eq!(Rate::new(1, 1).delay_ms(1500), 1500);
        assert_eq!(Rate::new(1, 60).delay_ms(1000), 62_500);
        assert_eq!(Rate::new(100, 1).delay_ms(0), 0);
    }
}
