//! The atomics of the table: loom's under `cfg(loom)`, the real ones otherwise.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Lets another thread run.
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Lets the thread in the way finish: longer with each attempt, about two microseconds at most.
pub(crate) fn back_off(attempt: u32) {
    let turns = 1_u32 << attempt.min(6);
    #[cfg(loom)]
    (0..turns.min(1)).for_each(|_| loom::thread::yield_now());
    #[cfg(not(loom))]
    (0..turns).for_each(|_| std::hint::spin_loop());
}
