//! The watchdog's sleep while all loops wait: rule 9 of word.rs. The watchdog sleeps; carriers, and any
//! thread that stops the runtime, wake it.
//!
//! A carrier that begins to run says so in its loop's word and then looks whether the watchdog sleeps; the
//! watchdog says that it sleeps and then looks at the words. Both would need a fence between the two; the
//! carriers pay for none, since the watchdog issues a membarrier(2), which is one on every thread at once.

use crate::sync::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// See the file's head.
pub(crate) struct Rest(AtomicU32);

impl Rest {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Says that the watchdog sleeps, has `barrier` issue the fence of all threads, and waits if `may_sleep`
    /// still finds everything quiet.
    pub(crate) fn sleep(
        &self,
        barrier: impl FnOnce(),
        may_sleep: impl FnOnce() -> bool,
        wait: impl FnOnce(&Self),
    ) {
        self.0.store(ASLEEP, Ordering::SeqCst);
        barrier();
        if may_sleep() {
            wait(self);
        }
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Behind what the watchdog has to see: whether it is asleep, and is to be woken by the caller.
    #[must_use]
    pub(crate) fn interrupt(&self) -> bool {
        light_fence();
        self.0.load(Ordering::Relaxed) == ASLEEP && self.0.swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }
}

/// What a membarrier on another thread completes.
#[cfg(not(loom))]
fn light_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A fence on both sides is what the two together amount to.
#[cfg(loom)]
fn light_fence() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
impl Rest {
    /// Waits for somebody who interrupts, at most so long.
    pub(crate) fn wait_asleep(&self) {
        clearway_os::futex::wait(&self.0, ASLEEP, None);
    }

    /// Waits for the next look. A stop ends it.
    pub(crate) fn wait_awake(&self, timeout: std::time::Duration) {
        clearway_os::futex::wait(&self.0, AWAKE, Some(timeout));
    }

    /// Ends either wait.
    pub(crate) fn wake(&self) {
        clearway_os::futex::wake(&self.0, 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::handover::word::{Phase, Word};
    use loom::sync::atomic::fence;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// A loop that begins to run while the watchdog goes to sleep is seen by it, or wakes it: a sleep from
    /// which nobody wakes it is a deadlock to loom.
    #[test]
    fn loom_the_watchdog_does_not_sleep_while_a_loop_runs() {
        loom::model(|| {
            let (word, mut lease) = Word::new(0);
            word.begin_wait(&mut lease);
            let shared = Arc::new((word, Rest::new(), Notify::new()));
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (word, rest, bell) = &*shared;
                    let may_sleep = || word.load().phase() == Phase::Wait;
                    rest.sleep(|| fence(Ordering::SeqCst), may_sleep, |_| bell.wait());
                })
            };
            shared.0.end_wait(&mut lease);
            if shared.1.interrupt() {
                shared.2.notify();
            }
            watchdog.join().unwrap();
        });
    }
}
