//! A place for one waker: one task registers, any thread wakes. No lock: who comes second of a
//! registration and a wake-up does both jobs.
//!
//! 1. `state` has two bits, REGISTERING and WAKING. Who sets the first of them on 0 has the cell.
//! 2. A registration that finds WAKING set at its end takes the waker out again and wakes it.
//! 3. A wake-up that finds REGISTERING leaves its bit for rule 2 and goes.
//! 4. A registration that finds WAKING at its beginning wakes its own waker: it may have missed it.
#![expect(unsafe_code, reason = "an UnsafeCell guarded by two bits")]

use std::task::Waker;

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

const REGISTERING: u32 = 1;
const WAKING: u32 = 2;

/// The cell. At most one registration at a time (one reading, one writing task per socket); a
/// second one at the same moment is woken at once rather than forgotten.
#[derive(Debug)]
pub(crate) struct WakerCell {
    state: AtomicU32,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is touched only between winning a bit on 0 and giving it back (rules 1 to 3).
unsafe impl Sync for WakerCell {}
// SAFETY: a waker may be moved between threads.
unsafe impl Send for WakerCell {}

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(0), waker: UnsafeCell::new(None) }
    }

    /// Has `waker` woken by the next `take`. What it waits for is to be looked at after this.
    pub(crate) fn register(&self, waker: &Waker) {
        let won = self.state.compare_exchange(0, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if won.is_err() {
            waker.wake_by_ref();
            return;
        }
        let old = self.waker.with_mut(|slot| {
            // SAFETY: REGISTERING was set on 0 by us, so nobody else touches the slot.
            let slot = unsafe { &mut *slot };
            match slot {
                Some(present) if present.will_wake(waker) => None,
                _ => slot.replace(waker.clone()),
            }
        });
        if self.state.compare_exchange(REGISTERING, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: WAKING came while we had the cell, and its setter left the slot to us.
            let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
            self.state.swap(0, Ordering::AcqRel);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        drop(old);
    }

    /// Takes the waker to wake it; `None` if there is none or a registration under way does it.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != 0 {
            return None;
        }
        // SAFETY: WAKING was set on 0 by us, so nobody else touches the slot.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        self.state.fetch_and(!WAKING, Ordering::Release);
        waker
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use loom::sync::{Arc, Notify};
    use loom::thread;
    use std::task::Wake;

    /// A waker that ends a wait; loom reports one that never ends as a deadlock.
    struct Unpark(Notify);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    /// A wake-up that comes after the condition was set is never lost.
    #[test]
    fn loom_no_lost_wakeup() {
        loom::model(|| {
            let shared = Arc::new((WakerCell::new(), AtomicBool::new(false)));
            let waking = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(true, Relaxed);
                    if let Some(waker) = shared.0.take() {
                        waker.wake();
                    }
                })
            };
            let unpark = std::sync::Arc::new(Unpark(Notify::new()));
            let waker = Waker::from(std::sync::Arc::clone(&unpark));
            loop {
                shared.0.register(&waker);
                if shared.1.load(Relaxed) {
                    break;
                }
                unpark.0.wait();
            }
            waking.join().unwrap();
        });
    }
}
