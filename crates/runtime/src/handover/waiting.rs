//! Suspects that wait for a spare carrier: the last spares are kept for hand-overs (spares.rs), so there may
//! be none for them. Any thread.
//!
//! 1. A suspect that finds no spare, or others in the line, joins it: nobody gets ahead.
//! 2. As long as somebody waits and there is a spare for it, somebody has been *released* (taken out of the
//!    line, to be polled next). So each of these looks at both, and releases one if it finds both: the
//!    suspect that joins; the carrier that returns a spare; the suspect that was released and has taken none,
//!    whatever the reason (it needs none any more, it was dropped, others were faster); the sweep of the
//!    line.
//! 3. Each of them has a SeqCst fence between what it writes and what it reads, so that of a joining suspect
//!    and a returning spare one sees the other.
//! 4. A suspect that burns CPU has a turn (turns.rs) before it joins, and keeps it: no holder of a spare
//!    waits for a turn.

use crate::handover::line::{Line, Waits};
use crate::handover::spares::Spares;
use crate::sync::{Ordering, fence};

/// The suspects that wait for a spare carrier.
pub(crate) struct Waiting<T> {
    line: Line<T>,
    /// Spares that suspects may not have.
    kept: usize,
}

impl<T: Waits> Waiting<T> {
    pub(crate) fn new(kept: usize) -> Self {
        Self { line: Line::new(), kept }
    }

    /// Spares that suspects may not have.
    #[cfg(not(loom))]
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Rule 1. It may be released at once.
    pub(crate) fn join(&self, who: T, spares: &Spares) {
        self.line.push(who);
        self.look(spares);
    }

    /// Rule 2.
    pub(crate) fn look(&self, spares: &Spares) {
        fence(Ordering::SeqCst);
        if spares.count() > self.kept {
            // An empty line is as good as a waiter that goes on.
            let _ = self.line.grant_first();
        }
    }

    /// A place in the line was left.
    pub(crate) fn note_left(&self, spares: &Spares) {
        if self.line.note_left() {
            self.look(spares);
        }
    }
}
