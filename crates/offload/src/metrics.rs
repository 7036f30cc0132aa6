//! The metrics of this crate, except those of files (`files/tally.rs`).

use clearway_metrics::{Counter, Family, Kind, Label};

use crate::files::COPIES_CUT;
use crate::pool::{OVERFLOWS, PANICS, START_FAILURES, TIMEOUTS};

/// Counters that all pools share.
pub static ALL: &[&Counter] = &[&OVERFLOWS, &PANICS, &START_FAILURES, &TIMEOUTS, &COPIES_CUT];

const POOL: &[Label] = &[Label { name: "pool", help: "Name of the `thread_pool`." }];

/// `PoolStats::queue_wait`.
pub static POOL_QUEUE_WAIT: Family = Family::new(
    Kind::Histogram,
    "pool_queue_wait_seconds",
    "seconds",
    "How long jobs waited for a thread of the pool, including jobs whose request was over by then.",
)
.by(POOL);

/// `PoolStats::service`.
pub static POOL_SERVICE: Family = Family::new(
    Kind::Histogram,
    "pool_service_seconds",
    "seconds",
    "How long jobs took that were run. All times of a pool begin anew when a reload changes its numbers.",
)
.by(POOL);

/// `PoolStats::overflows`.
pub static POOL_OVERFLOWS: Family = Family::new(
    Kind::Counter,
    "pool_overflows_total",
    "jobs",
    "Jobs that this pool refused because `max_queue` tasks were waiting.",
)
.by(POOL);

/// `PoolStats::held`.
pub static POOL_HELD: Family = Family::new(
    Kind::Counter,
    "pool_held_total",
    "jobs",
    "Jobs that were held back since a quarter of the pool's threads were at work in their file system and it \
     has not answered.",
)
.by(POOL);

/// `PoolStats::pending`.
pub static POOL_PENDING: Family =
    Family::new(Kind::Gauge, "pool_pending_jobs", "jobs", "Jobs that wait or run now.").by(POOL);

/// `PoolStats::threads`.
pub static POOL_THREADS: Family = Family::new(
    Kind::Gauge,
    "pool_threads",
    "threads",
    "Threads of the pool, idle or not; up to twice as many as configured while a \
     file system that others serve holds more than a quarter of them.",
)
.by(POOL);
