//! The turn (turns.rs) that a carrier holds while it polls what burns CPU. Carriers and the watchdog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clearway_os::thread::{self, StateFile};

/// The turn of a carrier that polls a burner. The carrier takes it; it or the watchdog ends it.
pub(crate) struct HeldTurn {
    is_held: AtomicBool,
    /// The carrier's CPU clock when it was last seen asleep; the watchdog only. 0: it was not.
    asleep_at_ns: AtomicU64,
}

impl HeldTurn {
    pub(crate) fn new() -> Self {
        Self { is_held: AtomicBool::new(false), asleep_at_ns: AtomicU64::new(0) }
    }

    /// The carrier has it from now on.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }

    /// Ends it, if it is held. It is to be given back.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.is_held.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Whether thread `tid`, which holds it, sleeps and slept when it was asked last, and has not run in
    /// between.
    pub(crate) fn is_slept_over(&self, tid: u32) -> bool {
        let cpu_ns = thread::cpu_ns(tid).unwrap_or(0).max(1);
        let is_runnable = StateFile::open(tid).is_ok_and(|file| file.letter() == Some(b'R'));
        let asleep_at_ns = if is_runnable { 0 } else { cpu_ns };
        self.asleep_at_ns.swap(asleep_at_ns, Ordering::Relaxed) == cpu_ns && !is_runnable
    }
}
