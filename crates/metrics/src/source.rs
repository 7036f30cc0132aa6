//! All metrics of a server together, as the page that shows them asks for them: in parts, each of which takes
//! microseconds, so that a loop that writes a page can let others run in between.

use crate::counter::Counter;
use crate::family::{Family, Next, Put};

/// A metric and how it is read, as the part of the server declares it that counts. Read on loops.
#[derive(Clone, Copy, Debug)]
pub enum Metric {
    /// One value, counted for the whole process.
    Counter(&'static Counter),
    /// Values that are few enough to be given at once.
    Values(&'static Family, fn(&mut Put<'_>)),
}

impl Metric {
    /// Its description.
    #[must_use]
    pub fn family(&self) -> &'static Family {
        match *self {
            Self::Counter(counter) => &counter.family,
            Self::Values(family, _) => family,
        }
    }
}

/// Knows all metrics and their values. Asked on loops: must not wait for anything.
pub trait MetricSource: Send + Sync {
    /// The metrics in the order in which they are shown.
    fn families(&self) -> &[&'static Family];

    /// Gives some of the values of metric number `at`: part 0 first, then the next one, while there is
    /// [`Next::More`].
    fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next;

    /// The names of further members, which are shown in JSON only.
    fn sections(&self) -> &[&'static str];

    /// Appends a piece of the JSON value of section number `at`, likewise.
    fn write_section(&self, at: usize, part: usize, out: &mut Vec<u8>) -> Next;

    /// Asks the other processes of the server; `None`: this one is all there is.
    fn ask(&self) -> Option<Box<dyn Asking>> {
        None
    }
}

/// A question to other processes, on its way. Looked at on loops, now and then.
pub trait Asking: Send + Sync {
    /// Whether all have answered that can.
    fn is_answered(&self) -> bool;

    /// The counts of all processes; of a process that has not answered, its last ones.
    fn together(&self) -> Box<dyn MetricSource>;
}
