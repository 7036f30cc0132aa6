//! The metrics of this crate.

use clearway_metrics::Counter;

#[expect(missing_docs, reason = "the metric's text says it")]
pub static QUERIES: Counter = Counter::new(
    "resolver_queries_total",
    "queries",
    "Queries sent to name servers, repeated ones included.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static RESPONSES: Counter =
    Counter::new("resolver_responses_total", "responses", "Responses of name servers that were asked for.");

#[expect(missing_docs, reason = "the metric's text says it")]
pub static REFUSALS: Counter = Counter::new(
    "resolver_error_responses_total",
    "responses",
    "Responses of name servers that told of an error, such as a name that does not exist.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static STRANGE: Counter = Counter::new(
    "resolver_unexpected_responses_total",
    "responses",
    "Messages from name servers that were broken, late, or not asked for: an attacker may be guessing.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static TIMEOUTS: Counter = Counter::new(
    "resolver_timeouts_total",
    "requests",
    "Requests that have waited for an address in vain for resolver_timeout.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static CROWDED_OUT: Counter = Counter::new(
    "resolver_names_refused_total",
    "requests",
    "Requests that were refused an address because as many names as one resolver may ask for at a time were \
     being asked for.",
);

/// Everything that is counted here, for the reference and the status API.
pub static ALL: &[&Counter] = &[&QUERIES, &RESPONSES, &REFUSALS, &STRANGE, &TIMEOUTS, &CROWDED_OUT];
