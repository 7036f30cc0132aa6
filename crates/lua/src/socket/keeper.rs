//! Looks after a connection while it is put aside. Each connection that was put aside once has a keeper, with
//! a task of its own that lives as long as the connection: to put it aside again, or to take it, makes and
//! ends no task, and wakes none.
//!
//! 1. A connection that is put aside stands in `place`. The one that takes it out has it: `connect`, the pool
//!    that ends it, or the keeper's task, as its peer has ended it, has sent something, or its time is over.
//! 2. The task is woken by the socket, by the timer, and when the connection has ended (`is_over`). Where it
//!    finds nothing in `place` the connection is in use, and there is nothing to be done.
//! 3. The task leaves its waker behind before its first look; one that puts the connection aside looks for
//!    the waker when it has filled `place`. So the first look of the task finds the connection, or the socket
//!    and the timer know the waker.
//! 4. `place` is held for a look at a socket at most. `connect` does not wait for that: it takes another
//!    connection.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker, ready};

use clearway_base::log::{Level, Sink};
use clearway_runtime::{LoopRef, Tag, Timer};

use super::connection::Conn;
use super::pool::IsNew;

/// See the rules.
pub(super) struct Keeper {
    place: Mutex<Option<Arc<Conn>>>,
    /// How often the connection that is put aside was used before.
    used: AtomicU32,
    is_over: AtomicBool,
    waker: OnceLock<Waker>,
    home: LoopRef,
    timer: Timer,
    /// Takes lines about the connection while it is put aside.
    sink: Option<Arc<dyn Sink>>,
}

/// A connection's hold on its keeper, which ends with the connection.
pub(super) struct Kept(Arc<Keeper>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        // The task leaves its waker, then looks whether it is over.
        fence(Ordering::SeqCst);
        if let Some(waker) = self.0.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// What came of an attempt to take a connection.
pub(super) enum Taken {
    /// The connection, and how often it was used before.
    Conn(Arc<Conn>, u32),
    /// It has ended, or something else has it.
    Nothing,
    /// The keeper's task is just looking at it.
    Busy,
}

impl Keeper {
    /// The keeper of a connection. One that is made is to be begun ([`Keeper::begin`]).
    pub(super) fn of(conn: &Conn, sink: Option<&Arc<dyn Sink>>) -> (Arc<Self>, IsNew) {
        let mut is_new = IsNew::No;
        let kept = conn.keeper.get_or_init(|| {
            is_new = IsNew::Yes;
            let home = conn.home();
            Kept(Arc::new(Self {
                place: Mutex::default(),
                used: AtomicU32::new(0),
                is_over: AtomicBool::new(false),
                waker: OnceLock::new(),
                home,
                timer: Timer::new(home),
                sink: sink.cloned(),
            }))
        });
        (Arc::clone(&kept.0), is_new)
    }

    /// Begins its task.
    pub(super) fn begin(self: Arc<Self>) {
        self.home.spawn_bound(Tag::NONE, self.run());
    }

    /// Whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Puts its connection aside, for so long at most (0: for as long as its peer keeps it). The loop watches
    /// the connection.
    pub(super) fn put(&self, conn: Arc<Conn>, used: u32, limit_ms: u64) {
        match limit_ms {
            0 => self.timer.disarm(),
            ms => self.timer.arm(self.home.now_ms() + ms),
        }
        self.used.store(used, Ordering::Relaxed);
        // The task holds an empty place for some instructions.
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(place.is_none(), "a connection is put aside once");
        debug_assert!(!self.is_over(), "a connection that is put aside lives");
        let conn = place.insert(conn);
        // Rule 3.
        let Some(waker) = self.waker.get() else { return };
        let is_expired = self.timer.poll_expired(&mut Context::from_waker(waker)).is_ready();
        let is_watched = conn.with_socket(|socket| socket.watch_idle(waker));
        if is_expired || !matches!(is_watched, Some(Ok(()))) {
            waker.wake_by_ref();
        }
    }

    /// Takes its connection (rules 1 and 4).
    pub(super) fn take(&self) -> Taken {
        let Some(mut place) = self.try_enter() else { return Taken::Busy };
        match place.take() {
            Some(conn) => Taken::Conn(conn, self.used.load(Ordering::Relaxed)),
            None => Taken::Nothing,
        }
    }

    /// Ends its connection, if that is put aside.
    pub(super) fn end(&self) {
        let conn = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(conn);
    }

    fn try_enter(&self) -> Option<MutexGuard<'_, Option<Arc<Conn>>>> {
        match self.place.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn log(&self, text: &str) {
        if let Some(sink) = &self.sink {
            sink.log(Level::Debug, format_args!("{text}"));
        }
    }

    async fn run(self: Arc<Self>) {
        let mut byte = Vec::with_capacity(1);
        poll_fn(|cx| self.poll(&mut byte, cx)).await;
    }

    /// Ready when the connection has ended.
    fn poll(&self, byte: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.get_or_init(|| cx.waker().clone());
        fence(Ordering::SeqCst);
        if self.is_over() {
            return Poll::Ready(());
        }
        let Some(mut place) = self.try_enter() else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let Some(conn) = &*place else { return Poll::Pending };
        ready!(self.poll_idle(conn, byte, cx));
        let conn = place.take();
        drop(place);
        self.log("lua tcp socket keepalive close handler");
        drop(conn);
        Poll::Ready(())
    }

    /// Ready when a connection that is put aside is to end.
    fn poll_idle(&self, conn: &Conn, byte: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.poll_expired(cx).is_ready() {
            self.log("lua tcp socket keepalive max idle timeout");
            return Poll::Ready(());
        }
        conn.poll_read(cx, byte).map(drop)
    }
}
