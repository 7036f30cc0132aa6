//! One server of a group, as all loops see it: what is configured, how many requests it has, how it fared.
//!
//! Everything that changes is a number of its own that any loop writes without a lock. Two loops that write
//! at once may lose a step of `lowered` or of a time, which costs a choice, never a count: `conns` is the
//! number of leases, always.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::common::{Common, LIVE_WORDS, Memory, Numbers, PeerMemory, RECORD_AT, TIMES_AT};
use crate::cycle::Alarm;
use crate::eject::{Ejector, Record};
use crate::health::{CheckRecord, Faults};
use crate::peer_config::{FailRule, PeerConfig, ServerState};
use crate::queue::Queue;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::times::{Inflight, PeerTimes, TimeRule};

/// Weights are reckoned in parts of this size, so that one of 1 can rise by and by.
pub(crate) const WEIGHT_PARTS: i64 = 256;

/// One server of a group. A reload begins it anew: earlier failures do not count any more, as in nginx.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    lasting: Arc<PeerState>,
    pub(crate) live: Arc<Live>,
}

/// How a server fares, whatever is said of it meanwhile.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    numbers: Numbers<LIVE_WORDS>,
    /// Where several processes count its attempts.
    common: OnceLock<Arc<dyn PeerMemory>>,
    /// The alarm of its group.
    alarm: OnceLock<Arc<Alarm>>,
    /// The results of checks.
    pub(crate) faults: Faults,
    /// The record by which it is judged, if its group does so (`upstream_ejection`).
    record: OnceLock<Record>,
}

impl Live {
    fn fails(&self) -> &AtomicU64 {
        self.numbers.at(0)
    }

    /// When it has failed last, or was tried again after that; seconds.
    fn checked_s(&self) -> &AtomicU64 {
        self.numbers.at(1)
    }

    /// When it has failed last, seconds.
    fn failed_s(&self) -> &AtomicU64 {
        self.numbers.at(2)
    }

    /// By how much its weight is less than it should be, as it has failed.
    fn lowered(&self) -> &AtomicU64 {
        self.numbers.at(3)
    }

    /// Since when its weight rises (`slow_start`), milliseconds; 0: it has all of it.
    fn rises_since_ms(&self) -> &AtomicU64 {
        self.numbers.at(4)
    }
}

/// The state of a server that outlives reloads. Not beside another one in memory: each request writes here.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PeerState {
    /// Leases that are held.
    conns: AtomicU32,
    times: PeerTimes,
    answered: AtomicU64,
    passed: AtomicU64,
    failed: AtomicU64,
    /// The TLS session that it has given last.
    session: ArcSwapOption<GivenSession>,
    /// Requests that wait for a server of its group.
    queue: OnceLock<Arc<Queue>>,
    /// How often it was left alone for being worse than others.
    ejections: AtomicU64,
    pub(crate) checks: CheckRecord,
}

/// A TLS session of a server, for further connections to it.
#[derive(Debug)]
pub struct GivenSession {
    /// Stands for the settings with which it was made: it is good for the same alone.
    pub tag: u64,
    /// As the library writes it.
    pub content: Vec<u8>,
}

impl PeerState {
    /// The session that was kept last, if it was made with these settings.
    #[must_use]
    pub fn given_session(&self, tag: u64) -> Option<Arc<GivenSession>> {
        self.session.load_full().filter(|session| session.tag == tag)
    }

    /// Keeps a session, in place of the one before.
    pub fn keep_session(&self, session: GivenSession) {
        self.session.store(Some(Arc::new(session)));
    }
}

/// How attempts with a server have ended, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// The server has answered.
    pub answered: u64,
    /// Another server was asked, and this one was not to blame.
    pub passed: u64,
    /// The attempt failed.
    pub failed: u64,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The server has answered.
    Answered,
    /// The server has answered, but another one is asked as well; it is not to blame (`http_404`).
    Passed,
    /// A failure by `proxy_next_upstream`.
    Failed,
}

/// The effect of a failed attempt on a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server is tried as before.
    Stays,
    /// The server is not used for `fail_timeout` ("upstream server temporarily disabled").
    Disabled,
}

/// How many of a group there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// The only server is always tried: its failures do not count.
    Alone,
    Others,
}

impl Peer {
    /// A server without attempts yet.
    #[must_use]
    pub fn new(config: PeerConfig) -> Arc<Self> {
        Self::with_state(config, Arc::default())
    }

    /// A server that was known before, perhaps by another configuration.
    #[must_use]
    pub fn with_state(config: PeerConfig, lasting: Arc<PeerState>) -> Arc<Self> {
        Arc::new(Self { config, lasting, live: Arc::default() })
    }

    /// The same server with other settings; its state goes on.
    #[must_use]
    pub fn altered(&self, config: PeerConfig) -> Arc<Self> {
        Arc::new(Self { config, lasting: Arc::clone(&self.lasting), live: Arc::clone(&self.live) })
    }

    /// Whether the other one is the same server, perhaps with other things said of it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &PeerConfig {
        &self.config
    }

    /// Attempts that are under way, of all processes that know it in common.
    #[must_use]
    pub fn conns(&self) -> u32 {
        match self.live.common.get() {
            None => self.conns_here(),
            Some(common) => common.held(),
        }
    }

    /// The attempts of this process.
    #[must_use]
    pub fn conns_here(&self) -> u32 {
        self.lasting.conns.load(Ordering::Relaxed)
    }

    /// How it fares is known in common with other processes from here on, if there is room for that.
    pub(crate) fn share(&self, common: &dyn Common) {
        if self.live.common.get().is_some() {
            return;
        }
        let Some(memory) = common.peer(&self.config) else { return };
        let words: Arc<dyn Memory> = Arc::clone(&memory) as _;
        self.live.numbers.share(&words, 0);
        if let Some(record) = self.record() {
            record.share(&words, RECORD_AT);
        }
        self.lasting.times.share(&words, TIMES_AT);
        self.live.common.get_or_init(|| memory);
    }

    /// The state that outlives reloads.
    #[must_use]
    pub fn state(&self) -> &Arc<PeerState> {
        &self.lasting
    }

    /// How attempts have ended.
    #[must_use]
    pub fn counts(&self) -> PeerCounts {
        let PeerState { answered, passed, failed, .. } = &*self.lasting;
        let [answered, passed, failed] =
            [answered, passed, failed].map(|count| count.load(Ordering::Relaxed));
        PeerCounts { answered, passed, failed }
    }

    /// Failures that count at present.
    #[must_use]
    pub fn fails(&self) -> u32 {
        self.live.fails().load(Ordering::Relaxed) as u32
    }

    pub(crate) fn weight(&self) -> i64 {
        self.config.weight.into()
    }

    /// Whether it may be tried: it is not down, has not failed too often, is not too busy.
    #[must_use]
    pub fn is_usable(&self, now_s: u64) -> bool {
        self.is_up() && self.is_present(now_s) && self.has_room()
    }

    /// As [`is_usable`](Self::is_usable), for a request of a session that the server has.
    pub(crate) fn is_usable_in_session(&self, now_s: u64) -> bool {
        self.config.state != ServerState::Down && self.is_present(now_s) && self.has_room()
    }

    /// Whether nothing is known against it.
    fn is_present(&self, now_s: u64) -> bool {
        !self.is_disabled(now_s) && !self.is_ejected() && self.is_healthy()
    }

    /// How fast it answers.
    #[must_use]
    pub fn times(&self) -> &PeerTimes {
        &self.lasting.times
    }

    /// For how many whole seconds more than `fail_timeout` nobody has tried it, in units of `fail_timeout`.
    pub(crate) fn rests(&self, now_s: u64) -> u64 {
        let age_s = now_s.saturating_sub(self.live.checked_s().load(Ordering::Relaxed));
        let timeout_s = self.config.fails.timeout_s;
        if age_s > timeout_s { age_s / (timeout_s + 1) } else { 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.config.state == ServerState::Up
    }

    /// Whether it is left alone, having failed too often (`max_fails`).
    #[must_use]
    pub fn is_disabled(&self, now_s: u64) -> bool {
        let FailRule { max, timeout_s } = self.config.fails;
        let checked_s = self.live.checked_s().load(Ordering::Relaxed);
        max > 0 && self.fails() >= max && now_s.saturating_sub(checked_s) <= timeout_s
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.config.max_conns == 0
    }

    /// Whether its failures count for nothing: it is not disabled, nor about to be tried again, and has all
    /// of its weight.
    pub(crate) fn is_well(&self) -> bool {
        let max = self.config.fails.max;
        (max == 0 || self.fails() < max)
            && self.live.lowered().load(Ordering::Relaxed) == 0
            && self.live.rises_since_ms().load(Ordering::Relaxed) == 0
            && !self.is_ejected()
            && self.is_healthy()
    }

    /// Whether it is left alone, being worse than others (`upstream_ejection`).
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.live.record.get().is_some_and(Record::is_away)
    }

    /// How often it was, since the process began.
    #[must_use]
    pub fn ejections(&self) -> u64 {
        self.lasting.ejections.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.live.record.get()
    }

    /// From here on it is judged.
    pub(crate) fn judge(&self, ejector: &Arc<Ejector>) {
        let record = self.live.record.get_or_init(|| Record::new(ejector));
        if let Some(common) = self.live.common.get() {
            let words: Arc<dyn Memory> = Arc::clone(common) as _;
            record.share(&words, RECORD_AT);
        }
    }

    /// Notes that the server is left alone from now on.
    pub(crate) fn note_ejection(&self) {
        self.lasting.ejections.fetch_add(1, Ordering::Relaxed);
        self.raise_alarm();
    }

    pub(crate) fn raise_alarm(&self) {
        if let Some(alarm) = self.live.alarm.get() {
            alarm.raise();
        }
    }

    /// Has waiting requests look again for a server.
    pub(crate) fn make_room(&self) {
        if let Some(queue) = self.lasting.queue.get() {
            queue.room_was_made();
        }
    }

    /// Whether it tells this one of failures; the first one that it was given stays.
    pub(crate) fn tells(&self, alarm: &Arc<Alarm>) -> bool {
        Arc::ptr_eq(self.live.alarm.get_or_init(|| Arc::clone(alarm)), alarm)
    }

    /// Has a queue of waiting requests hear of requests that end; the first queue stays.
    pub(crate) fn tell_queue(&self, queue: &Arc<Queue>) {
        self.lasting.queue.get_or_init(|| Arc::clone(queue));
    }

    pub(crate) fn has_room(&self) -> bool {
        self.config.max_conns == 0 || self.conns() < self.config.max_conns
    }

    /// Its weight, less what failures have taken of it, in parts ([`WEIGHT_PARTS`]). A look gives one back.
    pub(crate) fn effective_weight(&self, now_ms: u64) -> i64 {
        let lowered = self.live.lowered().load(Ordering::Relaxed);
        if lowered > 0 {
            self.live.lowered().store(lowered - 1, Ordering::Relaxed);
        }
        let lowered = i64::try_from(lowered).unwrap_or(i64::MAX).min(self.weight());
        (self.risen_weight(now_ms) - lowered * WEIGHT_PARTS).max(0)
    }

    /// Its weight, or what it has of it while it rises, in parts ([`WEIGHT_PARTS`]).
    pub(crate) fn risen_weight(&self, now_ms: u64) -> i64 {
        let full = self.weight() * WEIGHT_PARTS;
        let since_ms = self.live.rises_since_ms().load(Ordering::Relaxed);
        if since_ms == 0 {
            return full;
        }
        let risen_ms = now_ms.saturating_sub(since_ms);
        if risen_ms >= self.config.slow_start_ms {
            // Where it rises anew meanwhile, this says nothing about that.
            let _ = self.live.rises_since_ms().compare_exchange(
                since_ms,
                0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            return full;
        }
        let part = u128::from(full.unsigned_abs()) * u128::from(risen_ms);
        i64::try_from(part / u128::from(self.config.slow_start_ms)).unwrap_or(full)
    }

    /// Begins the rise of its weight from nothing, if `slow_start` is set.
    pub(crate) fn rise(&self, now_ms: u64) {
        if self.config.slow_start_ms == 0 {
            return;
        }
        self.live.rises_since_ms().store(now_ms.max(1), Ordering::Relaxed);
        self.raise_alarm();
    }

    /// Takes it for an attempt; `None` if others were faster than `max_conns` allows.
    /// A lease of a server that is in no group: whatever becomes of it, nobody asks.
    ///
    /// # Panics
    /// Where the server has a limit of connections.
    pub fn lease_by_itself(self: Arc<Self>, now_ms: u64) -> Lease {
        let lease = self.lease(Company::Alone, TimeRule::None, now_ms);
        lease.expect("a server in no group has no limit")
    }

    pub(crate) fn lease(self: &Arc<Self>, company: Company, rule: TimeRule, now_ms: u64) -> Option<Lease> {
        let now_s = now_ms / 1000;
        let max_conns = self.config.max_conns;
        let mut before = self.lasting.conns.fetch_add(1, Ordering::Relaxed);
        let common = self.live.common.get();
        if let Some(common) = common {
            before = common.enter();
        }
        if max_conns > 0 && before >= max_conns {
            self.lasting.conns.fetch_sub(1, Ordering::Relaxed);
            common.inspect(|common| common.leave());
            return None;
        }
        if company == Company::Others {
            let checked_s = self.live.checked_s().load(Ordering::Relaxed);
            if now_s.saturating_sub(checked_s) > self.config.fails.timeout_s {
                self.live.checked_s().store(now_s, Ordering::Relaxed);
            }
        }
        if rule.counts_inflight() {
            self.times().begin(now_ms);
        }
        let head = match self.live.record.get() {
            Some(record) => {
                record.begin(now_ms);
                Awaited::Head
            }
            None => Awaited::Nothing,
        };
        let counted = if common.is_some() { Counted::InCommon } else { Counted::Here };
        Some(Lease { peer: Arc::clone(self), company, rule, inflight: rule.inflight(), head, counted })
    }

    fn fail(&self, now_s: u64) -> Verdict {
        self.live.failed_s().store(now_s, Ordering::Relaxed);
        self.live.checked_s().store(now_s, Ordering::Relaxed);
        // Behind both, for `succeed`.
        let fails = self.live.fails().fetch_add(1, Ordering::AcqRel) + 1;
        let (max, weight) = (u64::from(self.config.fails.max), u64::from(self.config.weight));
        if max == 0 {
            return Verdict::Stays;
        }
        let lowered = self.live.lowered().load(Ordering::Relaxed).saturating_add(weight / max).min(weight);
        self.live.lowered().store(lowered, Ordering::Relaxed);
        self.raise_alarm();
        if fails >= max { Verdict::Disabled } else { Verdict::Stays }
    }

    /// Is there again if it was tried since it has failed. A failure that comes meanwhile stands: its times
    /// are seen, or it changes the count behind this look.
    fn succeed(&self, now_ms: u64) {
        let fails = self.live.fails().load(Ordering::Acquire);
        if fails > 0
            && self.live.failed_s().load(Ordering::Relaxed) < self.live.checked_s().load(Ordering::Relaxed)
        {
            let max = u64::from(self.config.fails.max);
            if max > 0 && fails >= max {
                self.rise(now_ms);
            }
            let _ = self.live.fails().compare_exchange(fails, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl PeerState {
    fn count(&self, outcome: AttemptOutcome) {
        let count = match outcome {
            AttemptOutcome::Answered => &self.answered,
            AttemptOutcome::Passed => &self.passed,
            AttemptOutcome::Failed => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// An attempt with a peer. Dropped without a word (a request that was given up) it says nothing of the peer.
#[derive(Debug)]
#[must_use = "the attempt is over when it is dropped"]
pub struct Lease {
    peer: Arc<Peer>,
    company: Company,
    rule: TimeRule,
    inflight: Inflight,
    head: Awaited,
    counted: Counted,
}

/// Where an attempt is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Here,
    /// Also where other processes count theirs.
    InCommon,
}

/// Whether a server is judged by when the head of its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Head,
    /// The answer has come, or nothing depends on it.
    Nothing,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// How long the head of the response took, if there was one.
    pub header_ms: Option<u64>,
    /// How long all of it took.
    pub response_ms: u64,
    /// The status of the answer, 0 if there is none.
    pub status: u16,
}

impl Attempt {
    /// An outcome without times.
    #[must_use]
    pub fn of(outcome: AttemptOutcome) -> Self {
        Self { outcome, header_ms: None, response_ms: 0, status: 0 }
    }
}

impl Lease {
    /// The server that the lease counts for.
    #[must_use]
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// The head of a response has come, after so long.
    pub fn head_came(&mut self, header_ms: u64, now_ms: u64) {
        if self.rule.ends_with_head() && self.inflight == Inflight::Counted {
            self.peer.times().add_header(header_ms);
            self.end_inflight(header_ms, now_ms);
        }
        if std::mem::replace(&mut self.head, Awaited::Nothing) == Awaited::Head
            && let Some(record) = self.peer.record()
        {
            record.hear(header_ms, now_ms);
        }
    }

    fn give_up_head(&mut self) {
        if std::mem::replace(&mut self.head, Awaited::Nothing) == Awaited::Head
            && let Some(record) = self.peer.record()
        {
            record.give_up();
        }
    }

    /// Ends the attempt. The only server of a group is never disabled.
    pub fn finish(mut self, attempt: Attempt, now_ms: u64) -> Verdict {
        self.end_inflight(attempt.response_ms, now_ms);
        if let (true, AttemptOutcome::Answered, Some(header_ms)) =
            (self.rule != TimeRule::None, attempt.outcome, attempt.header_ms)
        {
            self.peer.times().add_response(attempt.response_ms);
            if !self.rule.ends_with_head() {
                self.peer.times().add_header(header_ms);
            }
        }
        self.peer.lasting.count(attempt.outcome);
        if let Some(record) = self.peer.record() {
            match attempt.outcome == AttemptOutcome::Failed || (500..600).contains(&attempt.status) {
                true => record.fail(),
                false => record.succeed(),
            }
        }
        match (self.company, attempt.outcome) {
            (Company::Alone, _) => self.peer.live.fails().store(0, Ordering::Relaxed),
            (Company::Others, AttemptOutcome::Answered | AttemptOutcome::Passed) => self.peer.succeed(now_ms),
            (Company::Others, AttemptOutcome::Failed) => return self.peer.fail(now_ms / 1000),
        }
        Verdict::Stays
    }

    fn end_inflight(&mut self, took_ms: u64, now_ms: u64) {
        if std::mem::replace(&mut self.inflight, Inflight::Over) == Inflight::Counted {
            self.peer.times().end(took_ms, now_ms);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.inflight == Inflight::Counted {
            self.peer.times().forget();
        }
        self.give_up_head();
        self.peer.lasting.conns.fetch_sub(1, Ordering::Relaxed);
        if let (Counted::InCommon, Some(common)) = (self.counted, self.peer.live.common.get()) {
            common.leave();
        }
        self.peer.make_room();
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use clearway_os::outgoing::Remote;

    use super::*;

    /// A peer for tests: `127.0.0.1:PORT`.
    pub(crate) fn config(port: u16, weight: u32) -> PeerConfig {
        let name = format!("127.0.0.1:{port}");
        PeerConfig {
            remote: Remote::Inet(([127, 0, 0, 1], port).into()),
            server: name.as_str().into(),
            name: name.into(),
            weight,
            max_conns: 0,
            fails: FailRule::default(),
            slow_start_ms: 0,
            state: ServerState::Up,
            sid: format!("s{port}").into_bytes().into(),
            source: 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::samples::config;
    use super::*;

    fn lease(peer: &Arc<Peer>, now_s: u64) -> Option<Lease> {
        peer.lease(Company::Others, TimeRule::None, now_s * 1000)
    }

    fn attempt(peer: &Arc<Peer>, outcome: AttemptOutcome, now_s: u64) -> Verdict {
        lease(peer, now_s).expect("there is room").finish(Attempt::of(outcome), now_s * 1000)
    }

    #[test]
    fn one_that_fails_is_left_alone_for_a_while() {
        let fails = FailRule { max: 2, timeout_s: 10 };
        let peer = Peer::new(PeerConfig { fails, ..config(1, 4) });
        assert_eq!(attempt(&peer, AttemptOutcome::Failed, 100), Verdict::Stays);
        assert!(peer.is_usable(100));
        assert_eq!(attempt(&peer, AttemptOutcome::Failed, 101), Verdict::Disabled);
        assert!(!peer.is_usable(111) && peer.is_usable(112));
        // It is tried again, and only once in the meantime.
        let again = lease(&peer, 112).expect("there is room");
        assert!(!peer.is_usable(112));
        again.finish(Attempt::of(AttemptOutcome::Answered), 112_000);
        assert!(peer.is_usable(112) && peer.fails() == 0);
        // Its weight comes back by and by.
        let weights: Vec<i64> = (0..6).map(|_| peer.effective_weight(112_000) / WEIGHT_PARTS).collect();
        assert_eq!(weights, [0, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn one_that_is_there_again_has_its_weight_by_and_by() {
        let peer = Peer::new(PeerConfig { slow_start_ms: 10_000, ..config(1, 4) });
        attempt(&peer, AttemptOutcome::Answered, 100);
        assert!(peer.is_well(), "it was always there");
        attempt(&peer, AttemptOutcome::Failed, 101);
        attempt(&peer, AttemptOutcome::Answered, 112);
        let parts = |now_ms| peer.risen_weight(now_ms) * 10 / WEIGHT_PARTS;
        assert_eq!([112_000, 113_000, 117_000, 121_999].map(parts), [0, 3, 20, 39]);
        assert!(!peer.is_well());
        assert_eq!(parts(122_000), 40);
        (0..4).for_each(|_| _ = peer.effective_weight(122_000));
        assert!(peer.is_well());
        // A failure while it rises does not make it rise faster.
        attempt(&peer, AttemptOutcome::Failed, 130);
        attempt(&peer, AttemptOutcome::Answered, 142);
        attempt(&peer, AttemptOutcome::Failed, 143);
        attempt(&peer, AttemptOutcome::Answered, 160);
        assert_eq!([160_000, 165_000].map(parts), [0, 20]);
    }

    #[test]
    fn the_largest_weights_can_be_reckoned_with() {
        let peer = Peer::new(PeerConfig { slow_start_ms: u64::MAX, ..config(1, u32::MAX) });
        attempt(&peer, AttemptOutcome::Failed, 101);
        attempt(&peer, AttemptOutcome::Answered, 112);
        assert_eq!(peer.risen_weight(112_001), 0);
        assert!(peer.risen_weight(u64::MAX) <= i64::from(u32::MAX) * WEIGHT_PARTS);
    }

    #[test]
    fn a_success_of_before_the_failure_says_nothing() {
        let peer = Peer::new(config(1, 1));
        let early = lease(&peer, 100).expect("there is room");
        attempt(&peer, AttemptOutcome::Failed, 101);
        early.finish(Attempt::of(AttemptOutcome::Answered), 101_000);
        assert!(!peer.is_usable(102));
    }

    #[test]
    fn leases_are_counted_whatever_becomes_of_them() {
        let peer = Peer::new(PeerConfig { max_conns: 2, ..config(1, 1) });
        let held = [lease(&peer, 1), lease(&peer, 1)];
        assert!(held.iter().all(Option::is_some) && !peer.is_usable(1));
        assert!(lease(&peer, 1).is_none() && peer.conns() == 2);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = held;
            panic!("planned");
        }));
        assert!(peer.is_usable(1) && peer.conns() == 0);
    }

    #[test]
    fn the_only_one_and_those_without_a_limit_are_never_disabled() {
        let peer = Peer::new(config(1, 1));
        let lease = peer.lease(Company::Alone, TimeRule::None, 1).expect("there is room");
        assert_eq!(lease.finish(Attempt::of(AttemptOutcome::Failed), 1_000), Verdict::Stays);
        let peer = Peer::new(PeerConfig { fails: FailRule { max: 0, timeout_s: 10 }, ..config(1, 1) });
        for _ in 0..10 {
            assert_eq!(attempt(&peer, AttemptOutcome::Failed, 1), Verdict::Stays);
        }
        assert!(peer.is_usable(1));
        assert!(!Peer::new(PeerConfig { state: ServerState::Down, ..config(1, 1) }).is_usable(1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::samples::config;
    use super::*;
    use loom::thread;

    fn lease(peer: &Arc<Peer>) -> Option<Lease> {
        peer.lease(Company::Others, TimeRule::None, 1000)
    }

    /// Three requests at once want a server that takes two: never more than two have it, and afterwards it is
    /// free again, whatever became of them.
    #[test]
    fn no_more_leases_than_may_be() {
        loom::model(|| {
            let peer = Peer::new(PeerConfig { max_conns: 2, ..config(1, 1) });
            let held = Arc::new(AtomicU32::new(0));
            let first = lease(&peer).expect("there is room");
            held.fetch_add(1, Ordering::Relaxed);
            let others: Vec<_> = [AttemptOutcome::Answered, AttemptOutcome::Failed]
                .into_iter()
                .map(|outcome| {
                    let (peer, held) = (Arc::clone(&peer), Arc::clone(&held));
                    thread::spawn(move || {
                        let Some(lease) = lease(&peer) else { return 0 };
                        let most = held.fetch_add(1, Ordering::Relaxed) + 1;
                        held.fetch_sub(1, Ordering::Relaxed);
                        lease.finish(Attempt::of(outcome), 1000);
                        most
                    })
                })
                .collect();
            held.fetch_sub(1, Ordering::Relaxed);
            drop(first);
            let most = others.into_iter().map(|thread| thread.join().expect("it ends")).max();
            assert!(most <= Some(2), "{most:?}");
            assert_eq!(peer.conns(), 0);
        });
    }

    /// An answer and a failure of one server at once: the failure is noticed by those that choose next, as a
    /// server that is not well, or as one that is well again.
    #[test]
    fn a_failure_is_not_lost_to_those_that_choose() {
        loom::model(|| {
            let (peer, alarm) = (Peer::new(config(1, 1)), Arc::new(Alarm::new()));
            assert!(peer.tells(&alarm));
            let leases = [lease(&peer), lease(&peer)].map(|lease| lease.expect("there is room"));
            let threads: Vec<_> = leases
                .into_iter()
                .zip([AttemptOutcome::Failed, AttemptOutcome::Answered])
                .map(|(lease, outcome)| thread::spawn(move || lease.finish(Attempt::of(outcome), 1000)))
                .collect();
            let number = alarm.number();
            let was_well = peer.is_well();
            for thread in threads {
                thread.join().expect("it ends");
            }
            assert!(!was_well || number != alarm.number());
            assert_eq!((peer.conns(), peer.fails()), (0, 1), "an answer of before says nothing");
        });
    }
}
