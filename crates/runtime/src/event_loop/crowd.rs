//! Which loops have more ready than they will get to soon, so that others help: hints, written when a loop
//! becomes crowded or no longer is, and looked at by loops that are about to wait. Carriers only.
//!
//! A hint that is wrong costs a look at a ring, or leaves tasks to their home, which polls them in any case.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::metrics;

/// A loop with so many tasks ready at the beginning of a turn asks for help. With fewer, waking another one
/// takes about as long as polling them does.
pub(crate) const CROWDED: usize = 16;

/// Other loops that one which asks for help looks at, to find one that sleeps.
const ASKED_MAX: usize = 4;

/// Loops with the same place in the word share it.
const PLACES: usize = 64;

/// The loops that are crowded. They write here in each turn, so it is not in a cache line that all loops
/// read.
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

    /// Loop number `me` of so many has become crowded: some of the others are offered to `wake`, until it
    /// says that it has woken one.
    pub(crate) fn ask(&self, loops: usize, me: usize, wake: impl Fn(usize) -> bool) {
        if loops < 2 {
            return;
        }
        self.crowded.fetch_or(1 << (me % PLACES), Ordering::Relaxed);
        let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let mut others = (first..first + ASKED_MAX.min(loops)).map(|at| at % loops);
        let _ = others.any(|at| at != me && wake(at));
    }

    /// Notes that the loop is no longer crowded.
    pub(crate) fn leave(&self, me: usize) {
        self.crowded.fetch_and(!(1 << (me % PLACES)), Ordering::Relaxed);
    }

    /// Has a crowded loop of so many give a ready task to `me`, to be polled once. `give` takes it from the
    /// loop of that number.
    pub(crate) fn steal<T>(&self, loops: usize, me: usize, give: impl Fn(usize) -> Option<T>) -> Option<T> {
        let mut crowded = self.crowded.load(Ordering::Relaxed);
        while crowded != 0 {
            let place = crowded.trailing_zeros() as usize;
            crowded &= crowded - 1;
            for at in (place..loops).step_by(PLACES).filter(|&at| at != me) {
                if let Some(task) = give(at) {
                    metrics::STEALS.increment();
                    return Some(task);
                }
            }
        }
        None
    }
}
