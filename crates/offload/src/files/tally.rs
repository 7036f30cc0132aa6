//! Counts of the operations of loops on files: done at once, found cold, given to a pool at once, guessed
//! wrongly. These are counted at every request, so each processor has counters of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_metrics::{Family, Kind, Label, Put, Value};
use clearway_os::clock;

/// Processors that count apart; more of them share.
const SHARDS: usize = 16;
const OPERATIONS: usize = 3;
const OUTCOMES: usize = 4;
/// An operation that should take no time and took so long was a wrong guess, or the processor was not there,
/// ms.
const LATE_MS: u64 = 10;

/// The operation of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opens a file.
    Open,
    /// Looks a name up.
    Stat,
    /// Reads or sends a part of a file.
    Read,
}

/// The outcome of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOutcome {
    /// The operation was done on the loop.
    Inline,
    /// The kernel was asked and had it not in memory.
    Cold,
    /// A pool got it without asking the kernel.
    Offloaded,
    /// The operation was done on the loop and may have waited; counted in addition to one of the others.
    WrongGuess,
}

const OPERATION: Label = Label {
    name: "operation",
    help: "`open` and `stat` of a name, `read` of a part of a file (which may be to send it).",
};

/// Operations on files.
pub static OPERATIONS_TOTAL: Family = Family::new(
    Kind::Counter,
    "file_operations_total",
    "operations",
    "Operations on files by requests. Those that are `cold` or `offloaded` waited for a thread pool.",
)
.by(&[
    OPERATION,
    Label {
        name: "outcome",
        help: "`inline`: done on the loop, since it was in memory. `cold`: not in memory; the loop asked the \
               kernel and gave it to a thread pool. `offloaded`: given to a thread pool without asking, as \
               the file system cannot tell, is slow by nature, has many reads under way, or the same \
               response was cold before.",
    },
]);

/// Operations on loops that should have been a pool's.
pub static WRONG_GUESSES_TOTAL: Family = Family::new(
    Kind::Counter,
    "file_wrong_guesses_total",
    "operations",
    "Operations that were done on a loop where they may have waited: a file turned out to be on a slow file \
     system, or what should have been in memory took 10 ms or more (also because the processor was busy \
     with others).",
)
.by(&[OPERATION]);

#[repr(align(128))]
struct Shard([[AtomicU64; OUTCOMES]; OPERATIONS]);

static SHARED: [Shard; SHARDS] =
    [const { Shard([const { [const { AtomicU64::new(0) }; OUTCOMES] }; OPERATIONS]) }; SHARDS];

impl Operation {
    const ALL: [Self; OPERATIONS] = [Self::Open, Self::Stat, Self::Read];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Read => "read",
        }
    }
}

/// Counts one operation.
pub(super) fn tell(operation: Operation, outcome: FileOutcome) {
    let shard = &SHARED[rustix::thread::sched_getcpu() % SHARDS];
    shard.0[operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
}

/// Gives the values of [`OPERATIONS_TOTAL`].
pub fn put_operations(put: &mut Put<'_>) {
    let outcomes =
        [(FileOutcome::Inline, "inline"), (FileOutcome::Cold, "cold"), (FileOutcome::Offloaded, "offloaded")];
    for operation in Operation::ALL {
        for (outcome, name) in outcomes {
            let labels = [("operation", operation.as_str()), ("outcome", name)];
            put(&labels, Value::Number(value(operation, outcome)));
        }
    }
}

/// Gives the values of [`WRONG_GUESSES_TOTAL`].
pub fn put_wrong_guesses(put: &mut Put<'_>) {
    for operation in Operation::ALL {
        let labels = [("operation", operation.as_str())];
        put(&labels, Value::Number(value(operation, FileOutcome::WrongGuess)));
    }
}

/// The count since the process started.
pub(super) fn value(operation: Operation, outcome: FileOutcome) -> u64 {
    let count = |shard: &Shard| shard.0[operation as usize][outcome as usize].load(Ordering::Relaxed);
    SHARED.iter().map(count).sum()
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
        Self::since(operation, clock::coarse_ms())
    }

    /// Begins, with a clock that was read just now.
    #[inline]
    pub(super) fn since(operation: Operation, since_ms: u64) -> Self {
        Self { operation, since_ms }
    }
}

/// Whether something that began at `since_ms` of the coarse clock has taken long.
pub(super) fn is_late(since_ms: u64) -> bool {
    clock::coarse_ms() - since_ms >= LATE_MS
}

impl Drop for Guess {
    fn drop(&mut self) {
        if is_late(self.since_ms) {
            tell(self.operation, FileOutcome::WrongGuess);
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_outcome_has_a_value() {
        let before = value(Operation::Stat, FileOutcome::Cold);
        tell(Operation::Stat, FileOutcome::Cold);
        assert!(value(Operation::Stat, FileOutcome::Cold) > before);
        let mut names = std::collections::BTreeSet::new();
        put_operations(&mut |labels, _| {
            names.insert(format!("{labels:?}"));
        });
        put_wrong_guesses(&mut |labels, _| {
            names.insert(format!("{labels:?}"));
        });
        assert_eq!(names.len(), OPERATIONS * OUTCOMES);
    }

    #[test]
    fn what_takes_long_was_a_wrong_guess() {
        let before = value(Operation::Read, FileOutcome::WrongGuess);
        let guess = Guess::new(Operation::Read);
        while !is_late(guess.since_ms) {}
        drop(guess);
        assert!(value(Operation::Read, FileOutcome::WrongGuess) > before);
    }
}
