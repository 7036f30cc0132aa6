//! A group of servers, and the choices that a request makes among them.

use std::sync::{Arc, OnceLock};

use crate::balance::{Key, Look, Method, Progress};
use crate::common::{Common, GROUP_NAME, GROUP_WORDS};
use crate::cycle::Alarm;
use crate::eject::{EjectRule, Ejection, Ejector};
use crate::moment::Moment;
use crate::peer::{Company, Lease, Peer};
use crate::peers::{Peers, Tried};
use crate::queue::{Queue, Where};
use crate::sids::Sids;

/// The settings of `upstream`.
#[derive(Clone, Debug, Default)]
pub struct GroupConfig {
    /// Its name.
    pub name: Box<str>,
    /// The servers that are tried first.
    pub primary: Vec<Arc<Peer>>,
    /// The servers that are tried when no primary one can be used (`backup`).
    pub backup: Vec<Arc<Peer>>,
    /// By what rule.
    pub method: Method,
    /// Where requests wait that find no server (`queue`).
    pub queue: Option<Arc<Queue>>,
    /// When servers are left alone that are worse than others.
    pub ejection: Option<EjectRule>,
}

/// A group of servers, shared by all loops. A change of its servers while serving makes a new one.
#[derive(Debug)]
pub struct Group {
    name: Box<str>,
    method: Method,
    primary: Peers,
    backup: Option<Peers>,
    queue: Option<Arc<Queue>>,
    ejector: Option<Arc<Ejector>>,
    loops: usize,
    alarm: Arc<Alarm>,
    /// The state of its servers that other processes share.
    common: Option<Arc<dyn Common>>,
    /// Numbers for sticky sessions; made when they are asked for first.
    sids: OnceLock<Sids>,
}

/// The state that all groups share which replace each other over time.
struct Parts {
    alarm: Arc<Alarm>,
    ejector: Option<Arc<Ejector>>,
    common: Option<Arc<dyn Common>>,
}

/// The choices of one request.
#[derive(Clone, Debug)]
pub struct Choice {
    tried: Tried,
    progress: Progress,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Primary,
    Backup,
}

impl Group {
    /// Makes it, for so many loops.
    #[must_use]
    pub fn new(config: GroupConfig, loops: usize) -> Self {
        let ejector = config.ejection.map(Ejector::new);
        Self::with_parts(config, loops, Parts { alarm: Arc::new(Alarm::new()), ejector, common: None })
    }

    fn with_parts(config: GroupConfig, loops: usize, Parts { alarm, ejector, common }: Parts) -> Self {
        let GroupConfig { name, primary, backup, method, queue, ejection: _ } = config;
        let company = match primary.len() == 1 && backup.is_empty() {
            true => Company::Alone,
            false => Company::Others,
        };
        if let Some(common) = &common {
            primary.iter().chain(&backup).for_each(|peer| peer.share(&**common));
        }
        let turns = (loops, common.as_deref());
        let backup = (!backup.is_empty()).then(|| Peers::new(backup, company, &alarm, turns));
        let primary = Peers::new(primary, company, &alarm, turns);
        let sids = OnceLock::new();
        let group = Self { name, method, primary, backup, queue, ejector, loops, alarm, common, sids };
        if let Some(ejector) = &group.ejector {
            group.peers().for_each(|peer| peer.judge(ejector));
        }
        if let Some(queue) = &group.queue {
            group.peers().for_each(|peer| peer.tell_queue(queue));
        }
        group
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All servers, the primary ones first.
    pub fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        let backup = self.backup.iter().flat_map(|peers| peers.list.iter());
        self.primary.list.iter().chain(backup)
    }

    /// The servers that are tried first.
    #[must_use]
    pub fn primary(&self) -> &[Arc<Peer>] {
        &self.primary.list
    }

    /// The servers that are tried when no primary one can be used.
    #[must_use]
    pub fn backup(&self) -> &[Arc<Peer>] {
        self.backup.as_ref().map_or(&[], |peers| &peers.list)
    }

    /// The number of a server by what sessions call it, [`SID_BITS`](crate::SID_BITS) long: no two servers of
    /// the group have the same.
    #[must_use]
    pub fn code_of(&self, sid: &[u8]) -> u64 {
        self.sids().code(sid)
    }

    /// The server of such a number.
    #[must_use]
    pub fn by_code(&self, code: u64) -> Option<&Arc<Peer>> {
        self.sids().server(code)
    }

    fn sids(&self) -> &Sids {
        self.sids.get_or_init(|| Sids::new(self.primary.list.iter().chain(self.backup())))
    }

    /// The same group with other servers.
    #[must_use]
    pub fn with_peers(&self, primary: Vec<Arc<Peer>>, backup: Vec<Arc<Peer>>) -> Self {
        let (name, queue) = (self.name.clone(), self.queue.clone());
        let config = GroupConfig { name, primary, backup, method: self.method, queue, ejection: None };
        let (alarm, ejector) = (Arc::clone(&self.alarm), self.ejector.clone());
        Self::with_parts(config, self.loops, Parts { alarm, ejector, common: self.common.clone() })
    }

    /// The same group, whose state other processes share from now on: health of servers, attempts, whose turn
    /// it is.
    #[must_use]
    pub fn in_common(&self, common: &Arc<dyn Common>) -> Self {
        if let Some(words) = common.words(GROUP_NAME, GROUP_WORDS) {
            self.alarm.share(&words);
            self.ejector.iter().for_each(|ejector| ejector.share(&words));
        }
        let (alarm, ejector) = (Arc::clone(&self.alarm), self.ejector.clone());
        let (name, queue) = (self.name.clone(), self.queue.clone());
        let (primary, backup) = (self.primary().to_vec(), self.backup().to_vec());
        let config = GroupConfig { name, primary, backup, method: self.method, queue, ejection: None };
        Self::with_parts(config, self.loops, Parts { alarm, ejector, common: Some(Arc::clone(common)) })
    }

    /// There may be servers now for requests that wait for one.
    pub fn make_room(&self) {
        if let Some(queue) = &self.queue {
            queue.room_was_made();
        }
    }

    /// Whether its only server is tried whatever has become of it, and no other.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.primary.company == Company::Alone
    }

    /// Compares servers where that is due: those that are left alone from now on. To be asked for before
    /// [`next`](Self::next) is.
    pub fn eject(&self, now_ms: u64) -> Vec<Ejection> {
        let mut ejected = Vec::new();
        if let Some(ejector) = self.ejector.as_ref().filter(|ejector| ejector.is_due(now_ms)) {
            for peers in [self.primary(), self.backup()] {
                ejector.compare(peers, now_ms, &mut ejected);
            }
        }
        ejected
    }

    /// How many servers one request may try: those that are not `down`.
    #[must_use]
    pub fn tries(&self) -> usize {
        self.peers().filter(|peer| peer.is_up()).count()
    }

    /// A request begins.
    #[must_use]
    pub fn begin(&self, key: &Key<'_>) -> Choice {
        let progress = self.method.begin(key, &self.primary);
        Choice { tried: Tried::default(), progress, stage: Stage::Primary }
    }

    /// As [`next`](Self::next), but if there is no server the choice stays as it was.
    pub fn next_or_same(&self, choice: &mut Choice, key: &Key<'_>, moment: Moment) -> Option<Lease> {
        let mut after = choice.clone();
        let next = self.next(&mut after, key, moment);
        if next.is_some() {
            *choice = after;
        }
        next
    }

    /// The next server for it, which it has not tried. `None`: there is none ("no live upstreams").
    pub fn next(&self, choice: &mut Choice, key: &Key<'_>, moment: Moment) -> Option<Lease> {
        if choice.stage == Stage::Primary {
            let found = self.try_these(&self.primary, choice, key, moment);
            if found.is_some() {
                return found;
            }
            let backup = self.backup.as_ref()?;
            choice.stage = Stage::Backup;
            choice.tried.clear();
            return self.try_these(backup, choice, key, moment);
        }
        self.try_these(self.backup.as_ref()?, choice, key, moment)
    }

    /// Where a request waits for which [`next_or_same`](Self::next_or_same) has found none; `None`: it has
    /// tried all servers, so waiting would be in vain.
    #[must_use]
    pub fn place_to_wait(&self, choice: &Choice) -> Option<Where> {
        let is_left = |peers: &Peers| {
            let mut left = (0..peers.list.len()).filter(|&at| !choice.tried.has(at));
            left.any(|at| peers.list[at].is_up())
        };
        let is_any = match choice.stage {
            Stage::Primary => is_left(&self.primary) || self.backup().iter().any(|peer| peer.is_up()),
            Stage::Backup => self.backup.as_ref().is_some_and(is_left),
        };
        let is_first = choice.stage == Stage::Primary && choice.tried.is_empty();
        is_any.then_some(if is_first { Where::InLine } else { Where::Apart })
    }

    /// The first one that the request has not tried and that [`next`](Self::next) has left out, as it failed
    /// before: where that is no reason to answer that there is none. Not for groups with backup servers.
    pub fn next_of_failed(&self, choice: &mut Choice, moment: Moment) -> Option<Lease> {
        debug_assert!(self.backup.is_none());
        let Peers { list, company, .. } = &self.primary;
        let at = (0..list.len()).find(|&at| !choice.tried.has(at) && list[at].is_up())?;
        choice.tried.add(at);
        list[at].lease(*company, self.method.time_rule(), moment.now_ms)
    }

    fn try_these(&self, peers: &Peers, choice: &mut Choice, key: &Key<'_>, moment: Moment) -> Option<Lease> {
        loop {
            let at = self.choose(peers, choice, key, moment)?;
            // The only one is tried again and again.
            if peers.company == Company::Others {
                choice.tried.add(at);
            }
            match peers.list[at].lease(peers.company, self.method.time_rule(), moment.now_ms) {
                None if peers.company == Company::Others => {}
                lease => return lease,
            }
        }
    }

    fn choose(&self, peers: &Peers, choice: &mut Choice, key: &Key<'_>, moment: Moment) -> Option<usize> {
        let look = Look { peers, tried: &choice.tried, moment };
        let of_session = look.of_session(key.sid);
        if peers.company == Company::Alone {
            let may = |peer: &Peer| peer.is_up() && peer.is_healthy() && peer.has_room();
            let only = || peers.list.iter().position(|peer| may(peer));
            return of_session.or_else(only);
        }
        if let Some(at) = of_session {
            if self.method == Method::RoundRobin || choice.stage == Stage::Backup {
                peers.take_out_of_turn(at, moment, |at, peer| look.may(at, peer));
            }
            return Some(at);
        }
        // Backup servers take turns, unless they are chosen by their load.
        match (choice.stage, self.method) {
            (Stage::Primary, method)
            | (Stage::Backup, method @ (Method::LeastConn | Method::LeastTime(_))) => {
                method.choose(&look, key, &mut choice.progress)
            }
            (Stage::Backup, _) => look.in_turn(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::peer::samples::config;
    use crate::peer::{Attempt, AttemptOutcome, Verdict};
    use crate::peer_config::{FailRule, PeerConfig, ServerState};

    /// Servers at the ports 1, 2, … with these weights.
    fn peers(weights: &[u32]) -> Vec<Arc<Peer>> {
        let numbered = weights.iter().zip(1..);
        numbered.map(|(&weight, port)| Peer::new(config(port, weight))).collect()
    }

    fn group(weights: &[u32], method: Method) -> Group {
        Group::new(GroupConfig { primary: peers(weights), method, ..GroupConfig::default() }, 1)
    }

    fn at_s(now_s: u64) -> Moment {
        Moment { at_loop: 0, now_ms: now_s * 1000 }
    }

    fn number(lease: &Lease) -> u16 {
        let name = &lease.peer().config().name;
        name.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    /// Which servers answer so many requests with a key.
    fn served(group: &Group, key: &Key<'_>, requests: usize) -> String {
        let numbers = (0..requests).map(|_| {
            let lease = group.next(&mut group.begin(key), key, at_s(100)).expect("one is there");
            let number = number(&lease);
            lease.finish(Attempt::of(AttemptOutcome::Answered), 100_000);
            char::from(b'a' + number as u8 - 1)
        });
        numbers.collect()
    }

    /// Which servers one request tries.
    fn tried(group: &Group, key: &Key<'_>, outcome: AttemptOutcome) -> String {
        let mut choice = group.begin(key);
        let leases = std::iter::from_fn(|| {
            let lease = group.next(&mut choice, key, at_s(100))?;
            let number = number(&lease);
            lease.finish(Attempt::of(outcome), 100_000);
            Some(char::from(b'a' + number as u8 - 1))
        });
        leases.take(20).collect()
    }

    #[test]
    fn turns_are_smooth() {
        assert_eq!(served(&group(&[5, 1, 1], Method::RoundRobin), &Key::default(), 14), "aabacaaaabacaa");
        assert_eq!(served(&group(&[1, 1, 1], Method::RoundRobin), &Key::default(), 6), "abcabc");
        assert_eq!(served(&group(&[3, 2], Method::RoundRobin), &Key::default(), 10), "ababaababa");
    }

    /// Servers with a limit that they never reach are reckoned with each time, others are not: while none
    /// fails nobody can tell.
    #[test]
    fn the_cycle_is_what_reckoning_comes_to() {
        for weights in [&[1, 1, 1][..], &[5, 1, 1], &[3, 2, 7, 1], &[4, 6], &[10, 1, 1, 10, 3]] {
            let limited = |peer: &Arc<Peer>| Peer::new(PeerConfig { max_conns: 9, ..peer.config().clone() });
            let (key, round) = (Key::default(), weights.iter().sum::<u32>() as usize);
            for requests in 0..=round {
                let reckoned = peers(weights).iter().map(limited).collect();
                let reckoned = Group::new(GroupConfig { primary: reckoned, ..GroupConfig::default() }, 1);
                let groups = [&group(weights, Method::RoundRobin), &reckoned];
                // A request that tries several of them changes the order of the next ones alike.
                let [turning, reckoned] = groups.map(|group| {
                    let before = served(group, &key, 2 * round + requests);
                    [before, tried(group, &key, AttemptOutcome::Passed), served(group, &key, round)]
                });
                assert_eq!(turning, reckoned, "{weights:?}");
            }
        }
    }

    /// Each server gets its part again when one of them was away, without a jolt.
    #[test]
    fn turns_go_on_smoothly_behind_a_failure() {
        for weights in [&[1, 1, 1][..], &[5, 1, 1], &[3, 2, 7, 1], &[10, 1, 1, 10, 3]] {
            let group = group(weights, Method::RoundRobin);
            let key = Key::default();
            served(&group, &key, 4);
            let lease = group.next(&mut group.begin(&key), &key, at_s(100)).expect("one is there");
            let failed = char::from(b'a' + number(&lease) as u8 - 1);
            lease.finish(Attempt::of(AttemptOutcome::Failed), 100_000);
            assert!(!served(&group, &key, 50).contains(failed), "{weights:?}");
            let later = || {
                let lease = group.next(&mut group.begin(&key), &key, at_s(120)).expect("one is there");
                let number = number(&lease);
                lease.finish(Attempt::of(AttemptOutcome::Answered), 120_000);
                char::from(b'a' + number as u8 - 1)
            };
            let round = weights.iter().sum::<u32>() as usize;
            let all: Vec<char> = (0..40 * round).map(|_| later()).collect();
            assert!(group.primary.is_in_cycle(0), "{weights:?}");
            let rounds = &all[10 * round..];
            for (weight, name) in weights.iter().zip('a'..) {
                let count = rounds.iter().filter(|it| **it == name).count();
                let expected = 30 * *weight as usize;
                assert!(count.abs_diff(expected) <= *weight as usize, "{weights:?} {name} {count}");
            }
        }
    }

    /// The first server of the group fails, and is there again twenty seconds later.
    fn fail_and_return(group: &Group) {
        let key = Key::default();
        for (outcome, now_s) in [(AttemptOutcome::Failed, 100), (AttemptOutcome::Answered, 120)] {
            let leases: Vec<Lease> = (0..8)
                .map(|_| group.next(&mut group.begin(&key), &key, at_s(now_s)).expect("one is there"))
                .collect();
            let of_first = leases.into_iter().find(|lease| number(lease) == 1).expect("it has its turn");
            let now_ms = now_s * 1000;
            assert_eq!(
                of_first.finish(Attempt::of(outcome), now_ms) == Verdict::Disabled,
                outcome == AttemptOutcome::Failed
            );
        }
    }

    #[test]
    fn one_that_is_there_again_gets_no_more_than_its_part() {
        for method in [Method::RoundRobin, Method::LeastConn] {
            let rising = PeerConfig { slow_start_ms: 100_000, ..config(1, 1) };
            let primary = [rising, config(2, 1), config(3, 1)].map(Peer::new).into();
            let group = Group::new(GroupConfig { primary, method, ..GroupConfig::default() }, 1);
            let key = Key::default();
            fail_and_return(&group);
            let part_at = |now_s| {
                let of_first = (0..1000).filter(|_| {
                    let lease = group.next(&mut group.begin(&key), &key, at_s(now_s)).expect("one is there");
                    number(&lease) == 1
                });
                of_first.count()
            };
            // Weights of 0, 0.1, 0.5 and 1 beside two of 1.
            for (now_s, part) in [(120, 0), (130, 47), (170, 200), (220, 333)] {
                let found = part_at(now_s);
                assert!(found.abs_diff(part) <= 4, "{method:?} {now_s} {found}");
            }
            let all = served(&group, &key, 30);
            assert_eq!(all.matches('a').count(), 10);
        }
    }

    #[test]
    fn each_server_is_tried_once_and_then_backups() {
        let config = GroupConfig {
            primary: peers(&[1, 1]),
            backup: vec![Peer::new(config(3, 1)), Peer::new(config(4, 1))],
            ..GroupConfig::default()
        };
        let group = Group::new(config, 1);
        assert_eq!(group.tries(), 4);
        assert_eq!(tried(&group, &Key::default(), AttemptOutcome::Failed), "abcd");
        assert_eq!(tried(&group, &Key::default(), AttemptOutcome::Failed), "", "all have failed");
        // They are tried again after a while.
        let lease = group.next(&mut group.begin(&Key::default()), &Key::default(), at_s(111));
        assert!(lease.is_some());
    }

    #[test]
    fn the_only_server_is_tried_for_ever() {
        let group = group(&[1], Method::RoundRobin);
        assert_eq!(tried(&group, &Key::default(), AttemptOutcome::Failed).len(), 20);
    }

    #[test]
    fn those_that_are_down_or_full_are_left_out() {
        let down = PeerConfig { state: ServerState::Down, ..config(1, 1) };
        let full = PeerConfig { max_conns: 1, ..config(2, 1) };
        let primary = vec![Peer::new(down), Peer::new(full), Peer::new(config(3, 1))];
        let group = Group::new(GroupConfig { primary, ..GroupConfig::default() }, 1);
        assert_eq!(group.tries(), 2);
        let key = Key::default();
        let held = group.next(&mut group.begin(&key), &key, at_s(100)).expect("one is there");
        assert_eq!(number(&held), 2);
        assert_eq!(served(&group, &key, 3), "ccc");
        drop(held);
        assert!(served(&group, &key, 2).contains('b'));
    }

    #[test]
    fn the_least_busy_for_its_weight_is_taken() {
        let group = group(&[1, 2, 1], Method::LeastConn);
        let key = Key::default();
        let leases: Vec<Lease> = (0..8)
            .map(|_| group.next(&mut group.begin(&key), &key, at_s(100)).expect("one is there"))
            .collect();
        let mut counts = [0; 3];
        leases.iter().for_each(|lease| counts[usize::from(number(lease)) - 1] += 1);
        assert_eq!(counts, [2, 4, 2]);
        // Without any load all are the least busy, and take turns.
        assert_eq!(served(&self::group(&[1, 2, 1], Method::LeastConn), &key, 4), "bacb");
    }

    #[test]
    fn chance_takes_all_by_their_weight_and_no_failed_one() {
        for method in [Method::Random, Method::RandomTwo] {
            let group = group(&[1, 3, 1], method);
            let served = served(&group, &Key::default(), 3000);
            let counts = ['a', 'b', 'c'].map(|name| served.chars().filter(|&it| it == name).count());
            assert!(counts[0] > 300 && counts[2] > 300, "{method:?} {counts:?}");
            // If neither of two has load, the second is taken, which is seldom the heaviest.
            assert!(counts[1] > if method == Method::Random { 1600 } else { 600 }, "{method:?} {counts:?}");
            let all = tried(&group, &Key::default(), AttemptOutcome::Failed);
            assert!(["abc", "acb", "bac", "bca", "cab", "cba"].contains(&all.as_str()), "{method:?} {all}");
        }
    }

    /// The servers of the recordings, with their weights: 1 at port 8101, 3 at 8102 (or at 8109, where nobody
    /// listened), 2 at 8103.
    fn recorded(method: Method, second: u16) -> Group {
        let fails = FailRule { max: 0, timeout_s: 10 };
        let server = |port, weight| Peer::new(PeerConfig { fails, ..config(port, weight) });
        let primary = vec![server(8101, 1), server(second, 3), server(8103, 2)];
        Group::new(GroupConfig { primary, method, ..GroupConfig::default() }, 1)
    }

    /// Which servers have answered a request with each of these keys; the one at 8109 fails.
    fn answered<'a>(group: &Group, keys: impl IntoIterator<Item = Key<'a>>) -> String {
        let names = keys.into_iter().map(|key| {
            let mut choice = group.begin(&key);
            loop {
                let lease = group.next(&mut choice, &key, at_s(100)).expect("one is there");
                match number(&lease) {
                    8109 => lease.finish(Attempt::of(AttemptOutcome::Failed), 100_000),
                    port => break char::from(b'a' + (port - 8101) as u8),
                };
            }
        });
        names.collect()
    }

    /// The answers of nginx 1.31.5 with such servers, `hash $arg_k` and `?k=key0` to `?k=key31`, or addresses
    /// of clients.
    #[test]
    fn keys_fall_where_they_fall_in_nginx() {
        let texts: Vec<String> = (0..32).map(|number| format!("key{number}")).collect();
        let by_text = |method, second| {
            let keys = texts.iter().map(|text| Key { client: None, text: text.as_bytes(), sid: b"" });
            answered(&recorded(method, second), keys)
        };
        assert_eq!(by_text(Method::Hash, 8102), "ccbcbccbabcbccbababcbaccccabbbbc");
        assert_eq!(by_text(Method::Hash, 8109), "ccccccccaccacccacaacaaccccaccacc");
        assert_eq!(by_text(Method::Consistent, 8102), "abbbccaabbbbacbbbbabbcbcbaaabccb");
        assert_eq!(by_text(Method::Consistent, 8109), "acacccaacacaaccccaacccaccaaaacca");
        let by_client = |second, client: &dyn Fn(u32) -> String| {
            let clients = (0..32).map(|number| client(number).parse().expect("an address"));
            let keys = clients.map(|client| Key { client: Some(client), text: b"", sid: b"" });
            answered(&recorded(Method::IpHash, second), keys)
        };
        let v4 = |number| format!("10.{}.{}.9", number * 7, number * 3);
        let v6 = |number| format!("2001:db8::{number}:{}", number * 5);
        assert_eq!(by_client(8102, &v4), "bcbbcabcabcabbcbbcbbcabcabcabbcb");
        assert_eq!(by_client(8109, &v4), "cccccaccaccacccccccccaccaccaacca");
        assert_eq!(by_client(8102, &v6), "bcbbcbbcbbcbacbacbacbbcbbcbbcbac");
        assert_eq!(by_client(8109, &v6), "cccccaccccccaccaccaccccaacccccac");
    }

    #[test]
    fn a_disabled_server_has_its_turn_later() {
        let fails = FailRule { max: 1, timeout_s: 5 };
        let primary = (1..=2).map(|port| Peer::new(PeerConfig { fails, ..config(port, 1) })).collect();
        let group = Group::new(GroupConfig { primary, ..GroupConfig::default() }, 1);
        let key = Key::default();
        let lease = group.next(&mut group.begin(&key), &key, at_s(100)).expect("one is there");
        lease.finish(Attempt::of(AttemptOutcome::Failed), 100_000);
        assert_eq!(served(&group, &key, 3), "bbb");
        let leases =
            [(); 4].map(|()| group.next(&mut group.begin(&key), &key, at_s(106)).expect("one is there"));
        let numbers = leases.each_ref().map(number);
        assert_eq!(
            numbers.iter().filter(|&&number| number == 1).count(),
            1,
            "by one request only: {numbers:?}"
        );
        leases.into_iter().for_each(|lease| _ = lease.finish(Attempt::of(AttemptOutcome::Answered), 107_000));
        assert!(served(&group, &key, 4).contains('a'));
    }
}
