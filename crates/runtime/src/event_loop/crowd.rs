//! Which loops have more ready than they will get to soon, so that others help: hints, written when a loop
//! becomes crowded or no longer is, and looked at by loops that are about to wait. Carriers only.
//!
//! A hint that is wrong costs a look at a ring, or leaves tasks to their home, which polls them in any case.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::event_loop::Loop;
use crate::handover::word::Phase;
use crate::metrics;
use crate::task::Header;

/// A loop with so many tasks ready at the beginning of a turn asks for help. With fewer, waking another one
/// takes about as long as polling them does.
pub(crate) const CROWDED: usize = 16;

/// Other loops that one which asks for help looks at, to find one that sleeps.
const ASKED_MAX: usize = 4;

/// Loops with the same place in the word share it.
const PLACES: usize = 64;

/// See the file's head. Loops that are crowded write it in each turn: not beside what all of them read.
#[repr(align(128))]
pub(crate) struct Crowd {
    /// A bit for each loop that is crowded.
    crowded: AtomicU64,
    /// Where the next search for help begins.
    next: AtomicU32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { crowded: AtomicU64::new(0), next: AtomicU32::new(0) }
    }

    /// Loop number `me` has become crowded: one that sleeps is woken, if there is one among those looked at.
    pub(crate) fn ask(&self, loops: &[&'static Loop], me: usize) {
        if loops.len() < 2 {
            return;
        }
        self.crowded.fetch_or(1 << (me % PLACES), Ordering::Relaxed);
        let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let others = (first..first + ASKED_MAX.min(loops.len())).map(|at| at % loops.len());
        for l in others.filter(|&at| at != me).map(|at| loops[at]) {
            if l.remote.word.load().phase() == Phase::Wait {
                l.remote.signal.signal();
                return;
            }
        }
    }

    /// It is no longer crowded.
    pub(crate) fn leave(&self, me: usize) {
        self.crowded.fetch_and(!(1 << (me % PLACES)), Ordering::Relaxed);
    }

    /// Takes a ready task of a crowded loop for `me`, to be polled once. Bound ones are left to their loop.
    pub(crate) fn steal(&self, loops: &[&'static Loop], me: usize) -> Option<NonNull<Header>> {
        let mut crowded = self.crowded.load(Ordering::Relaxed);
        while crowded != 0 {
            let place = crowded.trailing_zeros() as usize;
            crowded &= crowded - 1;
            for at in (place..loops.len()).step_by(PLACES).filter(|&at| at != me) {
                if let Some(task) = loops[at].give_away() {
                    metrics::STEALS.increment();
                    return Some(task);
                }
            }
        }
        None
    }
}
