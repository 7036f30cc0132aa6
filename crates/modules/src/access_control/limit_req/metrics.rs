//! Metrics of limits of requests.

use clearway_metrics::{Counter, Metric};

use super::Status;

pub(super) static PASSED: Counter =
    Counter::new("limit_req_passed_total", "requests", "Requests that limit_req let pass at once.");

pub(super) static DELAYED: Counter =
    Counter::new("limit_req_delayed_total", "requests", "Requests that limit_req made wait.");

pub(super) static REJECTED: Counter =
    Counter::new("limit_req_rejected_total", "requests", "Requests that limit_req refused.");

pub(super) static DELAYED_DRY_RUN: Counter = Counter::new(
    "limit_req_delayed_dry_run_total",
    "requests",
    "Requests that limit_req would have made wait without limit_req_dry_run.",
);

pub(super) static REJECTED_DRY_RUN: Counter = Counter::new(
    "limit_req_rejected_dry_run_total",
    "requests",
    "Requests that limit_req would have refused without limit_req_dry_run.",
);

pub(super) static FORGOTTEN: Counter = Counter::new(
    "limit_req_forgotten_total",
    "keys",
    "Keys that were forgotten before their excess had drained, since their zone was full: make it larger.",
);

/// Everything that is counted here, for the reference and the status API.
pub(super) static ALL: &[Metric] = &[
    Metric::Counter(&PASSED),
    Metric::Counter(&DELAYED),
    Metric::Counter(&REJECTED),
    Metric::Counter(&DELAYED_DRY_RUN),
    Metric::Counter(&REJECTED_DRY_RUN),
    Metric::Counter(&FORGOTTEN),
];

/// The counter of what became of a request.
pub(super) fn of(status: Status) -> &'static Counter {
    match status {
        Status::Passed => &PASSED,
        Status::Delayed => &DELAYED,
        Status::Rejected => &REJECTED,
        Status::DelayedDryRun => &DELAYED_DRY_RUN,
        Status::RejectedDryRun => &REJECTED_DRY_RUN,
    }
}
