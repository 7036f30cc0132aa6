//! The idle connections of a group: made when a request is the first to end one that may be used again, and
//! kept through reloads of the configuration. Used by loops.

use std::sync::{Arc, OnceLock};

use clearway_net::connect::Connector;
use clearway_upstream::{Pool, PoolConfig, PoolCounts};

use crate::upstreams::group::UpstreamGroup;
use crate::upstreams::said::Keepalive;

/// The idle connections; groups of later configurations share the cell of the first one.
#[derive(Clone, Default)]
pub(crate) struct IdleCell(Arc<OnceLock<Arc<Pool>>>);

impl UpstreamGroup {
    /// The idle connections; `None` where none are kept.
    pub(crate) fn idle(&self, connector: Connector) -> Option<&Arc<Pool>> {
        let keepalive = self.keepalive()?;
        let config = config_of(keepalive, connector.loops());
        Some(self.idle.0.get_or_init(|| Pool::new(config, connector.loops(), connector)))
    }

    /// How idle connections fared; `None` where none was kept so far.
    pub(crate) fn idle_counts(&self) -> Option<PoolCounts> {
        self.idle.0.get().map(|pool| pool.counts())
    }

    /// No connection waits for a request from here on.
    pub(crate) fn close_idle(&self) {
        if let Some(pool) = self.idle.0.get() {
            pool.close();
        }
    }

    /// Applies `keepalive` and its kin to connections that exist already.
    pub(crate) fn adapt_idle(&self, loops: usize) {
        if let (Some(pool), Some(keepalive)) = (self.idle.0.get(), self.keepalive()) {
            pool.adapt(config_of(keepalive, loops));
        }
    }
}

/// As nginx counts for each worker, there may be so many for each loop.
fn config_of(keepalive: Keepalive, loops: usize) -> PoolConfig {
    let loops = u32::try_from(loops).unwrap_or(u32::MAX);
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    PoolConfig {
        connections_max: keepalive.idle.saturating_mul(loops),
        requests_max: keepalive.requests,
        time_ms: millis(keepalive.time),
        timeout_ms: millis(keepalive.timeout),
    }
}
