//! Atomics, cells and the futex, so that a build with `--cfg loom` checks the same protocols with
//! loom's. A loom futex has no timeouts: models do without.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

use std::time::Duration;

/// A 32-bit word that threads can sleep on until it changes.
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    queue: (Mutex<()>, loom::sync::Condvar),
}

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            #[cfg(loom)]
            queue: (Mutex::new(()), loom::sync::Condvar::new()),
        }
    }

    /// The word itself.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Sleeps while the word is `expected`; may return for no reason. **Blocks.**
    #[cfg(not(loom))]
    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        clearway_os::futex::wait(&self.word, expected, timeout);
    }

    /// Wakes up to `count` sleepers.
    #[cfg(not(loom))]
    pub(crate) fn wake(&self, count: u32) {
        clearway_os::futex::wake(&self.word, count);
    }

    #[cfg(loom)]
    pub(crate) fn wait(&self, expected: u32, _: Option<Duration>) {
        let guard = self.queue.0.lock().expect("no panic inside");
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.queue.1.wait(guard).expect("no panic inside"));
        }
    }

    #[cfg(loom)]
    pub(crate) fn wake(&self, count: u32) {
        let _guard = self.queue.0.lock().expect("no panic inside");
        for _ in 0..count.min(4) {
            self.queue.1.notify_one();
        }
    }
}
