//! What loops did with files, counted per operation: done at once, found cold, given to a pool unasked,
//! guessed wrongly. These are counted at every request, so each processor has counters of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_os::clock;

/// Processors that count apart; more of them share.
const SHARDS: usize = 16;
const OPERATIONS: usize = 3;
const OUTCOMES: usize = 4;
/// What was to take no time and took so long was a wrong guess, or the processor was not there, ms.
const LATE_MS: u64 = 10;

/// What a loop wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To open a file.
    Open,
    /// To know what is behind a name.
    Stat,
    /// To read or send a part of a file.
    Read,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was done on the loop.
    Inline,
    /// The kernel was asked and had it not in memory.
    Cold,
    /// A pool got it without asking the kernel.
    Offloaded,
    /// It was done on the loop and may have waited; beside one of the others.
    WrongGuess,
}

/// A counter with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The metric's name, as of [`clearway_metrics::Counter`].
    pub name: &'static str,
    /// What one step of the value is.
    pub unit: &'static str,
    /// What it means when this grows.
    pub help: &'static str,
    /// What has been counted since the process started.
    pub value: u64,
}

/// Names in the order of [`Operation`] and [`Outcome`].
const NAMES: [[&str; OUTCOMES]; OPERATIONS] = [
    [
        "files_open_inline_total",
        "files_open_cold_total",
        "files_open_offloaded_total",
        "files_open_wrong_guesses_total",
    ],
    [
        "files_stat_inline_total",
        "files_stat_cold_total",
        "files_stat_offloaded_total",
        "files_stat_wrong_guesses_total",
    ],
    [
        "files_read_inline_total",
        "files_read_cold_total",
        "files_read_offloaded_total",
        "files_read_wrong_guesses_total",
    ],
];
const UNITS: [&str; OPERATIONS] = ["files", "names", "reads"];
const HELPS: [&str; OUTCOMES] = [
    "Done on the loop, since it was in memory.",
    "Not in memory: the loop asked the kernel and gave it to a thread pool.",
    "Given to a thread pool without asking: the file system cannot tell, is slow by nature, has many \
     reads under way, or the same response was cold before.",
    "Done on the loop where it may have waited: a file turned out to be on a slow file system, or what \
     should have been in memory took 10 ms or more (also because the processor was busy with others).",
];

#[repr(align(128))]
struct Shard([[AtomicU64; OUTCOMES]; OPERATIONS]);

static SHARED: [Shard; SHARDS] =
    [const { Shard([const { [const { AtomicU64::new(0) }; OUTCOMES] }; OPERATIONS]) }; SHARDS];

/// Counts one operation.
pub(super) fn tell(operation: Operation, outcome: Outcome) {
    let shard = &SHARED[rustix::thread::sched_getcpu() % SHARDS];
    shard.0[operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
}

/// All that is counted here.
pub fn tallies() -> impl Iterator<Item = Tally> {
    (0..OPERATIONS * OUTCOMES).map(|at| {
        let (operation, outcome) = (at / OUTCOMES, at % OUTCOMES);
        Tally {
            name: NAMES[operation][outcome],
            unit: UNITS[operation],
            help: HELPS[outcome],
            value: SHARED.iter().map(|shard| shard.0[operation][outcome].load(Ordering::Relaxed)).sum(),
        }
    })
}

/// Counts a wrong guess if something that should not wait takes long, from here to the end of the
/// value. Around sendfile(2) for its user; the calls of this crate do it themselves.
#[derive(Debug)]
pub struct Guess {
    operation: Operation,
    since_ms: u64,
}

impl Guess {
    /// Something begins that should not wait.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self { operation, since_ms: clock::coarse_ms() }
    }
}

/// Whether something that began at `since_ms` of the coarse clock has taken long.
pub(super) fn is_late(since_ms: u64) -> bool {
    clock::coarse_ms() - since_ms >= LATE_MS
}

impl Drop for Guess {
    fn drop(&mut self) {
        if is_late(self.since_ms) {
            tell(self.operation, Outcome::WrongGuess);
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_outcome_has_a_counter() {
        let value = || tallies().find(|tally| tally.name == "files_stat_cold_total").unwrap().value;
        let before = value();
        tell(Operation::Stat, Outcome::Cold);
        assert!(value() > before);
        let names: std::collections::BTreeSet<_> = tallies().map(|tally| tally.name).collect();
        assert_eq!(names.len(), OPERATIONS * OUTCOMES);
    }

    #[test]
    fn what_takes_long_was_a_wrong_guess() {
        let value = || tallies().find(|tally| tally.name == "files_read_wrong_guesses_total").unwrap().value;
        let before = value();
        let guess = Guess::new(Operation::Read);
        while !is_late(guess.since_ms) {}
        drop(guess);
        assert!(value() > before);
    }
}
