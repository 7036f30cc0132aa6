//! The priority of a detached carrier: lowered while it burns CPU that the loops need, restored
//! before it does anything for them again.
//!
//! 1. States: ATTACHED, STUCK, DEMOTING, DEMOTED.
//! 2. A lender swaps ATTACHED → STUCK on the carrier before it swaps the loop's word, so that a
//!    carrier that finds its loop gone finds STUCK as well; if the word has moved on, it swaps STUCK →
//!    ATTACHED again. Two lenders at once (the watchdog and the carrier itself) can leave ATTACHED on a
//!    carrier that gave its loop away; then it is not demoted this time, and that is all.
//! 3. The watchdog takes STUCK → DEMOTING → DEMOTED, with the system call between the two.
//!    A carrier that runs a suspect known to burn CPU does the same to itself, after it has lent.
//! 4. A returning carrier swaps STUCK → ATTACHED; if it finds DEMOTING it waits for DEMOTED (the time
//!    of one system call of the watchdog); on DEMOTED it restores itself and sets ATTACHED.
//!    So no carrier is demoted after it has returned.

use crate::sync::{AtomicU32, Ordering};

const ATTACHED: u32 = 0;
const STUCK: u32 = 1;
const DEMOTING: u32 = 2;
const DEMOTED: u32 = 3;

/// The state of one carrier.
#[derive(Debug)]
pub(crate) struct Demotion(AtomicU32);

impl Demotion {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(ATTACHED))
    }

    /// Rule 2, before the swap of the word.
    pub(crate) fn stuck(&self) {
        let _ = self.0.compare_exchange(ATTACHED, STUCK, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Rule 2, after a swap that failed.
    pub(crate) fn attached(&self) {
        let _ = self.0.compare_exchange(STUCK, ATTACHED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the watchdog should look at this carrier.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STUCK
    }

    /// Rule 3: demotes with `lower` unless the carrier has returned.
    pub(crate) fn demote(&self, lower: impl FnOnce()) -> bool {
        let begun = self.0.compare_exchange(STUCK, DEMOTING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if begun {
            lower();
            self.0.store(DEMOTED, Ordering::Release);
        }
        begun
    }

    /// Rule 4: returns, restoring the priority with `restore` if it was lowered.
    pub(crate) fn come_back(&self, restore: impl FnOnce()) {
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            match now {
                DEMOTED => {
                    restore();
                    self.0.store(ATTACHED, Ordering::Relaxed);
                    return;
                }
                DEMOTING => {
                    yield_now();
                    now = self.0.load(Ordering::Acquire);
                }
                other => {
                    match self.0.compare_exchange(other, ATTACHED, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => return,
                        Err(changed) => now = changed,
                    }
                }
            }
        }
    }
}

#[cfg(not(loom))]
fn yield_now() {
    std::thread::yield_now();
}

#[cfg(loom)]
fn yield_now() {
    loom::thread::yield_now();
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicI32;
    use loom::thread;

    /// Whenever the watchdog decides, a carrier that has returned has its old priority.
    #[test]
    fn loom_nobody_stays_demoted() {
        loom::model(|| {
            let shared = Arc::new((Demotion::new(), AtomicI32::new(0)));
            shared.0.stuck();
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.demote(|| shared.1.store(19, Ordering::Relaxed)))
            };
            shared.0.come_back(|| shared.1.store(0, Ordering::Relaxed));
            watchdog.join().unwrap();
            assert_eq!(shared.1.load(Ordering::Relaxed), 0);
        });
    }

    /// The same when the carrier lends and demotes itself while the watchdog, too late, tries to
    /// lend the same poll and takes its mark back.
    #[test]
    fn loom_a_late_lender_does_not_keep_anybody_demoted() {
        loom::model(|| {
            let shared = Arc::new((Demotion::new(), AtomicI32::new(0)));
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.0.stuck();
                    shared.0.attached();
                    shared.0.demote(|| shared.1.store(19, Ordering::Relaxed))
                })
            };
            shared.0.stuck();
            shared.0.demote(|| shared.1.store(19, Ordering::Relaxed));
            shared.0.come_back(|| shared.1.store(0, Ordering::Relaxed));
            watchdog.join().unwrap();
            assert_eq!(shared.1.load(Ordering::Relaxed), 0);
        });
    }
}
