//! The state of servers that several processes share: words in memory that all of them map, in the place of a
//! process's own. The caller provides the memory ([`Common`]); the meaning of each word is here. Any thread
//! of any process, without a lock.
//!
//! Rules.
//! 1. A word is used as if loops of one process used it: no protocol here depends on which process writes.
//! 2. A process may die between any two steps, so a word says nothing of a process, but for the attempts that
//!    it has under way, which the memory takes back ([`PeerMemory`]).
//! 3. What is read may be anything: a place or a number that cannot be is as good as none.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use crate::peer_config::PeerConfig;
use crate::sync::AtomicU64;

/// Words that a server takes.
pub const PEER_WORDS: usize = TIMES_AT + TIMES_WORDS;

/// Words for the state of a server, whatever its group judges it by.
pub(crate) const LIVE_WORDS: usize = 5;
pub(crate) const RECORD_AT: usize = LIVE_WORDS;
pub(crate) const RECORD_WORDS: usize = 6;
pub(crate) const TIMES_AT: usize = RECORD_AT + RECORD_WORDS;
pub(crate) const TIMES_WORDS: usize = 2;

/// Words that all lists of a group's servers have in common.
pub(crate) const GROUP_WORDS: usize = 2;
pub(crate) const ALARM_AT: usize = 0;
pub(crate) const DUE_AT: usize = 1;
/// Their name. The one below it has further attempts of the group.
pub(crate) const GROUP_NAME: u64 = u64::MAX;
pub(crate) const BUDGET_NAME: u64 = GROUP_NAME - 1;

/// Words, 0 at first, that are there as long as they are held.
pub trait Memory: Debug + Send + Sync {
    /// One of those that were asked for, or some other one.
    fn word(&self, at: usize) -> &AtomicU64;
}

/// The words of a server: as many as `PEER_WORDS`, and its attempts; those of a process that dies are gone.
pub trait PeerMemory: Memory {
    /// This process has one more: how many all had before.
    fn enter(&self) -> u32;

    /// Ends an attempt.
    fn leave(&self);

    /// How many all have.
    fn held(&self) -> u32;
}

/// The memory that processes have in common for one group.
pub trait Common: Debug + Send + Sync {
    /// The words of a server; `None` if there is no room.
    fn peer(&self, config: &PeerConfig) -> Option<Arc<dyn PeerMemory>>;

    /// Likewise so many words by this name.
    fn words(&self, name: u64, count: usize) -> Option<Arc<dyn Memory>>;
}

/// Numbers of a process's own, or in common.
#[derive(Debug)]
pub(crate) struct Numbers<const N: usize> {
    own: [AtomicU64; N],
    common: OnceLock<(Arc<dyn Memory>, usize)>,
}

impl<const N: usize> Default for Numbers<N> {
    fn default() -> Self {
        Self { own: std::array::from_fn(|_| AtomicU64::new(0)), common: OnceLock::new() }
    }
}

impl<const N: usize> Numbers<N> {
    #[inline]
    pub(crate) fn at(&self, at: usize) -> &AtomicU64 {
        match self.common.get() {
            None => &self.own[at],
            Some((memory, first)) => memory.word(first + at),
        }
    }

    /// From here on they are those words, whatever they were; the first ones that it was given stay.
    pub(crate) fn share(&self, memory: &Arc<dyn Memory>, first: usize) {
        self.common.get_or_init(|| (Arc::clone(memory), first));
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod samples {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;
    use crate::sync::Ordering;

    #[derive(Debug)]
    struct Words(Box<[AtomicU64]>);

    impl Memory for Words {
        fn word(&self, at: usize) -> &AtomicU64 {
            &self.0[at]
        }
    }

    impl PeerMemory for Words {
        fn enter(&self) -> u32 {
            self.0[PEER_WORDS].fetch_add(1, Ordering::Relaxed) as u32
        }

        fn leave(&self) {
            self.0[PEER_WORDS].fetch_sub(1, Ordering::Relaxed);
        }

        fn held(&self) -> u32 {
            self.0[PEER_WORDS].load(Ordering::Relaxed) as u32
        }
    }

    /// Memory for groups of tests, as two processes would have it.
    #[derive(Debug, Default)]
    pub(crate) struct Shared(Mutex<HashMap<String, Arc<Words>>>);

    impl Shared {
        fn of(&self, name: String, count: usize) -> Arc<Words> {
            let mut all = self.0.lock().expect("no test panics in here");
            let words = || (0..count).map(|_| AtomicU64::new(0)).collect();
            Arc::clone(all.entry(name).or_insert_with(|| Arc::new(Words(words()))))
        }
    }

    impl Common for Shared {
        fn peer(&self, config: &PeerConfig) -> Option<Arc<dyn PeerMemory>> {
            Some(self.of(config.name.to_string(), PEER_WORDS + 1))
        }

        fn words(&self, name: u64, count: usize) -> Option<Arc<dyn Memory>> {
            Some(self.of(name.to_string(), count))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::samples::Shared;
    use super::*;
    use crate::balance::Key;
    use crate::budget::RetryBudget;
    use crate::eject::EjectRule;
    use crate::group::{Group, GroupConfig};
    use crate::moment::Moment;
    use crate::peer::samples::config;
    use crate::peer::{Attempt, AttemptOutcome, Lease, Peer, Verdict};
    use crate::peer_config::FailRule;

    /// The same group as two processes have it.
    fn two(change: impl Fn(&mut GroupConfig, &mut PeerConfig)) -> [Group; 2] {
        let common: Arc<dyn Common> = Arc::new(Shared::default());
        std::array::from_fn(|_| {
            let mut of_group = GroupConfig::default();
            of_group.primary = (1..=3)
                .map(|port| {
                    let mut peer = config(port, 1);
                    change(&mut of_group, &mut peer);
                    Peer::new(peer)
                })
                .collect();
            Group::new(of_group, 2).in_common(&common)
        })
    }

    fn lease(group: &Group, now_s: u64) -> Option<Lease> {
        let (key, moment) = (Key::default(), Moment { at_loop: 0, now_ms: now_s * 1000 });
        group.eject(now_s * 1000);
        group.next(&mut group.begin(&key), &key, moment)
    }

    fn port(lease: &Lease) -> char {
        lease.peer().config().name.chars().last().expect("a port")
    }

    fn ask(group: &Group, now_s: u64, outcome: AttemptOutcome) -> char {
        let lease = lease(group, now_s).expect("one is there");
        let port = port(&lease);
        lease.finish(Attempt::of(outcome), now_s * 1000);
        port
    }

    #[test]
    fn turns_are_taken_together() {
        let groups = two(|_, _| {});
        let ports: String = (0..6).map(|at| ask(&groups[at % 2], 100, AttemptOutcome::Answered)).collect();
        assert_eq!(ports, "123123");
    }

    #[test]
    fn a_failure_is_known_to_all_and_so_is_its_end() {
        let groups = two(|_, _| {});
        assert_eq!(ask(&groups[0], 100, AttemptOutcome::Failed), '1');
        let ports: String = (0..4).map(|_| ask(&groups[1], 101, AttemptOutcome::Answered)).collect();
        assert!(!ports.contains('1'), "{ports}");
        assert!(!groups[1].peers().next().expect("three").is_usable(105));
        // One that is there again for one of them is there for the other.
        let later: String = (0..6).map(|_| ask(&groups[0], 112, AttemptOutcome::Answered)).collect();
        assert!(later.contains('1'), "{later}");
        assert_eq!(groups[1].peers().next().expect("three").fails(), 0);
    }

    #[test]
    fn limits_hold_for_all_together() {
        let groups = two(|_, peer| peer.max_conns = 1);
        let held: Vec<Lease> = (0..3).map(|at| lease(&groups[at % 2], 100).expect("there is room")).collect();
        assert!(groups.iter().all(|group| lease(group, 100).is_none()));
        assert_eq!(groups[0].peers().map(|peer| peer.conns()).sum::<u32>(), 3);
        assert_eq!(groups[0].peers().map(|peer| peer.conns_here()).sum::<u32>(), 2);
        drop(held);
        assert!(groups.iter().all(|group| lease(group, 100).is_some()));
    }

    #[test]
    fn averages_and_further_attempts_are_those_of_all() {
        let groups = two(|_, _| {});
        let times = |at: usize| groups[at].peers().next().expect("three").times();
        times(0).add_header(100);
        times(1).add_header(200);
        assert_eq!((times(0).header_ms(), times(1).header_ms()), (105, 105));
        times(1).add_response(7);
        assert_eq!(times(0).response_ms(), 7);
        let common = Shared::default();
        let budgets = [0, 1].map(|_| RetryBudget::new(20));
        budgets.iter().for_each(|budget| budget.share(&common));
        let allowed = (0..1000).filter(|at| {
            budgets[at % 2].deposit();
            budgets[1 - at % 2].withdraw()
        });
        assert_eq!(allowed.count(), 10 + 200);
    }

    #[test]
    fn what_one_leaves_alone_the_other_does() {
        let rule = EjectRule { fails: 2, slow: 0, time_ms: 10_000 };
        let groups = two(|group, peer| {
            group.ejection = Some(rule);
            peer.fails = FailRule { max: 0, timeout_s: 10 };
        });
        for now_s in 0..9 {
            let lease = lease(&groups[now_s as usize % 2], 100 + now_s).expect("one is there");
            let outcome = if port(&lease) == '2' { AttemptOutcome::Failed } else { AttemptOutcome::Answered };
            assert_eq!(lease.finish(Attempt::of(outcome), 1000 * (100 + now_s)), Verdict::Stays);
        }
        let away = |group: &Group| group.peers().map(|peer| peer.is_ejected()).collect::<Vec<_>>();
        assert_eq!(away(&groups[0]), [false, true, false]);
        assert_eq!(away(&groups[1]), [false, true, false]);
    }
}
