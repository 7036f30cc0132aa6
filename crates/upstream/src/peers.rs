//! The servers of a group that are tried in one go: the primary ones, or those that are `backup`; with the
//! state of the smooth weighted round robin, which each loop has for itself, so that a single loop serves in
//! exactly nginx's order and no two write the same line of the cache.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use crate::peer::{Company, Peer};
use crate::ring::Ring;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) list: Box<[Arc<Peer>]>,
    pub(crate) total_weight: u64,
    pub(crate) company: Company,
    /// Current weights, for each loop.
    current: Box<[Box<[AtomicI64]>]>,
    /// Consistent hashing; made when it is asked for first.
    ring: OnceLock<Ring>,
}

impl Peers {
    pub(crate) fn new(list: Vec<Arc<Peer>>, company: Company, loops: usize) -> Self {
        let zeros = || list.iter().map(|_| AtomicI64::new(0)).collect();
        Self {
            total_weight: list.iter().map(|peer| u64::from(peer.config().weight)).sum(),
            current: (0..loops.max(1)).map(|_| zeros()).collect(),
            company,
            ring: OnceLock::new(),
            list: list.into(),
        }
    }

    pub(crate) fn ring(&self) -> &Ring {
        self.ring.get_or_init(|| Ring::new(&self.list))
    }

    /// Smooth weighted round robin among those that `may` be taken, with no other turn in between: each gets
    /// its weight, the highest is taken and pays for all.
    pub(crate) fn next_in_turn(&self, at_loop: usize, may: impl Fn(usize, &Peer) -> bool) -> Option<usize> {
        let current = &self.current[at_loop % self.current.len()];
        let (mut best, mut total) = (None, 0);
        for (at, peer) in self.list.iter().enumerate() {
            if !may(at, peer) {
                continue;
            }
            let weight = peer.effective_weight();
            total += weight;
            let now = current[at].load(Ordering::Relaxed) + weight;
            current[at].store(now, Ordering::Relaxed);
            if best.is_none_or(|(_, most)| now > most) {
                best = Some((at, now));
            }
        }
        let (at, most) = best?;
        current[at].store(most - total, Ordering::Relaxed);
        Some(at)
    }

    /// The server that a session is with comes before its turn: it pays for that, but with no more than one
    /// round, so that others get theirs.
    pub(crate) fn take_out_of_turn(&self, at: usize, at_loop: usize, may: impl Fn(usize, &Peer) -> bool) {
        let current = &self.current[at_loop % self.current.len()];
        let weight = i64::from(self.list[at].config().weight);
        let floor = weight - i64::try_from(self.total_weight).unwrap_or(i64::MAX);
        if current[at].load(Ordering::Relaxed) <= floor {
            return;
        }
        let mut total = 0;
        for (at, peer) in self.list.iter().enumerate().filter(|(at, peer)| may(*at, peer)) {
            let weight = peer.effective_weight();
            total += weight;
            current[at].fetch_add(weight, Ordering::Relaxed);
        }
        current[at].fetch_sub(total, Ordering::Relaxed);
    }

    /// The one on which a number falls, if each takes as many as its weight is.
    pub(crate) fn at_weight(&self, number: u64) -> usize {
        let mut left = number % self.total_weight.max(1);
        for (at, peer) in self.list.iter().enumerate() {
            let weight = u64::from(peer.config().weight);
            if left < weight {
                return at;
            }
            left -= weight;
        }
        0
    }
}

/// The servers that a request has tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried(SmallVec<[u64; 1]>);

impl Tried {
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    pub(crate) fn add(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
