//! Metrics of handshakes and of limits of HTTP/2, for the whole process.

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

/// A counter of connections of HTTP/2 that were ended at one limit.
macro_rules! ended_at {
    ($name:literal, $text:literal) => {
        Counter::new(
            concat!("http2_", $name, "_total"),
            "connections",
            concat!("Connections of HTTP/2 that were ended: ", $text),
        )
    };
}

/// Streams that were refused.
pub static STREAMS_REFUSED: Counter = Counter::new(
    "http2_streams_refused_total",
    "streams",
    "Streams of HTTP/2 that were refused, since their client has more open than \
     `http2_max_concurrent_streams`, began twice as many in one read, or sends a body before it can know how \
     much of it may come. Clients send these requests again.",
);
/// Streams that were cut short.
pub static STREAMS_CUT: Counter = Counter::new(
    "http2_streams_cut_total",
    "streams",
    "Streams of HTTP/2 that were reset since their client has violated the rules of one; for the limit of \
     resets they count as if it had reset them itself.",
);
/// Streams whose client takes nothing.
pub static STREAMS_STALLED: Counter = Counter::new(
    "http2_streams_stalled_total",
    "streams",
    "Streams of HTTP/2 that were reset since the window of their connection was closed for `send_timeout`.",
);
/// Heads that came too late.
pub static HEADS_LATE: Counter = Counter::new(
    "http2_heads_late_total",
    "streams",
    "Streams of HTTP/2 that were reset since their head was not complete within `client_header_timeout`.",
);
/// How often nothing was read.
pub static CONTROL_FULL: Counter = Counter::new(
    "http2_control_full_total",
    "times",
    "How often nothing more was read of a connection of HTTP/2 for a while, as its client does not take the \
     answers to what it asks for (64 KiB of SETTINGS, PING, resets).",
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static RESETS: Counter = ended_at!(
    "resets",
    "the client has reset 1,000 streams more than were answered, or made the server do so (rapid reset)."
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static REFUSALS: Counter = ended_at!(
    "refusals",
    "the client went on to begin streams, though more were refused than it may have open at once."
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static PRIORITIES: Counter =
    ended_at!("priorities", "the client has changed priorities more often than its requests allow.");
#[expect(missing_docs, reason = "the metric's text says it")]
pub static USELESS: Counter = ended_at!(
    "useless_frames",
    "the client has sent 10,000 frames that ask for nothing beyond those that do (SETTINGS, PING, empty \
     DATA, windows, resets)."
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static FLOODS: Counter = ended_at!(
    "floods",
    "what the client has sent is eight times as much as the heads and bodies in it, and 1 MiB more."
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static LARGE_HEADS: Counter = ended_at!(
    "large_heads",
    "a head has more bytes, as it comes or expanded, than `large_client_header_buffers`, or more than 64 \
     parts."
);
#[expect(missing_docs, reason = "the metric's text says it")]
pub static FAULTS: Counter = ended_at!(
    "faults",
    "the client has violated the protocol in another way: the error log has it at the level info."
);

/// All of them.
pub static ALL: &[&Counter] = &[
    &HANDSHAKES,
    &FAILURES,
    &REFUSED,
    &STREAMS_REFUSED,
    &STREAMS_CUT,
    &STREAMS_STALLED,
    &HEADS_LATE,
    &CONTROL_FULL,
    &RESETS,
    &REFUSALS,
    &PRIORITIES,
    &USELESS,
    &FLOODS,
    &LARGE_HEADS,
    &FAULTS,
];
