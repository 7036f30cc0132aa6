//! Metrics, declared as documents: name, unit and prose stand where the number is defined; the `status`
//! handler and the generated reference read them from there. Any thread may count and read.
//!
//! Counting takes no lock and reads no clock. Numbers that loops count all the time lie apart for each
//! loop ([`PerLoop`]), so that no two processors write the same cache line.
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
