//! A group of servers as requests use it. Made when a configuration is loaded; its servers, and what is known
//! of them, outlive configurations (`registry`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use clearway_conf::Error;
use clearway_conf::error::message;
use clearway_http::{Load, Value};
use clearway_net::url::{RemoteText, resolve};
use clearway_os::outgoing::Remote;
use clearway_upstream::{FailRule, Group, GroupConfig, Method, Peer, PeerConfig, State};
use md5::{Digest as _, Md5};

use crate::upstreams::draft::{GroupDraft, HttpResolver};
use crate::upstreams::said::{BlockDraft, Keepalive, Rank, ServerDraft};
use crate::upstreams::session::Sticky;

/// See the file's head.
pub struct UpstreamGroup {
    name: Box<[u8]>,
    members: Members,
    /// The text of `hash`.
    pub(crate) key: Option<Value>,
    pub(crate) sticky: Option<Sticky>,
    keepalive: Option<Keepalive>,
}

/// Who is in it.
pub(crate) enum Members {
    /// Those of the configuration, for as long as it is used.
    Fixed(Group),
    /// Those that names lead to at present.
    Changing(ArcSwap<Group>),
}

impl std::fmt::Debug for UpstreamGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamGroup")
            .field("name", &String::from_utf8_lossy(&self.name))
            .finish_non_exhaustive()
    }
}

impl UpstreamGroup {
    /// What it is called: the name of its block, or the host that was named.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What becomes of connections behind their requests; `None`: they are closed.
    #[must_use]
    pub fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }
}

/// How many loops there are; among the services of the environment. Without it there is one.
#[derive(Clone, Copy, Debug)]
pub struct LoopCount(pub usize);

/// Makes a group of what was read.
pub(crate) fn make(load: &Load, draft: GroupDraft, http: &HttpResolver) -> Result<UpstreamGroup, Error> {
    let loops = load.environment().services.find::<LoopCount>().map_or(1, |count| count.0.max(1));
    let GroupDraft { host, port, pos, block, literal, .. } = draft;
    let refuse = |before: &str, behind: &str| {
        let place = pos.to_string();
        Error::unplaced(message(&[&before, &" upstream \"", &host, &"\" in ", &place, &behind]))
    };
    let Some(block) = block else {
        let addresses = match literal {
            Some(address) => vec![address],
            None if port == 0 => return Err(refuse("no port in", "")),
            None => {
                resolve(&host, port, &load.resolver()).map_err(|error| refuse(&format!("{error} in"), ""))?
            }
        };
        return Ok(implicit(&host, addresses, loops));
    };
    check_lookups(&block, http, &refuse)?;
    if block.servers.iter().all(|server| server.rank == Rank::Backup) {
        return Err(refuse("no servers in", ""));
    }
    Ok(explicit(&host, *block, loops))
}

/// What servers with `resolve` need.
fn check_lookups(
    block: &BlockDraft,
    http: &HttpResolver,
    refuse: &dyn Fn(&str, &str) -> Error,
) -> Result<(), Error> {
    if block.servers.iter().all(|server| server.lookup.is_none()) {
        return Ok(());
    }
    if !block.is_in_zone {
        return Err(refuse("resolving names at run time requires", " to be in shared memory"));
    }
    let resolver = block.resolver.as_ref().or(http.resolver.as_ref());
    match resolver {
        None => Err(refuse("no resolver defined to resolve names at run time in", "")),
        Some(_) => Ok(()),
    }
}

fn implicit(host: &Bytes, addresses: Vec<Remote>, loops: usize) -> UpstreamGroup {
    let primary = addresses.into_iter().map(|address| Peer::new(plain(address, host))).collect();
    let name = String::from_utf8_lossy(host).into_owned().into();
    let config = GroupConfig { name, primary, ..GroupConfig::default() };
    UpstreamGroup {
        name: host[..].into(),
        members: Members::Fixed(Group::new(config, loops)),
        key: None,
        sticky: None,
        keepalive: None,
    }
}

/// A server about which nothing is said.
pub(crate) fn plain(address: Remote, server: &[u8]) -> PeerConfig {
    let name = RemoteText(&address).to_string();
    PeerConfig {
        sid: hash_of(&name),
        name: name.into(),
        remote: address,
        server: String::from_utf8_lossy(server).into(),
        weight: 1,
        max_conns: 0,
        fails: FailRule::default(),
        state: State::Up,
    }
}

fn explicit(host: &Bytes, block: BlockDraft, loops: usize) -> UpstreamGroup {
    let BlockDraft { servers, method, sticky, keepalive, is_in_zone, .. } = block;
    let has_lookups = servers.iter().any(|server| server.lookup.is_some());
    // A limit without a zone is that of each worker of nginx.
    let times = if is_in_zone { 1 } else { u32::try_from(loops).unwrap_or(u32::MAX) };
    let of_rank = |rank| {
        let servers = servers.iter().filter(move |server| server.rank == rank);
        let peers = servers.flat_map(|server| {
            server.addresses.iter().map(|address| Peer::new(config_of(server, address.clone(), times)))
        });
        peers.collect()
    };
    let config = GroupConfig {
        name: String::from_utf8_lossy(host).into_owned().into(),
        primary: of_rank(Rank::Primary),
        backup: of_rank(Rank::Backup),
        method: method.method.unwrap_or(Method::RoundRobin),
    };
    let group = Group::new(config, loops);
    UpstreamGroup {
        name: host[..].into(),
        members: match has_lookups {
            true => Members::Changing(ArcSwap::from_pointee(group)),
            false => Members::Fixed(group),
        },
        key: method.key,
        sticky: sticky.filter(|sticky| sticky.is_on),
        keepalive: keepalive.complete(),
    }
}

/// What `server` says about one of its addresses.
pub(crate) fn config_of(server: &ServerDraft, address: Remote, times: u32) -> PeerConfig {
    let plain = plain(address, &server.name);
    PeerConfig {
        weight: server.weight,
        max_conns: server.max_conns.saturating_mul(times),
        fails: FailRule { max: server.max_fails, timeout_s: server.fail_timeout_s },
        state: server.state,
        sid: server.route.as_ref().map_or(plain.sid, |route| route[..].into()),
        ..plain
    }
}

/// By what sticky sessions know a server that has no `route`.
fn hash_of(name: &str) -> Arc<[u8]> {
    let hash = Md5::digest(name.as_bytes());
    let digits = hash.iter().flat_map(|byte| format!("{byte:02x}").into_bytes());
    digits.collect::<Vec<u8>>().into()
}
