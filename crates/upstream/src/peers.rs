//! The servers of a group that are tried in one go: the primary ones, or those that are `backup`; with the
//! state of the smooth weighted round robin, which each loop has for itself, so that a single loop serves in
//! exactly nginx's order and no two write the same line of the cache. With a `zone` that several processes
//! have (`common`) all loops of theirs have it in common, as nginx's workers do.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::common::{Common, Memory};
use crate::cycle::{Alarm, Cycle, Turn};
use crate::moment::Moment;
use crate::peer::{Company, Peer, WEIGHT_PARTS};
use crate::ring::Ring;
use crate::sync::{AtomicU64, Ordering};

/// The primary servers of a group, or its backup servers.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) list: Box<[Arc<Peer>]>,
    pub(crate) total_weight: u64,
    pub(crate) company: Company,
    /// Their turns while nothing is wrong. None where limits of connections have to be looked at each time,
    /// and where it would be too long.
    cycle: Option<Cycle>,
    alarm: Arc<Alarm>,
    loops: Box<[Turns]>,
    /// Consistent hashing; made when it is asked for first.
    ring: OnceLock<Ring>,
}

/// Where one loop is with its turns, or all are.
#[derive(Debug)]
#[repr(align(128))]
struct Turns {
    turn: AtomicU64,
    /// Turns in a row in which all servers were well.
    calm: AtomicU64,
    /// Current weights in parts, while the cycle is left: signed, in two's complement.
    current: Box<[AtomicU64]>,
    /// The memory in place of all of the above, in this order, if processes share it.
    common: Option<Arc<dyn Memory>>,
}

impl Turns {
    fn new(turn: u64, servers: usize, common: Option<Arc<dyn Memory>>) -> Self {
        let current = (0..servers).map(|_| AtomicU64::new(0)).collect();
        Self { turn: AtomicU64::new(turn), calm: AtomicU64::new(0), current, common }
    }

    #[inline]
    fn turn(&self) -> Turn<'_> {
        Turn(self.common.as_ref().map_or(&self.turn, |common| common.word(0)))
    }

    fn calm(&self) -> &AtomicU64 {
        self.common.as_ref().map_or(&self.calm, |common| common.word(1))
    }

    fn current(&self, at: usize) -> &AtomicU64 {
        match &self.common {
            Some(common) => common.word(2 + at),
            None => &self.current[at],
        }
    }

    fn weight(&self, at: usize) -> i64 {
        self.current(at).load(Ordering::Relaxed).cast_signed()
    }

    fn set_weight(&self, at: usize, weight: i64) {
        self.current(at).store(weight.cast_unsigned(), Ordering::Relaxed);
    }

    fn add_weight(&self, at: usize, weight: i64) {
        self.current(at).fetch_add(weight.cast_unsigned(), Ordering::Relaxed);
    }
}

impl Peers {
    /// Failures of servers move the alarm, which all sets of servers share that a group has by and by.
    pub(crate) fn new(
        list: Vec<Arc<Peer>>,
        company: Company,
        alarm: &Arc<Alarm>,
        (loops, common): (usize, Option<&dyn Common>),
    ) -> Self {
        // Rule 3 of `cycle`: this first.
        let number = alarm.number();
        let is_well = list.iter().all(|peer| !peer.is_up() || peer.is_well());
        let turn = if is_well { Turn::first(number) } else { Turn::away() };
        let common = common.and_then(|common| common.words(name_of(&list), 2 + list.len()));
        let loops: Box<[Turns]> = match common {
            Some(common) => Box::new([Turns::new(turn, 0, Some(common))]),
            None => (0..loops.max(1)).map(|_| Turns::new(turn, list.len(), None)).collect(),
        };
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

    fn turns(&self, at_loop: usize) -> &Turns {
        &self.loops[at_loop % self.loops.len()]
    }

    /// The next one in turn of those that `may` be taken, for a request that has tried none.
    pub(crate) fn next_of_all(&self, at: Moment, may: impl Fn(usize, &Peer) -> bool) -> Option<usize> {
        let Some(cycle) = &self.cycle else { return self.next_in_turn(at, may) };
        let turns = self.turns(at.at_loop);
        if let Some(at) = cycle.next(turns.turn(), &self.alarm) {
            debug_assert!(self.list[at].is_up());
            // Another process may have begun the turns again that does not know what this one's checks say.
            if turns.common.is_none() || may(at, &self.list[at]) {
                return Some(at);
            }
        }
        let number = self.alarm.number();
        let chosen = self.next_in_turn(at, may);
        if let Some(chosen) = chosen {
            self.calm_down(cycle, turns, (number, chosen));
        }
        chosen
    }

    /// Goes back to the cycle where weights are as at its beginning. They may never come to that again, so
    /// when all servers were well for two rounds the place with the most similar weights will do.
    fn calm_down(&self, cycle: &Cycle, turns: &Turns, (number, chosen): (u32, usize)) {
        if self.list.iter().any(|peer| peer.is_up() && !peer.is_well()) {
            turns.calm().store(0, Ordering::Relaxed);
            return;
        }
        let calm = turns.calm().fetch_add(1, Ordering::Relaxed) + 1;
        let mut current = (0..self.list.len()).map(|at| turns.weight(at));
        let place = match current.all(|now| now == 0) {
            true => 0,
            false if calm >= 2 * cycle.len() as u64 => {
                let current: Vec<i64> =
                    (0..self.list.len()).map(|at| turns.weight(at) / WEIGHT_PARTS).collect();
                cycle.place_like(&current, chosen)
            }
            false => return,
        };
        turns.calm().store(0, Ordering::Relaxed);
        cycle.begin(turns.turn(), number, place);
    }

    /// Where the loop is in the cycle becomes weights.
    fn reckon(&self, turns: &Turns) {
        let Some((cycle, place)) = self.cycle.as_ref().and_then(|it| Some((it, it.leave(turns.turn())?)))
        else {
            return;
        };
        for (at, weight) in cycle.weights_at(place).into_iter().enumerate() {
            turns.set_weight(at, weight * WEIGHT_PARTS);
        }
    }

    /// Smooth weighted round robin among those that `may` be taken, with no other turn in between: each gets
    /// its weight, the highest is taken and pays for all.
    pub(crate) fn next_in_turn(
        &self,
        Moment { at_loop, now_ms }: Moment,
        may: impl Fn(usize, &Peer) -> bool,
    ) -> Option<usize> {
        let turns = self.turns(at_loop);
        self.reckon(turns);
        let (mut best, mut total) = (None, 0);
        for (at, peer) in self.list.iter().enumerate() {
            if !may(at, peer) {
                continue;
            }
            let weight = peer.effective_weight(now_ms);
            total += weight;
            let now = turns.weight(at).saturating_add(weight);
            turns.set_weight(at, now);
            if best.is_none_or(|(_, most)| now > most) {
                best = Some((at, now));
            }
        }
        let (at, most) = best?;
        turns.set_weight(at, most - total);
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
        let turns = self.turns(at_loop);
        self.reckon(turns);
        let weight = i64::from(self.list[at].config().weight);
        let floor = weight - i64::try_from(self.total_weight).unwrap_or(i64::MAX / WEIGHT_PARTS);
        if turns.weight(at) <= floor * WEIGHT_PARTS {
            return;
        }
        let mut total = 0;
        for (at, peer) in self.list.iter().enumerate().filter(|(at, peer)| may(*at, peer)) {
            let weight = peer.effective_weight(now_ms);
            total += weight;
            turns.add_weight(at, weight);
        }
        turns.add_weight(at, -total);
    }

    #[cfg(test)]
    pub(crate) fn is_in_cycle(&self, at_loop: usize) -> bool {
        let turn = self.turns(at_loop).turn();
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

/// The common identity of these servers' turns: other lists take turns of their own.
fn name_of(list: &[Arc<Peer>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for peer in list {
        let config = peer.config();
        (&config.name, &config.server, config.weight, peer.is_up()).hash(&mut hasher);
    }
    hasher.finish()
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
