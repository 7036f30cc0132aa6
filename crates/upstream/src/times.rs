//! How long a server takes (`least_time`): averages of what it took to answer, of which each answer is a
//! twentieth, and how long requests that it has now have waited so far. The arithmetic is nginx's.
//!
//! Each number is written without a lock; two loops that write at once may lose one step of an average.
//! Averages of answers can be those of several processes; requests that wait are those of this one.

use std::sync::Arc;

use crate::common::{Memory, Numbers, TIMES_WORDS};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const HEADER_AT: usize = 0;
const RESPONSE_AT: usize = 1;

/// The part of an answer that counts (`least_time header|last_byte [inflight]`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeRule {
    /// No time does.
    #[default]
    None,
    /// Until its head is there.
    Header(Waiting),
    /// Until its end.
    LastByte(Waiting),
}

/// Whether requests that are not answered yet count as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Requests under way are ignored.
    Ignored,
    /// Requests under way count (`inflight`).
    Counted,
}

impl TimeRule {
    pub(crate) fn counts_inflight(self) -> bool {
        matches!(self, Self::Header(Waiting::Counted) | Self::LastByte(Waiting::Counted))
    }

    pub(crate) fn inflight(self) -> Inflight {
        if self.counts_inflight() { Inflight::Counted } else { Inflight::Over }
    }

    /// Whether a request stops waiting when it has the head.
    pub(crate) fn ends_with_head(self) -> bool {
        self == Self::Header(Waiting::Counted)
    }
}

/// Whether an attempt is among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inflight {
    Counted,
    Over,
}

/// The times of one server, milliseconds; 0 where nothing is known.
#[derive(Debug, Default)]
pub struct PeerTimes {
    answers: Numbers<TIMES_WORDS>,
    /// Average of how long those that wait have waited, as the balancer has seen it.
    waiting: AtomicU64,
    /// How long those that wait had waited together, when that changed last.
    waited: AtomicU64,
    changed: AtomicU64,
    requests: AtomicU32,
}

impl PeerTimes {
    /// Average time until the head of an answer, milliseconds.
    #[must_use]
    pub fn header_ms(&self) -> u64 {
        self.answers.at(HEADER_AT).load(Ordering::Relaxed)
    }

    /// Average time until its end, milliseconds.
    #[must_use]
    pub fn response_ms(&self) -> u64 {
        self.answers.at(RESPONSE_AT).load(Ordering::Relaxed)
    }

    /// From here on averages of answers are those words, whatever they were.
    pub(crate) fn share(&self, memory: &Arc<dyn Memory>, first: usize) {
        self.answers.share(memory, first);
    }

    /// Notes how long requests wait now, and says the average of that; `None` if none does.
    pub(crate) fn look(&self, now_ms: u64) -> Option<u64> {
        let requests = u64::from(self.requests.load(Ordering::Relaxed));
        if requests == 0 {
            return None;
        }
        let since = now_ms.saturating_sub(self.changed.load(Ordering::Relaxed));
        average(&self.waiting, self.waited.load(Ordering::Relaxed) / requests + since);
        Some(self.waiting.load(Ordering::Relaxed))
    }

    /// The result of the last [`PeerTimes::look`].
    pub(crate) fn seen(&self) -> Option<u64> {
        (self.requests.load(Ordering::Relaxed) > 0).then(|| self.waiting.load(Ordering::Relaxed))
    }

    pub(crate) fn begin(&self, now_ms: u64) {
        let before = u64::from(self.requests.fetch_add(1, Ordering::Relaxed));
        let since = now_ms.saturating_sub(self.changed.swap(now_ms, Ordering::Relaxed));
        if before > 0 {
            self.waited.fetch_add(since * before, Ordering::Relaxed);
        }
    }

    pub(crate) fn end(&self, took_ms: u64, now_ms: u64) {
        let before = u64::from(self.requests.fetch_sub(1, Ordering::Relaxed));
        if before <= 1 {
            self.waited.store(0, Ordering::Relaxed);
            return;
        }
        let since = now_ms.saturating_sub(self.changed.swap(now_ms, Ordering::Relaxed));
        let waited = self.waited.load(Ordering::Relaxed) + since * before;
        self.waited.store(waited.saturating_sub(took_ms), Ordering::Relaxed);
    }

    /// An attempt was given up, and nobody has looked at a clock.
    pub(crate) fn forget(&self) {
        if self.requests.fetch_sub(1, Ordering::Relaxed) <= 1 {
            self.waited.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_header(&self, ms: u64) {
        average(self.answers.at(HEADER_AT), ms);
    }

    pub(crate) fn add_response(&self, ms: u64) {
        average(self.answers.at(RESPONSE_AT), ms);
    }
}

/// Moves an average, rounded, by a twentieth of the way to a new value.
fn average(of: &AtomicU64, value: u64) {
    let before = of.load(Ordering::Relaxed);
    let after = if before == 0 { value } else { (value + before * 19 + 10) / 20 };
    of.store(after, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn averages_move_by_a_twentieth_and_are_rounded() {
        let times = PeerTimes::default();
        times.add_header(100);
        assert_eq!(times.header_ms(), 100);
        times.add_header(200);
        assert_eq!(times.header_ms(), 105);
        times.add_header(116);
        assert_eq!(times.header_ms(), 106, "105.55");
    }

    #[test]
    fn waiting_requests_are_accounted() {
        let times = PeerTimes::default();
        assert_eq!(times.look(1000), None);
        times.begin(1000);
        times.begin(1100);
        // The first has waited 100 when the second came; together 100, and 300 each since then.
        assert_eq!(times.look(1400), Some(50 + 300));
        times.end(400, 1400);
        assert_eq!(times.waited.load(Ordering::Relaxed), 100 + 600 - 400);
        times.forget();
        assert_eq!((times.look(2000), times.waited.load(Ordering::Relaxed)), (None, 0));
    }
}
