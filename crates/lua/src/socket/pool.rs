//! Connections that are put aside for the next `connect` to the same server, one pool for each key, and how
//! many connections a key may have. All VMs of a loop share theirs, and those of the next configuration find
//! them again ([`LoopPools::of`]): a reload costs no connection. Connections end, and idle ones are looked
//! after, in tasks of their own, which know no lock.
//!
//! 1. A connection that counts has a [`Ticket`]; where that is dropped, the first that waits is told, and
//!    tries again.
//! 2. An idle connection leaves ALIVE once: `connect` takes it, or its task ends it. The one that has changed
//!    the state has the connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use arc_swap::{ArcSwap, ArcSwapOption};
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_runtime::{LoopRef, Tag, Timer};
use crossbeam_queue::SegQueue;

use super::connection::Conn;
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

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.enter().by_key.get(key).is_some_and(|pool| !pool.is_over())
    }

    /// Makes the pool of a key with this size, if there is none.
    pub(crate) fn open(
        &self,
        key: &[u8],
        limits: (usize, Option<usize>),
        sink: Option<&Arc<dyn Sink>>,
    ) -> IsNew {
        self.enter().open(key, limits, sink)
    }

    /// Connections of a key, idle ones included.
    pub(crate) fn connections(&self, key: &[u8]) -> usize {
        self.enter().by_key.get(key).map_or(0, |pool| pool.shared.connections.load(Ordering::SeqCst))
    }

    /// A connection that was put aside, or leave to make one.
    pub(crate) fn room(&self, key: &[u8], home: LoopRef, limit_ms: u64) -> Room {
        self.enter().room(key, home, limit_ms)
    }

    /// Puts a connection aside, for so long at most (0: for as long as its peer keeps it); the oldest one
    /// ends where there are too many.
    pub(crate) fn keep(&self, key: &[u8], conn: Arc<Conn>, used: u32, limit_ms: u64) {
        let home = conn.home();
        let (idle, oldest, waiter, shared) = {
            let mut pools = self.enter();
            if HAVE_ENDED.load(Ordering::SeqCst) {
                return;
            }
            let Some(pool) = pools.by_key.get_mut(key) else { return };
            pool.stage = PoolStage::Used;
            let shared = Arc::clone(&pool.shared);
            conn.count(|| Ticket::of(&shared));
            let Some(conn) = shared.give(conn, used) else { return };
            let (waiter, bell) = Waiter::new(home, None);
            let conn = ArcSwapOption::new(Some(conn));
            let idle = Arc::new(Idle { state: AtomicU8::new(ALIVE), conn, used, bell });
            let oldest = pool.put(&idle);
            (idle, oldest, waiter, shared)
        };
        drop(oldest.and_then(|oldest| oldest.leave(DEAD)));
        home.spawn_bound(Tag::NONE, look_after(idle, waiter, shared, limit_ms));
    }
}

/// See [`LoopPools`].
#[derive(Default)]
struct Pools {
    by_key: HashMap<Vec<u8>, Pool>,
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
        for idle in self.by_key.values_mut().flat_map(|pool| pool.idle.drain(..)) {
            drop(idle.leave(DEAD));
        }
    }
}

/// Set before the pools are looked through, and looked at behind their locks: what is put aside later is not.
static HAVE_ENDED: AtomicBool = AtomicBool::new(false);

/// The process ends: connections that are put aside hold it no longer. Any thread.
pub fn end_connections() {
    HAVE_ENDED.store(true, Ordering::SeqCst);
    for pools in OF_LOOPS.load().iter().filter_map(|(_, pools)| pools.upgrade()) {
        pools.enter().end();
    }
}

/// Whether a pool has had a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolStage {
    Made,
    Used,
}

/// The pool of one key.
struct Pool {
    size: usize,
    stage: PoolStage,
    /// The one that was used last is at the end.
    idle: Vec<Arc<Idle>>,
    shared: Arc<Shared>,
}

impl Pool {
    /// Whether its last connection has ended, and nothing waits: the next one of its name has limits of its
    /// own.
    fn is_over(&self) -> bool {
        let Shared { connections, waiting, .. } = &*self.shared;
        self.stage == PoolStage::Used && connections.load(Ordering::SeqCst) == 0 && waiting.is_empty()
    }

    /// Has one more; the oldest where that is one too many.
    fn put(&mut self, idle: &Arc<Idle>) -> Option<Arc<Idle>> {
        self.idle.retain(|idle| idle.is_alive());
        let oldest = (self.idle.len() >= self.size.max(1)).then(|| self.idle.remove(0));
        self.idle.push(Arc::clone(idle));
        debug_assert!(self.idle.len() <= self.size.max(1), "so many connections are put aside at most");
        oldest
    }
}

/// The part that tasks of connections know.
struct Shared {
    key: Vec<u8>,
    /// Takes lines of idle connections.
    sink: Option<Arc<dyn Sink>>,
    /// How many may wait for a connection to end, if there is such a limit.
    backlog: Option<usize>,
    /// Idle ones included.
    connections: AtomicUsize,
    waiting: SegQueue<Arc<LinePlace>>,
}

/// The place of a `connect` that waits for a connection of its key.
struct LinePlace {
    bell: Bell,
    /// The connection that it is given, and how often that was used.
    conn: ArcSwapOption<(Arc<Conn>, u32)>,
}

impl Shared {
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

/// A `connect` that waits.
pub(crate) struct Queued {
    waiter: Waiter,
    place: Arc<LinePlace>,
    shared: Arc<Shared>,
}

/// The connection that it gets in the end.
pub(crate) enum Given {
    Conn(Arc<Conn>, u32),
    Leave(Ticket),
}

impl Queued {
    /// Waits; nothing is given where its time is over.
    pub(crate) async fn wait(self) -> Option<Given> {
        let Self { waiter, place, shared } = self;
        if !waiter.await {
            return None;
        }
        Some(match place.conn.swap(None) {
            Some(given) => Given::Conn(Arc::clone(&given.0), given.1),
            None => Given::Leave(Ticket::of(&shared)),
        })
    }
}

/// A place among the connections of the pool (rule 1).
pub(crate) struct Ticket(Arc<Shared>);

impl Ticket {
    fn of(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
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

const ALIVE: u8 = 0;
const TAKEN: u8 = 1;
const DEAD: u8 = 2;

/// A connection that waits for its next use.
struct Idle {
    state: AtomicU8,
    conn: ArcSwapOption<Conn>,
    /// How often it was used before.
    used: u32,
    bell: Bell,
}

impl Idle {
    /// Leaves the wait with this outcome (rule 2).
    fn leave(&self, to: u8) -> Option<Arc<Conn>> {
        debug_assert!(matches!(to, TAKEN | DEAD), "a connection that has left does not come back");
        let left = self.state.compare_exchange(ALIVE, to, Ordering::SeqCst, Ordering::SeqCst);
        let conn = left.is_ok().then(|| self.conn.swap(None))?;
        debug_assert!(conn.is_some(), "the one that changes the state has the connection");
        self.bell.ring();
        conn
    }

    fn is_alive(&self) -> bool {
        self.state.load(Ordering::SeqCst) == ALIVE
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

/// Whether a pool was made.
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
    ) -> IsNew {
        if self.by_key.get(key).is_some_and(|pool| !pool.is_over()) {
            return IsNew::No;
        }
        if self.by_key.len() >= 2 * self.swept.max(KEYS_MIN) {
            self.by_key.retain(|_, pool| !pool.is_over());
            self.swept = self.by_key.len();
        }
        let shared = Arc::new(Shared {
            key: key.to_vec(),
            sink: sink.cloned(),
            backlog,
            connections: AtomicUsize::new(0),
            waiting: SegQueue::new(),
        });
        let pool = Pool { size, stage: PoolStage::Made, idle: Vec::new(), shared };
        let before = self.by_key.insert(key.to_vec(), pool);
        debug_assert!(before.is_none_or(|pool| pool.is_over()), "a key has one pool");
        IsNew::Yes
    }

    fn room(&mut self, key: &[u8], home: LoopRef, limit_ms: u64) -> Room {
        let Some(pool) = self.by_key.get_mut(key).filter(|pool| !pool.is_over()) else {
            return Room::New(None);
        };
        while let Some(idle) = pool.idle.pop() {
            if let Some(conn) = idle.leave(TAKEN) {
                return Room::Idle(conn, idle.used);
            }
        }
        let shared = &pool.shared;
        if let Some(backlog) = shared.backlog
            && shared.connections.load(Ordering::SeqCst) >= pool.size
        {
            for place in (0..shared.waiting.len()).map_while(|_| shared.waiting.pop()) {
                if place.bell.is_waited_for() {
                    shared.waiting.push(place);
                }
            }
            if shared.waiting.len() >= backlog {
                return Room::Full;
            }
            let (waiter, bell) = Waiter::new(home, Some(limit_ms));
            let place = Arc::new(LinePlace { bell, conn: ArcSwapOption::empty() });
            shared.waiting.push(Arc::clone(&place));
            return Room::Later(Queued { waiter, place, shared: Arc::clone(shared) });
        }
        pool.stage = PoolStage::Used;
        Room::New(Some(Ticket::of(&pool.shared)))
    }
}

/// Ends an idle connection whose peer has ended it or sends something, or whose time is over.
async fn look_after(idle: Arc<Idle>, waiter: Waiter, shared: Arc<Shared>, limit_ms: u64) {
    let home = idle.conn.load().as_ref().map(|conn| conn.home()).filter(|_| limit_ms > 0);
    let timer = home.map(|home| {
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + limit_ms);
        timer
    });
    let (mut waiter, mut byte) = (pin!(waiter), Vec::with_capacity(1));
    let is_to_end = poll_fn(|cx| match waiter.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => poll_over((&idle, &shared), timer.as_ref(), &mut byte, cx).map(|()| true),
    })
    .await;
    if is_to_end {
        shared.log(format_args!("lua tcp socket keepalive close handler"));
        drop(idle.leave(DEAD));
    }
}

fn poll_over(
    (idle, shared): (&Idle, &Shared),
    timer: Option<&Timer>,
    byte: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if timer.is_some_and(|timer| timer.poll_expired(cx).is_ready()) {
        shared.log(format_args!("lua tcp socket keepalive max idle timeout"));
        return Poll::Ready(());
    }
    match idle.conn.load_full() {
        Some(conn) if idle.is_alive() => conn.poll_read(cx, byte).map(drop),
        // It was taken, which rings.
        _ => Poll::Pending,
    }
}
