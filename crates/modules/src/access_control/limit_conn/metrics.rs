//! Metrics of limits of connections.

use clearway_metrics::{Counter, Metric};

use super::Status;

pub(super) static PASSED: Counter =
    Counter::new("limit_conn_passed_total", "requests", "Requests that limit_conn counted and let pass.");

pub(super) static REJECTED: Counter =
    Counter::new("limit_conn_rejected_total", "requests", "Requests that limit_conn refused.");

pub(super) static REJECTED_DRY_RUN: Counter = Counter::new(
    "limit_conn_rejected_dry_run_total",
    "requests",
    "Requests that limit_conn would have refused without limit_conn_dry_run.",
);

/// Everything that is counted here, for the reference and the status API.
pub(super) static ALL: &[Metric] =
    &[Metric::Counter(&PASSED), Metric::Counter(&REJECTED), Metric::Counter(&REJECTED_DRY_RUN)];

/// The counter of what became of a request.
pub(super) fn of(status: Status) -> &'static Counter {
    match status {
        Status::Passed => &PASSED,
        Status::Rejected => &REJECTED,
        Status::RejectedDryRun => &REJECTED_DRY_RUN,
    }
}
