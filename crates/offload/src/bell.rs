//! Sleep and wake-up between threads that offer work (loops among them) and threads that take it. A ring
//! costs one fence and one load if no thread sleeps. Each sleep costs ringers at most one futex call, however
//! many ring before the sleeper runs.
//!
//! 1. A ringer publishes its work first. Then it rings: a fence, then a look at `idle`.
//! 2. A sleeper announces itself in `idle`, then a fence, then it looks for work once more. By rule 1 and the
//!    two fences one of the two sees the other, so no work is left while all sleep.
//! 3. The thread that takes 1 off `idle` owns one announcement. A ringer then adds one token and wakes one
//!    sleeper; no other ringer wakes for that announcement. A sleeper (with work, or out of time) just goes.
//! 4. A sleeper whose announcement a ringer has taken takes a token, which is there or about to come. Any
//!    token will do, since announcements and tokens together are as many as sleepers.
//! 5. A sleeper's caller looks for work, and looks again after each piece, before it sleeps again.
//! 6. A sleeper whose time is over takes back its announcement. If others are left, its thread may end: later
//!    ringers find those. If none is left, the thread is the last one and stays.
//! 7. See [`Bell::look`].

use std::time::{Duration, Instant};

use crate::Blocking;
use crate::sync::{AtomicBool, AtomicU32, Futex, Ordering, fence};

/// How a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// The thread was woken for work.
    ForWork,
    /// Its time was over, and other threads sleep (rule 6).
    BesideOthers,
    /// Its time was over, and no other thread sleeps.
    Alone,
}

/// Wakes threads that ran out of work. See the rules at the head of the file.
#[derive(Debug)]
pub struct Bell {
    idle: AtomicU32,
    tokens: Futex,
    /// Whether a thread looks for jobs (rule 7).
    looking: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

impl Bell {
    /// A bell without sleepers.
    #[must_use]
    pub fn new() -> Self {
        Self { idle: AtomicU32::new(0), tokens: Futex::new(0), looking: AtomicBool::new(false) }
    }

    /// Wakes one sleeper, if there is one, for work that the caller has published. Never waits.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        // Rule 7.
        if self.looking.load(Ordering::Relaxed) {
            return;
        }
        self.wake_one();
    }

    fn wake_one(&self) {
        if self.take_announcement() {
            self.tokens.word().fetch_add(1, Ordering::Release);
            self.tokens.wake(1);
        }
    }

    /// Runs `look`, which looks for work for a while, unless another thread does so already. Returns whether
    /// it has found some. A ringer that sees `looking` does not wake a sleeper. At its end the looking thread
    /// clears `looking`, then a fence; then it has to look for work once more and ring for the rest. As in
    /// rule 2, one of the two sees the other.
    pub(crate) fn look(&self, look: impl FnOnce() -> bool) -> bool {
        if self.looking.swap(true, Ordering::Relaxed) {
            return false;
        }
        let found = look();
        self.looking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        found
    }

    /// Whether a thread sleeps that was not woken. If so, its writes before the sleep are visible.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.idle.load(Ordering::Acquire) > 0
    }

    /// The number of threads that sleep and were not woken; it may be out of date at once.
    pub(crate) fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Sleeps until a ring, until `timeout` is over, or not at all if `work`, which is called once after the
    /// announcement, finds work. **Blocks.**
    pub fn sleep(&self, blocking: &Blocking, timeout: Option<Duration>, work: impl FnOnce() -> bool) {
        self.rest(blocking, timeout, work);
    }

    /// As [`sleep`](Self::sleep); returns how the sleep ended.
    pub(crate) fn rest(&self, _: &Blocking, timeout: Option<Duration>, work: impl FnOnce() -> bool) -> Slept {
        let deadline = timeout.map(|limit| Instant::now() + limit);
        self.idle.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if work() && self.take_announcement() {
            return Slept::ForWork;
        }
        while !self.take_token() {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                match take_one(&self.idle) {
                    Some(0) => return Slept::Alone,
                    Some(_) => return Slept::BesideOthers,
                    // A ringer has taken the announcement: its token is on the way.
                    None => self.tokens.wait(0, None),
                }
                continue;
            }
            self.tokens.wait(0, left);
        }
        Slept::ForWork
    }

    fn take_announcement(&self) -> bool {
        take_one(&self.idle).is_some()
    }

    fn take_token(&self) -> bool {
        take_one(self.tokens.word()).is_some()
    }
}

/// Takes one off a counter. Returns the rest, or `None` if it was 0.
fn take_one(counter: &AtomicU32) -> Option<u32> {
    let mut seen = counter.load(Ordering::Acquire);
    while seen > 0 {
        match counter.compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(seen - 1),
            Err(now) => seen = now,
        }
    }
    None
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_by_work_by_time_or_by_a_ring_before_it() {
        let (bell, blocking) = (Bell::new(), Blocking::on_this_thread());
        bell.sleep(&blocking, None, || true);
        bell.ring();
        let start = Instant::now();
        bell.sleep(&blocking, Some(Duration::from_millis(20)), || false);
        assert!(start.elapsed() >= Duration::from_millis(20), "a ring without sleepers leaves no token");
        bell.sleep(&blocking, None, || {
            bell.ring();
            bell.ring();
            false
        });
        let over = Some(Duration::ZERO);
        assert_eq!(bell.rest(&blocking, over, || false), Slept::Alone);
        bell.idle.fetch_add(1, Ordering::SeqCst);
        assert_eq!(bell.rest(&blocking, over, || false), Slept::BesideOthers);
        assert_eq!((bell.rest(&blocking, over, || true), bell.idle()), (Slept::ForWork, 1));
        assert!(bell.take_announcement());
        assert_eq!(bell.idle(), 0);
        assert_eq!(bell.tokens.word().load(Ordering::Relaxed), 0, "the second ring found nobody");
    }
}
