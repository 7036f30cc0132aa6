//! By what rule the next server is chosen. The rules are nginx's, so that a key falls on the server on which
//! it fell there.

pub(crate) mod hash;
pub(crate) mod least_conn;
pub(crate) mod random;
pub(crate) mod ring;

use std::net::IpAddr;

use crate::peer::Peer;
use crate::peers::{Peers, Tried};

/// After so many servers that could not be used the rule is given up: they are taken in turn.
pub(crate) const TRIES_MAX: u32 = 20;

/// A rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests for its weight (`least_conn`).
    LeastConn,
    /// By the client's address (`ip_hash`).
    IpHash,
    /// By a text (`hash`).
    Hash,
    /// By a text, so that few texts move when servers come and go (`hash … consistent`).
    Consistent,
    /// By chance (`random`).
    Random,
    /// Of two that chance gives, the one with fewer requests (`random two`).
    RandomTwo,
}

/// What of a request decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key<'a> {
    /// The client's address; none is that of a unix socket.
    pub client: Option<IpAddr>,
    /// The text of `hash`.
    pub text: &'a [u8],
}

/// Where a request is in the order that its rule gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) hash: u32,
    pub(crate) rehash: u32,
    pub(crate) tries: u32,
}

/// Which of these is next by the rule; `None` where the rule has nothing to say: they are taken in turn.
pub(crate) struct Look<'a> {
    pub(crate) peers: &'a Peers,
    pub(crate) tried: &'a Tried,
    pub(crate) at_loop: usize,
    pub(crate) now_s: u64,
}

impl Look<'_> {
    pub(crate) fn may(&self, at: usize, peer: &Peer) -> bool {
        !self.tried.has(at) && peer.is_usable(self.now_s)
    }

    /// The next of those that may be used.
    pub(crate) fn in_turn(&self) -> Option<usize> {
        self.peers.next_in_turn(self.at_loop, |at, peer| self.may(at, peer))
    }

    fn is_usable(&self, at: usize) -> bool {
        self.may(at, &self.peers.list[at])
    }
}

impl Method {
    pub(crate) fn begin(self, key: &Key<'_>, peers: &Peers) -> Progress {
        let hash = match self {
            Self::IpHash => hash::IP_HASH_SEED,
            Self::Consistent => peers.ring().find(crc32fast::hash(key.text)),
            _ => 0,
        };
        Progress { hash, rehash: 0, tries: 0 }
    }

    pub(crate) fn choose(self, look: &Look<'_>, key: &Key<'_>, progress: &mut Progress) -> Option<usize> {
        let by_rule = match self {
            Self::RoundRobin => None,
            Self::LeastConn => return least_conn::choose(look),
            Self::IpHash => hash::by_address(look, key.client, progress),
            Self::Hash => hash::by_text(look, key.text, progress),
            Self::Consistent => ring::choose(look, key.text, progress),
            Self::Random => random::one(look, progress),
            Self::RandomTwo => random::two(look, progress),
        };
        by_rule.or_else(|| look.in_turn())
    }
}
