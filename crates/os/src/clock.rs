//! Clocks. The vDSO answers all but one of them without entering the kernel.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
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
    nanoseconds(clock_gettime(ClockId::MonotonicCoarse)) / 1_000_000
}

/// Milliseconds since the epoch (`CLOCK_REALTIME`).
#[must_use]
#[inline]
pub fn unix_ms() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)) / 1_000_000
}

/// Nanoseconds of CPU that the calling thread has used. The one clock here that enters the kernel.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanoseconds(t: rustix::time::Timespec) -> u64 {
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
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
