//! A group of servers as requests use it. Made when a configuration is loaded; its servers, and what is known
//! of them, outlive configurations (`registry`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use clearway_conf::Error;
use clearway_conf::error::message;
use clearway_http::{Balancer, Load, Value};
use clearway_net::url::resolve;
use clearway_os::outgoing::Remote;
use clearway_upstream::{
    Common, EjectRule, FailRule, Group, GroupConfig, Method, Peer, PeerConfig, Queue, RetryBudget,
};

use crate::upstreams::address::plain;
use crate::upstreams::common::OfGroup;
use crate::upstreams::draft::{GroupDraft, HttpDefaults, HttpResolver, Unresolved, lasting_name};
use crate::upstreams::editing::Editing;
use crate::upstreams::idle::IdleCell;
use crate::upstreams::lasting::{Lasting, peer};
use crate::upstreams::line::{Lookup, Rank, ServerDraft};
use crate::upstreams::refresh::Refreshing;
use crate::upstreams::roster::Roster;
use crate::upstreams::said::{BlockDraft, Keepalive, QueueDraft, ResolverSpec, RetryShare};
use crate::upstreams::session::Sticky;

/// A group of servers.
pub struct UpstreamGroup {
    name: Box<[u8]>,
    members: Members,
    /// The text of `hash`.
    pub(crate) key: Option<Value>,
    pub(crate) sticky: Option<Sticky>,
    keepalive: Option<Keepalive>,
    /// The code that chooses in place of its rule.
    by_code: Option<BalancedBy>,
    /// Its servers as they are said at present.
    pub(crate) roster: ArcSwap<Roster>,
    /// How they are changed while serving: there if it has a zone.
    pub(crate) editing: Option<Editing>,
    /// The factor for `max_conns`.
    times: u32,
    /// Idle connections, which outlive configurations.
    pub(crate) idle: IdleCell,
    /// How names of its servers are resolved while serving.
    pub(crate) refreshing: Option<Refreshing>,
    pub(crate) budget: Option<Arc<RetryBudget>>,
    pub(crate) queue: Option<QueueConf>,
    /// Where requests wait if they do; the same for all configurations.
    line: Arc<Queue>,
}

/// Code that chooses in place of a group's rule (`balancer_by_lua_block`).
struct BalancedBy {
    balancer: Arc<dyn Balancer>,
    /// Whether connections are kept that code says nothing of.
    keeps: bool,
}

/// The treatment of requests that find no server (`queue`).
#[derive(Debug)]
pub(crate) struct QueueConf {
    pub(crate) queue: Arc<Queue>,
    /// How many wait at most.
    pub(crate) limit: usize,
    pub(crate) timeout_ms: u64,
}

/// A group as configurations share it: there once its configuration is read.
pub(crate) type GroupCell = OnceLock<UpstreamGroup>;

/// Which servers are in it.
#[expect(clippy::large_enum_variant, reason = "there are few, and requests reach the servers without a step")]
pub(crate) enum Members {
    /// The servers of the configuration.
    Fixed(Group),
    /// The servers that names lead to at present.
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
    /// Its name: that of its block, or the host that was named.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The treatment of connections after their requests; `None`: they are closed.
    #[must_use]
    pub fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    /// The code that chooses in place of its rule, if there is some.
    #[must_use]
    pub fn balancer(&self) -> Option<&dyn Balancer> {
        self.by_code.as_ref().map(|by_code| &*by_code.balancer)
    }

    /// Whether connections are kept without code that says so.
    #[must_use]
    pub fn keeps_by_itself(&self) -> bool {
        self.by_code.as_ref().is_none_or(|by_code| by_code.keeps)
    }

    /// Whether it has a `zone`.
    #[must_use]
    pub fn is_in_zone(&self) -> bool {
        self.editing.is_some()
    }

    /// The factor for `max_conns`.
    pub(crate) fn times(&self) -> u32 {
        self.times
    }

    /// All servers that it has at present.
    #[must_use]
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        match &self.members {
            Members::Fixed(group) => group.peers().cloned().collect(),
            Members::Changing(group) => group.load().peers().cloned().collect(),
        }
    }

    /// The servers of one rank to which the name of a `server` leads at present.
    fn found_for(&self, server: &ServerDraft, rank: Rank) -> Vec<Arc<Peer>> {
        let Members::Changing(members) = &self.members else { return Vec::new() };
        let roster = self.roster.load();
        let same = roster.servers.iter().find(|(_, known)| {
            known.name == server.name && known.lookup == server.lookup && known.rank == server.rank
        });
        let Some((source, _)) = same else { return Vec::new() };
        let members = members.load();
        let peers = if rank == Rank::Primary { members.primary() } else { members.backup() };
        peers.iter().filter(|peer| peer.config().source == *source).cloned().collect()
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }
}

/// Makes a group of what was read.
pub(crate) fn make(
    (load, lasting): (&Load, &Lasting),
    draft: GroupDraft,
    http: &HttpDefaults,
) -> Result<UpstreamGroup, Error> {
    let GroupDraft { host, port, pos, block, literal, .. } = draft;
    let before = lasting.group_before(&lasting_name(&host, port));
    let before_group = before.as_ref().and_then(|cell| cell.get());
    let before = before_group.map(UpstreamGroup::peers).unwrap_or_default();
    let share = block.as_ref().and_then(|block| block.retry_budget).unwrap_or(http.retry_budget);
    let ejection = block.as_ref().and_then(|block| block.ejection).unwrap_or(http.ejection).rule();
    let maker = Maker { host: &host, before_group, before, lasting, share, ejection };
    let refuse = |before: &str, behind: &str| {
        let place = pos.to_string();
        Error::unplaced(message(&[&before, &" upstream \"", &host, &"\" in ", &place, &behind]))
    };
    let Some(block) = block else {
        let addresses = match literal {
            Some(address) => vec![address],
            None if port == 0 => return Err(refuse("no port in", "")),
            None => match resolve(&host, port, &*load.resolver()) {
                Ok(addresses) => addresses,
                Err(_) if http.unresolved == Unresolved::Resolved => {
                    let block = late(&host, port);
                    let resolver = check_lookups(&block, &http.resolver, &refuse)?;
                    let resolver = resolver.map(|resolver| (resolver, http.resolver.timeout));
                    return Ok(UpstreamGroup { keepalive: None, ..maker.explicit(block, resolver) });
                }
                Err(error) => return Err(refuse(&format!("{error} in"), "")),
            },
        };
        return Ok(maker.implicit(addresses));
    };
    let resolver = check_lookups(&block, &http.resolver, &refuse)?;
    if block.state.is_some() && block.zone.is_none() {
        return Err(refuse("keeping the state of", " requires it to be in shared memory"));
    }
    let needs_server = block.state.is_none() && !(block.servers.is_empty() && block.balancer.is_some());
    if needs_server && block.servers.iter().all(|server| server.rank == Rank::Backup) {
        return Err(refuse("no servers in", ""));
    }
    let timeout = block.resolver_timeout.unwrap_or(http.resolver.timeout);
    let group = maker.explicit(*block, resolver.map(|resolver| (resolver, timeout)));
    group.adapt_idle(lasting.loops());
    Ok(group)
}

/// A group of one host whose name nobody knows yet.
fn late(host: &Bytes, port: u16) -> BlockDraft {
    let lookup = Lookup { host: host.clone(), port, service: None, is_late: true };
    let server = ServerDraft { lookup: Some(lookup), ..ServerDraft::plain(host.clone()) };
    BlockDraft { servers: vec![server], ..BlockDraft::default() }
}

/// The resolver for servers with `resolve`, if there are any.
fn check_lookups(
    block: &BlockDraft,
    http: &HttpResolver,
    refuse: &dyn Fn(&str, &str) -> Error,
) -> Result<Option<ResolverSpec>, Error> {
    if block.servers.iter().all(|server| server.lookup.is_none()) {
        return Ok(None);
    }
    let is_asked_for = |server: &ServerDraft| server.lookup.as_ref().is_some_and(|lookup| !lookup.is_late);
    if block.zone.is_none() && block.servers.iter().any(is_asked_for) {
        return Err(refuse("resolving names at run time requires", " to be in shared memory"));
    }
    let resolver = block.resolver.as_ref().or(http.resolver.as_ref());
    let resolver = resolver.ok_or_else(|| refuse("no resolver defined to resolve names at run time in", ""));
    resolver.map(|resolver| Some(resolver.clone()))
}

/// The parts that groups are made with.
struct Maker<'a> {
    host: &'a Bytes,
    /// The group in the previous configuration.
    before_group: Option<&'a UpstreamGroup>,
    /// Its servers.
    before: Vec<Arc<Peer>>,
    lasting: &'a Lasting,
    share: RetryShare,
    ejection: Option<EjectRule>,
}

impl Maker<'_> {
    /// The budget of further attempts; that of the configuration before, if its parameters are the same.
    fn budget(&self) -> Option<Arc<RetryBudget>> {
        let RetryShare::Percent(percent) = self.share else { return None };
        let before = self.before_group.and_then(|group| group.budget.as_ref());
        let same = before.filter(|budget| budget.percent() == percent);
        Some(same.map_or_else(|| Arc::new(RetryBudget::new(percent)), Arc::clone))
    }

    fn line(&self) -> Arc<Queue> {
        self.before_group.map(|group| Arc::clone(&group.line)).unwrap_or_default()
    }

    fn name(&self) -> Box<str> {
        String::from_utf8_lossy(self.host).into_owned().into()
    }

    fn implicit(&self, addresses: Vec<Remote>) -> UpstreamGroup {
        let peers = addresses.into_iter().map(|address| peer(plain(address, self.host), &self.before));
        let config = GroupConfig {
            name: self.name(),
            primary: peers.collect(),
            ejection: self.ejection,
            ..GroupConfig::default()
        };
        UpstreamGroup {
            name: self.host[..].into(),
            members: Members::Fixed(Group::new(config, self.lasting.loops())),
            key: None,
            sticky: None,
            keepalive: None,
            by_code: None,
            roster: ArcSwap::default(),
            editing: None,
            times: 1,
            idle: IdleCell::default(),
            refreshing: None,
            budget: self.budget(),
            queue: None,
            line: self.line(),
        }
    }

    /// The servers of one rank that a `server` means, as far as that is known before names are resolved.
    fn peers_of(&self, (server, source): (&ServerDraft, u32), rank: Rank, times: u32) -> Vec<Arc<Peer>> {
        let config = |address: &Remote| config_of((source, server), address.clone(), times);
        if server.lookup.is_none() {
            let addresses = server.addresses.iter().filter(|_| server.rank == rank);
            return addresses.map(|address| peer(config(address), &self.before)).collect();
        }
        // The addresses of a name are used until it is resolved again.
        let known = self.before_group.map(|group| group.found_for(server, rank)).unwrap_or_default();
        let renewed = known.into_iter().map(|known| {
            let mut config = config(&known.config().remote);
            if server.lookup.as_ref().is_some_and(|lookup| lookup.service.is_some()) {
                config.server = Arc::clone(&known.config().server);
                if server.weight == 1 {
                    config.weight = known.config().weight;
                }
            }
            Peer::with_state(config, Arc::clone(known.state()))
        });
        renewed.collect()
    }

    fn explicit(&self, block: BlockDraft, resolver: Option<(ResolverSpec, Duration)>) -> UpstreamGroup {
        let BlockDraft { servers, method, sticky, keepalive, zone, common, state, queue, balancer, .. } =
            block;
        let keeps = keepalive.complete().is_some();
        let keepalive = match &balancer {
            Some(_) => keepalive.complete_beside_code(),
            None => keepalive.complete(),
        };
        let by_code = balancer.map(|balancer| BalancedBy { balancer, keeps });
        let line = self.line();
        let queue = queue.filter(|queue| queue.is_on).map(|QueueDraft { limit, timeout, .. }| QueueConf {
            queue: Arc::clone(&line),
            limit,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        });
        // A limit without a zone is that of each worker of nginx.
        let times = if zone.is_some() { 1 } else { u32::try_from(self.lasting.loops()).unwrap_or(u32::MAX) };
        let numbered = || servers.iter().zip(0_u32..);
        let of_rank = |rank| numbered().flat_map(|numbered| self.peers_of(numbered, rank, times)).collect();
        let config = GroupConfig {
            name: self.name(),
            primary: of_rank(Rank::Primary),
            backup: of_rank(Rank::Backup),
            method: method.method.unwrap_or(Method::RoundRobin),
            queue: queue.as_ref().map(|conf| Arc::clone(&conf.queue)),
            ejection: self.ejection,
        };
        let group = Group::new(config, self.lasting.loops());
        let ranks = method.ranks();
        let members = match (&resolver, &zone) {
            (None, None) => Members::Fixed(group),
            _ => Members::Changing(ArcSwap::from_pointee(group)),
        };
        let refreshing = resolver.map(|(ResolverSpec(resolver), timeout)| Refreshing { resolver, timeout });
        let configured = Roster::configured(servers);
        let roster = ArcSwap::from_pointee(configured.clone());
        let former = self.before.clone();
        let common = common.map(|zone| -> Arc<dyn Common> {
            Arc::new(OfGroup { blocks: self.lasting.blocks(&zone), name: self.host[..].into() })
        });
        let editing = zone.map(|zone| Editing::new((zone, common), state, (configured, ranks), former));
        UpstreamGroup {
            name: self.host[..].into(),
            members,
            key: method.key,
            sticky: sticky.filter(|sticky| sticky.is_on),
            keepalive,
            by_code,
            roster,
            editing,
            times,
            idle: self.before_group.map(|group| group.idle.clone()).unwrap_or_default(),
            refreshing,
            budget: self.budget(),
            queue,
            line,
        }
    }
}

/// The settings of `server` for one of its addresses.
pub(crate) fn config_of((source, server): (u32, &ServerDraft), address: Remote, times: u32) -> PeerConfig {
    let plain = plain(address, &server.name);
    PeerConfig {
        weight: server.weight,
        max_conns: server.max_conns.saturating_mul(times),
        fails: FailRule { max: server.max_fails, timeout_s: server.fail_timeout_s },
        slow_start_ms: server.slow_start_ms,
        state: server.state,
        sid: server.route.as_ref().map_or(plain.sid, |route| route[..].into()),
        source,
        ..plain
    }
}
