//! Counters declared as documents: name, unit and prose stand where the counter is defined, and the
//! status API and the generated reference read them from there. Any thread may count.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, for events that are rare enough to share one cache line.
#[derive(Debug)]
pub struct Counter {
    /// The metric's name, in Prometheus form without prefix, such as `handovers_total`.
    pub name: &'static str,
    /// What one step of the value is, such as `hand-overs` or `bytes`.
    pub unit: &'static str,
    /// What it means when this grows, in one or two sentences for an operator.
    pub help: &'static str,
    value: AtomicU64,
}

impl Counter {
    /// Declares a counter; use it for a `static`.
    #[must_use]
    pub const fn new(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, unit, help, value: AtomicU64::new(0) }
    }

    /// Counts one event.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts several at once.
    pub fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Relaxed);
    }

    /// What has been counted since the process started.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        static SEEN: Counter = Counter::new("seen_total", "things", "Things that were seen.");
        SEEN.increment();
        SEEN.add(2);
        assert_eq!(SEEN.value(), 3);
    }
}
