//! When a loop gives back memory that it does not use any more. An allocator keeps what was freed, and looks
//! at it again when something is allocated; a loop that has nothing to do allocates nothing. So some seconds
//! after it has done something, and once more when it has done nothing since, a task of the loop gives back
//! what can be given. An idle loop is woken twice for it, and then never again. Loop-local data (rule 5 of
//! word.rs).

/// How long after something was done, in milliseconds, and until it is looked at again: after twice that an
/// idle loop has given back everything.
const PERIOD_MS: u64 = 5000;

/// The decision of one loop when to give back memory.
#[derive(Debug, Default)]
pub(crate) struct Tidying {
    /// Polls of the loop when it was time last.
    polls: u64,
    /// When it is time next; 0: never, as nothing was done.
    due_ms: u64,
}

/// The next action of a loop that has nothing ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tidy {
    /// No action.
    Never,
    /// Wake up then.
    At(u64),
    Now,
}

impl Tidying {
    /// Before a loop waits that has polled so many tasks since it began. With `Now` it polls one more.
    pub(crate) fn before_wait(&mut self, polls: u64, now_ms: u64) -> Tidy {
        if self.due_ms == 0 {
            if polls == self.polls {
                return Tidy::Never;
            }
            self.due_ms = now_ms + PERIOD_MS;
        }
        if now_ms < self.due_ms {
            return Tidy::At(self.due_ms);
        }
        let was_used = polls != self.polls;
        self.polls = polls + 1;
        self.due_ms = if was_used { now_ms + PERIOD_MS } else { 0 };
        Tidy::Now
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn twice_after_something_was_done_and_then_never() {
        let mut tidying = Tidying::default();
        assert_eq!(tidying.before_wait(0, 100), Tidy::Never);
        assert_eq!(tidying.before_wait(7, 1000), Tidy::At(1000 + PERIOD_MS));
        assert_eq!(tidying.before_wait(9, 3000), Tidy::At(1000 + PERIOD_MS));
        assert_eq!(tidying.before_wait(9, 6000), Tidy::Now);
        assert_eq!(tidying.before_wait(10, 6001), Tidy::At(6000 + PERIOD_MS));
        assert_eq!(tidying.before_wait(10, 11_000), Tidy::Now);
        assert_eq!(tidying.before_wait(11, 11_001), Tidy::Never);
        assert_eq!(tidying.before_wait(11, 99_000), Tidy::Never);
        assert_eq!(tidying.before_wait(12, 99_000), Tidy::At(99_000 + PERIOD_MS));
    }
}
