//! All metrics of a server together, as who shows them asks for them: in parts, each of which takes
//! microseconds, so that a loop that writes a page can let others run in between.

use crate::family::{Family, Next, Put};

/// Knows all metrics and their values. Asked on loops: must not wait for anything.
pub trait Source: Send + Sync {
    /// The metrics in the order in which they are shown.
    fn families(&self) -> &[&'static Family];

    /// Gives some of the values of metric number `at`: part 0 first, then the next one, while there is
    /// [`Next::More`].
    fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next;

    /// What there is to tell beside metrics, in JSON only: the names of its members.
    fn sections(&self) -> &[&'static str];

    /// Appends a piece of the JSON value of section number `at`, likewise.
    fn write_section(&self, at: usize, part: usize, out: &mut Vec<u8>) -> Next;
}
