//! The keeper: a task of each loop that has idle connections of a pool. Its waker is registered with each of
//! them, so that it learns without a system call that a server has closed one; now and then it looks for
//! those that were idle for too long. Where there are none it sleeps without a timer.
//!
//! A request does not rely on it: it looks at what it takes.

use std::future::poll_fn;
use std::sync::{OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use clearway_runtime::{LoopRef, Tag, Timer};

use super::duty::Duty;
use super::pool::Pool;

/// How often it looks at the clock, in milliseconds: so long at most...
const LOOK_EVERY_MS: u64 = 1000;

/// ...a part of `keepalive_timeout`...
const LOOKS_PER_TIMEOUT: u64 = 8;

/// ...and so long at least.
const LOOK_EVERY_MIN_MS: u64 = 10;

/// The keeper's state for other tasks.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) duty: Duty,
    /// Known from its first poll on. What is put before is looked at then.
    pub(crate) waker: OnceLock<Waker>,
}

/// Once for each loop of a pool.
pub(crate) fn spawn(pool: Weak<Pool>, home: LoopRef) {
    let timer = Timer::new(home);
    home.spawn(Tag::NONE, async move { poll_fn(|cx| poll(&pool, home, &timer, cx)).await });
}

/// Ready when the pool is gone.
fn poll(pool: &Weak<Pool>, home: LoopRef, timer: &Timer, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let Some(pool) = pool.upgrade() else { return Poll::Ready(()) };
        let Some(per_loop) = pool.per_loop(home.index()) else { return Poll::Ready(()) };
        per_loop.keeper.waker.get_or_init(|| cx.waker().clone());
        let now_ms = home.now_ms();
        pool.sweep(per_loop, now_ms);
        if per_loop.is_empty() && per_loop.keeper.duty.rest(|| per_loop.is_empty()) {
            timer.disarm();
            return Poll::Pending;
        }
        let after_ms = (pool.timeout_ms() / LOOKS_PER_TIMEOUT).clamp(LOOK_EVERY_MIN_MS, LOOK_EVERY_MS);
        timer.arm(now_ms + after_ms);
        if timer.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
    }
}
