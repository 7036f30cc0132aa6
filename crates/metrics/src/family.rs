//! A metric, and how its values are handed to the page that shows them.

use crate::histogram::Durations;

/// How a metric's values behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows, from 0 at the start of the process; the name ends in `_total`.
    Counter,
    /// The value goes up and down.
    Gauge,
    /// Durations in the buckets of [`crate::Histogram`]; its name ends in `_seconds`.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label that tells the values of a metric apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name, such as `loop`.
    pub name: &'static str,
    /// The meaning of its values.
    pub help: &'static str,
}

/// How the values of several processes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Their sum.
    Sum,
    /// All processes have the same value, or the largest one counts.
    Alike,
}

/// A metric as it is declared. Always in a `static`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// How its values behave.
    pub kind: Kind,
    /// Its name in Prometheus form without prefix, such as `handovers_total`.
    pub name: &'static str,
    /// The unit of the value, such as `hand-overs` or `seconds`.
    pub unit: &'static str,
    /// Its meaning, in one or two sentences for an operator.
    pub help: &'static str,
    /// The labels of its values; none if there is one value.
    pub labels: &'static [Label],
    /// How it is combined with the values of other processes.
    pub together: Together,
}

impl Family {
    /// A metric of one value.
    #[must_use]
    pub const fn new(kind: Kind, name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { kind, name, unit, help, labels: &[], together: Together::Sum }
    }

    /// The family with a value for each combination of these labels.
    #[must_use]
    pub const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }

    /// The family, if each process has the value of all processes.
    #[must_use]
    pub const fn alike(self) -> Self {
        Self { together: Together::Alike, ..self }
    }
}

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// The value of a counter or gauge, in its unit.
    Number(u64),
    /// The value of a gauge in seconds.
    Milliseconds(u64),
    /// The value of a histogram.
    Durations(&'a Durations),
}

/// Names and values of labels, in the order of the declaration.
pub type Labels<'a> = [(&'a str, &'a str)];

/// Takes the values of a metric.
pub type Put<'a> = dyn FnMut(&Labels<'_>, Value<'_>) + 'a;

/// Whether a metric has more values than those that were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask for the next part.
    More,
    /// That was all.
    Over,
}
