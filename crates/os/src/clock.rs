//! Clocks. The vDSO answers all but one of them without entering the kernel.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Milliseconds of `CLOCK_MONOTONIC`.
#[must_use]
#[inline]
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Milliseconds of `CLOCK_MONOTONIC` as of the last tick of the kernel, up to 10 ms ago: a fifth of the
/// price.
#[must_use]
#[inline]
pub fn coarse_ms() -> u64 {
    read(ClockId::MonotonicCoarse) / 1_000_000
}

/// Milliseconds since the epoch (`CLOCK_REALTIME`).
#[must_use]
#[inline]
pub fn unix_ms() -> u64 {
    read(ClockId::Realtime) / 1_000_000
}

/// Nanoseconds of CPU that the calling thread has used. The one clock here that enters the kernel.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    #[cfg(feature = "testing")]
    if let Some(ns) = testing::read(clock) {
        return ns;
    }
    nanoseconds(clock_gettime(clock))
}

fn nanoseconds(t: rustix::time::Timespec) -> u64 {
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// A clock that a test moves: one for the whole process, and all of the above show it.
#[cfg(feature = "testing")]
pub mod testing {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::time::ClockId;

    /// The first time of the wall clock, when the others show 0, in nanoseconds since the epoch.
    const WALL_NS: u64 = 1_700_000_000_000_000_000;

    /// 0: the clocks are the machine's.
    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    /// The time of the other clocks when the wall clock shows `WALL_NS`.
    static BEGIN_NS: AtomicU64 = AtomicU64::new(0);

    /// From now on clocks show this time and stand still.
    ///
    /// # Panics
    /// If it is 0.
    pub fn set_ns(now_ns: u64) {
        assert_ne!(now_ns, 0, "the machine's clocks go on where nothing is set");
        NOW_NS.store(now_ns, Ordering::SeqCst);
    }

    /// The wall clock shows what it did first when the others show `begin_ns`.
    pub fn begin_wall_at(begin_ns: u64) {
        BEGIN_NS.store(begin_ns, Ordering::SeqCst);
    }

    pub(super) fn read(clock: ClockId) -> Option<u64> {
        match NOW_NS.load(Ordering::Relaxed) {
            0 => None,
            now_ns if clock == ClockId::Realtime => {
                Some((WALL_NS + now_ns).saturating_sub(BEGIN_NS.load(Ordering::Relaxed)))
            }
            now_ns => Some(now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (wall, mono) = (unix_ms(), monotonic_ns());
        assert!(wall > 1_600_000_000_000);
        while monotonic_ns() == mono {}
        assert!(monotonic_ns() > mono);
        let coarse = coarse_ms();
        assert!(coarse <= monotonic_ms());
        while coarse_ms() == coarse {}
        let used = thread_cpu_ns();
        while thread_cpu_ns() == used {}
    }
}
