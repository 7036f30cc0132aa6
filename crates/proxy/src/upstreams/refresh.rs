//! Servers whose names are resolved while serving (`server … resolve`): a task for each asks its resolver
//! when the last answer ends, and changes the group; of several processes one asks (`turns`). It ends with
//! the configuration. Addresses that stay keep their servers with all that is known of them; those that go
//! are used by the attempts that have them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_os::outgoing::Remote;
use clearway_resolver::{Failure, Host, Resolver};
use clearway_runtime::{LoopRef, Tag, Timer};
use clearway_upstream::{Group, Peer};

use crate::upstreams::group::{GroupCell, Members, UpstreamGroup, config_of};
use crate::upstreams::lasting::{Lasting, SharedResolver};
use crate::upstreams::line::{Lookup, Rank, ServerDraft};
use crate::upstreams::turns::{Found, Turn, Turns};

/// The shortest time between two questions for a name.
const PAUSE_MIN_MS: u64 = 1000;
/// How often a process looks for the findings of another one, milliseconds, and while there are none.
const FOLLOW_EVERY_MS: u64 = 1000;
const FOLLOW_FIRST_EVERY_MS: u64 = 100;

/// The response code of a name that does not exist (RFC 1035, 4.1.1).
const NAME_ERROR: Failure = Failure::Code(3);

/// The parts of a group that its names are resolved with.
#[derive(Debug)]
pub(crate) struct Refreshing {
    pub(crate) resolver: Arc<SharedResolver>,
    pub(crate) timeout: Duration,
}

/// The result of a question.
enum Reply {
    /// These, until that second of the loop's clock.
    Found(Vec<Found>, u64),
    /// The question failed: earlier answers stay in use.
    Failed,
}

/// Starts the tasks of a configuration with these groups, from this loop on.
pub(crate) fn begin(lasting: &Arc<Lasting>, groups: &[&Arc<GroupCell>], home: LoopRef) {
    for (number, &cell) in groups.iter().enumerate() {
        let Some(group) = cell.get() else { continue };
        if group.refreshing.is_none() {
            continue;
        }
        let roster = group.roster.load();
        let named = roster.servers.iter().filter(|(_, server)| server.lookup.is_some());
        for (index, (id, _)) in named.enumerate() {
            let at = home.sibling((number + index) % lasting.loops());
            at.spawn(Tag::NONE, refresh(Arc::downgrade(cell), *id, at, lasting.log()));
        }
    }
}

async fn refresh(cell: Weak<GroupCell>, id: u32, home: LoopRef, log: Arc<dyn Sink>) {
    loop {
        let Some(pause_ms) = ask(&cell, id, home, &log).await else { return };
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + pause_ms);
        std::future::poll_fn(|cx| timer.poll_expired(cx)).await;
    }
}

/// Asks once: after how many milliseconds to ask again. `None`: the configuration is not used any more, or
/// the server was removed.
async fn ask(cell: &Weak<GroupCell>, id: u32, home: LoopRef, log: &Arc<dyn Sink>) -> Option<u64> {
    let (resolver, timeout, lookup, turns) = {
        let cell = cell.upgrade()?;
        let group = cell.get()?;
        let refreshing = group.refreshing.as_ref()?;
        let lookup = group.roster.load().find(id)?.lookup.clone()?;
        refreshing.resolver.running(home)?;
        let common = group.editing.as_ref().filter(|editing| editing.common().is_some());
        let turns = common.map(|editing| Turns::of(editing.zone(), group.name(), &lookup));
        if let Some(Turn::Theirs(found)) = turns.as_ref().map(|turns| turns.take(refreshing.timeout)) {
            return Some(follow(group, id, found));
        }
        (Arc::clone(&refreshing.resolver), refreshing.timeout, lookup, turns)
    };
    let running = resolver.running(home)?;
    let reply = match &lookup.service {
        None => addresses(running, home, &lookup, timeout, log).await,
        Some(service) => of_service(running, home, (&lookup, service), timeout, log).await,
    };
    let (found, pause_ms) = match reply {
        Reply::Failed => (None, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(PAUSE_MIN_MS)),
        Reply::Found(found, valid_until_s) => {
            let now_s = home.now_ms() / 1000;
            (Some(found), 1000 * (valid_until_s.saturating_sub(now_s).saturating_add(1)))
        }
    };
    // Other processes wait for it, also where this configuration is not used any more.
    if let Some(turns) = &turns {
        turns.publish(found.as_deref(), pause_ms);
    }
    let cell = cell.upgrade()?;
    if let Some(found) = found {
        change(cell.get()?, id, &found);
    }
    Some(pause_ms)
}

/// Another process asks: the group has its findings. After how many milliseconds to look again.
fn follow(group: &UpstreamGroup, id: u32, found: Option<Vec<Found>>) -> u64 {
    match found {
        Some(found) => {
            change(group, id, &found);
            FOLLOW_EVERY_MS
        }
        None => FOLLOW_FIRST_EVERY_MS,
    }
}

async fn addresses(
    resolver: &Resolver,
    home: LoopRef,
    lookup: &Lookup,
    timeout: Duration,
    log: &Arc<dyn Sink>,
) -> Reply {
    match resolver.resolve(home, &lookup.host, timeout).await {
        Ok(answer) => {
            let remote = |&address| Remote::Inet(SocketAddr::new(address, lookup.port));
            let found = answer.addresses.iter().map(|address| Found::address(remote(address)));
            Reply::Found(found.collect(), answer.valid_until_s)
        }
        Err(failure) => {
            let name = Verbatim(&lookup.host);
            log.log(Level::Error, format_args!("{name} could not be resolved ({failure})"));
            failed(failure)
        }
    }
}

async fn of_service(
    resolver: &Resolver,
    home: LoopRef,
    (lookup, service): (&Lookup, &[u8]),
    timeout: Duration,
    log: &Arc<dyn Sink>,
) -> Reply {
    let (name, service) = (&lookup.host, service);
    let found = match resolver.resolve_service(home, service, name, timeout).await {
        Ok(found) => found,
        Err(failure) => return service_failed(log, (service, name), failure),
    };
    let first = found.hosts.iter().filter(|host| host.addresses.is_ok()).map(|host| host.priority).min();
    let mut servers = Vec::new();
    for host in &found.hosts {
        match &host.addresses {
            Ok(answer) => {
                let rank = if Some(host.priority) == first { Rank::Primary } else { Rank::Backup };
                let name = String::from_utf8_lossy(&host.name);
                servers.extend(answer.addresses.iter().map(|&address| {
                    let remote = Remote::Inet(SocketAddr::new(address, host.port));
                    Found::target(remote, &name, u32::from(host.weight), rank)
                }));
            }
            Err(failure) => {
                let [host, service, name] = [&*host.name, service, name].map(Verbatim);
                let why = format_args!(
                    "{host} could not be resolved ({failure}) while resolving service {service} of {name}"
                );
                log.log(Level::Error, why);
            }
        }
    }
    match no_host(&found.hosts) {
        Some(failure) => service_failed(log, (service, name), failure),
        None => Reply::Found(servers, found.valid_until_s),
    }
}

/// Why none of the hosts of a service has an address: where one of them does not exist, that is it.
fn no_host(hosts: &[Host]) -> Option<Failure> {
    let failures: Vec<Failure> = hosts.iter().filter_map(|host| host.addresses.clone().err()).collect();
    if failures.len() < hosts.len() {
        return None;
    }
    failures.iter().find(|failure| **failure == NAME_ERROR).or(failures.first()).copied()
}

fn service_failed(log: &Arc<dyn Sink>, (service, name): (&[u8], &[u8]), failure: Failure) -> Reply {
    let (service, name) = (Verbatim(service), Verbatim(name));
    log.log(Level::Error, format_args!("service {service} of {name} could not be resolved ({failure})"));
    failed(failure)
}

/// A name that does not exist any more has no servers.
fn failed(failure: Failure) -> Reply {
    if failure == NAME_ERROR { Reply::Found(Vec::new(), 0) } else { Reply::Failed }
}

/// Puts what was found for a server into the group, in place of what was found before.
pub(crate) fn change(group: &UpstreamGroup, id: u32, found: &[Found]) {
    let Members::Changing(members) = group.members() else { return };
    // Made once, so that tries that others were faster than do not make it anew.
    let mut made: Vec<(Found, Arc<Peer>)> = Vec::new();
    members.rcu(|members| {
        // Behind the members: one that changes the servers puts the roster there first.
        let roster = group.roster.load();
        let changed = roster.find(id).and_then(|server| {
            let server = Named { server, source: id, times: group.times() };
            changed(members, server, (found, &mut made))
        });
        changed.map_or_else(|| Arc::clone(members), Arc::new)
    });
}

/// A server whose name is resolved.
#[derive(Clone, Copy)]
struct Named<'a> {
    server: &'a ServerDraft,
    source: u32,
    times: u32,
}

/// The group with what was found for one of its servers; `None` if that is what it has.
fn changed(
    members: &Group,
    named: Named<'_>,
    (found, made): (&[Found], &mut Vec<(Found, Arc<Peer>)>),
) -> Option<Group> {
    let Named { server, source, .. } = named;
    let mut is_changed = false;
    let mut list = |peers: &[Arc<Peer>], rank: Rank| {
        let mut wanted: Vec<&Found> =
            found.iter().filter(|found| rank_of(server, found) == Some(rank)).collect();
        let mut kept = Vec::with_capacity(peers.len() + wanted.len());
        for peer in peers {
            let place = wanted.iter().position(|found| is_same(peer, server, found));
            match place {
                _ if peer.config().source != source => kept.push(Arc::clone(peer)),
                Some(place) => {
                    wanted.remove(place);
                    kept.push(Arc::clone(peer));
                }
                None => is_changed = true,
            }
        }
        for found in wanted {
            is_changed = true;
            kept.push(new_peer(found, named, made));
        }
        kept
    };
    let (primary, backup) = (list(members.primary(), Rank::Primary), list(members.backup(), Rank::Backup));
    is_changed.then(|| members.with_peers(primary, backup))
}

/// Among which servers it comes: a service that is `backup` itself has no further ones behind it.
fn rank_of(server: &ServerDraft, found: &Found) -> Option<Rank> {
    match (server.rank, found.rank) {
        (Rank::Primary, rank) => Some(rank),
        (Rank::Backup, Rank::Primary) => Some(Rank::Backup),
        (Rank::Backup, Rank::Backup) => None,
    }
}

fn is_same(peer: &Peer, server: &ServerDraft, found: &Found) -> bool {
    let config = peer.config();
    let is_of_service = found.service.as_ref().is_none_or(|(name, weight)| {
        config.server == *name && (server.weight != 1 || config.weight == *weight)
    });
    config.remote == found.remote && is_of_service
}

fn new_peer(found: &Found, named: Named<'_>, made: &mut Vec<(Found, Arc<Peer>)>) -> Arc<Peer> {
    let Named { server, source, times } = named;
    if let Some((_, peer)) = made.iter().find(|(known, _)| known == found) {
        return Arc::clone(peer);
    }
    let mut config = config_of((source, server), found.remote.clone(), times);
    if let Some((name, weight)) = &found.service {
        config.server = Arc::clone(name);
        if server.weight == 1 {
            config.weight = *weight;
        }
    }
    let peer = Peer::new(config);
    made.push((found.clone(), Arc::clone(&peer)));
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_addresses_fails_as_its_hosts_do() {
        let host =
            |addresses| Host { priority: 1, weight: 1, port: 80, name: b"a".as_slice().into(), addresses };
        let failed = |code| host(Err(Failure::Code(code)));
        let found = host(Ok(clearway_resolver::Answer { addresses: [].into(), valid_until_s: 1 }));
        assert_eq!(no_host(&[failed(2), failed(5)]), Some(Failure::Code(2)));
        assert_eq!(no_host(&[failed(2), failed(3)]), Some(NAME_ERROR));
        assert_eq!(no_host(&[failed(2), found]), None);
        assert_eq!(no_host(&[]), None);
    }
}
