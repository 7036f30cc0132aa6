//! The watchdog's sleep while all loops wait: rule 9 of word.rs, and its waits between two looks. The
//! watchdog sleeps and waits; carriers, and any thread that stops the runtime, wake it.
//!
//! A carrier that begins to run says so in its loop's word and then looks whether the watchdog sleeps; the
//! watchdog says that it sleeps and then looks at the words. Both would need a fence between the two; the
//! carriers pay for none, since the watchdog issues a membarrier(2), which is one on every thread at once.
//!
//! A carrier that is about to poll what little is known of has it look soon: that is kept until the watchdog
//! takes it, at the latest before its next long wait, so it is not lost however the two meet.

use crate::sync::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The rest of the watchdog.
pub(crate) struct Rest {
    state: AtomicU32,
    /// 1: a look is wanted soon.
    wanted: AtomicU32,
}

impl Rest {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE), wanted: AtomicU32::new(0) }
    }

    /// Wants a look soon, by a carrier. Whether the caller is to wake the watchdog from a long wait.
    #[must_use]
    pub(crate) fn want_look(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) == 0 && self.wanted.swap(1, Ordering::AcqRel) == 0
    }

    /// Whether a look was wanted since the last call.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.swap(0, Ordering::AcqRel) != 0
    }

    /// Says that the watchdog sleeps, has `barrier` issue the fence of all threads, and waits if `may_sleep`
    /// still finds everything quiet.
    pub(crate) fn sleep(
        &self,
        barrier: impl FnOnce(),
        may_sleep: impl FnOnce() -> bool,
        wait: impl FnOnce(&Self),
    ) {
        self.state.store(ASLEEP, Ordering::SeqCst);
        barrier();
        if may_sleep() {
            wait(self);
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Behind what the watchdog has to see: whether it is asleep, and is to be woken by the caller.
    #[must_use]
    pub(crate) fn interrupt(&self) -> bool {
        light_fence();
        self.state.load(Ordering::Relaxed) == ASLEEP && self.state.swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }
}

/// The half of a fence that a membarrier on another thread completes.
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
    /// Waits until interrupted, at most so long.
    pub(crate) fn wait_asleep(&self) {
        clearway_os::futex::wait(&self.state, ASLEEP, None);
    }

    /// Waits for the next look. A stop ends it.
    pub(crate) fn wait_awake(&self, timeout: std::time::Duration) {
        clearway_os::futex::wait(&self.state, AWAKE, Some(timeout));
    }

    /// As above, until a look is wanted.
    pub(crate) fn wait_unwanted(&self, timeout: std::time::Duration) {
        clearway_os::futex::wait(&self.wanted, 0, Some(timeout));
    }

    /// Ends each of these waits.
    pub(crate) fn wake(&self) {
        clearway_os::futex::wake(&self.state, 1);
        clearway_os::futex::wake(&self.wanted, 1);
    }

    /// Ends the wait until a look is wanted.
    pub(crate) fn wake_wanted(&self) {
        clearway_os::futex::wake(&self.wanted, 1);
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

    /// A look that is wanted while the watchdog goes to wait for long is had: it finds the wish, or is woken.
    #[test]
    fn loom_a_look_that_is_wanted_is_not_waited_for() {
        loom::model(|| {
            let shared = Arc::new((Rest::new(), Notify::new()));
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (rest, bell) = &*shared;
                    while !rest.take_wanted() {
                        // As the kernel does: a caller that finds another value does not wait.
                        if rest.wanted.load(Ordering::Acquire) == 0 {
                            bell.wait();
                        }
                    }
                })
            };
            if shared.0.want_look() {
                shared.1.notify();
            }
            watchdog.join().unwrap();
        });
    }
}
