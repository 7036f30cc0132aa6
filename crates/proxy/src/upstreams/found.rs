//! Groups of servers that requests name by variables, remembered from one request to the next: a server that
//! has failed is asked behind the others for `fail_timeout`, and `status` shows them. nginx makes such a
//! group for each request and forgets it; as there, connections to them are not kept. Any loop, no locks.
//!
//! A table of [`FOUND_GROUPS_MAX`] places in sets of four. A name may stand in any place of its set, and of a
//! full set the one goes that was not used for longest: names may be the clients' choice.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use clearway_metrics::Counter;
use clearway_os::outgoing::Remote;
use clearway_upstream::{Group, GroupConfig, Peer};

use crate::upstreams::address::plain;

/// Names with their ports that are remembered at most.
pub(crate) const FOUND_GROUPS_MAX: usize = 1024;

/// In how many places a name may stand.
const SET: usize = 4;

/// Use is noted this often, milliseconds: loops that ask for the same name do not write all the time.
const NOTE_EVERY_MS: u64 = 1000;

pub(crate) static FORGOTTEN: Counter = Counter::new(
    "upstream_found_forgotten_total",
    "groups",
    "Servers that requests name by variables, with what was known of them, forgotten for others: more than \
     1,024 names are in use.",
);

/// The groups that requests have named by variables.
pub(crate) struct FoundGroups {
    loops: usize,
    hasher: RandomState,
    places: Box<[ArcSwapOption<FoundGroup>]>,
}

struct FoundGroup {
    host: Box<[u8]>,
    port: u16,
    group: Arc<Group>,
    used_ms: AtomicU64,
}

impl std::fmt::Debug for FoundGroups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FoundGroups").field("loops", &self.loops).finish_non_exhaustive()
    }
}

impl FoundGroups {
    /// An empty table for groups that so many loops use.
    pub(crate) fn new(loops: usize) -> Self {
        let places = (0..FOUND_GROUPS_MAX).map(|_| ArcSwapOption::const_empty()).collect();
        Self { loops, hasher: RandomState::new(), places }
    }

    /// The group of this name, which leads to these servers at present. Those that it led to before keep what
    /// is known of them.
    pub(crate) fn group(
        &self,
        (host, port): (&[u8], u16),
        remotes: impl Iterator<Item = Remote> + Clone,
        now_ms: u64,
    ) -> Arc<Group> {
        let set = self.set_of(host, port);
        let mut oldest = (0, u64::MAX);
        for (at, place) in set.iter().enumerate() {
            let known = place.load();
            let Some(found) = &*known else {
                oldest = if oldest.1 == 0 { oldest } else { (at, 0) };
                continue;
            };
            let used_ms = found.used_ms.load(Ordering::Relaxed);
            if !found.is_of(host, port) {
                oldest = if used_ms < oldest.1 { (at, used_ms.max(1)) } else { oldest };
                continue;
            }
            if now_ms.saturating_sub(used_ms) >= NOTE_EVERY_MS {
                found.used_ms.store(now_ms, Ordering::Relaxed);
            }
            if found.leads_to(remotes.clone()) {
                return Arc::clone(&found.group);
            }
            let before: Vec<_> = found.group.peers().cloned().collect();
            let peers = remotes.map(|remote| peer(remote, host, &before)).collect();
            let group = Arc::new(found.group.with_peers(peers, Vec::new()));
            // Where another request was faster the next one finds what that one has left.
            place.compare_and_swap(&known, Some(FoundGroup::new((host, port), &group, now_ms)));
            return group;
        }
        let primary = remotes.map(|remote| peer(remote, host, &[])).collect();
        let name = String::from_utf8_lossy(host).into_owned().into();
        let config = GroupConfig { name, primary, ..GroupConfig::default() };
        let group = Arc::new(Group::new(config, self.loops));
        if set[oldest.0].swap(Some(FoundGroup::new((host, port), &group, now_ms))).is_some() {
            FORGOTTEN.add(1);
        }
        group
    }

    /// All servers, with what their groups are called: the name as it was written, and the port.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&str, &Peer)) {
        for found in self.places.iter().filter_map(ArcSwapOption::load_full) {
            // Groups without a name in UTF-8 cannot be told apart when they are shown.
            let Ok(host) = std::str::from_utf8(&found.host) else { continue };
            let name = if found.port == 0 { host.to_owned() } else { format!("{host}:{}", found.port) };
            found.group.peers().for_each(|peer| visit(&name, peer));
        }
    }

    fn set_of(&self, host: &[u8], port: u16) -> &[ArcSwapOption<FoundGroup>] {
        let sets = self.places.len() / SET;
        // Below the number of sets.
        let set = (self.hasher.hash_one((host, port)) % sets as u64) as usize;
        &self.places[set * SET..][..SET]
    }
}

impl FoundGroup {
    fn new((host, port): (&[u8], u16), group: &Arc<Group>, now_ms: u64) -> Arc<Self> {
        let (host, group) = (host.into(), Arc::clone(group));
        Arc::new(Self { host, port, group, used_ms: AtomicU64::new(now_ms) })
    }

    fn is_of(&self, host: &[u8], port: u16) -> bool {
        self.port == port && *self.host == *host
    }

    /// Whether these are its servers, in this order.
    fn leads_to(&self, remotes: impl Iterator<Item = Remote>) -> bool {
        let mut peers = self.group.primary().iter();
        remotes.eq(peers.by_ref().map(|peer| peer.config().remote.clone()))
    }
}

/// A server, the one that is known if there is one.
fn peer(remote: Remote, host: &[u8], before: &[Arc<Peer>]) -> Arc<Peer> {
    let known = before.iter().find(|peer| peer.config().remote == remote);
    known.map_or_else(|| Peer::new(plain(remote, host)), Arc::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_upstream::{Attempt, AttemptOutcome, Key, Moment};

    fn remotes(lasts: &[u8]) -> impl Iterator<Item = Remote> + Clone {
        lasts.iter().map(|&last| Remote::Inet(([127, 0, 0, last], 80).into()))
    }

    const NOW: Moment = Moment { at_loop: 0, now_ms: 100_000 };

    /// The servers that one request tries, all of which end so.
    fn tried(group: &Group, outcome: AttemptOutcome) -> Vec<String> {
        let key = Key::default();
        let mut choice = group.begin(&key);
        let leases = std::iter::from_fn(|| {
            let lease =
                group.next(&mut choice, &key, NOW).or_else(|| group.next_of_failed(&mut choice, NOW))?;
            let name = lease.peer().config().name.to_string();
            lease.finish(Attempt::of(outcome), NOW.now_ms);
            Some(name)
        });
        leases.collect()
    }

    #[test]
    fn a_name_has_one_group_for_all_requests() {
        let groups = FoundGroups::new(2);
        let first = groups.group((b"a", 80), remotes(&[1, 2]), 0);
        assert!(Arc::ptr_eq(&first, &groups.group((b"a", 80), remotes(&[1, 2]), 0)));
        for (name, addresses) in [((&b"a"[..], 81), &[1, 2][..]), ((b"b", 80), &[1, 2]), ((b"a", 80), &[2])] {
            assert!(!Arc::ptr_eq(&first, &groups.group(name, remotes(addresses), 0)));
        }
        let mut shown = Vec::new();
        groups.visit(&mut |group, peer| shown.push(format!("{group} {}", peer.config().name)));
        shown.sort();
        let all = ["a:80 127.0.0.2:80", "a:81 127.0.0.1:80", "a:81 127.0.0.2:80"];
        assert_eq!(shown, [&all[..], &["b:80 127.0.0.1:80", "b:80 127.0.0.2:80"]].concat());
    }

    #[test]
    fn those_that_failed_are_tried_behind_the_others() {
        let groups = FoundGroups::new(1);
        let group = groups.group((b"a", 80), remotes(&[1, 2]), 0);
        let [first, second] = ["127.0.0.1:80", "127.0.0.2:80"];
        let key = Key::default();
        let lease = group.next(&mut group.begin(&key), &key, NOW).expect("one is there");
        lease.finish(Attempt::of(AttemptOutcome::Failed), NOW.now_ms);
        // Each request may try all of them, as nginx's may, which knows of no failure before.
        assert_eq!(tried(&group, AttemptOutcome::Passed), [second, first]);
        assert_eq!(tried(&group, AttemptOutcome::Failed), [second, first]);
        let more = groups.group((b"a", 80), remotes(&[3, 2, 1]), 0);
        assert_eq!(tried(&more, AttemptOutcome::Passed), ["127.0.0.3:80", second, first]);
    }

    #[test]
    fn those_that_were_not_used_for_longest_are_forgotten() {
        let groups = FoundGroups::new(1);
        let before = FORGOTTEN.value();
        let names: Vec<String> = (0..2 * FOUND_GROUPS_MAX).map(|number| number.to_string()).collect();
        let kept = groups.group((b"kept", 80), remotes(&[1]), 0);
        for (name, now_ms) in names.iter().zip((NOTE_EVERY_MS..).step_by(NOTE_EVERY_MS as usize)) {
            groups.group((name.as_bytes(), 80), remotes(&[1]), now_ms);
            assert!(Arc::ptr_eq(&kept, &groups.group((b"kept", 80), remotes(&[1]), now_ms)));
        }
        let mut count = 0;
        groups.visit(&mut |_, _| count += 1);
        assert!(count <= FOUND_GROUPS_MAX);
        assert_eq!(FORGOTTEN.value() - before, (names.len() + 1 - count) as u64);
    }
}
