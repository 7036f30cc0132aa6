//! Looking for something for some microseconds before a thread sleeps: worth it where that mostly comes
//! within them, as a sleep and a wake-up take as long and cost both sides system calls.

use std::sync::OnceLock;

use crate::{clock, process};

/// How long a look takes at most.
const LOOK_NS: u64 = 20_000;

/// The limit in rounds, for a clock that stands still.
const ROUNDS_MAX: u32 = 128;

/// How often a round asks.
const ASKED_EACH: u32 = 8;

/// One in so many sleeps is preceded by a look, when earlier looks were in vain.
const TRIAL_EACH: u32 = 64;

/// One look may be in vain for so many looks that find something.
const VAIN: u32 = 8;

/// Looks that are in vain in a row, at most, once much was found.
const VAIN_MAX: u32 = 4;

/// Whether a look is worth its time, as looks before have shown.
#[derive(Debug)]
pub struct Spin {
    credit: u32,
    sleeps: u32,
    /// A thread alone on its processor would keep away the one that it waits for.
    is_off: bool,
}

impl Default for Spin {
    fn default() -> Self {
        Self::beside(1)
    }
}

impl Spin {
    /// The spin state of one of `threads` threads that want a processor each.
    #[must_use]
    pub fn beside(threads: usize) -> Self {
        // Files say how many there are: they are read once, before there are loops.
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        let processors = *PROCESSORS.get_or_init(process::processors);
        Self { credit: 0, sleeps: 0, is_off: processors < 2 || processors < threads }
    }

    /// Whether a look seems to be worth it. To be asked once before each sleep.
    pub fn is_due(&mut self) -> bool {
        if self.is_off {
            return false;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        self.credit > 0 || self.sleeps.is_multiple_of(TRIAL_EACH)
    }

    /// Looks until `found` says so, for some microseconds. Whether it was there.
    pub fn look(&mut self, found: impl Fn() -> bool) -> bool {
        let end_ns = clock::monotonic_ns() + LOOK_NS;
        for _ in 0..ROUNDS_MAX {
            for _ in 0..ASKED_EACH {
                if found() {
                    // The first one is believed for a while.
                    let least = if self.credit == 0 { VAIN } else { self.credit };
                    self.credit = (least + 1).min(VAIN * VAIN_MAX);
                    return true;
                }
                std::hint::spin_loop();
            }
            if clock::monotonic_ns() >= end_ns {
                break;
            }
        }
        self.credit = self.credit.saturating_sub(VAIN);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many sleeps had a look before them that found nothing.
    fn vain(spin: &mut Spin, sleeps: u32) -> u32 {
        let looks = (0..sleeps).filter(|_| spin.is_due() && !spin.look(|| false));
        u32::try_from(looks.count()).expect("no more than sleeps")
    }

    fn spin() -> Spin {
        Spin { credit: 0, sleeps: 0, is_off: false }
    }

    #[test]
    fn looks_in_vain_are_few() {
        assert_eq!(vain(&mut spin(), TRIAL_EACH * 10), 10);
        let mut found = spin();
        let looks = (0..TRIAL_EACH).filter(|_| found.is_due() && found.look(|| true));
        assert_eq!(looks.count(), 1, "one is tried");
        assert!(
            (0..1000).all(|_| found.is_due() && found.look(|| true)),
            "what finds something is tried again"
        );
        assert_eq!(vain(&mut found, VAIN_MAX), VAIN_MAX);
        assert_eq!(vain(&mut found, TRIAL_EACH), 1, "then they are trials again");
    }

    #[test]
    fn without_a_processor_to_spare_nothing_is_looked_for() {
        assert!(Spin::beside(usize::MAX).is_off);
        assert_eq!(vain(&mut Spin::beside(usize::MAX), 1000), 0);
    }
}
