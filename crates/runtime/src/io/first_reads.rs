//! Whether what a peer sends first is there already when its connection is accepted. On a busy loop it
//! is, and a read that is tried at once spares epoll_ctl(2) and a turn of the loop; on one that keeps up it
//! is not, and such a read is a system call for nothing. So each loop keeps count. Any thread; what is
//! lost of the count between two threads costs a system call.

use std::sync::atomic::{AtomicU32, Ordering};

/// The share of reads that found something, smoothed: this is all of them.
const ALL: u32 = 256;

/// A read costs about a third of what it spares: from this share on it is worth it.
const WORTH: u32 = ALL * 3 / 10;

/// The weight of one read in the share: one part in so many.
const SMOOTHING: u32 = 8;

/// One socket in so many is read from even where it is not worth it, so that a change is noticed.
const PROBE_EVERY: u32 = 16;

/// The record of one loop: how often first bytes were there at once.
pub(crate) struct FirstReads {
    share: AtomicU32,
    /// Sockets that were not read from since the last one that was.
    passed_over: AtomicU32,
}

impl FirstReads {
    /// Everything is worth a read until something is known.
    pub(crate) fn new() -> Self {
        Self { share: AtomicU32::new(ALL), passed_over: AtomicU32::new(0) }
    }

    /// Whether a new socket should be read from at once. To be asked once for each.
    pub(crate) fn are_worth_it(&self) -> bool {
        if self.share.load(Ordering::Relaxed) >= WORTH {
            return true;
        }
        let passed_over = self.passed_over.load(Ordering::Relaxed) + 1;
        self.passed_over.store(passed_over % PROBE_EVERY, Ordering::Relaxed);
        passed_over == PROBE_EVERY
    }

    /// A read that was tried at once has found something, or has not.
    pub(crate) fn note(&self, read: FirstRead) {
        let share = self.share.load(Ordering::Relaxed);
        let found = match read {
            FirstRead::Found => ALL.div_ceil(SMOOTHING),
            FirstRead::InVain => 0,
        };
        self.share.store((share - share.div_ceil(SMOOTHING) + found).min(ALL), Ordering::Relaxed);
    }
}

/// The result of a read that was tried at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstRead {
    Found,
    InVain,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many new sockets are read from.
    fn tried(reads: &FirstReads, sockets: u32, read: FirstRead) -> u32 {
        let tries = (0..sockets).filter(|_| reads.are_worth_it().then(|| reads.note(read)).is_some());
        tries.count() as u32
    }

    #[test]
    fn reads_are_tried_where_they_find_something() {
        let reads = FirstReads::new();
        assert_eq!(tried(&reads, 100, FirstRead::Found), 100);
        let vain = tried(&reads, 1600, FirstRead::InVain);
        assert!((100..=120).contains(&vain), "a few until it is known, then one in sixteen: {vain}");
        let again = tried(&reads, 1600, FirstRead::Found);
        assert!((1500..1600).contains(&again), "a few probes until it is known: {again}");
    }
}
