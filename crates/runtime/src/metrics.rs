//! Metrics of the runtime.
//!
//! *Lag* is how long a loop takes from one look for events (the return of epoll_wait) to the next, less what
//! it sleeps: what arrives meanwhile waits up to so long until it is noticed, and what was noticed waits up
//! to so long for its poll. It costs no clock: the one that a loop reads behind epoll_wait ends a turn after
//! which it did not sleep, and the one that it reads to know how long it may sleep ends the others. The time
//! that a task runs away from its loop is not in it; the time until the loop was handed over is.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_metrics::{Counter, Durations, Family, Histogram, Kind, Label, count_alone};

const LOOP: &[Label] = &[Label { name: "loop", help: "Which event loop, from 0." }];

/// The lag of each loop.
pub static LAG: Family = Family::new(
    Kind::Histogram,
    "loop_lag_seconds",
    "seconds",
    "How long a loop took from one look for events to the next, less what it slept: what arrives meanwhile \
     waits up to so long. The sum is the time for which the loop was busy, the count that of its turns.",
)
.by(LOOP);

/// [`LoopValues::polls`].
pub static POLLS: Family = Family::new(
    Kind::Counter,
    "loop_polls_total",
    "polls",
    "Tasks that the loop took from its queue and polled: one for each step of a connection, as a rule.",
)
.by(LOOP);

/// [`LoopValues::handovers`].
pub static HANDOVERS: Family = Family::new(
    Kind::Counter,
    "handovers_total",
    "hand-overs",
    "A task held its loop longer than handover_after, and a spare carrier took the loop over.",
)
.by(LOOP);

/// A loop's counts of itself: written by the carrier that is named in its word, in RUN (rule 5 of word.rs).
/// So there is one writer at a time, and each sees the numbers of the one before. Hand-overs are written by
/// the watchdog alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LoopCounters {
    polls: AtomicU64,
    lag: Histogram,
    handovers: AtomicU64,
}

impl LoopCounters {
    /// A task is about to be polled.
    #[inline]
    pub(crate) fn count_poll(&self) {
        count_alone(&self.polls, 1);
    }

    /// A turn has ended.
    pub(crate) fn note_lag(&self, ns: u64) {
        self.lag.note_alone(ns);
    }

    /// The loop was handed over. The watchdog only.
    pub(crate) fn count_handover(&self) {
        count_alone(&self.handovers, 1);
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    pub(crate) fn handovers(&self) -> u64 {
        self.handovers.load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> LoopValues {
        LoopValues { polls: self.polls(), lag: self.lag.read(), handovers: self.handovers() }
    }
}

/// A loop's counts since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopValues {
    /// Polls of tasks.
    pub polls: u64,
    /// How long its turns took.
    pub lag: Durations,
    /// How often a task held it too long, and it was handed over.
    pub handovers: u64,
}

#[expect(missing_docs, reason = "the metric's text says it")]
pub static SUSPECTS_DETACHED: Counter = Counter::new(
    "suspects_detached_total",
    "polls",
    "A task whose location and phase blocked lately was polled away from its loop from the start.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static SUSPECTS_QUEUED: Counter = Counter::new(
    "suspects_queued_total",
    "polls",
    "A suspect had to wait for a carrier, since the last spares are kept for hand-overs.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static BURNERS_QUEUED: Counter = Counter::new(
    "burners_queued_total",
    "polls",
    "A suspect that burns CPU had to wait for its turn: as many as there are processors or loops, whichever \
     is more, are polled at a time.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static STEALS: Counter = Counter::new(
    "steals_total",
    "polls",
    "A loop with nothing to do polled a task that was ready on a crowded one.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static HELPED: Counter = Counter::new(
    "helped_polls_total",
    "polls",
    "A task that takes much CPU was polled by a carrier beside its loop, as there were processors to spare.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static CARRIERS_EXHAUSTED: Counter = Counter::new(
    "handover_carriers_exhausted_total",
    "attempts",
    "A blocked loop, or a suspect, needed a carrier and all were taken: raise handover_carriers.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static CARRIERS_STARTED: Counter =
    Counter::new("carriers_started_total", "threads", "Carriers started, those of the loops included.");

#[expect(missing_docs, reason = "the metric's text says it")]
pub static CARRIERS_ENDED: Counter = Counter::new(
    "carriers_ended_total",
    "threads",
    "Carriers that ended again, as they were not needed for some seconds.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static DEMOTIONS: Counter = Counter::new(
    "demotions_total",
    "demotions",
    "A carrier that had lost its loop burned CPU, and its priority was lowered until it returned.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static TASK_PANICS: Counter = Counter::new(
    "task_panics_total",
    "panics",
    "A task panicked and was ended; the loop and all other tasks went on. Always a bug: report it.",
);

/// Everything that is counted here, for the reference and the status API.
pub static ALL: &[&Counter] = &[
    &SUSPECTS_DETACHED,
    &SUSPECTS_QUEUED,
    &BURNERS_QUEUED,
    &STEALS,
    &HELPED,
    &CARRIERS_EXHAUSTED,
    &CARRIERS_STARTED,
    &CARRIERS_ENDED,
    &DEMOTIONS,
    &TASK_PANICS,
];
