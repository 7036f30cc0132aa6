//! The groups and servers in `status`: those of the configuration in use, and those that variables have
//! named. Counts of attempts outlive configurations with their servers.

use clearway_metrics::{Counter, Family, Kind, Label, Put, Value};
use clearway_upstream::{Checked, Peer, PoolCounts, QueueCounts, ServerState};

use crate::upstreams::editing::EDITS;
use crate::upstreams::found::FORGOTTEN;
use crate::upstreams::lasting::Lasting;

const UPSTREAM: Label = Label {
    name: "upstream",
    help: "The group: the name of its block, or the host that was named; with its port where a variable \
           named it (up to 1,024 of those).",
};

const SERVER: Label = Label { name: "server", help: "Address of the server, as in $upstream_addr." };

/// How attempts have ended.
pub static ATTEMPTS: Family = Family::new(
    Kind::Counter,
    "upstream_attempts_total",
    "attempts",
    "Attempts of requests to have an answer of a server, by how they ended.",
)
.by(&[
    UPSTREAM,
    SERVER,
    Label {
        name: "outcome",
        help: "`answered`; `passed`: another server was asked, and this one not to blame (such as http_404); \
               `failed`: as proxy_next_upstream says.",
    },
]);

/// The requests of servers at present.
pub static ACTIVE: Family = Family::new(
    Kind::Gauge,
    "upstream_active",
    "attempts",
    "Attempts that are under way: what max_conns limits and least_conn compares.",
)
.by(&[UPSTREAM, SERVER]);

/// Failures that count.
pub static FAILS: Family = Family::new(
    Kind::Gauge,
    "upstream_fails",
    "failures",
    "Failures of a server that count at present: with max_fails of them it is left alone for fail_timeout.",
)
.by(&[UPSTREAM, SERVER])
.alike();

/// Servers that are left alone.
pub static EJECTED: Family = Family::new(
    Kind::Gauge,
    "upstream_ejected",
    "servers",
    "Whether a server is left alone at present, being worse than others (upstream_ejection): 1 or 0.",
)
.by(&[UPSTREAM, SERVER])
.alike();

/// How often they were.
pub static EJECTIONS: Family = Family::new(
    Kind::Counter,
    "upstream_ejections_total",
    "ejections",
    "How often a server was left alone, being worse than others (upstream_ejection).",
)
.by(&[UPSTREAM, SERVER]);

/// Servers that checks find fault with.
pub static UNHEALTHY: Family = Family::new(
    Kind::Gauge,
    "upstream_unhealthy",
    "servers",
    "Whether a health_check finds fault with a server, or has not asked it yet (mandatory): 1 or 0.",
)
.by(&[UPSTREAM, SERVER])
.alike();

/// How checks have ended.
pub static CHECKS: Family = Family::new(
    Kind::Counter,
    "upstream_health_checks_total",
    "checks",
    "Checks of a server (health_check), by how they ended.",
)
.by(&[
    UPSTREAM,
    SERVER,
    Label { name: "outcome", help: "`passed`: it has answered as it should; `failed`: it has not." },
]);

/// Requests in queues.
pub static QUEUED: Family = Family::new(
    Kind::Gauge,
    "upstream_queued",
    "requests",
    "Requests that wait until a server of the group can be used: what queue limits.",
)
.by(&[UPSTREAM]);

/// The fate of requests in queues.
pub static QUEUES: Family = Family::new(
    Kind::Counter,
    "upstream_queue_total",
    "requests",
    "Requests that found no server of a group with queue, by what became of them.",
)
.by(&[
    UPSTREAM,
    Label {
        name: "outcome",
        help: "`served`: a server could be used in time; `full`: as many waited as may; `timed_out`: none \
               could; `left`: they were given up, as by clients that leave.",
    },
]);

/// Idle connections.
pub static IDLE: Family = Family::new(
    Kind::Gauge,
    "upstream_idle",
    "connections",
    "Connections to servers of the group that wait for a request: what keepalive limits.",
)
.by(&[UPSTREAM]);

/// How requests came by connections.
pub static CONNECTIONS: Family = Family::new(
    Kind::Counter,
    "upstream_connections_total",
    "requests",
    "Requests to groups with keepalive, by how they came by their connection; each loop counts from its \
     first idle connection on.",
)
.by(&[
    UPSTREAM,
    Label {
        name: "origin",
        help: "`idle`: an idle one of the request's loop; `moved`: one of another loop; `new`: there was \
               none.",
    },
]);

/// The fate of idle connections that no request took.
pub static CLOSED: Family = Family::new(
    Kind::Counter,
    "upstream_idle_closed_total",
    "connections",
    "Idle connections to servers of the group that were closed before keepalive_timeout.",
)
.by(&[
    UPSTREAM,
    Label {
        name: "reason",
        help: "`server`: the server has closed it, or spoke before it was asked; `keepalive`: there were \
               more than keepalive allows; `room`: for other connections, as worker_connections or \
               descriptors ran out.",
    },
]);

/// The settings of servers at present.
pub static WEIGHT: Family = Family::new(
    Kind::Gauge,
    "upstream_weight",
    "parts",
    "The weight of a server as it is said at present, in the configuration or while serving.",
)
.by(&[UPSTREAM, SERVER])
.alike();

/// The states of servers.
pub static STATES: Family = Family::new(
    Kind::Gauge,
    "upstream_state",
    "servers",
    "1 with what a server is at present.",
)
.by(&[
    UPSTREAM,
    SERVER,
    Label {
        name: "state",
        help: "`up`; `down`, `draining`: as it is said; `unhealthy`: a health_check finds fault with it; \
               `ejected`: it is worse than others; `unavail`: it has failed max_fails times.",
    },
])
.alike();

/// Single counters.
pub static COUNTERS: &[&Counter] = &[&FORGOTTEN, &EDITS];

impl Lasting {
    /// Shows [`IDLE`].
    pub fn put_idle(&self, put: &mut Put<'_>) {
        self.visit_pools(&mut |upstream, counts| {
            put(&[("upstream", upstream)], Value::Number(counts.idle));
        });
    }

    /// Shows [`CONNECTIONS`].
    pub fn put_connections(&self, put: &mut Put<'_>) {
        self.visit_pools(&mut |upstream, counts| {
            let own = counts.reused.saturating_sub(counts.moved);
            for (origin, count) in [("idle", own), ("moved", counts.moved), ("new", counts.missed)] {
                put(&[("upstream", upstream), ("origin", origin)], Value::Number(count));
            }
        });
    }

    /// Shows [`CLOSED`].
    pub fn put_closed(&self, put: &mut Put<'_>) {
        self.visit_pools(&mut |upstream, counts| {
            let reasons =
                [("server", counts.gone), ("keepalive", counts.displaced), ("room", counts.reclaimed)];
            for (reason, count) in reasons {
                put(&[("upstream", upstream), ("reason", reason)], Value::Number(count));
            }
        });
    }

    /// Shows [`QUEUED`].
    pub fn put_queued(&self, put: &mut Put<'_>) {
        self.visit_queues(&mut |upstream, counts| {
            put(&[("upstream", upstream)], Value::Number(counts.waiting));
        });
    }

    /// Shows [`QUEUES`].
    pub fn put_queues(&self, put: &mut Put<'_>) {
        self.visit_queues(&mut |upstream, counts| {
            let QueueCounts { served, refused, timed_out, left, .. } = *counts;
            let outcomes = [("served", served), ("full", refused), ("timed_out", timed_out), ("left", left)];
            for (outcome, count) in outcomes {
                put(&[("upstream", upstream), ("outcome", outcome)], Value::Number(count));
            }
        });
    }

    fn visit_queues(&self, visit: &mut dyn FnMut(&str, &QueueCounts)) {
        for cell in self.in_use().iter().filter_map(std::sync::Weak::upgrade) {
            if let Some((group, conf)) = cell.get().and_then(|group| Some((group, group.queue.as_ref()?))) {
                visit(&String::from_utf8_lossy(group.name()), &conf.queue.counts());
            }
        }
    }

    /// Groups that keep connections, from the first one that was kept on.
    fn visit_pools(&self, visit: &mut dyn FnMut(&str, &PoolCounts)) {
        for cell in self.in_use().iter().filter_map(std::sync::Weak::upgrade) {
            let Some((group, counts)) = cell.get().and_then(|group| Some((group, group.idle_counts()?)))
            else {
                continue;
            };
            visit(&String::from_utf8_lossy(group.name()), &counts);
        }
    }

    /// Shows [`ATTEMPTS`].
    pub fn put_attempts(&self, put: &mut Put<'_>) {
        self.visit(&mut |upstream, peer| {
            let counts = peer.counts();
            let outcomes =
                [("answered", counts.answered), ("passed", counts.passed), ("failed", counts.failed)];
            for (outcome, count) in outcomes {
                let labels = [("upstream", upstream), ("server", &*peer.config().name), ("outcome", outcome)];
                put(&labels, Value::Number(count));
            }
        });
    }

    /// Shows [`ACTIVE`].
    pub fn put_active(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| peer.conns_here().into());
    }

    /// Shows [`FAILS`].
    pub fn put_fails(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| peer.fails().into());
    }

    /// Shows [`EJECTED`].
    pub fn put_ejected(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| peer.is_ejected().into());
    }

    /// Shows [`EJECTIONS`].
    pub fn put_ejections(&self, put: &mut Put<'_>) {
        self.put_each(put, Peer::ejections);
    }

    /// Shows [`UNHEALTHY`].
    pub fn put_unhealthy(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| (!peer.is_healthy()).into());
    }

    /// Shows [`WEIGHT`].
    pub fn put_weights(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| peer.config().weight.into());
    }

    /// Shows [`STATES`]; `now_s` is the clock of a loop.
    pub fn put_states(&self, put: &mut Put<'_>, now_s: u64) {
        self.visit(&mut |upstream, peer| {
            let state = state_of(peer, now_s);
            let labels = [("upstream", upstream), ("server", &*peer.config().name), ("state", state)];
            put(&labels, Value::Number(1));
        });
    }

    /// Shows [`CHECKS`].
    pub fn put_checks(&self, put: &mut Put<'_>) {
        self.visit(&mut |upstream, peer| {
            for (outcome, checked) in [("passed", Checked::Passed), ("failed", Checked::Failed)] {
                let labels = [("upstream", upstream), ("server", &*peer.config().name), ("outcome", outcome)];
                put(&labels, Value::Number(peer.state().checks(checked)));
            }
        });
    }

    fn put_each(&self, put: &mut Put<'_>, number: impl Fn(&Peer) -> u64) {
        self.visit(&mut |upstream, peer| {
            put(&[("upstream", upstream), ("server", &*peer.config().name)], Value::Number(number(peer)));
        });
    }

    fn visit(&self, visit: &mut dyn FnMut(&str, &Peer)) {
        for cell in self.in_use().iter().filter_map(std::sync::Weak::upgrade) {
            let Some(group) = cell.get() else { continue };
            let name = String::from_utf8_lossy(group.name());
            group.peers().iter().for_each(|peer| visit(&name, peer));
        }
        self.found().visit(visit);
    }
}

/// The name of a server's state in `status`; `ejected` is Clearway's own.
pub(crate) fn state_of(peer: &Peer, now_s: u64) -> &'static str {
    match peer.config().state {
        ServerState::Down => "down",
        _ if !peer.is_healthy() => "unhealthy",
        _ if peer.is_ejected() => "ejected",
        _ if peer.is_disabled(now_s) => "unavail",
        ServerState::Draining => "draining",
        ServerState::Up => "up",
    }
}
