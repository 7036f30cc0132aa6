//! Metrics of logs.

use clearway_metrics::Counter;

/// Lines that the queue did not take.
pub static LINES_LOST: Counter = Counter::new(
    "log_lines_lost_total",
    "lines",
    "Log lines that were lost because the queue to the log writer was full: the disk of the logs is \
     slower than what is logged.",
);
/// Lines that the writer could not write.
pub static LINES_UNWRITTEN: Counter = Counter::new(
    "log_lines_unwritten_total",
    "lines",
    "Log lines that were lost because writing failed, such as on a full disk; the error log says why.",
);
