//! Metrics. Each is declared with its name, unit and description; the `status` handler and the generated
//! reference read them from the declaration. Any thread may count and read.
//!
//! Counting takes no lock and reads no clock. Counters that loops change all the time are kept separately for
//! each loop ([`PerLoop`]), so that no two processors write the same cache line.
#![forbid(unsafe_code)]

mod counter;
mod family;
mod histogram;
mod per_loop;
mod source;

pub use counter::{Counter, count_alone};
pub use family::{Family, Kind, Label, Labels, Next, Put, Together, Value};
pub use histogram::{BUCKETS, Durations, Histogram, bound_us};
pub use per_loop::{LOOPS_MAX, PerLoop};
pub use source::{Asking, Metric, MetricSource};
