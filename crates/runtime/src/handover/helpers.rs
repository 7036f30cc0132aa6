//! Carriers that poll hungry tasks of a loop beside it, at the priority of those that burn CPU away from
//! their loops, while there are processors to spare. Loops ask for them, any carrier that is a spare can be
//! one. Which polls those are is rule 13 of word.rs.
//!
//! 1. `count` is raised by the asker, before a spare is woken, and lowered by the helper at its end.
//! 2. There is one less than there are processors at most, and one less for each suspect that burns CPU.
//! 3. A helper ends when nobody is left behind, when suspects wait for a carrier or a turn, or when it had no
//!    processor for most of a while: others need them, so nobody asks for the next one soon.
//! 4. The asker lowers the priority of the spare before it wakes it, and the helper raises it at its end: a
//!    spare that woke with the priority of a loop would be let in before the asker on its processor, in RUN,
//!    where nobody can take the loop over.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How long nobody asks for a helper after one that found no processor, in milliseconds.
const BUSY_PAUSE_MS: u64 = 50;

/// The pause after a helper that found nothing to do.
const IDLE_PAUSE_MS: u64 = 1;

/// How long a helper runs until it finds out whether it had a processor, in nanoseconds.
const WHILE_NS: u64 = 4_000_000;

/// The helpers of one runtime.
pub(crate) struct Helpers {
    limit: u32,
    count: AtomicU32,
    /// No loop asks before this time.
    next_ms: AtomicU64,
}

/// Why a helper ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No task is left, or others need the carrier.
    Done,
    /// The processors are in use.
    Busy,
}

impl Helpers {
    pub(crate) fn new(processors: usize) -> Self {
        let limit = u32::try_from(processors.saturating_sub(1)).unwrap_or(u32::MAX);
        Self { limit, count: AtomicU32::new(0), next_ms: AtomicU64::new(0) }
    }

    /// Rules 1 and 2: whether there may be one more beside so many that burn CPU.
    pub(crate) fn enter(&self, burners: u32, now_ms: u64) -> bool {
        let may_be = self.limit.saturating_sub(burners);
        if self.count.load(Ordering::Relaxed) >= may_be || now_ms < self.next_ms.load(Ordering::Relaxed) {
            return false;
        }
        // Loops that ask at once may be one too many for a moment: none stays above the limit.
        if self.count.fetch_add(1, Ordering::Relaxed) < may_be {
            return true;
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// A helper ends.
    pub(crate) fn leave(&self, end: End, now_ms: u64) {
        let pause_ms = match end {
            End::Done => IDLE_PAUSE_MS,
            End::Busy => BUSY_PAUSE_MS,
        };
        self.next_ms.fetch_max(now_ms + pause_ms, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How much of the time a helper had a processor. On its thread.
pub(crate) struct Share {
    since_ns: u64,
    ran_ns: u64,
}

impl Share {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { since_ns: now_ns, ran_ns: 0 }
    }

    /// After a poll: whether there is a processor to spare (rule 3).
    pub(crate) fn note(&mut self, cpu_ns: u64, now_ns: u64) -> bool {
        self.ran_ns += cpu_ns;
        let took_ns = now_ns.saturating_sub(self.since_ns);
        if took_ns < WHILE_NS {
            return true;
        }
        let ran_ns = self.ran_ns;
        *self = Self::new(now_ns);
        ran_ns * 2 >= took_ns
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_processors_are_to_spare() {
        let helpers = Helpers::new(4);
        assert_eq!([0, 0, 0, 0].map(|burners| helpers.enter(burners, 0)), [true, true, true, false]);
        helpers.leave(End::Done, 0);
        assert!(!helpers.enter(0, 0) && !helpers.enter(1, IDLE_PAUSE_MS));
        assert!(helpers.enter(0, IDLE_PAUSE_MS));
        assert!(!Helpers::new(1).enter(0, 0), "the only processor is for the loops");
    }

    #[test]
    fn a_helper_without_a_processor_ends_and_others_wait() {
        let mut share = Share::new(0);
        assert!(share.note(500_000, 3_900_000), "it is too soon to say");
        assert!(share.note(2_000_000, 4_100_000));
        assert!(!share.note(1_000_000, 8_200_000));
        let helpers = Helpers::new(2);
        assert!(helpers.enter(0, 100));
        helpers.leave(End::Busy, 100);
        assert!(!helpers.enter(0, 99 + BUSY_PAUSE_MS) && helpers.enter(0, 100 + BUSY_PAUSE_MS));
    }
}
