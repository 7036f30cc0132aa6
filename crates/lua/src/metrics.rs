//! What is counted about Lua.

use clearway_metrics::{Counter, Metric};

/// See its text.
pub(crate) static ENDED: Counter = Counter::new(
    "lua_runs_ended_total",
    "runs",
    "Code of Lua was ended since it ran for longer than lua_max_run_time.",
);

/// See its text.
pub(crate) static CROWDED: Counter = Counter::new(
    "lua_waiting_refused_total",
    "requests",
    "A request got 503 since too many others waited for a VM of its loop to be made.",
);

/// See its text.
pub(crate) static NOT_LOGGED: Counter = Counter::new(
    "lua_log_skipped_total",
    "requests",
    "The code of log_by_lua did not run for a request whose client had left, since its VM was in use.",
);

/// Everything that is counted here, for the reference and the status API.
pub(crate) static ALL: &[Metric] =
    &[Metric::Counter(&ENDED), Metric::Counter(&CROWDED), Metric::Counter(&NOT_LOGGED)];
