//! How many further attempts the requests of a group may make (`upstream_retry_budget`): where most servers
//! are in trouble, attempts beyond that would only add to it. Any loop, without a lock or a clock.
//!
//! Each request puts its part of an attempt into the budget, each further attempt takes a whole one out.
//! There is always a little for groups with few requests, and never more than for a short storm.

use crate::common::{BUDGET_NAME, Common, Numbers};
use crate::sync::{AtomicU64, Ordering};

/// A whole attempt, in hundredths.
const ATTEMPT: i64 = 100;

/// Attempts that are there at first: groups with few requests have these.
const FIRST: i64 = 10;

/// The most attempts.
const MOST: i64 = 1000;

/// The budget of one group.
#[derive(Debug)]
pub struct RetryBudget {
    /// Further attempts for a hundred requests.
    percent: u32,
    /// Attempts that were put in and not taken out, as an i64: below 0 where the first ones are used up.
    more: Numbers<1>,
}

impl RetryBudget {
    /// So many further attempts for a hundred requests.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self { percent, more: Numbers::default() }
    }

    /// Further attempts for a hundred requests.
    #[must_use]
    pub fn percent(&self) -> u32 {
        self.percent
    }

    /// A request begins.
    pub fn deposit(&self) {
        // Loops that look at once may exceed the most by a request each.
        if left(self.more().load(Ordering::Relaxed)) < MOST * ATTEMPT {
            self.more().fetch_add(self.percent.into(), Ordering::Relaxed);
        }
    }

    /// Whether there may be a further attempt, which takes its part then.
    pub fn withdraw(&self) -> bool {
        let take = |more: u64| {
            (left(more) >= ATTEMPT).then(|| more.cast_signed().wrapping_sub(ATTEMPT).cast_unsigned())
        };
        self.more().fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// From here on it is that of all processes which have this memory, if there is room.
    pub fn share(&self, common: &dyn Common) {
        if let Some(words) = common.words(BUDGET_NAME, 1) {
            self.more.share(&words, 0);
        }
    }

    fn more(&self) -> &AtomicU64 {
        self.more.at(0)
    }
}

fn left(more: u64) -> i64 {
    more.cast_signed().saturating_add(FIRST * ATTEMPT)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_and_a_little_may_be_repeated() {
        let budget = RetryBudget::new(20);
        let allowed = (0..1000).filter(|_| {
            budget.deposit();
            budget.withdraw()
        });
        assert_eq!(allowed.count(), 10 + 200);
        (0..100_000).for_each(|_| budget.deposit());
        let stormy = (0..2000).filter(|_| budget.withdraw()).count();
        assert_eq!(stormy, 1000, "what was saved is bounded");
    }
}
