//! What the runtime counts.

use clearway_metrics::Counter;

/// See its text.
pub static HANDOVERS: Counter = Counter::new(
    "handovers_total",
    "hand-overs",
    "A task held its loop longer than handover_after, and a spare carrier took the loop over.",
);

/// See its text.
pub static SUSPECTS_DETACHED: Counter = Counter::new(
    "suspects_detached_total",
    "polls",
    "A task whose location and phase blocked lately was polled away from its loop from the start.",
);

/// See its text.
pub static SUSPECTS_QUEUED: Counter = Counter::new(
    "suspects_queued_total",
    "polls",
    "A suspect had to wait for a carrier, since the last spares are kept for hand-overs.",
);

/// See its text.
pub static BURNERS_QUEUED: Counter = Counter::new(
    "burners_queued_total",
    "polls",
    "A suspect that burns CPU had to wait for its turn: as many as there are processors or loops, whichever \
     is more, are polled at a time.",
);

/// See its text.
pub static STEALS: Counter = Counter::new(
    "steals_total",
    "polls",
    "A loop with nothing to do polled a task that was ready on a crowded one.",
);

/// See its text.
pub static CARRIERS_EXHAUSTED: Counter = Counter::new(
    "handover_carriers_exhausted_total",
    "attempts",
    "A blocked loop, or a suspect, needed a carrier and all were taken: raise handover_carriers.",
);

/// See its text.
pub static CARRIERS_STARTED: Counter =
    Counter::new("carriers_started_total", "threads", "Carriers started, those of the loops included.");

/// See its text.
pub static DEMOTIONS: Counter = Counter::new(
    "demotions_total",
    "demotions",
    "A carrier that had lost its loop burned CPU, and its priority was lowered until it returned.",
);

/// See its text.
pub static TASK_PANICS: Counter = Counter::new(
    "task_panics_total",
    "panics",
    "A task panicked and was ended; the loop and all other tasks went on. Always a bug: report it.",
);

/// Everything that is counted here, for the reference and the status API.
pub static ALL: &[&Counter] = &[
    &HANDOVERS,
    &SUSPECTS_DETACHED,
    &SUSPECTS_QUEUED,
    &BURNERS_QUEUED,
    &STEALS,
    &CARRIERS_EXHAUSTED,
    &CARRIERS_STARTED,
    &DEMOTIONS,
    &TASK_PANICS,
];
