//! A place for one waker: one task registers, any thread wakes. No lock and one word.
//!
//! 1. The word is null, or the address of a task of ours with a reference to it (its waker is no more than
//!    that), or that of a box with somebody else's waker, told by the lowest bit.
//! 2. The thread that swaps a value out owns what it stands for.
//! 3. Of a registration and a wake-up that both swap, one comes first. If it is the registration, the
//!    wake-up finds the waker; if not, the registration acquires what was written before the wake-up, so that
//!    a look after it sees what the wake-up was for.
//! 4. A task that finds itself registered leaves it so. A wake-up that takes the waker from then on wakes the
//!    task while it runs, so that it is polled again; one that took it before this poll would be seen.
#![expect(unsafe_code, reason = "a waker as one word")]

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::Waker;

use crate::sync::{AtomicPtr, Ordering};
use crate::task::{self, Header};

/// Set in the address of a box.
const BOXED: usize = 1;

/// Since when a waker is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// Since just now.
    Now,
    /// Since an earlier registration, after which nobody took it (rule 4).
    Before,
}

/// The cell. One registration is kept: that of the last one (one reading, one writing task per socket).
#[derive(Debug)]
pub(crate) struct WakerCell {
    waker: AtomicPtr<Header>,
}

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self { waker: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Has `waker` woken by the next `take`. What it waits for is to be looked at after this.
    pub(crate) fn register(&self, waker: &Waker) -> Registered {
        let own = task::of_waker(waker).map(ptr::NonNull::as_ptr);
        if own.is_some_and(|own| self.waker.load(Ordering::Acquire) == own) {
            return Registered::Before;
        }
        let new = match own {
            Some(own) => {
                // Its reference is the word's from here on.
                let _ = ManuallyDrop::new(waker.clone());
                own
            }
            None => Box::into_raw(Box::new(waker.clone())).map_addr(|addr| addr | BOXED).cast(),
        };
        let old = self.waker.swap(new, Ordering::AcqRel);
        // SAFETY: rule 2.
        drop(unsafe { owned(old) });
        Registered::Now
    }

    /// Takes the waker to wake it; `None` if there is none.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Waker> {
        let taken = self.waker.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: rule 2.
        unsafe { owned(taken) }
    }
}

impl Drop for WakerCell {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The waker that a word stands for.
///
/// # Safety
/// It was swapped out by the caller (rules 1 and 2).
unsafe fn owned(word: *mut Header) -> Option<Waker> {
    if word.addr() & BOXED != 0 {
        let boxed = word.map_addr(|addr| addr & !BOXED).cast::<Waker>();
        // SAFETY: it was made by `Box::into_raw`, and nobody else has it.
        return Some(*unsafe { Box::from_raw(boxed) });
    }
    // SAFETY: the reference goes from the word to the waker.
    ptr::NonNull::new(word).map(|task| unsafe { task::waker_of(task) })
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
