//! The servers of a group that are tried in one go: the primary ones, or those that are `backup`; with the
//! state of the smooth weighted round robin, which each loop has for itself, so that a single loop serves in
//! exactly nginx's order and no two write the same line of the cache.

use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::cycle::{Alarm, Cycle, Turn};
use crate::moment::Moment;
use crate::peer::{Company, Peer, WEIGHT_PARTS};
use crate::ring::Ring;
use crate::sync::Ordering;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) list: Box<[Arc<Peer>]>,
    pub(crate) total_weight: u64,
    pub(crate) company: Company,
    /// Their turns while nothing is wrong. None where limits of connections have to be looked at each time,
    /// and where it would be too long.
    cycle: Option<Cycle>,
    alarm: Arc<Alarm>,
    loops: Box<[PerLoop]>,
    /// Consistent hashing; made when it is asked for first.
    ring: OnceLock<Ring>,
}

/// Where one loop is with its turns.
#[derive(Debug)]
#[repr(align(128))]
struct PerLoop {
    turn: Turn,
    /// Current weights in parts, while the cycle is left.
    current: Box<[AtomicI64]>,
    /// Turns in a row in which all servers were well.
    calm: AtomicUsize,
}

impl Peers {
    /// Failures of servers move the alarm, which all sets of servers share that a group has by and by.
    pub(crate) fn new(list: Vec<Arc<Peer>>, company: Company, alarm: &Arc<Alarm>, loops: usize) -> Self {
        // Rule 3 of `cycle`: this first.
        let number = alarm.number();
        let is_well = list.iter().all(|peer| !peer.is_up() || peer.is_well());
        let per_loop = || PerLoop {
            turn: if is_well { Turn::new(number) } else { Turn::away() },
            current: list.iter().map(|_| AtomicI64::new(0)).collect(),
            calm: AtomicUsize::new(0),
        };
        let loops: Box<[PerLoop]> = (0..loops.max(1)).map(|_| per_loop()).collect();
        let is_told = list.iter().filter(|peer| peer.tells(alarm)).count() == list.len();
        let is_simple = company == Company::Others && is_told && list.iter().all(|peer| peer.is_unlimited());
        let weights = || list.iter().map(|peer| if peer.is_up() { peer.config().weight } else { 0 });
        let cycle = is_simple.then(|| Cycle::new(weights().collect())).flatten();
        Self {
            total_weight: list.iter().map(|peer| u64::from(peer.config().weight)).sum(),
            company,
            cycle,
            alarm: Arc::clone(alarm),
            loops,
            ring: OnceLock::new(),
            list: list.into(),
        }
    }

    pub(crate) fn ring(&self) -> &Ring {
        self.ring.get_or_init(|| Ring::new(&self.list))
    }

    fn per_loop(&self, at_loop: usize) -> &PerLoop {
        &self.loops[at_loop % self.loops.len()]
    }

    /// The next one in turn of those that `may` be taken, for a request that has tried none.
    pub(crate) fn next_of_all(&self, at: Moment, may: impl Fn(usize, &Peer) -> bool) -> Option<usize> {
        let Some(cycle) = &self.cycle else { return self.next_in_turn(at, may) };
        let per_loop = self.per_loop(at.at_loop);
        if let Some(at) = cycle.next(&per_loop.turn, &self.alarm) {
            debug_assert!(self.list[at].is_up());
            return Some(at);
        }
        let number = self.alarm.number();
        let chosen = self.next_in_turn(at, may);
        if let Some(chosen) = chosen {
            self.calm_down(cycle, per_loop, (number, chosen));
        }
        chosen
    }

    /// Goes back to the cycle where weights are as at its beginning. They may never come to that again, so
    /// when all servers were well for two rounds the place with the most similar weights will do.
    fn calm_down(&self, cycle: &Cycle, per_loop: &PerLoop, (number, chosen): (u32, usize)) {
        if self.list.iter().any(|peer| peer.is_up() && !peer.is_well()) {
            per_loop.calm.store(0, Ordering::Relaxed);
            return;
        }
        let calm = per_loop.calm.fetch_add(1, Ordering::Relaxed) + 1;
        let mut current = per_loop.current.iter().map(|now| now.load(Ordering::Relaxed));
        let place = match current.all(|now| now == 0) {
            true => 0,
            false if calm >= 2 * cycle.len() => {
                let whole = |now: &AtomicI64| now.load(Ordering::Relaxed) / WEIGHT_PARTS;
                let current: Vec<i64> = per_loop.current.iter().map(whole).collect();
                cycle.place_like(&current, chosen)
            }
            false => return,
        };
        per_loop.calm.store(0, Ordering::Relaxed);
        cycle.begin(&per_loop.turn, number, place);
    }

    /// Where the loop is in the cycle becomes weights.
    fn reckon(&self, per_loop: &PerLoop) {
        let Some((cycle, place)) = self.cycle.as_ref().and_then(|it| Some((it, it.leave(&per_loop.turn)?)))
        else {
            return;
        };
        for (current, weight) in per_loop.current.iter().zip(cycle.weights_at(place)) {
            current.store(weight * WEIGHT_PARTS, Ordering::Relaxed);
        }
    }

    /// Smooth weighted round robin among those that `may` be taken, with no other turn in between: each gets
    /// its weight, the highest is taken and pays for all.
    pub(crate) fn next_in_turn(
        &self,
        Moment { at_loop, now_ms }: Moment,
        may: impl Fn(usize, &Peer) -> bool,
    ) -> Option<usize> {
        let per_loop = self.per_loop(at_loop);
        self.reckon(per_loop);
        let current = &per_loop.current;
        let (mut best, mut total) = (None, 0);
        for (at, peer) in self.list.iter().enumerate() {
            if !may(at, peer) {
                continue;
            }
            let weight = peer.effective_weight(now_ms);
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
    pub(crate) fn take_out_of_turn(
        &self,
        at: usize,
        Moment { at_loop, now_ms }: Moment,
        may: impl Fn(usize, &Peer) -> bool,
    ) {
        let per_loop = self.per_loop(at_loop);
        self.reckon(per_loop);
        let current = &per_loop.current;
        let weight = i64::from(self.list[at].config().weight);
        let floor = weight - i64::try_from(self.total_weight).unwrap_or(i64::MAX / WEIGHT_PARTS);
        if current[at].load(Ordering::Relaxed) <= floor * WEIGHT_PARTS {
            return;
        }
        let mut total = 0;
        for (at, peer) in self.list.iter().enumerate().filter(|(at, peer)| may(*at, peer)) {
            let weight = peer.effective_weight(now_ms);
            total += weight;
            current[at].fetch_add(weight, Ordering::Relaxed);
        }
        current[at].fetch_sub(total, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_in_cycle(&self, at_loop: usize) -> bool {
        let turn = &self.per_loop(at_loop).turn;
        self.cycle.as_ref().is_some_and(|cycle| cycle.next(turn, &self.alarm).is_some())
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

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
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
