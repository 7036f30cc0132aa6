//! Code that chooses the server of a request, in place of the rule of a group (`balancer_by_lua_block`). The
//! crate that has the code gives it to the one that has the groups; neither knows the other.
//!
//! Polled by the request's task, before each attempt: by then the head of the request to the server is made,
//! and nothing of it is sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_conf::{Directive, Error, Scope};
use clearway_os::outgoing::Remote;

use super::Exchange;
use crate::tables::Load;

/// Chooses servers for the requests of a group.
pub trait Balancer: Send + Sync {
    /// An attempt is about to begin.
    fn begin(&self) -> Box<dyn Choosing>;
}

/// A choice that is under way, which may wait.
pub trait Choosing: Send {
    /// Ready when it is known what becomes of the attempt: what was chosen is in `balancing` then.
    fn poll(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        balancing: &mut Balancing,
        cx: &mut Context<'_>,
    ) -> Poll<Balanced>;
}

/// The result of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// The server in [`Balancing::peer`] is asked; where there is none, the rule of the group has its say.
    Goes,
    /// As if the chosen server had failed: another one is looked for where there are attempts left.
    Failed,
    /// As if no server could be used.
    NoneAlive,
    /// The request ends with this status.
    Ends(u16),
}

/// The attempts of a request, and what code has set for the next one.
#[derive(Clone, Debug, Default)]
pub struct Balancing {
    /// How the attempt before has ended, and the status that it had (0: none).
    pub last: Option<(LastAttempt, u16)>,
    /// How often a server was looked for, this time included.
    pub calls: usize,
    /// How many attempts are left, this one included.
    pub tries: usize,
    /// How many there may be (`proxy_next_upstream_tries`); 0 is no limit.
    pub tries_max: usize,
    /// The server of this attempt.
    pub peer: Option<BalancedPeer>,
    /// The number of further attempts.
    pub more_tries: usize,
    /// The connection may be used by others afterwards.
    pub keepalive: Option<BalancedKeepalive>,
    /// In place of what the location says, from here on: to connect, to send, to receive; milliseconds.
    pub timeouts_ms: [Option<u64>; 3],
    /// Whether servers are asked over TLS, in place of what the location says, from here on.
    pub tls: Option<bool>,
    /// Where connections come from, from here on.
    pub local: Option<SocketAddr>,
    /// The request to the server is to be made anew, as what it is made from has changed.
    pub is_made_anew: bool,
}

/// How an attempt has ended behind which another one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastAttempt {
    /// The server answered with a status that another one is asked for (`http_404`, `http_403`).
    Next,
    /// The attempt failed.
    Failed,
}

/// A server that code has chosen.
#[derive(Clone, Debug)]
pub struct BalancedPeer {
    /// The address of the server.
    pub remote: Remote,
    /// The name by which the server is asked over TLS, if one is set. Connections for different names are
    /// different.
    pub host: Option<Vec<u8>>,
}

/// How long a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancedKeepalive {
    /// The time for which the connection may be idle, milliseconds; 0: as long as the server keeps it.
    pub timeout_ms: u64,
    /// The most requests of the connection; 0 is any number.
    pub requests_max: u32,
}

/// Has code choose the servers of the `upstream` block that is being read, each loop keeping so many idle
/// connections where code says so.
///
/// # Errors
/// In nginx's words.
pub type SetBalancer = fn(&mut Scope<'_, Load>, &Directive, Said) -> Result<(), Error>;

/// A setting of the block.
pub enum Said {
    /// The code that chooses the peer.
    Balancer(Arc<dyn Balancer>),
    /// How many connections are kept.
    Keepalive(u32),
}

/// The function that takes balancers, among the services that a configuration is loaded with.
#[derive(Clone, Copy)]
pub struct Balancers(pub SetBalancer);
