//! Metrics of plugins.

use clearway_metrics::{Counter, Metric};

use crate::desk::NotMade;

/// Questions that were asked, and what plugins were told.
static CALLS: Counter = Counter::new("plugin_calls_total", "calls", "Calls of plugins that were made.");

static FULL: Counter = Counter::new(
    "plugin_calls_refused_total",
    "calls",
    "Calls of plugins that were not made, since as many were under way as `calls` allows: the request is \
     answered with 503, or not told of.",
);

static TOO_LARGE: Counter = Counter::new(
    "plugin_messages_too_large_total",
    "calls",
    "Calls of plugins that were not made, since the question is longer than `message` allows: the request is \
     answered with 413, or not told of.",
);

static OVER: Counter = Counter::new(
    "plugin_calls_without_plugin_total",
    "calls",
    "Calls of plugins that were not made, since the library was not loaded, or its process has ended and the \
     next one is not there yet.",
);

/// Calls that waited when a plugin ended.
pub(crate) static FAILED: Counter = Counter::new(
    "plugin_calls_failed_total",
    "calls",
    "Calls that were under way when the process of a plugin ended, or its library could not be loaded.",
);

/// Calls that took too long.
pub(crate) static TIMEOUTS: Counter = Counter::new(
    "plugin_timeouts_total",
    "calls",
    "Calls that a plugin did not answer within `plugin_timeout`.",
);

/// Answers that are none.
pub(crate) static INVALID: Counter =
    Counter::new("plugin_invalid_answers_total", "calls", "Answers of plugins that are no responses.");

/// Processes that were started again.
pub(crate) static RESTARTS: Counter = Counter::new(
    "plugin_restarts_total",
    "processes",
    "Processes of plugins that ended and were started anew.",
);

/// Everything that is counted here.
pub(crate) static ALL: &[Metric] = &[
    Metric::Counter(&CALLS),
    Metric::Counter(&FULL),
    Metric::Counter(&TOO_LARGE),
    Metric::Counter(&OVER),
    Metric::Counter(&FAILED),
    Metric::Counter(&TIMEOUTS),
    Metric::Counter(&INVALID),
    Metric::Counter(&RESTARTS),
];

/// Counts what came of an attempt at a call.
pub(crate) fn counted<T>(made: Result<T, NotMade>) -> Result<T, NotMade> {
    let counter = match &made {
        Ok(_) => &CALLS,
        Err(NotMade::Full) => &FULL,
        Err(NotMade::TooLarge) => &TOO_LARGE,
        Err(NotMade::Over) => &OVER,
    };
    counter.increment();
    made
}
