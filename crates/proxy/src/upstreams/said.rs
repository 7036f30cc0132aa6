//! The settings of an `upstream` block, and of directives about name servers. Plain data, made when a
//! configuration is read.

use std::sync::Arc;
use std::time::Duration;

use clearway_http::{Balancer, ConfKey, Level, NameServers, Resolving, Setting, Unresolved, Value, settings};
use clearway_runtime::LoopRef;
use clearway_upstream::{EjectRule, Method};
use clearway_zone::Zone;

use crate::upstreams::lasting::SharedResolver;
use crate::upstreams::line::{Ranks, ServerDraft};
use crate::upstreams::session::Sticky;
use crate::upstreams::state_file::StateFile;

/// Idle connections of a group without `keepalive`, for each loop.
const IDLE_DEFAULT: u32 = 32;

/// The settings of an `upstream` block.
#[derive(Default)]
pub(crate) struct BlockDraft {
    pub(crate) servers: Vec<ServerDraft>,
    pub(crate) method: MethodDraft,
    pub(crate) sticky: Option<Sticky>,
    pub(crate) keepalive: KeepaliveDraft,
    pub(crate) zone: Option<Arc<Zone>>,
    /// Memory beside it for what several processes know of the servers.
    pub(crate) common: Option<Arc<Zone>>,
    pub(crate) state: Option<Arc<StateFile>>,
    pub(crate) resolver: Option<ResolverSpec>,
    pub(crate) resolver_timeout: Option<Duration>,
    pub(crate) retry_budget: Option<RetryShare>,
    pub(crate) queue: Option<QueueDraft>,
    pub(crate) ejection: Option<EjectionDraft>,
    /// The code that chooses in place of the method.
    pub(crate) balancer: Option<Arc<dyn Balancer>>,
}

/// The parameters of `queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueDraft {
    /// How many requests wait at most.
    pub(crate) limit: usize,
    /// How long each of them does.
    pub(crate) timeout: Duration,
    /// False when a balancer that stands behind it has taken its place.
    pub(crate) is_on: bool,
}

/// The value of `upstream_ejection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EjectionDraft {
    Off,
    On(EjectRule),
}

impl EjectionDraft {
    pub(crate) fn rule(self) -> Option<EjectRule> {
        match self {
            Self::Off => None,
            Self::On(rule) => Some(rule),
        }
    }
}

/// The value of `upstream_retry_budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryShare {
    /// Requests are repeated as `proxy_next_upstream` says.
    Unlimited,
    /// So many further attempts for a hundred requests.
    Percent(u32),
}

/// The balancing method of a block, as far as it was read.
#[derive(Default)]
pub(crate) struct MethodDraft {
    /// Which one, if any directive has said it.
    pub(crate) method: Option<Method>,
    /// The text of `hash`.
    pub(crate) key: Option<Value>,
    /// Whether `least_time` stands there.
    pub(crate) least_time: bool,
}

impl MethodDraft {
    /// Whether servers may be `backup`, or have `slow_start`, from here on.
    pub(crate) fn ranks(&self) -> Ranks {
        match self.method.unwrap_or_default() {
            Method::RoundRobin | Method::LeastConn | Method::LeastTime(_) => Ranks::Allowed,
            _ => Ranks::Refused,
        }
    }
}

/// The limits of connections that a group keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// How many idle connections there are at most, for each loop.
    pub idle: u32,
    /// Which requests may use one again.
    pub reuse: Reuse,
    /// How old it becomes at most.
    pub time: Duration,
    /// How long it waits at most.
    pub timeout: Duration,
    /// How many requests it has at most.
    pub requests: u32,
}

/// Which requests may use a connection again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// All requests to the group.
    All,
    /// Requests of the same location (`local`).
    Location,
}

/// The settings of a block for idle connections, as far as they were read.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeepaliveDraft {
    pub(crate) idle: Option<(u32, Reuse)>,
    pub(crate) time: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) requests: Option<u32>,
    /// How many connections code may have kept (`balancer_keepalive`).
    pub(crate) by_code: Option<u32>,
}

impl KeepaliveDraft {
    /// The settings for a group whose servers Lua chooses.
    pub(crate) fn complete_beside_code(&self) -> Option<Keepalive> {
        let by_code = self.by_code.unwrap_or(IDLE_DEFAULT);
        let (idle, reuse) = self.idle.unwrap_or((IDLE_DEFAULT, Reuse::Location));
        Self { idle: Some((idle.max(by_code), reuse)), ..*self }.complete()
    }

    /// `None`: connections are closed behind their requests.
    pub(crate) fn complete(&self) -> Option<Keepalive> {
        let (idle, reuse) = self.idle.unwrap_or((IDLE_DEFAULT, Reuse::Location));
        (idle > 0).then(|| Keepalive {
            idle,
            reuse,
            time: self.time.unwrap_or(Duration::from_secs(3600)),
            timeout: self.timeout.unwrap_or(Duration::from_secs(60)),
            requests: self.requests.unwrap_or(1000),
        })
    }
}

/// The resolver of locations.
pub static RESOLVER_CONF: ConfKey<ResolverConf> = ConfKey::new(Level::Location);

settings! {
    /// Name servers of a location, and what becomes of early hints.
    pub struct ResolverConf {
        /// Which are asked.
        pub resolver: Setting<Option<ResolverSpec>>,
        /// How long they may take.
        pub resolver_timeout: Setting<Duration> = Duration::from_secs(30),
        /// When early hints are passed on: where one of these is neither empty nor `0`.
        pub early_hints: Setting<Vec<Value>>,
    }
}

/// The parameters of `resolver`. Directives with the same parameters share a resolver.
#[derive(Clone, Debug)]
pub struct ResolverSpec(pub(crate) Arc<SharedResolver>);

impl NameServers for ResolverSpec {
    fn resolve(&self, home: LoopRef, name: &[u8], timeout: Duration) -> Resolving {
        let (shared, name) = (Arc::clone(&self.0), name.to_vec());
        Box::pin(async move {
            let resolver = shared.running(home).ok_or(Unresolved::NoServers)?;
            if let Some(known) = resolver.find(home, &name) {
                return Ok(known.addresses.to_vec());
            }
            let answer = resolver.resolve(home, &name, timeout).await;
            let answer = answer.map_err(|failure| Unresolved::Failed(failure.to_string()))?;
            Ok(answer.addresses.to_vec())
        })
    }
}
