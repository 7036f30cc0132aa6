//! Servers that fare clearly worse than the others of their group are left alone for a while
//! (`upstream_ejection`): those that fail again and again, and those that are slow. Never more than half.
//!
//! The record by which a server is judged is written by all loops, without a lock, with its attempts. It is
//! judged by a request that chooses a server: one in [`LOOK_EVERY_MS`], or the next one where one has failed
//! too often.

use std::sync::Arc;

use crate::common::{DUE_AT, Memory, Numbers, RECORD_WORDS};
use crate::peer::Peer;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often servers are compared at least while there are requests, milliseconds.
const LOOK_EVERY_MS: u64 = 1000;

/// A shorter time is not slow, milliseconds.
const SLOW_MIN_MS: u64 = 100;

/// Answers by which it is known how fast a server is.
const ANSWERS_MIN: u64 = 8;

/// Each time in a row takes longer, up to so many times of the first.
const TIMES_MAX: u64 = 10;

/// An answer is one part in so many of the average.
const AVERAGE_OF: u64 = 8;

/// Averages are kept in parts of a millisecond.
const PARTS: u64 = 64;

/// When servers are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectRule {
    /// After so many failures in a row; 0 is never.
    pub fails: u32,
    /// When it takes so many times as long as others; 0 is never.
    pub slow: u32,
    /// For so long at first, milliseconds.
    pub time_ms: u64,
}

/// Why a server is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server has failed so many times in a row.
    Fails(u32),
    /// The server takes so long, or has not answered for so long; milliseconds.
    Slow(u64),
}

/// A server that is left alone from now on.
#[derive(Clone, Debug)]
pub struct Ejection {
    /// Which one.
    pub peer: Arc<Peer>,
    /// Why.
    pub fault: Fault,
    /// For how long, milliseconds.
    pub time_ms: u64,
}

/// The ejections of one group.
#[derive(Debug)]
pub(crate) struct Ejector {
    rule: EjectRule,
    /// When servers are compared again.
    due_ms: Numbers<1>,
}

/// The record by which a server is judged.
#[derive(Debug)]
pub(crate) struct Record {
    ejector: Arc<Ejector>,
    numbers: Numbers<RECORD_WORDS>,
    /// Attempts of this process that wait for a head.
    waiting: AtomicU32,
    /// Since when nothing has come for those.
    silent_since_ms: AtomicU64,
}

impl Ejector {
    pub(crate) fn new(rule: EjectRule) -> Arc<Self> {
        Arc::new(Self { rule, due_ms: Numbers::default() })
    }

    /// Has one request of all processes compare from now on, by a word of their group's.
    pub(crate) fn share(&self, of_group: &Arc<dyn Memory>) {
        self.due_ms.share(of_group, DUE_AT);
    }

    /// Whether servers are to be compared, by the one that asks.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        let due = self.due_ms.at(0);
        let due_ms = due.load(Ordering::Relaxed);
        let next_ms = now_ms + LOOK_EVERY_MS;
        now_ms >= due_ms
            && due.compare_exchange(due_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Compares servers that are tried in one go.
    pub(crate) fn compare(&self, peers: &[Arc<Peer>], now_ms: u64, ejected: &mut Vec<Ejection>) {
        let judged = || peers.iter().filter(|peer| peer.is_up()).filter_map(|it| Some((it, it.record()?)));
        judged().for_each(|(peer, record)| record.come_back(peer, now_ms));
        let most = judged().count() / 2;
        let away = judged().filter(|(_, record)| record.is_away()).count();
        let present = || judged().filter(|(_, record)| !record.is_away());
        let mut known: Vec<u64> = present().filter_map(|(_, record)| record.latency_ms(now_ms)).collect();
        known.sort_unstable();
        // If there are two, the faster one counts.
        let usual_ms = (known.len() > 1).then(|| known[(known.len() - 1) / 2]);
        let mut faulty: Vec<(Fault, &Arc<Peer>, &Record)> = present()
            .filter_map(|(peer, record)| Some((record.fault(self.rule, usual_ms, now_ms)?, peer, record)))
            .collect();
        faulty.sort_by_key(|(fault, ..)| std::cmp::Reverse(fault.rank()));
        for (fault, peer, record) in faulty.into_iter().take(most.saturating_sub(away)) {
            let time_ms = record.send_away(self.rule, now_ms);
            peer.note_ejection();
            ejected.push(Ejection { peer: Arc::clone(peer), fault, time_ms });
        }
    }
}

impl Fault {
    /// The worst go first: those that fail, then the slowest.
    fn rank(self) -> (u8, u64) {
        match self {
            Self::Fails(streak) => (1, streak.into()),
            Self::Slow(ms) => (0, ms),
        }
    }
}

impl Record {
    pub(crate) fn new(ejector: &Arc<Ejector>) -> Self {
        Self {
            ejector: Arc::clone(ejector),
            numbers: Numbers::default(),
            waiting: AtomicU32::new(0),
            silent_since_ms: AtomicU64::new(0),
        }
    }

    /// Other processes judge by it as well from here on.
    pub(crate) fn share(&self, of_peer: &Arc<dyn Memory>, first: usize) {
        self.numbers.share(of_peer, first);
    }

    /// Failures in a row.
    fn streak(&self) -> &AtomicU64 {
        self.numbers.at(0)
    }

    /// Answers that the average is of, up to as many as make it known.
    fn answers(&self) -> &AtomicU64 {
        self.numbers.at(1)
    }

    /// How long it takes until the head of an answer is there, on average.
    fn header_parts(&self) -> &AtomicU64 {
        self.numbers.at(2)
    }

    /// Until when it is left alone; 0: it is not.
    fn until_ms(&self) -> &AtomicU64 {
        self.numbers.at(3)
    }

    /// How often it was, in a row.
    fn times(&self) -> &AtomicU64 {
        self.numbers.at(4)
    }

    /// When that was over last.
    fn back_ms(&self) -> &AtomicU64 {
        self.numbers.at(5)
    }

    /// Whether it is left alone.
    pub(crate) fn is_away(&self) -> bool {
        self.until_ms().load(Ordering::Relaxed) > 0
    }

    /// An attempt begins to wait for a head.
    pub(crate) fn begin(&self, now_ms: u64) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.silent_since_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// A head has come after so long.
    pub(crate) fn hear(&self, header_ms: u64, now_ms: u64) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.silent_since_ms.store(now_ms, Ordering::Relaxed);
        let answers = self.answers().load(Ordering::Relaxed);
        let before = self.header_parts().load(Ordering::Relaxed);
        let value = header_ms.saturating_mul(PARTS);
        let after = if answers == 0 {
            value
        } else {
            before.saturating_mul(AVERAGE_OF - 1).saturating_add(value) / AVERAGE_OF
        };
        self.header_parts().store(after, Ordering::Relaxed);
        if answers < ANSWERS_MIN {
            self.answers().store(answers + 1, Ordering::Relaxed);
        }
    }

    /// An attempt ends that has no head.
    pub(crate) fn give_up(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// An attempt has failed.
    pub(crate) fn fail(&self) {
        let streak = self.streak().fetch_add(1, Ordering::Relaxed) + 1;
        let EjectRule { fails, .. } = self.ejector.rule;
        if fails > 0 && streak >= u64::from(fails) && !self.is_away() {
            self.ejector.due_ms.at(0).store(0, Ordering::Relaxed);
        }
    }

    /// An attempt has not.
    pub(crate) fn succeed(&self) {
        if self.streak().load(Ordering::Relaxed) > 0 {
            self.streak().store(0, Ordering::Relaxed);
        }
    }

    /// How long it takes, as far as that is known.
    fn latency_ms(&self, now_ms: u64) -> Option<u64> {
        let average_ms = self.header_parts().load(Ordering::Relaxed) / PARTS;
        let known_ms = (self.answers().load(Ordering::Relaxed) >= ANSWERS_MIN).then_some(average_ms);
        let is_waited_for = self.waiting.load(Ordering::Relaxed) > 0;
        let silent_ms = now_ms.saturating_sub(self.silent_since_ms.load(Ordering::Relaxed));
        let silent_ms = (is_waited_for && silent_ms >= SLOW_MIN_MS).then_some(silent_ms);
        known_ms.max(silent_ms)
    }

    fn fault(&self, rule: EjectRule, usual_ms: Option<u64>, now_ms: u64) -> Option<Fault> {
        let streak = u32::try_from(self.streak().load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        if rule.fails > 0 && streak >= rule.fails {
            return Some(Fault::Fails(streak));
        }
        let (usual_ms, ms) = (usual_ms?, self.latency_ms(now_ms)?);
        let is_slow =
            rule.slow > 0 && ms >= SLOW_MIN_MS && ms > usual_ms.max(1).saturating_mul(rule.slow.into());
        is_slow.then_some(Fault::Slow(ms))
    }

    /// For how long.
    fn send_away(&self, rule: EjectRule, now_ms: u64) -> u64 {
        let times = self.times().load(Ordering::Relaxed).min(TIMES_MAX - 1) + 1;
        self.times().store(times, Ordering::Relaxed);
        let time_ms = rule.time_ms.saturating_mul(times);
        self.streak().store(0, Ordering::Relaxed);
        self.answers().store(0, Ordering::Relaxed);
        self.until_ms().store(now_ms.saturating_add(time_ms).max(1), Ordering::Relaxed);
        time_ms
    }

    /// Its time is over, perhaps; and when it was well for long, what was is forgotten.
    fn come_back(&self, peer: &Peer, now_ms: u64) {
        let until_ms = self.until_ms().load(Ordering::Relaxed);
        if until_ms > 0 && until_ms <= now_ms {
            self.silent_since_ms.store(now_ms, Ordering::Relaxed);
            self.back_ms().store(now_ms, Ordering::Relaxed);
            peer.rise(now_ms);
            self.until_ms().store(0, Ordering::Relaxed);
            peer.make_room();
        }
        let well_ms = now_ms.saturating_sub(self.back_ms().load(Ordering::Relaxed));
        let long_ms = self.ejector.rule.time_ms.saturating_mul(TIMES_MAX);
        if until_ms == 0 && well_ms >= long_ms && self.times().load(Ordering::Relaxed) > 0 {
            self.times().store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::balance::Key;
    use crate::group::{Group, GroupConfig};
    use crate::moment::Moment;
    use crate::peer::samples::config;
    use crate::peer::{Attempt, AttemptOutcome, Lease};

    const RULE: EjectRule = EjectRule { fails: 3, slow: 4, time_ms: 10_000 };

    fn group(servers: u16) -> Group {
        let primary = (1..=servers).map(|port| {
            let fails = crate::peer_config::FailRule { max: 0, timeout_s: 10 };
            Peer::new(crate::peer_config::PeerConfig { fails, ..config(port, 1) })
        });
        Group::new(
            GroupConfig { primary: primary.collect(), ejection: Some(RULE), ..GroupConfig::default() },
            1,
        )
    }

    fn lease(group: &Group, now_ms: u64) -> (u16, Lease) {
        let (key, moment) = (Key::default(), Moment { at_loop: 0, now_ms });
        let lease = group.next(&mut group.begin(&key), &key, moment).expect("one is there");
        let name = &lease.peer().config().name;
        let port = name.rsplit(':').next().and_then(|port| port.parse().ok());
        (port.expect("a port"), lease)
    }

    /// Requests, which servers answer so; those that were left alone, as `PORTfREASON`.
    fn serve(group: &Group, now_ms: u64, requests: usize, how: impl Fn(u16) -> Result<u64, u16>) -> String {
        let mut away = String::new();
        for _ in 0..requests {
            for ejection in group.eject(now_ms) {
                let port = ejection.peer.config().name.rsplit(':').next().expect("a port").to_owned();
                away += &match ejection.fault {
                    Fault::Fails(streak) => format!("{port} fails {streak};"),
                    Fault::Slow(ms) => format!("{port} slow {ms};"),
                };
            }
            let (port, mut lease) = lease(group, now_ms);
            let attempt = match how(port) {
                Ok(ms) => {
                    lease.head_came(ms, now_ms);
                    Attempt { header_ms: Some(ms), status: 200, ..Attempt::of(AttemptOutcome::Answered) }
                }
                Err(0) => Attempt::of(AttemptOutcome::Failed),
                Err(status) => {
                    lease.head_came(1, now_ms);
                    Attempt { header_ms: Some(1), status, ..Attempt::of(AttemptOutcome::Answered) }
                }
            };
            lease.finish(attempt, now_ms);
        }
        away
    }

    #[test]
    fn those_that_fail_in_a_row_are_left_alone_and_no_more_than_half() {
        for status in [0, 500, 503] {
            let group = group(5);
            let faulty = |port| if port <= 3 { Err(status) } else { Ok(5) };
            let away = serve(&group, 100_000, 50, faulty);
            assert_eq!(away, "1 fails 3;2 fails 3;", "{status}");
            let (mut asked, _) = (0..50).fold(([0; 6], ()), |(mut asked, ()), _| {
                asked[usize::from(lease(&group, 100_000).0)] += 1;
                (asked, ())
            });
            assert_eq!((asked[1], asked[2]), (0, 0));
            asked.sort_unstable();
            assert_eq!(asked[3..], [16, 17, 17]);
        }
        let well = group(4);
        assert_eq!(serve(&well, 100_000, 100, |_| Err(404)), "");
    }

    #[test]
    fn they_are_back_after_a_while_that_grows() {
        let group = group(4);
        let faulty = |port| if port == 1 { Err(0) } else { Ok(5) };
        assert_eq!(serve(&group, 100_000, 20, faulty), "1 fails 3;");
        assert_eq!(serve(&group, 109_000, 20, faulty), "");
        assert_eq!(serve(&group, 110_500, 20, faulty), "1 fails 3;", "it is back, and fails again");
        assert_eq!(serve(&group, 121_000, 20, faulty), "", "this time it takes twenty seconds");
        assert_eq!(serve(&group, 131_000, 20, |_| Ok(5)), "");
        assert_eq!(serve(&group, 240_000, 20, faulty), "1 fails 3;", "what was long ago is forgotten");
        assert_eq!(serve(&group, 251_000, 20, faulty), "1 fails 3;");
    }

    #[test]
    fn the_slow_ones_are_left_alone() {
        let group = group(4);
        let slow = |port| Ok(if port == 2 { 500 } else { 20 });
        assert_eq!(serve(&group, 100_000, 40, slow), "");
        assert_eq!(serve(&group, 101_000, 4, slow), "2 slow 500;");
        // All are slow: none is.
        let all = self::group(4);
        serve(&all, 100_000, 40, |_| Ok(900));
        assert_eq!(serve(&all, 101_000, 40, |_| Ok(900)), "");
        // A server that is quick enough is not slow, however quick the others are.
        let quick = self::group(4);
        serve(&quick, 100_000, 40, |port| Ok(u64::from(port == 1) * 90));
        assert_eq!(serve(&quick, 101_000, 4, |_| Ok(0)), "");
    }

    #[test]
    fn one_that_says_nothing_is_left_alone() {
        let group = group(4);
        let held: Vec<Lease> = (0..4)
            .map(|_| lease(&group, 100_000))
            .map(|(port, mut lease)| {
                if port != 3 {
                    lease.head_came(10, 100_010);
                }
                lease
            })
            .collect();
        for now_ms in (100_020..101_000).step_by(10) {
            let away = serve(&group, now_ms, 3, |_| Ok(10));
            assert!(away.is_empty() || away.starts_with("3 slow"), "{away}");
        }
        let record = |peer: &Arc<Peer>| peer.record().expect("it is judged").is_away();
        // It has answered others meanwhile.
        assert!(group.peers().all(|peer| !record(peer)));
        drop(held);
        let quiet: Vec<Lease> = (0..8)
            .map(|_| lease(&group, 102_000).1)
            .filter(|lease| lease.peer().config().name.ends_with(":3"))
            .collect();
        assert_eq!(quiet.len(), 2);
        assert_eq!(serve(&group, 103_100, 1, |_| Ok(10)), "3 slow 1100;");
    }
}
