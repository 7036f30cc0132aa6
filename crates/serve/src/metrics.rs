//! What is counted of handshakes, for the whole process.

use clearway_metrics::Counter;

/// Handshakes that were completed.
pub static HANDSHAKES: Counter =
    Counter::new("tls_handshakes_total", "handshakes", "Handshakes of TLS with clients that were completed.");
/// Handshakes that failed.
pub static FAILURES: Counter = Counter::new(
    "tls_handshake_failures_total",
    "handshakes",
    "Handshakes of TLS with clients that failed: the error log has the reasons, most of them at the level \
     info.",
);
/// Handshakes that were given up.
pub static REFUSED: Counter = Counter::new(
    "tls_handshakes_refused_total",
    "handshakes",
    "Handshakes of TLS that were given up since too many were waiting for the pool `crypto`: more clients \
     come than the processors have room for.",
);

/// All of them.
pub static ALL: &[&Counter] = &[&HANDSHAKES, &FAILURES, &REFUSED];
