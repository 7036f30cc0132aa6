//! Whether servers leave connections open behind their answers, as they say. One that closes without a word
//! does so a moment after its answer: a request that goes out in this moment is read by nobody, or, what is
//! worse, nobody knows. So a request that cannot be repeated is given idle connections only of servers that
//! were watched for a while, and have not been seen closing one early since.
//!
//! Any loop, without locks; a word for each of 64 classes of connections, which share it by accident at
//! worst: then one more is made than had to be.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long a server is watched before it is trusted, milliseconds.
const WATCH_MS: u64 = 50;

/// How long one is distrusted that has closed a connection early, milliseconds.
const DISTRUST_MS: u64 = 1000;

/// One that was idle for less was closed early, milliseconds.
pub(crate) const EARLY_MS: u64 = 500;

/// The trust in the servers of one group.
pub(crate) struct Trust {
    /// From when on, on the loops' clock; 0: nothing is known.
    from_ms: [AtomicU64; 64],
}

impl Trust {
    pub(crate) fn new() -> Self {
        Self { from_ms: [const { AtomicU64::new(0) }; 64] }
    }

    fn of(&self, tag: u64) -> &AtomicU64 {
        &self.from_ms[tag as usize % self.from_ms.len()]
    }

    /// A connection with this tag has become idle.
    pub(crate) fn watch(&self, tag: u64, now_ms: u64) {
        let from_ms = self.of(tag);
        if from_ms.load(Ordering::Relaxed) == 0 {
            from_ms.store((now_ms + WATCH_MS).max(1), Ordering::Relaxed);
        }
    }

    /// Its server has closed one that was idle for so long.
    pub(crate) fn note_closed(&self, tag: u64, idle_ms: u64, now_ms: u64) {
        if idle_ms < EARLY_MS {
            self.of(tag).fetch_max(now_ms + DISTRUST_MS, Ordering::Relaxed);
        }
    }

    /// Whether a request may use one that it cannot be repeated behind.
    pub(crate) fn holds(&self, tag: u64, now_ms: u64) -> bool {
        let from_ms = self.of(tag).load(Ordering::Relaxed);
        from_ms != 0 && now_ms >= from_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_trusted_that_were_watched_and_have_closed_nothing_early() {
        let trust = Trust::new();
        assert!(!trust.holds(1, 10_000), "nothing is known of it");
        trust.watch(1, 1000);
        trust.watch(1, 1040);
        assert!(!trust.holds(1, 1049) && trust.holds(1, 1050) && !trust.holds(2, 1050));
        trust.note_closed(1, EARLY_MS, 2000);
        assert!(trust.holds(1, 2000), "its keep-alive time was over");
        trust.note_closed(1, 3, 2000);
        trust.watch(1, 2500);
        assert!(!trust.holds(1, 2999) && trust.holds(1, 3000));
    }
}
