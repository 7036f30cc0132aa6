//! By what rule the next server is chosen. The rules are nginx's, so that a key falls on the server on which
//! it fell there.

pub(crate) mod consistent;
pub(crate) mod hash;
pub(crate) mod least_conn;
pub(crate) mod least_time;
pub(crate) mod random;

use std::cmp::Ordering;
use std::net::IpAddr;

use crate::moment::Moment;
use crate::peer::Peer;
use crate::peers::{Peers, Tried};
use crate::times::TimeRule;

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
    /// The one that will be done first (`least_time`).
    LeastTime(TimeRule),
    /// By chance (`random`).
    Random,
    /// The server with fewer requests, of two that are chosen at random (`random two`).
    RandomTwo,
}

/// The facts about a request that decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key<'a> {
    /// The client's address; none is that of a unix socket.
    pub client: Option<IpAddr>,
    /// The text of `hash`.
    pub text: &'a [u8],
    /// The server that a session is with (`sticky`); empty is none.
    pub sid: &'a [u8],
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
    pub(crate) moment: Moment,
}

impl Look<'_> {
    pub(crate) fn may(&self, at: usize, peer: &Peer) -> bool {
        !self.tried.has(at) && peer.is_usable(self.moment.now_s())
    }

    /// The next of those that may be used.
    pub(crate) fn in_turn(&self) -> Option<usize> {
        let may = |at, peer: &Peer| self.may(at, peer);
        match self.tried.is_empty() {
            true => self.peers.next_of_all(self.moment, may),
            false => self.peers.next_in_turn(self.moment, may),
        }
    }

    /// The server with the least load by `compare`; those with the same take turns. `load` is asked once for
    /// each server, `load_again` for the turns.
    pub(crate) fn least<L: Copy>(
        &self,
        load: impl Fn(&Peer) -> L,
        load_again: impl Fn(&Peer) -> L,
        compare: impl Fn(L, L) -> Ordering,
    ) -> Option<usize> {
        let usable = || self.peers.list.iter().enumerate().filter(|(at, peer)| self.may(*at, peer));
        let (mut best, mut many) = (None::<(usize, L)>, false);
        for (at, peer) in usable() {
            let own = load(peer);
            match best.map(|(_, least)| compare(own, least)) {
                None | Some(Ordering::Less) => (best, many) = (Some((at, own)), false),
                Some(Ordering::Equal) => many = true,
                Some(Ordering::Greater) => {}
            }
        }
        let (first, least) = best?;
        if !many {
            return Some(first);
        }
        let is_least = |at: usize, peer: &Peer| {
            at >= first && compare(load_again(peer), least) == Ordering::Equal && self.may(at, peer)
        };
        self.peers.next_in_turn(self.moment, is_least).or(Some(first))
    }

    /// The server that the request's session is with, if it may be used.
    pub(crate) fn of_session(&self, sid: &[u8]) -> Option<usize> {
        if sid.is_empty() {
            return None;
        }
        let at = self.peers.list.iter().position(|peer| *peer.config().sid == *sid)?;
        let may = !self.tried.has(at) && self.peers.list[at].is_usable_in_session(self.moment.now_s());
        may.then_some(at)
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

    /// The times of answers that count.
    pub(crate) fn time_rule(self) -> TimeRule {
        match self {
            Self::LeastTime(rule) => rule,
            _ => TimeRule::None,
        }
    }

    pub(crate) fn choose(self, look: &Look<'_>, key: &Key<'_>, progress: &mut Progress) -> Option<usize> {
        let by_rule = match self {
            Self::RoundRobin => None,
            Self::LeastConn => return least_conn::choose(look),
            Self::LeastTime(rule) => return least_time::choose(look, rule),
            Self::IpHash => hash::by_address(look, key.client, progress),
            Self::Hash => hash::by_text(look, key.text, progress),
            Self::Consistent => consistent::choose(look, key.text, progress),
            Self::Random => random::one(look, progress),
            Self::RandomTwo => random::two(look, progress),
        };
        by_rule.or_else(|| look.in_turn())
    }
}
