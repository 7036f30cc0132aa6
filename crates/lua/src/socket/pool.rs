//! Connections that are put aside for the next `connect` to the same server, one pool for each key, and how
//! many connections a key may have. All VMs of a loop share theirs, and those of the next configuration find
//! them again ([`LoopPools::of`]): a reload costs no connection. Keepers look after the connections meanwhile
//! (`keeper`), in tasks that do not know the lock of the pools.
//!
//! A connection that counts has a [`Ticket`]; where that is dropped, the first that waits is told, and tries
//! again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_runtime::LoopRef;
use crossbeam_queue::SegQueue;

use super::connection::Conn;
use super::keeper::Keeper;
use crate::aside::Taken;
use crate::waiter::{Bell, Waiter};

/// Keys of a loop that have connections, before those without are forgotten.
const KEYS_MIN: usize = 64;

/// The pools of a loop.
///
/// The lock is free, unless a VM that was stuck goes on just as another one of its loop is
/// here. What is done behind it takes no system call.
#[derive(Default)]
pub(crate) struct LoopPools(Mutex<Pools>);

/// The pools of each loop, for as long as a VM uses them.
static OF_LOOPS: LazyLock<ArcSwap<Known>> = LazyLock::new(ArcSwap::default);

type Known = Vec<(LoopRef, Weak<LoopPools>)>;

impl LoopPools {
    /// The pools of a loop, which are made if no VM has them. Any thread.
    pub(crate) fn of(home: LoopRef) -> Arc<Self> {
        let find = |all: &[(LoopRef, Weak<Self>)]| {
            all.iter().find(|(other, _)| *other == home).and_then(|(_, pools)| pools.upgrade())
        };
        if let Some(found) = find(&OF_LOOPS.load()) {
            return found;
        }
        let made = Arc::new(Self::default());
        OF_LOOPS.rcu(|all| {
            let mut all = Vec::clone(all);
            if find(&all).is_none() {
                all.retain(|(other, _)| *other != home);
                all.push((home, Arc::downgrade(&made)));
            }
            all
        });
        // If two threads add a loop at the same time, one of them is taken.
        find(&OF_LOOPS.load()).unwrap_or(made)
    }

    fn enter(&self) -> MutexGuard<'_, Pools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Arc<Pool>> {
        self.enter().by_key.get(key).filter(|pool| !pool.is_over()).cloned()
    }

    /// Makes the pool of a key with this size, if there is none.
    pub(crate) fn open(
        &self,
        key: &[u8],
        limits: (usize, Option<usize>),
        sink: Option<&Arc<dyn Sink>>,
    ) -> (Arc<Pool>, IsNew) {
        self.enter().open(key, limits, sink)
    }

    /// Connections of a key, idle ones included.
    pub(crate) fn connections(&self, key: &[u8]) -> usize {
        self.enter().by_key.get(key).map_or(0, |pool| pool.connections.load(Ordering::SeqCst))
    }

    /// A connection that was put aside, or leave to make one.
    pub(crate) fn room(&self, key: &[u8], home: LoopRef, limit_ms: u64) -> Room {
        self.enter().room(key, home, limit_ms)
    }
}

/// See [`LoopPools`].
#[derive(Default)]
struct Pools {
    by_key: HashMap<Vec<u8>, Arc<Pool>>,
    swept: usize,
}

/// With the last VM of the loop.
impl Drop for Pools {
    fn drop(&mut self) {
        self.end();
    }
}

impl Pools {
    /// All that are put aside end.
    fn end(&mut self) {
        for pool in self.by_key.values() {
            let idle = std::mem::take(&mut *pool.idle());
            idle.iter().for_each(|keeper| keeper.end());
        }
    }
}

/// Set before pools are looked through, and looked at behind the locks of what they have idle: what is put
/// aside later is not.
static HAVE_ENDED: AtomicBool = AtomicBool::new(false);

/// The process ends: connections that are put aside hold it no longer. Any thread.
pub fn end_connections() {
    HAVE_ENDED.store(true, Ordering::SeqCst);
    for pools in OF_LOOPS.load().iter().filter_map(|(_, pools)| pools.upgrade()) {
        pools.enter().end();
    }
}

/// The pool of one key.
pub(crate) struct Pool {
    key: Vec<u8>,
    size: usize,
    /// Takes lines of idle connections.
    sink: Option<Arc<dyn Sink>>,
    /// How many may wait for a connection to end, if there is such a limit.
    backlog: Option<usize>,
    /// Whether it has had a connection.
    is_used: AtomicBool,
    /// Idle ones included.
    connections: AtomicUsize,
    waiting: SegQueue<Arc<LinePlace>>,
    /// Keepers of connections that were put aside; the one that was used last is at the end. The lock is
    /// free, as that of [`LoopPools`] is.
    idle: Mutex<Vec<Arc<Keeper>>>,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Keeper>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its last connection has ended, and nothing waits: the next one of its name has limits of its
    /// own.
    fn is_over(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
            && self.connections.load(Ordering::SeqCst) == 0
            && self.waiting.is_empty()
    }

    /// Puts a connection aside, for so long at most (0: for as long as its peer keeps it); the oldest one
    /// ends where there are too many.
    pub(crate) fn keep(self: &Arc<Self>, conn: Arc<Conn>, used: u32, limit_ms: u64) {
        conn.count(|| Ticket::of(self));
        debug_assert!(
            conn.pool().is_some_and(|pool| Arc::ptr_eq(&pool, self)),
            "a connection counts in the pool that keeps it"
        );
        self.is_used.store(true, Ordering::SeqCst);
        // Before the lock: it may take a system call.
        if !conn.watch() {
            return;
        }
        let (keeper, is_new, oldest) = {
            let mut idle = self.idle();
            if HAVE_ENDED.load(Ordering::SeqCst) {
                return;
            }
            let Some(conn) = self.give(conn, used) else { return };
            let (keeper, is_new) = Keeper::of(&conn, self.sink.as_ref());
            keeper.put(conn, used, limit_ms);
            let oldest = self.add(&mut idle, &keeper);
            (keeper, is_new, oldest)
        };
        if is_new == IsNew::Yes {
            keeper.begin();
        }
        if let Some(oldest) = oldest {
            oldest.end();
        }
    }

    /// Has one more; the oldest where that is one too many.
    fn add(&self, idle: &mut Vec<Arc<Keeper>>, keeper: &Arc<Keeper>) -> Option<Arc<Keeper>> {
        let most = self.size.max(1);
        if idle.len() >= most {
            idle.retain(|keeper| !keeper.is_over());
        }
        let oldest = (idle.len() >= most).then(|| idle.remove(0));
        idle.push(Arc::clone(keeper));
        debug_assert!(idle.len() <= most, "so many connections are put aside at most");
        oldest
    }

    /// Takes the connection that was used last, and how often that was.
    fn take(&self) -> Option<(Arc<Conn>, u32)> {
        let mut idle = self.idle();
        let mut busy = Vec::new();
        let taken = loop {
            let Some(keeper) = idle.pop() else { break None };
            match keeper.take() {
                Taken::Conn(taken) => break Some(taken),
                Taken::Nothing => {}
                Taken::Busy => busy.push(keeper),
            }
        };
        idle.append(&mut busy);
        taken
    }

    /// Tells the first that waits that a connection has ended.
    fn tell(&self) {
        while let Some(place) = self.waiting.pop() {
            if place.bell.ring() {
                break;
            }
        }
    }

    /// Gives a connection to the first that waits; it comes back where nothing does.
    fn give(&self, conn: Arc<Conn>, used: u32) -> Option<Arc<Conn>> {
        while let Some(place) = self.waiting.pop() {
            place.conn.store(Some(Arc::new((Arc::clone(&conn), used))));
            if place.bell.ring() {
                return None;
            }
            place.conn.store(None);
        }
        Some(conn)
    }

    fn log(&self, text: std::fmt::Arguments<'_>) {
        if let Some(sink) = &self.sink {
            sink.log(Level::Debug, text);
        }
    }
}

/// The place of a `connect` that waits for a connection of its key.
struct LinePlace {
    bell: Bell,
    /// The connection that it is given, and how often that was used.
    conn: ArcSwapOption<(Arc<Conn>, u32)>,
}

/// A `connect` that waits.
pub(crate) struct Queued {
    waiter: Waiter,
    place: Arc<LinePlace>,
    pool: Arc<Pool>,
}

/// The connection that it gets in the end.
pub(crate) enum Given {
    Conn(Arc<Conn>, u32),
    Leave(Ticket),
}

impl Queued {
    /// Waits; nothing is given where its time is over.
    pub(crate) async fn wait(self) -> Option<Given> {
        let Self { waiter, place, pool } = self;
        if !waiter.await {
            return None;
        }
        Some(match place.conn.swap(None) {
            Some(given) => Given::Conn(Arc::clone(&given.0), given.1),
            None => Given::Leave(Ticket::of(&pool)),
        })
    }
}

/// A place among the connections of the pool.
pub(crate) struct Ticket(Arc<Pool>);

impl Ticket {
    fn of(pool: &Arc<Pool>) -> Self {
        pool.connections.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(pool))
    }

    /// The pool of its connection, which is there for as long as that.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.0.connections.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "each connection is counted until it ends");
        self.0.tell();
        if before == 1 {
            let key = Verbatim(&self.0.key);
            self.0.log(format_args!("lua tcp socket keepalive: free connection pool for \"{key}\""));
        }
    }
}

/// Whether a connection may be made.
pub(crate) enum Room {
    /// An idle connection, and how often it was used.
    Idle(Arc<Conn>, u32),
    /// A new one.
    New(Option<Ticket>),
    /// When another one ends, or is put aside.
    Later(Queued),
    /// Too many wait.
    Full,
}

/// Whether a pool, or a keeper, was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsNew {
    No,
    Yes,
}

impl Pools {
    fn open(
        &mut self,
        key: &[u8],
        (size, backlog): (usize, Option<usize>),
        sink: Option<&Arc<dyn Sink>>,
    ) -> (Arc<Pool>, IsNew) {
        if let Some(pool) = self.by_key.get(key).filter(|pool| !pool.is_over()) {
            return (Arc::clone(pool), IsNew::No);
        }
        if self.by_key.len() >= 2 * self.swept.max(KEYS_MIN) {
            self.by_key.retain(|_, pool| !pool.is_over());
            self.swept = self.by_key.len();
        }
        let pool = Arc::new(Pool {
            key: key.to_vec(),
            size,
            sink: sink.cloned(),
            backlog,
            is_used: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            waiting: SegQueue::new(),
            idle: Mutex::default(),
        });
        let before = self.by_key.insert(key.to_vec(), Arc::clone(&pool));
        debug_assert!(before.is_none_or(|pool| pool.is_over()), "a key has one pool");
        (pool, IsNew::Yes)
    }

    fn room(&mut self, key: &[u8], home: LoopRef, limit_ms: u64) -> Room {
        let Some(pool) = self.by_key.get(key).filter(|pool| !pool.is_over()) else {
            return Room::New(None);
        };
        if let Some((conn, used)) = pool.take() {
            return Room::Idle(conn, used);
        }
        if let Some(backlog) = pool.backlog
            && pool.connections.load(Ordering::SeqCst) >= pool.size
        {
            for place in (0..pool.waiting.len()).map_while(|_| pool.waiting.pop()) {
                if place.bell.is_waited_for() {
                    pool.waiting.push(place);
                }
            }
            if pool.waiting.len() >= backlog {
                return Room::Full;
            }
            let (waiter, bell) = Waiter::new(home, Some(limit_ms));
            let place = Arc::new(LinePlace { bell, conn: ArcSwapOption::empty() });
            pool.waiting.push(Arc::clone(&place));
            return Room::Later(Queued { waiter, place, pool: Arc::clone(pool) });
        }
        pool.is_used.store(true, Ordering::SeqCst);
        Room::New(Some(Ticket::of(pool)))
    }
}
