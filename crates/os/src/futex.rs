//! futex(2): private to the process, or on a word of memory that processes share.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Sleeps while `word` has the value `expected`, at most `timeout`. May wake for no reason.
/// **Blocks.**
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    wait_as(Flags::PRIVATE, word, expected, timeout);
}

/// As [`wait`], for a word of shared memory, whose sleepers another process may wake. **Blocks.**
pub fn wait_shared(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    wait_as(Flags::empty(), word, expected, timeout);
}

fn wait_as(flags: Flags, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // Every outcome (woken, value differs, time over, signal) means: look again.
    let _ = futex::wait(word, flags, expected, limit.as_ref());
}

/// Wakes up to `count` sleepers of `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let woken = futex::wake(word, Flags::PRIVATE, count);
    debug_assert!(woken.is_ok(), "the address of a reference is valid: {woken:?}");
}

/// As [`wake`], for sleepers of any process ([`wait_shared`]).
pub fn wake_shared(word: &AtomicU32, count: u32) {
    let woken = futex::wake(word, Flags::empty(), count);
    debug_assert!(woken.is_ok(), "the address of a reference is valid: {woken:?}");
}
