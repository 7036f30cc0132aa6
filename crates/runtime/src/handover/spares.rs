//! The spare carriers: a stack of parked threads. The last of them are kept for hand-overs.
//!
//! 1. `head` is index + 1 of the top (0: empty), and above it a count that makes every swap unique,
//!    so that a carrier that left and came back is not mistaken for one that never left.
//! 2. `next` of a carrier is written by its pusher, before the swap that publishes it.
//! 3. `count` follows the stack: it is raised after a push and lowered before a pop, so that an allowed pop
//!    always finds something; a taker that finds `count` too low leaves without touching the stack.
//! 4. `least` is the lowest `count` since the starter asked last, about: so many spares nobody needed. A
//!    wrong one costs a thread that is started again, or ends later.
//! 5. A spare whose thread is to end, or to give memory back, is popped first: nobody lends to it meanwhile.
//! 6. A stop is said, then all spares are ended; one that returns then looks whether it was said, and ends
//!    all spares if so. Each has a SeqCst fence in between, so that one of them finds the spare.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The spare carriers of one runtime.
pub(crate) struct Spares {
    head: AtomicU64,
    count: AtomicU32,
    least: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl Spares {
    pub(crate) fn new(carriers: usize) -> Self {
        let next = (0..carriers).map(|_| AtomicU32::new(0)).collect();
        Self { head: AtomicU64::new(0), count: AtomicU32::new(0), least: AtomicU32::new(0), next }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn push(&self, carrier: usize) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[carrier].store(head as u32, Ordering::Relaxed);
            let new = ((head >> 32) + 1) << 32 | (carrier as u64 + 1);
            match self.head.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a spare if more than `keep` of them are there.
    pub(crate) fn pop(&self, keep: usize) -> Option<usize> {
        let spare = self.take(keep)?;
        self.least.fetch_min(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(spare)
    }

    /// The same for a while in which nobody needs it: it does not count in `least`.
    pub(crate) fn take(&self, keep: usize) -> Option<usize> {
        let mut count = self.count.load(Ordering::Acquire);
        loop {
            if count as usize <= keep {
                return None;
            }
            match self.count.compare_exchange(count, count - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let carrier = (head as u32 as usize).checked_sub(1).expect("rule 3: the count was ours to lower");
            let next = u64::from(self.next[carrier].load(Ordering::Relaxed));
            let new = ((head >> 32) + 1) << 32 | next;
            match self.head.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(carrier),
                Err(now) => head = now,
            }
        }
    }
}

/// Whether the runtime stops (rule 6).
pub(crate) struct Stop(AtomicU32);

impl Stop {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The runtime stops. The caller ends all spares.
    pub(crate) fn say(&self) {
        self.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// For a carrier that has returned, and is to end all spares if so.
    pub(crate) fn is_said_meanwhile(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_said()
    }
}

impl Spares {
    /// Rule 6: takes all spares there are, each to be ended.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = usize> {
        std::iter::from_fn(|| self.pop(0))
    }
}

#[cfg(not(loom))]
impl Spares {
    /// Rule 4: how many there were at least since the last call.
    pub(crate) fn take_least(&self) -> usize {
        self.least.swap(self.count.load(Ordering::Relaxed), Ordering::Relaxed) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let spares = Spares::new(3);
        (0..3).for_each(|carrier| spares.push(carrier));
        assert_eq!((spares.pop(1), spares.pop(1), spares.pop(1)), (Some(2), Some(1), None));
        assert_eq!((spares.pop(0), spares.pop(0)), (Some(0), None));
    }

    #[test]
    fn what_nobody_needed_is_known() {
        let spares = Spares::new(5);
        (0..5).for_each(|carrier| spares.push(carrier));
        assert_eq!(spares.take_least(), 0, "there were none at first");
        let taken = [spares.pop(0), spares.pop(0)];
        taken.into_iter().flatten().for_each(|carrier| spares.push(carrier));
        assert_eq!(spares.take_least(), 3);
        spares.take(0).into_iter().for_each(|carrier| spares.push(carrier));
        assert_eq!(spares.take_least(), 5, "to be asked something is not to be needed");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A carrier that becomes a spare while the runtime stops is ended, once.
    #[test]
    fn loom_a_spare_that_returns_while_the_runtime_stops_ends() {
        loom::model(|| {
            let shared = Arc::new((Spares::new(2), Stop::new()));
            shared.0.push(1);
            let theirs = Arc::clone(&shared);
            let returning = thread::spawn(move || {
                let (spares, stop) = &*theirs;
                spares.push(0);
                let is_said = stop.is_said_meanwhile();
                if is_said { spares.take_all().collect() } else { Vec::new() }
            });
            let (spares, stop) = &*shared;
            stop.say();
            let mut ended: Vec<usize> = spares.take_all().collect();
            ended.extend(returning.join().unwrap());
            ended.sort_unstable();
            assert_eq!(ended, [0, 1]);
        });
    }

    /// Two threads that pop and push never hold the same carrier.
    #[test]
    fn loom_a_spare_is_given_out_once() {
        loom::model(|| {
            let spares = Arc::new(Spares::new(2));
            (0..2).for_each(|carrier| spares.push(carrier));
            let theirs = Arc::clone(&spares);
            let other = thread::spawn(move || {
                let popped = theirs.pop(0);
                if let Some(carrier) = popped {
                    theirs.push(carrier);
                }
                theirs.pop(0)
            });
            let mine = spares.pop(0);
            let theirs = other.join().unwrap();
            assert!(mine.is_some() && mine != theirs, "{mine:?} {theirs:?}");
        });
    }
}
