//! How fast a response may be sent (`limit_rate`): nginx's arithmetic, which counts whole seconds since
//! the request began, and rests after each step as long as that step should have taken. Owned by the
//! task of the response.

use std::io;
use std::task::{Context, Poll, ready};

use clearway_runtime::{LoopRef, Timer};

use super::Link;

/// The rate of one response.
pub(crate) struct Pace {
    /// Bytes per second, not 0.
    rate: u64,
    /// Bytes that are sent before the rate counts.
    after: u64,
    started_ms: u64,
    timer: Timer,
    is_resting: bool,
    watch: Watch,
}

/// Whether a client that leaves is noticed while nothing is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    NotYet,
    On,
    /// The client had ended its direction before, and may still read.
    Off,
}

impl Pace {
    /// `rate` bytes per second behind the first `after` bytes, for a request that began at `started_ms`.
    pub(crate) fn new(home: LoopRef, rate: u64, after: u64, started_ms: u64) -> Self {
        debug_assert!(rate > 0, "a rate of nothing would never end");
        Self { rate, after, started_ms, timer: Timer::new(home), is_resting: false, watch: Watch::NotYet }
    }

    /// How many bytes may be sent now, when `sent` have been.
    pub(crate) fn poll_allowance(&mut self, home: LoopRef, sent: u64, cx: &mut Context<'_>) -> Poll<u64> {
        loop {
            if self.is_resting {
                ready!(self.timer.poll_expired(cx));
                self.is_resting = false;
            }
            match allowance(self.rate, self.after, home.now_ms() / 1000 - self.started_ms / 1000, sent) {
                Ok(bytes) => return Poll::Ready(bytes),
                Err(delay_ms) => self.rest(home, delay_ms),
            }
        }
    }

    /// Ready when the client leaves while nothing may be sent; with an error if the connection broke.
    pub(crate) fn poll_left(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watch == Watch::Off {
            return Poll::Pending;
        }
        let left = link.poll_closed(cx);
        if self.watch == Watch::NotYet {
            self.watch = if left.is_ready() { Watch::Off } else { Watch::On };
            return Poll::Pending;
        }
        left
    }

    /// A step is done; before it `sent_before` bytes were sent, now `sent` are.
    pub(crate) fn note_sent(&mut self, home: LoopRef, sent_before: u64, sent: u64) {
        debug_assert!(sent_before <= sent, "what was sent never shrinks");
        debug_assert!(!self.is_resting, "nothing is sent during a rest");
        let counted = sent.saturating_sub(self.after) - sent_before.saturating_sub(self.after);
        let delay_ms = (u128::from(counted) * 1000 / u128::from(self.rate)) as u64;
        if delay_ms > 0 {
            self.rest(home, delay_ms);
        }
    }

    fn rest(&mut self, home: LoopRef, delay_ms: u64) {
        self.timer.arm(home.now_ms().saturating_add(delay_ms));
        self.is_resting = true;
    }
}

/// Bytes that may be sent, or else for how long nothing may be, milliseconds.
fn allowance(rate: u64, after: u64, elapsed_s: u64, sent: u64) -> Result<u64, u64> {
    let allowed = u128::from(rate) * (u128::from(elapsed_s) + 1) + u128::from(after);
    match allowed.checked_sub(u128::from(sent)) {
        Some(bytes) if bytes > 0 => Ok(u64::try_from(bytes).unwrap_or(u64::MAX)),
        _ => Err(((u128::from(sent) - allowed) * 1000 / u128::from(rate)) as u64 + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_given_ahead() {
        assert_eq!(allowance(1000, 0, 0, 0), Ok(1000));
        assert_eq!(allowance(1000, 0, 0, 999), Ok(1));
        assert_eq!(allowance(1000, 0, 0, 1000), Err(1));
        assert_eq!(allowance(1000, 0, 0, 1500), Err(501));
        assert_eq!(allowance(1000, 0, 3, 1500), Ok(2500));
        assert_eq!(allowance(1000, 500, 0, 0), Ok(1500));
        assert_eq!(allowance(u64::MAX, u64::MAX, u64::MAX, 7), Ok(u64::MAX));
    }
}
