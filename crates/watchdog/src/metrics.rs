//! The metrics of the watchdog.

use clearway_metrics::Counter;

#[expect(missing_docs, reason = "the metric's text says it")]
pub static STALLS: Counter =
    Counter::new("stalls_total", "stalls", "A task held its thread for longer than stall_report_after.");

#[expect(missing_docs, reason = "the metric's text says it")]
pub static LATE: Counter = Counter::new(
    "stalls_of_processor_total",
    "stalls",
    "A task held its thread for longer than stall_report_after since the thread waited for a processor: the \
     machine is overloaded, and nothing else is reported about it.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static REPORTS_SUPPRESSED: Counter = Counter::new(
    "stall_reports_suppressed_total",
    "reports",
    "A stall was not written to the error log, since stall_report_rate allows no more.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static STALLS_UNSAMPLED: Counter = Counter::new(
    "stalls_unsampled_total",
    "stalls",
    "A stall was counted and nothing else is known of it, since too many were under way.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static SAMPLES: Counter =
    Counter::new("stall_samples_total", "samples", "Looks at threads that were held by a task.");

/// Everything that is counted here, for the reference and the status API.
pub static ALL: &[&Counter] = &[&STALLS, &LATE, &REPORTS_SUPPRESSED, &STALLS_UNSAMPLED, &SAMPLES];
