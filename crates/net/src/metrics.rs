//! Metrics of this crate.

use clearway_metrics::Counter;

#[expect(missing_docs, reason = "the metric's text says it")]
pub static ACCEPTED: Counter =
    Counter::new("connections_accepted_total", "connections", "Connections accepted from clients.");

#[expect(missing_docs, reason = "the metric's text says it")]
pub static REFUSED: Counter = Counter::new(
    "connections_refused_total",
    "connections",
    "Connections closed as soon as they were accepted, because worker_connections were in use: raise it.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static RECLAIMED: Counter = Counter::new(
    "connections_reclaimed_total",
    "connections",
    "Connections, of clients or to servers, closed while they waited for a request, because \
     worker_connections or descriptors were almost in use: raise these, or lower keepalive_timeout.",
);

#[expect(missing_docs, reason = "the metric's text says it")]
pub static ACCEPT_PAUSES: Counter = Counter::new(
    "accept_pauses_total",
    "pauses",
    "A loop stopped accepting for half a second, mostly for want of file descriptors: raise the limit of \
     open files.",
);

/// Everything that is counted here, for the reference and the status API.
pub static ALL: &[&Counter] = &[&ACCEPTED, &REFUSED, &RECLAIMED, &ACCEPT_PAUSES];
