//! The checks of a run of jobs: the jobs that live, the mistakes that were seen.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};

/// A small deterministic generator (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Spread out, so that seeds beside each other have nothing in common; never 0.
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `bound`, without that.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// Another one, for a task.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.below(u64::MAX))
    }
}

/// The checks of one run.
#[derive(Default)]
pub(crate) struct Ledger {
    live: AtomicI64,
    jobs: AtomicU64,
    /// Polls that met another one of the same task, or came after its end.
    double_polls: AtomicU64,
    /// Times at which something came that should have come long before.
    late: AtomicU64,
    /// Timers that fired before their time.
    early: AtomicU64,
    /// Two polls that held a token at once.
    shared_tokens: AtomicU64,
    /// Errors of sockets that none of the jobs provokes.
    errors: AtomicU64,
}

/// One that lives, until this is dropped.
pub(crate) struct Life(Arc<Ledger>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ledger {
    pub(crate) fn begin(self: &Arc<Self>) -> Life {
        self.live.fetch_add(1, Ordering::SeqCst);
        self.jobs.fetch_add(1, Ordering::Relaxed);
        Life(Arc::clone(self))
    }

    pub(crate) fn live(&self) -> i64 {
        self.live.load(Ordering::SeqCst)
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::Relaxed)
    }

    pub(crate) fn note_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_early(&self) {
        self.early.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_shared_token(&self) {
        self.shared_tokens.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing went wrong.
    pub(crate) fn check(&self, seed: u64) {
        let counts = [&self.double_polls, &self.late, &self.early, &self.shared_tokens, &self.errors];
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [0; 5], "double polls, late, early, shared tokens, errors; seed {seed}");
    }
}

/// A task's future, watched: it is polled by one thread at a time, and not after its end.
pub(crate) struct Watched<F> {
    future: Pin<Box<F>>,
    is_polled: AtomicBool,
    has_ended: bool,
    life: Life,
}

impl<F: Future<Output = ()>> Watched<F> {
    pub(crate) fn new(life: Life, future: F) -> Self {
        Self { future: Box::pin(future), is_polled: AtomicBool::new(false), has_ended: false, life }
    }
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_polled.swap(true, Ordering::SeqCst) || self.has_ended {
            self.life.0.double_polls.fetch_add(1, Ordering::Relaxed);
        }
        let polled = self.future.as_mut().poll(cx);
        self.has_ended = polled.is_ready();
        self.is_polled.store(false, Ordering::SeqCst);
        polled
    }
}
