//! Turns of suspects that burn CPU: as many of them are polled away from their loops at a time as there
//! are processors or loops, the others stand in a line. More of them would only take turns on the same
//! processors, end later, and not in the order in which they came. A sleeper needs no turn, and no turn lasts
//! for ever (task/detach.rs).
//!
//! 1. `taken` counts the turns that a carrier holds, or that were granted to a task in the line.
//! 2. A task that finds no turn joins the line, then looks again: a turn may have become free meanwhile.
//! 3. A turn that is given back goes to the first in the line without becoming free, so that no later task is
//!    faster. If the line is empty the turn is given up; then the line is looked at again.
//! 4. Each side of rules 2 and 3 has a SeqCst fence between what it writes and what it reads.
//! 5. A place that was left is skipped; a turn that had been granted to it is given back (line.rs).

use crate::handover::line::{Line, Waits};
use crate::sync::{AtomicU32, Ordering, fence};

/// The turns of suspects; a `T` wakes a task.
pub(crate) struct Turns<T> {
    pub(crate) limit: u32,
    taken: AtomicU32,
    line: Line<T>,
}

impl<T: Waits> Turns<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit.max(1)).unwrap_or(u32::MAX);
        Self { limit, taken: AtomicU32::new(0), line: Line::new() }
    }

    /// Takes a turn unless others stand in the line.
    pub(crate) fn take(&self) -> bool {
        self.line.is_empty() && self.take_free()
    }

    fn take_free(&self) -> bool {
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken < self.limit {
            match self.taken.compare_exchange(taken, taken + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// How many are taken.
    #[cfg(not(loom))]
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether somebody stands in the line.
    #[cfg(not(loom))]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.line.is_empty()
    }

    /// Rule 2: joins the line. Its turn may come at once.
    pub(crate) fn join(&self, who: T) {
        self.line.push(who);
        self.look();
    }

    /// Rule 2, behind the push.
    fn look(&self) {
        fence(Ordering::SeqCst);
        if self.take_free() {
            self.give_back();
        }
    }

    /// Rule 3: gives a turn back, to the first in the line.
    pub(crate) fn give_back(&self) {
        loop {
            if self.line.grant_first() {
                return;
            }
            self.taken.fetch_sub(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if self.line.is_empty() || !self.take_free() {
                return;
            }
        }
    }

    /// A place in the line was left.
    pub(crate) fn note_left(&self) {
        if self.line.note_left() {
            self.look();
        }
    }
}
