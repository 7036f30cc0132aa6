//! A waiter for an answer: a future on some loop, and the resolver's own task, which finds the answer.
//!
//! 1. The task alone writes `answer`, once, then takes the waker out and wakes it.
//! 2. The future puts its waker in, then looks for the answer again. With a fence between the two steps on
//!    either side one of them sees what the other has done.
//! 3. A future that is dropped sets `is_gone`: nothing is asked any more for waiters that have all gone.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwapOption;
use clearway_runtime::{LoopRef, Timer};

use crate::metrics;
use crate::wire::{Name, Target, code_text};

/// The answer of name servers about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The addresses, at least one, in the order of the response: IPv4 first.
    pub addresses: Arc<[IpAddr]>,
    /// As long as the loops' clock shows no later second, the answer holds.
    pub valid_until_s: u64,
}

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The response code of a name server (RFC 1035, 4.1.1).
    Code(u8),
    /// No server has answered in time.
    TimedOut,
}

impl Failure {
    /// The number by which nginx tells of it.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Code(code) => code.into(),
            // ETIMEDOUT of Linux
            Self::TimedOut => 110,
        }
    }

    /// nginx's words for it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Code(code) => code_text(code),
            Self::TimedOut => "Operation timed out",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.number(), self.text())
    }
}

impl std::error::Error for Failure {}

/// The result of a successful question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Addresses(Answer),
    Targets { targets: Arc<[Target]>, valid_until_s: u64 },
}

/// A waiter for an answer.
pub(crate) struct Waiter {
    pub(crate) question: Question,
    answer: OnceLock<Result<Found, Failure>>,
    waker: ArcSwapOption<Waker>,
    is_gone: AtomicBool,
}

/// The object of a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    Addresses(Name),
    Service(Name),
}

impl Question {
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Addresses(name) | Self::Service(name) => name,
        }
    }

    /// The same question for another name.
    pub(crate) fn of(&self, name: Name) -> Self {
        match self {
            Self::Addresses(_) => Self::Addresses(name),
            Self::Service(_) => Self::Service(name),
        }
    }
}

impl Waiter {
    pub(crate) fn new(question: Question) -> Arc<Self> {
        let (answer, waker, is_gone) = (OnceLock::new(), ArcSwapOption::empty(), AtomicBool::new(false));
        Arc::new(Self { question, answer, waker, is_gone })
    }

    /// Finishes the wait; a second result is dropped (rule 1).
    pub(crate) fn finish(&self, answer: Result<Found, Failure>) {
        if self.answer.set(answer).is_err() {
            return;
        }
        fence(Ordering::SeqCst);
        if let Some(waker) = self.waker.swap(None) {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn answer(&self) -> Option<&Result<Found, Failure>> {
        self.answer.get()
    }

    /// Rule 2.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Found, Failure>> {
        if self.answer().is_none() {
            self.waker.store(Some(Arc::new(cx.waker().clone())));
            fence(Ordering::SeqCst);
        }
        self.answer().map_or(Poll::Pending, |answer| Poll::Ready(answer.clone()))
    }
}

/// A future: waits for an answer so long as it may. Dropping it gives up.
#[must_use = "nobody is asked any longer than somebody waits"]
pub(crate) struct Waiting {
    waiter: Arc<Waiter>,
    timer: Timer,
}

impl Waiting {
    /// `timeout_ms` from now on.
    pub(crate) fn new(waiter: Arc<Waiter>, home: LoopRef, timeout_ms: u64) -> Self {
        let timer = Timer::new(home);
        timer.arm(home.now_ms().saturating_add(timeout_ms));
        Self { waiter, timer }
    }
}

impl Future for Waiting {
    type Output = Result<Found, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.waiter.poll(cx);
        if answer.is_pending() && self.timer.poll_expired(cx).is_ready() {
            metrics::TIMEOUTS.increment();
            return Poll::Ready(Err(Failure::TimedOut));
        }
        answer
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waiter.is_gone.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Drops the future of a waiter.
    pub(crate) fn give_up(waiter: Arc<Waiter>) -> Arc<Waiter> {
        waiter.is_gone.store(true, Ordering::Relaxed);
        waiter
    }

    #[test]
    fn an_answer_is_given_once() {
        let waiter = Waiter::new(Question::Addresses(b"a"[..].into()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiter.poll(cx).is_pending());
        waiter.finish(Err(Failure::Code(2)));
        waiter.finish(Err(Failure::Code(3)));
        assert_eq!(waiter.poll(cx), Poll::Ready(Err(Failure::Code(2))));
    }
}
