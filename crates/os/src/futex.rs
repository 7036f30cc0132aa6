//! futex(2), private to the process.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Sleeps while `word` has the value `expected`, at most `timeout`. May wake for no reason.
/// **Blocks.**
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // Every outcome (woken, value differs, time over, signal) means: look again.
    let _ = futex::wait(word, Flags::PRIVATE, expected, limit.as_ref());
}

/// Wakes up to `count` sleepers of `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let woken = futex::wake(word, Flags::PRIVATE, count);
    debug_assert!(woken.is_ok(), "the address of a reference is valid: {woken:?}");
}
