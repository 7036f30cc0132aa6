//! The results of checks of a server (`health_check`): while one of them finds fault with it, it gets no
//! requests. Any thread.

use crate::peer::{Peer, PeerState};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// How many checks find fault with a server, or have not asked it yet and want to.
#[derive(Debug, Default)]
pub(crate) struct Faults(AtomicU32);

/// The state that outlives a configuration.
#[derive(Debug, Default)]
pub(crate) struct CheckRecord {
    passed: AtomicU64,
    failed: AtomicU64,
    /// 1: the last check that has come to something has found it healthy.
    was_healthy: AtomicU8,
}

/// How a check has ended, or what it has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The server answers as it should.
    Passed,
    /// The server does not answer as it should.
    Failed,
}

impl Peer {
    /// Whether no check finds fault with it.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.live.faults.0.load(Ordering::Relaxed) == 0
    }

    /// A check finds fault with it from now on: it gets no requests until the same check says otherwise
    /// ([`get_well`](Self::get_well) or [`recover`](Self::recover)).
    pub fn fall_ill(&self) {
        self.live.faults.0.fetch_add(1, Ordering::Relaxed);
        self.raise_alarm();
    }

    /// The check that found fault does not any more.
    pub fn get_well(&self) {
        let before = self.live.faults.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each check says once that it finds fault, and once that it does not");
        if before == 1 {
            self.make_room();
        }
    }

    /// As above, after it was ill: its weight rises from nothing, if `slow_start` is set.
    pub fn recover(&self, now_ms: u64) {
        self.rise(now_ms);
        self.get_well();
    }
}

impl PeerState {
    /// A check has ended.
    pub fn count_check(&self, checked: Checked) {
        let count = match checked {
            Checked::Passed => &self.checks.passed,
            Checked::Failed => &self.checks.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many checks have ended so, since the process began.
    #[must_use]
    pub fn checks(&self, checked: Checked) -> u64 {
        let count = match checked {
            Checked::Passed => &self.checks.passed,
            Checked::Failed => &self.checks.failed,
        };
        count.load(Ordering::Relaxed)
    }

    /// Keeps what checks have come to, for the next configuration.
    pub fn remember_health(&self, found: Checked) {
        self.checks.was_healthy.store(u8::from(found == Checked::Passed), Ordering::Relaxed);
    }

    /// Whether checks have found it healthy last.
    #[must_use]
    pub fn was_healthy(&self) -> bool {
        self.checks.was_healthy.load(Ordering::Relaxed) == 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::balance::Key;
    use crate::group::{Group, GroupConfig};
    use crate::moment::Moment;
    use crate::peer::samples::config;
    use crate::peer_config::PeerConfig;

    /// Which servers four requests get.
    fn served(group: &Group) -> String {
        let (key, moment) = (Key::default(), Moment { at_loop: 0, now_ms: 1000 });
        let leases = (0..4).map(|_| group.next(&mut group.begin(&key), &key, moment));
        leases.map(|lease| lease.map_or('-', |lease| lease.peer().config().weight_letter())).collect()
    }

    impl PeerConfig {
        fn weight_letter(&self) -> char {
            if self.name.ends_with(":1") { 'a' } else { 'b' }
        }
    }

    fn group(ports: std::ops::RangeInclusive<u16>) -> Group {
        let primary = ports.map(|port| Peer::new(config(port, 1))).collect();
        Group::new(GroupConfig { primary, ..GroupConfig::default() }, 1)
    }

    #[test]
    fn one_with_which_a_check_finds_fault_gets_nothing() {
        let group = group(1..=2);
        assert_eq!(served(&group), "abab");
        let first = Arc::clone(&group.primary()[0]);
        first.fall_ill();
        first.fall_ill();
        assert_eq!(served(&group), "bbbb");
        first.get_well();
        assert_eq!(served(&group), "bbbb", "another check does still");
        first.recover(1000);
        assert!(served(&group).contains('a'));
        let alone = self::group(1..=1);
        alone.primary()[0].fall_ill();
        assert_eq!(served(&alone), "----");
        alone.primary()[0].get_well();
        assert_eq!(served(&alone), "aaaa");
    }
}
