//! What `status` shows of groups and their servers: those of the configuration in use, and those that
//! variables have named. Counts of attempts outlive configurations with their servers.

use clearway_metrics::{Counter, Family, Kind, Label, Put, Value};
use clearway_upstream::{Peer, PoolCounts};

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

/// What servers have to do.
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
.by(&[UPSTREAM, SERVER]);

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

/// What became of idle connections that no request took.
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

/// What is one number.
pub static COUNTERS: &[&Counter] = &[&FORGOTTEN];

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
        self.put_each(put, |peer| peer.conns().into());
    }

    /// Shows [`FAILS`].
    pub fn put_fails(&self, put: &mut Put<'_>) {
        self.put_each(put, |peer| peer.fails().into());
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
