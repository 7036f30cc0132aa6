//! Tags whose polls blocked lately. A suspect is polled away from its loop from the start, so that many
//! blockers at once need not be found out one by one. A stranger, of which only few polls were seen, stays on
//! its loop, and the watchdog looks closely meanwhile. Any thread; a wrong answer costs a hop (a tag that
//! shares its entry with a blocker), one hand-over or a few looks, never correctness.
//!
//! Caught once says little: a first run compiles, reads files, touches pages that are not there yet. A tag
//! *repeats* when a poll that was away from the start has blocked as well, and for long. Either is judged by
//! the processor time of the thread, or by its having waited for something, and not by the time that passed,
//! which is longer where others want the processor.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of the table; tags that meet in one share its fate.
const ENTRIES: usize = 4096;

/// How long a tag stays a suspect after it blocked last, in milliseconds.
const MEMORY_MS: u64 = 10_000;

/// Polls that must end in time before a suspect is trusted again.
const TRUST_AFTER: u64 = 8;

/// Polls of a tag until it is no stranger any more.
const STRANGE_POLLS: u64 = 8;

/// The record of a tag: of a stranger the polls that were begun, of a suspect those that must end in time;
/// whether it burns CPU; until when it is a suspect, in milliseconds, or 0.
const SCORE_MASK: u64 = 0xf;
const BURNS: u64 = 0x10;

/// A bit of a suspect: a poll that was away from the start has also blocked for long.
const REPEATS: u64 = 0x40;
const TIME_SHIFT: u32 = 8;

/// An entry of a tag that is neither stranger nor suspect.
const FAMILIAR: u64 = 0x20;

const _: () = assert!(STRANGE_POLLS <= SCORE_MASK && TRUST_AFTER <= SCORE_MASK);

/// A tag under which blocking is remembered: a hash of a task's present work, such as location and phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub(crate) u32);

impl Tag {
    /// No tag: such a poll is never a suspect.
    pub const NONE: Self = Self(0);

    /// The tag of a name (FNV-1a); different names may share one.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let hash = name.iter().fold(0x811c_9dc5_u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        Self(hash.max(1))
    }

    /// A number that stands for it; 0 is nothing in particular.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// How a tag blocked last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// The poll slept.
    Sleeps,
    /// The poll used the CPU.
    Burns,
}

/// The judgement of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repute {
    /// The tag has not blocked for a while.
    Familiar,
    /// Only few of its polls were seen, this one among them.
    Stranger,
    /// The tag has blocked lately.
    Suspect(Manner),
}

/// The table.
pub(crate) struct Suspects {
    entries: Box<[AtomicU64]>,
    /// Until when a tag counts as one that sleeps, whatever it does: a file of a location may be in memory
    /// and the next one on a slow disk.
    slept_ms: Box<[AtomicU64]>,
}

impl Suspects {
    pub(crate) fn new() -> Self {
        let zeros = || (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
        Self { entries: zeros(), slept_ms: zeros() }
    }

    fn entry(&self, tag: Tag) -> &AtomicU64 {
        &self.entries[tag.0 as usize % ENTRIES]
    }

    /// Whether `tag` blocked lately, and how.
    pub(crate) fn check(&self, tag: Tag, now_ms: u64) -> Option<Manner> {
        if tag == Tag::NONE {
            return None;
        }
        let value = self.entry(tag).load(Ordering::Relaxed);
        if value >> TIME_SHIFT == 0 || now_ms > value >> TIME_SHIFT {
            return None;
        }
        if value & BURNS == 0 || self.slept_ms[tag.0 as usize % ENTRIES].load(Ordering::Relaxed) > now_ms {
            return Some(Manner::Sleeps);
        }
        Some(Manner::Burns)
    }

    /// The judgement of `tag`, of which a poll is about to begin.
    #[inline]
    pub(crate) fn meet(&self, tag: Tag, now_ms: u64) -> Repute {
        if tag == Tag::NONE || self.entry(tag).load(Ordering::Relaxed) == FAMILIAR {
            return Repute::Familiar;
        }
        self.meet_other(tag, now_ms)
    }

    #[cold]
    fn meet_other(&self, tag: Tag, now_ms: u64) -> Repute {
        if let Some(manner) = self.check(tag, now_ms) {
            return Repute::Suspect(manner);
        }
        let entry = self.entry(tag);
        let value = entry.load(Ordering::Relaxed);
        let seen = if value >> TIME_SHIFT == 0 { value & SCORE_MASK } else { 0 };
        let new = if seen + 1 >= STRANGE_POLLS { FAMILIAR } else { seen + 1 };
        // Lost against another thread's news, this poll may be forgotten.
        let _ = entry.compare_exchange(value, new, Ordering::Relaxed, Ordering::Relaxed);
        Repute::Stranger
    }

    /// Whether `tag` is a suspect that has blocked again since it became one.
    pub(crate) fn repeats(&self, tag: Tag, now_ms: u64) -> bool {
        self.check(tag, now_ms).is_some() && self.entry(tag).load(Ordering::Relaxed) & REPEATS != 0
    }

    /// A poll of `tag`, a suspect, that was away from the start blocked for long.
    pub(crate) fn blame_again(&self, tag: Tag, manner: Manner, now_ms: u64) {
        debug_assert!(tag != Tag::NONE, "nothing in particular is no suspect");
        self.blame(tag, manner, now_ms);
        self.entry(tag).fetch_or(REPEATS, Ordering::Relaxed);
    }

    /// `tag` blocked.
    pub(crate) fn blame(&self, tag: Tag, manner: Manner, now_ms: u64) {
        if tag != Tag::NONE {
            let burns = if manner == Manner::Burns { BURNS } else { 0 };
            let repeats = if self.repeats(tag, now_ms) { REPEATS } else { 0 };
            let value = (now_ms + MEMORY_MS) << TIME_SHIFT | burns | repeats | TRUST_AFTER;
            if manner == Manner::Sleeps {
                self.slept_ms[tag.0 as usize % ENTRIES].store(now_ms + MEMORY_MS, Ordering::Relaxed);
            }
            self.entry(tag).store(value, Ordering::Relaxed);
        }
    }

    /// A poll of the suspect `tag` ended in time.
    pub(crate) fn absolve(&self, tag: Tag) {
        let entry = self.entry(tag);
        let value = entry.load(Ordering::Relaxed);
        let new = if value & SCORE_MASK <= 1 { 0 } else { value - 1 };
        // Lost against another thread's news, this vote may be forgotten.
        let _ = entry.compare_exchange(value, new, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_trusted_again_after_good_polls_or_time() {
        let (suspects, tag) = (Suspects::new(), Tag::of(b"/burn content"));
        assert_eq!(suspects.check(tag, 0), None);
        suspects.blame(tag, Manner::Burns, 100);
        assert_eq!(suspects.check(tag, 100), Some(Manner::Burns));
        assert_eq!(suspects.check(tag, 101 + MEMORY_MS), None);
        for _ in 1..TRUST_AFTER {
            suspects.absolve(tag);
            assert!(suspects.check(tag, 100).is_some());
        }
        suspects.absolve(tag);
        assert_eq!(suspects.check(tag, 100), None);
        suspects.blame(tag, Manner::Sleeps, 100);
        suspects.blame(tag, Manner::Burns, 200);
        assert_eq!(suspects.check(tag, 200), Some(Manner::Sleeps), "it does both");
        assert_eq!(suspects.check(tag, 100 + MEMORY_MS), Some(Manner::Burns));
        suspects.blame(Tag::NONE, Manner::Sleeps, 100);
        assert_eq!(suspects.check(Tag::NONE, 100), None);
    }

    #[test]
    fn a_suspect_repeats_when_it_has_blocked_as_one() {
        let (suspects, tag) = (Suspects::new(), Tag::of(b"/module content"));
        suspects.blame(tag, Manner::Burns, 100);
        suspects.blame(tag, Manner::Sleeps, 101);
        assert!(!suspects.repeats(tag, 101), "the first run of something");
        suspects.blame_again(tag, Manner::Burns, 200);
        assert!(suspects.repeats(tag, 200));
        suspects.blame(tag, Manner::Sleeps, 300);
        suspects.absolve(tag);
        assert!(suspects.repeats(tag, 300), "that is not forgotten at once");
        (1..TRUST_AFTER).for_each(|_| suspects.absolve(tag));
        suspects.blame(tag, Manner::Burns, 400);
        assert!(!suspects.repeats(tag, 400), "it was trusted meanwhile");
        suspects.blame_again(tag, Manner::Burns, 500);
        suspects.blame(tag, Manner::Burns, 501 + MEMORY_MS);
        assert!(!suspects.repeats(tag, 501 + MEMORY_MS), "it is long ago");
    }

    #[test]
    fn a_stranger_is_met_a_few_times() {
        let (suspects, tag) = (Suspects::new(), Tag::of(b"/new content"));
        let meets_strangers = |now_ms| {
            (0..STRANGE_POLLS).for_each(|_| assert_eq!(suspects.meet(tag, now_ms), Repute::Stranger));
            assert_eq!(suspects.meet(tag, now_ms), Repute::Familiar);
        };
        meets_strangers(0);
        suspects.blame(tag, Manner::Sleeps, 100);
        assert_eq!(suspects.meet(tag, 100), Repute::Suspect(Manner::Sleeps));
        (0..TRUST_AFTER).for_each(|_| suspects.absolve(tag));
        meets_strangers(100);
        suspects.blame(tag, Manner::Burns, 200);
        meets_strangers(201 + MEMORY_MS);
        assert_eq!(suspects.meet(Tag::NONE, 0), Repute::Familiar);
    }
}
