//! Wakes the thread that looks after caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clearway_offload::{Bell, Blocking};

/// A bell that remembers that it was rung. Ringing never waits; one thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    bell: Arc<Bell>,
    is_rung: AtomicBool,
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// The bell that wakes the sleeper, for threads that only ring.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Whether it was rung since it was asked, or has slept, last.
    #[cfg(feature = "testing")]
    pub(crate) fn take_rung(&self) -> bool {
        self.is_rung.swap(false, Ordering::SeqCst)
    }

    /// Until it is rung, or was since the last sleep. **Blocks.**
    pub(crate) fn sleep(&self, blocking: &Blocking, limit: Duration) {
        self.bell.sleep(blocking, Some(limit), || self.is_rung.load(Ordering::SeqCst));
        self.is_rung.store(false, Ordering::SeqCst);
    }
}
