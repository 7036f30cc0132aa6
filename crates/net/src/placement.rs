//! Which loop serves a connection, and the `worker_connections` of each loop. Any thread.
//!
//! A connection stays with the loop that accepted it unless that one has more to do than another. What
//! loops have to do is guessed from numbers that others write: a guess that is wrong costs little, as loops
//! that are idle help crowded ones.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use clearway_base::log::{Level, Sink};

/// Most connections that are accepted in one turn of a loop with `multi_accept on`, or when a socket is
/// let go of.
pub const BATCH_MAX: u32 = 64;

/// Loops that are looked at for one connection. With more of them each connection looks at the next ones,
/// which makes the load about as even.
const LOOKED_AT_MAX: usize = 8;

/// How much less another loop must have to do before a connection goes there: this, and...
const SLACK: u32 = 2;

/// ...one in so many of its connections, but...
const SLACK_SHARE: u32 = 16;

/// ...no more than so many.
const SLACK_MAX: u32 = 16;

/// How long nothing more is said of connections that are closed for others, in milliseconds.
const RECLAIM_SAY_MS: u64 = 1000;

/// Added to the load of a loop that has no room for another connection.
const FULL: u32 = 1 << 30;

/// `multi_accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiAccept {
    /// One connection for each turn of the loop.
    Off,
    /// All that wait, [`BATCH_MAX`] at most.
    On,
}

impl MultiAccept {
    fn batch(self) -> u32 {
        match self {
            Self::Off => 1,
            Self::On => BATCH_MAX,
        }
    }
}

/// The state that the accept tasks of one loop share, and that those of other loops look at. Never freed, as
/// loops are not.
#[derive(Debug)]
#[repr(align(128))]
pub struct AcceptPolicy {
    /// The index of the loop.
    index: usize,
    /// The loads of all loops; absent if there is one loop.
    peers: OnceLock<&'static [Self]>,
    /// `worker_connections`.
    connections_max: AtomicU32,
    /// `multi_accept`: connections that are taken in a row.
    batch: AtomicU32,
    connections: AtomicU32,
    /// Where the next look at other loops begins; written on this loop only.
    next_look: AtomicU32,
    /// The end of the pause on the clock of the loop; 0 when nothing is paused.
    pub(crate) paused_until_ms: AtomicU64,
    /// When it was last said that connections are closed for others, likewise.
    reclaim_said_ms: AtomicU64,
}

impl AcceptPolicy {
    /// A loop without connections that may have `connections_max` of them.
    #[must_use]
    pub fn new(connections_max: u32, multi_accept: MultiAccept) -> &'static Self {
        &Self::for_loops(1, connections_max, multi_accept)[0]
    }

    /// Loops that place connections on each other, each of which may have `connections_max` of them.
    #[must_use]
    pub fn for_loops(count: usize, connections_max: u32, multi_accept: MultiAccept) -> &'static [Self] {
        let policy = |index| Self {
            index,
            peers: OnceLock::new(),
            connections_max: AtomicU32::new(connections_max),
            batch: AtomicU32::new(multi_accept.batch()),
            connections: AtomicU32::new(0),
            next_look: AtomicU32::new(0),
            paused_until_ms: AtomicU64::new(0),
            reclaim_said_ms: AtomicU64::new(0),
        };
        let policies: &'static [Self] = Box::leak((0..count).map(policy).collect());
        for policy in policies.iter().filter(|_| count > 1) {
            let set = policy.peers.set(policies);
            debug_assert!(set.is_ok(), "made just now");
        }
        policies
    }

    /// The index of its loop.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// From now on the loop accepts by these settings. Connections beyond a lower limit stay.
    pub fn adapt(&self, connections_max: u32, multi_accept: MultiAccept) {
        self.connections_max.store(connections_max, Ordering::Relaxed);
        self.batch.store(multi_accept.batch(), Ordering::Relaxed);
    }

    /// Connections that hold a slot now.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that are taken in a row.
    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    /// Slots that are free, and how many there are.
    #[must_use]
    pub fn room(&self) -> (u32, u32) {
        let connections_max = self.connections_max.load(Ordering::Relaxed);
        (connections_max.saturating_sub(self.connections()), connections_max)
    }

    /// Says that connections are closed for others, once a second. On the loop, whose clock shows `now_ms`.
    pub(crate) fn say_reclaimed(&self, now_ms: u64, log: &dyn Sink) {
        if now_ms.saturating_sub(self.reclaim_said_ms.load(Ordering::Relaxed)) >= RECLAIM_SAY_MS {
            self.reclaim_said_ms.store(now_ms, Ordering::Relaxed);
            let (_, limit) = self.room();
            let message = format_args!("{limit} worker_connections are not enough, reusing connections");
            log.log(Level::Warn, message);
        }
    }

    /// Takes the slot of a connection; `None` when all `worker_connections` are in use. Connections to
    /// upstream servers take one as well.
    pub fn take_slot(&'static self) -> Option<ConnectionSlot> {
        let connections_max = self.connections_max.load(Ordering::Relaxed);
        let more = |count| (count < connections_max).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ConnectionSlot { policy: self })
    }

    /// Where a connection of this loop is served best: here, unless another loop has clearly less to do.
    /// `backlog` is what a loop has ready, by its index. To be called on this loop.
    pub fn least_loaded(&'static self, backlog: impl Fn(usize) -> u32) -> &'static Self {
        let Some(peers) = self.peers.get() else { return self };
        let load = |policy: &Self| {
            let full = if policy.room().0 == 0 { FULL } else { 0 };
            policy.connections().saturating_add(backlog(policy.index)).saturating_add(full)
        };
        let first = self.next_look.load(Ordering::Relaxed) as usize;
        self.next_look.store(first.wrapping_add(LOOKED_AT_MAX) as u32, Ordering::Relaxed);
        let places = (0..LOOKED_AT_MAX.min(peers.len())).map(|at| first.wrapping_add(at) % peers.len());
        let others = places.map(|at| &peers[at]).filter(|other| other.index != self.index);
        let Some((least, there)) = others.map(|other| (other, load(other))).min_by_key(|(_, load)| *load)
        else {
            return self;
        };
        let slack = SLACK + (least.connections() / SLACK_SHARE).min(SLACK_MAX);
        if load(self) > there.saturating_add(slack) { least } else { self }
    }
}

/// One of the `worker_connections` of a loop, free again when dropped (on whichever thread).
#[derive(Debug)]
pub struct ConnectionSlot {
    policy: &'static AcceptPolicy,
}

impl ConnectionSlot {
    /// The loop that it is of.
    #[must_use]
    pub fn loop_index(&self) -> usize {
        self.policy.index
    }

    /// Gives it back for one on another loop, where its connection moves to; it stays where it is if that one
    /// has none.
    ///
    /// # Errors
    /// There is none.
    pub fn exchange(self, policy: &'static AcceptPolicy) -> Result<Self, Self> {
        if policy.index == self.policy.index { Ok(self) } else { policy.take_slot().ok_or(self) }
    }

    /// A slot on another loop, for a connection that is better off there; see
    /// [`AcceptPolicy::least_loaded`]. To be called on the loop of this one.
    pub fn find_better(&self, backlog: impl Fn(usize) -> u32) -> Option<Self> {
        let better = self.policy.least_loaded(backlog);
        if better.index == self.policy.index { None } else { better.take_slot() }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let before = self.policy.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each slot is given back once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places `count` connections that come to loop 0, which stay.
    fn place(policies: &'static [AcceptPolicy], count: usize, backlog: impl Fn(usize) -> u32) -> Vec<u32> {
        let slots: Vec<_> =
            (0..count).map(|_| policies[0].least_loaded(&backlog).take_slot().unwrap()).collect();
        let connections = policies.iter().map(AcceptPolicy::connections).collect();
        drop(slots);
        connections
    }

    #[test]
    fn connections_are_spread_evenly_whoever_accepts_them() {
        for (loops, connections) in [(2, 10), (4, 64), (4, 1000), (8, 800), (40, 4000)] {
            let spread = place(AcceptPolicy::for_loops(loops, 10_000, MultiAccept::Off), connections, |_| 0);
            let (least, most) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
            assert!(f64::from(*most) <= f64::from(*least) * 1.2 + 3.0, "{spread:?}");
        }
        assert_eq!(place(AcceptPolicy::for_loops(1, 10, MultiAccept::Off), 5, |_| 0), [5]);
    }

    #[test]
    fn a_loop_with_much_to_do_gets_fewer() {
        let policies = AcceptPolicy::for_loops(3, 1000, MultiAccept::Off);
        let spread = place(policies, 60, |at| if at == 1 { 20 } else { 0 });
        assert!(spread[1] + 15 < spread[0] && spread[1] + 15 < spread[2], "{spread:?}");
    }

    #[test]
    fn a_full_loop_gets_none() {
        let policies = AcceptPolicy::for_loops(2, 1000, MultiAccept::Off);
        policies[1].adapt(3, MultiAccept::On);
        assert_eq!(place(policies, 20, |_| 0), [17, 3]);
        assert_eq!((policies[1].batch(), policies[0].batch()), (BATCH_MAX, 1));
        let slots: Vec<_> = (0..9).filter_map(|_| policies[0].take_slot()).collect();
        assert_eq!(slots[0].find_better(|_| 0).unwrap().loop_index(), 1);
        assert!(slots[0].find_better(|at| if at == 1 { 9 } else { 0 }).is_none());
    }
}
