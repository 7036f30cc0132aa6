//! The idle connections of a group: shelves for each loop, which other loops take from where their own have
//! nothing. Any loop, without locks.
//!
//! Invariants: a connection is on one shelf or with one request; one that is on the shelves of a loop is
//! watched by that loop, and offered to it: where it has no room for another one, it has the oldest closed.
//! `count` is the number of those on shelves, or more while one is on its way there.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use clearway_net::connect::Connector;
use clearway_runtime::LoopRef;

use super::connection::{Connection, Identity, Repeat};
use super::duty::Duty;
use super::keeper::{self, Keeper};
use super::shelf::{PLACES, Shelf};
use super::trust::Trust;

/// Shelves that a loop has at most: with their 64 places they bound what one loop keeps for a group.
const SHELVES_MAX: usize = 64;

/// A connection beyond `keepalive` is closed when it was idle for so long, milliseconds: clients come in
/// waves, and a connection that was closed behind one would be made anew for the next.
const EXCESS_MS: u64 = 100;

/// There are never more than so many times the connections that `keepalive` allows.
const EXCESS_FACTOR: u32 = 2;
/// Fewer connections than this are as few as `keepalive` says at any time: there are no waves of so few.
const EXCESS_FROM: u32 = 3;

/// The parameters of `keepalive` and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// `keepalive` for all loops together: as nginx counts for each worker, its number times the loops. One
    /// loop keeps 4,096 at most.
    pub connections_max: u32,
    /// `keepalive_requests`: how many requests one connection has.
    pub requests_max: u32,
    /// `keepalive_time`: how old one may be when a response ends, in milliseconds.
    pub time_ms: u64,
    /// `keepalive_timeout`: how long one may be idle, in milliseconds.
    pub timeout_ms: u64,
}

/// Counts of requests and connections. Numbers of all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Idle connections.
    pub idle: u64,
    /// Requests that found one.
    pub reused: u64,
    /// How many of those were on another loop.
    pub moved: u64,
    /// Requests that found none.
    pub missed: u64,
    /// Connections that the server closed, or spoke on, while they were idle.
    pub gone: u64,
    /// Connections that were closed as `keepalive` allows no more.
    pub displaced: u64,
    /// Connections that were closed for others of any kind, as `worker_connections` or descriptors allow no
    /// more.
    pub reclaimed: u64,
}

/// The idle connections of a group.
pub struct Pool {
    connector: Connector,
    connections_max: AtomicU32,
    requests_max: AtomicU32,
    time_ms: AtomicU64,
    timeout_ms: AtomicU64,
    count: AtomicU32,
    trust: Trust,
    loops: Box<[OnceLock<PerLoop>]>,
    /// For keepers.
    own: Weak<Self>,
}

/// The part of one loop, made when it has its first connection.
#[repr(align(128))]
pub(crate) struct PerLoop {
    /// Made in their order, as there are more connections.
    shelves: [OnceLock<Box<Shelf<Connection>>>; SHELVES_MAX],
    pub(crate) keeper: Keeper,
    reused: AtomicU64,
    moved: AtomicU64,
    missed: AtomicU64,
    gone: AtomicU64,
    displaced: AtomicU64,
    reclaimed: AtomicU64,
}

impl PerLoop {
    fn new() -> Self {
        Self {
            shelves: [const { OnceLock::new() }; SHELVES_MAX],
            keeper: Keeper { duty: Duty::new(), waker: OnceLock::new() },
            reused: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }

    fn shelves(&self) -> impl DoubleEndedIterator<Item = &Shelf<Connection>> {
        self.shelves.iter().filter_map(OnceLock::get).map(|shelf| &**shelf)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shelves().all(Shelf::is_empty)
    }

    fn take(&self, tag: u64) -> Option<Box<Connection>> {
        self.shelves().find_map(|shelf| shelf.take(tag))
    }

    fn take_coldest(&self) -> Option<Box<Connection>> {
        self.shelves().rev().find_map(Shelf::take_coldest)
    }

    /// Gives it back where so many shelves are full.
    fn put(&self, connection: Box<Connection>, shelves: usize) -> Result<(), Box<Connection>> {
        let tag = connection.tag;
        let mut left = connection;
        for shelf in self.shelves.iter().take(shelves) {
            match shelf.get_or_init(Box::default).put(left, tag) {
                Ok(()) => return Ok(()),
                Err(connection) => left = connection,
            }
        }
        Err(left)
    }
}

impl Pool {
    /// An empty one for so many loops; `connector` knows their places for connections.
    #[must_use]
    pub fn new(config: PoolConfig, loops: usize, connector: Connector) -> Arc<Self> {
        let pool = Arc::new_cyclic(|own| Self {
            connector,
            connections_max: AtomicU32::new(0),
            requests_max: AtomicU32::new(0),
            time_ms: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(0),
            count: AtomicU32::new(0),
            trust: Trust::new(),
            loops: (0..loops.max(1)).map(|_| OnceLock::new()).collect(),
            own: own.clone(),
        });
        pool.adapt(config);
        pool
    }

    /// From here on these settings count. Connections that are idle stay.
    pub fn adapt(&self, config: PoolConfig) {
        self.connections_max.store(config.connections_max, Ordering::Relaxed);
        self.requests_max.store(config.requests_max, Ordering::Relaxed);
        self.time_ms.store(config.time_ms, Ordering::Relaxed);
        self.timeout_ms.store(config.timeout_ms, Ordering::Relaxed);
    }

    /// Keeps none from here on: those that are idle are closed, others when their responses are complete.
    pub fn close(&self) {
        self.connections_max.store(0, Ordering::Relaxed);
        self.timeout_ms.store(0, Ordering::Relaxed);
        let keepers = self.loops.iter().filter_map(OnceLock::get);
        keepers.filter_map(|per_loop| per_loop.keeper.waker.get()).for_each(Waker::wake_by_ref);
    }

    /// An idle connection for a request on `home`, which it belongs to from here on: of the same loop, else
    /// of another one.
    pub fn take(&self, home: LoopRef, identity: Identity<'_>, repeat: Repeat) -> Option<Box<Connection>> {
        let (loops, now_ms) = (self.loops.len(), home.now_ms());
        let found = match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => {
                let tag = identity.tag();
                let mut places = (0..loops).map(|distance| (home.index() + distance) % loops);
                let may_use = repeat == Repeat::Possible || self.trust.holds(tag, now_ms);
                let mut take = |at| self.take_at(at, home, (identity, tag), (repeat, now_ms));
                // One that it may not use makes room for the one that is made instead: to some servers
                // (PHP-FPM) each idle connection is a process that serves nobody else.
                places.find_map(&mut take).filter(|_| may_use)
            }
        };
        if let Some(own) = self.loops[home.index() % loops].get() {
            let counter = if found.is_some() { &own.reused } else { &own.missed };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn take_at(
        &self,
        at: usize,
        home: LoopRef,
        (identity, tag): (Identity<'_>, u64),
        (repeat, now_ms): (Repeat, u64),
    ) -> Option<Box<Connection>> {
        let per_loop = self.loops[at].get()?;
        while let Some(mut connection) = per_loop.take(tag) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if !connection.transport.take_back() {
                per_loop.reclaimed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let idle_ms = now_ms.saturating_sub(connection.idle_since_ms);
            let timeout_ms = connection.timeout_ms.unwrap_or_else(|| self.timeout_ms());
            if idle_ms > timeout_ms || connection.identity() != identity {
                continue;
            }
            if !connection.is_fit(repeat, now_ms) {
                per_loop.gone.fetch_add(1, Ordering::Relaxed);
                self.trust.note_closed(tag, idle_ms, now_ms);
                continue;
            }
            if at != home.index() {
                if connection.transport.move_to(home).is_err() {
                    continue;
                }
                let policy = self.connector.policy(home);
                let slot = connection.slot.take();
                // Without a place here it counts where it was.
                connection.slot = slot.map(|slot| slot.exchange(policy).unwrap_or_else(|slot| slot));
                per_loop.moved.fetch_add(1, Ordering::Relaxed);
            }
            connection.requests = connection.requests.saturating_add(1);
            return Some(connection);
        }
        None
    }

    /// Keeps a connection of `home` whose response is complete, unless a limit or the server is against it.
    pub fn put(&self, home: LoopRef, mut connection: Box<Connection>) {
        let now_ms = home.now_ms();
        let connections_max = self.connections_max.load(Ordering::Relaxed);
        let requests_max = connection.requests_max;
        let requests_max = requests_max.unwrap_or_else(|| self.requests_max.load(Ordering::Relaxed));
        let is_spent = connection.requests >= requests_max
            || now_ms.saturating_sub(connection.born_ms) > self.time_ms.load(Ordering::Relaxed);
        if is_spent || connections_max == 0 {
            return;
        }
        if !connection.is_quiet() {
            self.trust.note_closed(connection.tag, 0, now_ms);
            return;
        }
        self.trust.watch(connection.tag, now_ms);
        let at = home.index() % self.loops.len();
        let per_loop = self.loops[at].get_or_init(PerLoop::new);
        let watched = match per_loop.keeper.waker.get() {
            Some(waker) => connection.transport.watch_idle(waker),
            None => connection.transport.watch(),
        };
        if watched.is_err() {
            return;
        }
        connection.idle_since_ms = now_ms;
        connection.transport.offer();
        // Connections above the limit were in use just now; the keeper closes them, unless they are used
        // again soon.
        let factor = if connections_max < EXCESS_FROM { 1 } else { EXCESS_FACTOR };
        let hard_max = connections_max.saturating_mul(factor);
        if self.count.fetch_add(1, Ordering::Relaxed) >= hard_max {
            self.displace(at);
        }
        // Any loop may have all of them.
        let shelves = (hard_max as usize).div_ceil(PLACES);
        if let Err(connection) = per_loop.put(connection, shelves) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            drop(connection);
            return;
        }
        if per_loop.keeper.duty.call() {
            match per_loop.keeper.waker.get() {
                Some(waker) => waker.wake_by_ref(),
                None => keeper::spawn(self.own.clone(), home),
            }
        }
    }

    /// A connection that was taken turns out to have been closed before.
    pub fn note_ended(&self, connection: &Connection, taken_ms: u64) {
        let idle_ms = taken_ms.saturating_sub(connection.idle_since_ms);
        self.trust.note_closed(connection.tag, idle_ms, taken_ms);
    }

    /// Closes the one that was idle for longest, mostly: of this loop, if it has any.
    #[cold]
    fn displace(&self, at: usize) {
        let loops = self.loops.len();
        let mut places = (0..loops).filter_map(|distance| self.loops[(at + distance) % loops].get());
        let displaced = places.find_map(|per_loop| per_loop.take_coldest().map(|taken| (per_loop, taken)));
        if let Some((per_loop, _closed)) = displaced {
            self.count.fetch_sub(1, Ordering::Relaxed);
            per_loop.displaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn per_loop(&self, at: usize) -> Option<&PerLoop> {
        self.loops[at % self.loops.len()].get()
    }

    /// Closes those of a loop that the server has closed, that were idle for too long, are in the way, or are
    /// more than `keepalive` allows.
    pub(crate) fn sweep(&self, per_loop: &PerLoop, now_ms: u64) {
        let timeout_ms = self.timeout_ms.load(Ordering::Relaxed);
        let connections_max = self.connections_max.load(Ordering::Relaxed);
        // Keepers of several loops count at the same time: each takes one that is too many off the number
        // before it closes it, so that together they do not close more.
        let take_excess = |count: u32| (count > connections_max).then(|| count - 1);
        let relaxed = Ordering::Relaxed;
        for shelf in per_loop.shelves().rev().filter(|shelf| !shelf.is_empty()) {
            let _closed = shelf.take_if(|connection| {
                let idle_ms = now_ms.saturating_sub(connection.idle_since_ms);
                let counter = if connection.is_in_the_way() {
                    Some(&per_loop.reclaimed)
                } else if !connection.is_quiet() {
                    self.trust.note_closed(connection.tag, idle_ms, now_ms);
                    Some(&per_loop.gone)
                } else if idle_ms
                    >= connection.timeout_ms.filter(|_| connections_max > 0).unwrap_or(timeout_ms)
                {
                    None
                } else if idle_ms >= EXCESS_MS
                    && self.count.fetch_update(relaxed, relaxed, take_excess).is_ok()
                {
                    per_loop.displaced.fetch_add(1, relaxed);
                    return true;
                } else {
                    return false;
                };
                if let Some(counter) = counter {
                    counter.fetch_add(1, relaxed);
                }
                self.count.fetch_sub(1, relaxed);
                true
            });
        }
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// How it fared.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        let start = PoolCounts { idle: self.count.load(Ordering::Relaxed).into(), ..PoolCounts::default() };
        self.loops.iter().filter_map(OnceLock::get).fold(start, |sum, per_loop| {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            PoolCounts {
                reused: sum.reused + count(&per_loop.reused),
                moved: sum.moved + count(&per_loop.moved),
                missed: sum.missed + count(&per_loop.missed),
                gone: sum.gone + count(&per_loop.gone),
                displaced: sum.displaced + count(&per_loop.displaced),
                reclaimed: sum.reclaimed + count(&per_loop.reclaimed),
                ..sum
            }
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Keepers find nothing to look after, and end.
        for per_loop in self.loops.iter().filter_map(OnceLock::get) {
            if let Some(waker) = per_loop.keeper.waker.get() {
                waker.wake_by_ref();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
