//! Where a connection stands while it is put aside, and how those that may take it from there hear of each
//! other: one that wants it, and a task that looks after it. Without sockets, which the models need not know.
//!
//! 1. A connection that is put aside stands in the place. The one that takes it out has it: one that wants
//!    it, one that ends it, or the task, where its peer ends it or sends something, or its time is over.
//! 2. The task is woken by the connection, by its timer, and when the connection is over. Where it finds
//!    nothing in the place the connection is in use, and there is nothing to be done.
//! 3. The task leaves its waker before its first look; one that puts the connection aside looks for the waker
//!    when it has filled the place. So that look finds the connection, or what happens to it wakes the task.
//! 4. A connection that is over says so, then looks for the waker; the task leaves its waker, then asks
//!    whether it is over. A SeqCst fence stands between the two on either side: one sees the other.
//! 5. The place is held for a look at a connection at most. One that wants a connection does not wait for
//!    that: it takes another one.

use std::task::{Context, Poll, Waker, ready};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

#[cfg(not(loom))]
type WakerOnce = std::sync::OnceLock<Waker>;

/// The waker's place for models: one that finds nothing there has synchronized with nobody.
#[cfg(loom)]
#[derive(Default)]
struct WakerOnce {
    is_set: AtomicBool,
    waker: std::sync::OnceLock<Waker>,
}

#[cfg(loom)]
impl WakerOnce {
    fn get(&self) -> Option<&Waker> {
        if self.is_set.load(Ordering::Acquire) { self.waker.get() } else { None }
    }

    fn get_or_init(&self, init: impl FnOnce() -> Waker) -> &Waker {
        let waker = self.waker.get_or_init(init);
        self.is_set.store(true, Ordering::Release);
        waker
    }
}

/// See the rules.
pub(crate) struct Aside<C> {
    place: Mutex<Option<C>>,
    waker: WakerOnce,
    is_over: AtomicBool,
}

/// Not derived: a connection has no default.
impl<C> Default for Aside<C> {
    fn default() -> Self {
        Self { place: Mutex::new(None), waker: WakerOnce::default(), is_over: AtomicBool::new(false) }
    }
}

/// What came of an attempt to take a connection.
pub(crate) enum Taken<C> {
    Conn(C),
    /// It has ended, or something else has it.
    Nothing,
    /// The task is just looking at it.
    Busy,
}

impl<C> Aside<C> {
    /// Puts the connection aside. `watch` has the waker told of what happens to it, and says whether the task
    /// is to look at once; before the task has begun it is not called (rule 3).
    pub(crate) fn put(&self, conn: C, watch: impl FnOnce(&C, &Waker) -> bool) {
        // The task holds an empty place for some instructions.
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(place.is_none(), "a connection is put aside once");
        debug_assert!(!self.is_over(), "a connection that is put aside lives");
        let conn = place.insert(conn);
        if let Some(waker) = self.waker.get()
            && watch(conn, waker)
        {
            waker.wake_by_ref();
        }
    }

    /// Takes the connection (rules 1 and 5).
    pub(crate) fn take(&self) -> Taken<C> {
        let Some(mut place) = self.try_enter() else { return Taken::Busy };
        place.take().map_or(Taken::Nothing, Taken::Conn)
    }

    /// Takes the connection, to end it, if it is put aside; waits for a look of the task.
    pub(crate) fn wait_and_take(&self) -> Option<C> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The connection is over, wherever it was: the task ends (rule 4).
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The task's poll: ready when the connection is over, or with the connection where `poll_idle` says that
    /// it is to end.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        poll_idle: impl FnOnce(&C, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<C>> {
        self.waker.get_or_init(|| cx.waker().clone());
        fence(Ordering::SeqCst);
        if self.is_over() {
            return Poll::Ready(None);
        }
        let Some(mut place) = self.try_enter() else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        let Some(conn) = &*place else { return Poll::Pending };
        ready!(poll_idle(conn, cx));
        Poll::Ready(place.take())
    }

    fn try_enter(&self) -> Option<MutexGuard<'_, Option<C>>> {
        match self.place.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::future::poll_fn;

    use loom::future::{AtomicWaker, block_on};
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A connection whose peer may end it.
    #[derive(Default)]
    struct Conn {
        is_ended: AtomicBool,
        waker: AtomicWaker,
    }

    impl Conn {
        fn watch(&self, waker: &Waker) -> bool {
            self.waker.register_by_ref(waker);
            self.is_ended.load(Ordering::SeqCst)
        }

        fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
            if self.watch(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
        }

        fn end(&self) {
            self.is_ended.store(true, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    type Kept = Arc<Aside<Arc<Conn>>>;

    /// A task, and whether it has found a connection at its end.
    fn task(aside: &Kept) -> thread::JoinHandle<bool> {
        let aside = Arc::clone(aside);
        thread::spawn(move || run(&aside).is_some())
    }

    /// A peer that ends the connection.
    fn peer(conn: &Arc<Conn>) -> thread::JoinHandle<()> {
        let conn = Arc::clone(conn);
        thread::spawn(move || conn.end())
    }

    fn run(aside: &Kept) -> Option<Arc<Conn>> {
        block_on(poll_fn(|cx| {
            let found = aside.poll(cx, |conn, cx| conn.poll_idle(cx));
            if found.is_pending() {
                // Where the place was held, the task comes back at once: those that hold it go on first.
                thread::yield_now();
            }
            found
        }))
    }

    fn put(aside: &Kept, conn: &Arc<Conn>) {
        aside.put(Arc::clone(conn), |conn, waker| conn.watch(waker));
    }

    /// Whatever comes first, the task hears of the peer's end.
    #[test]
    fn loom_an_end_by_the_peer_is_heard() {
        loom::model(|| {
            let (aside, conn) = (Kept::default(), Arc::new(Conn::default()));
            let task = task(&aside);
            let peer = peer(&conn);
            put(&aside, &conn);
            peer.join().unwrap();
            assert!(task.join().unwrap(), "the connection was put aside");
            assert!(matches!(aside.take(), Taken::Nothing));
        });
    }

    /// A connection is taken by one, and one that goes on lives until it says that it is over.
    #[test]
    fn loom_one_has_the_connection() {
        loom::model(|| {
            let (aside, conn) = (Kept::default(), Arc::new(Conn::default()));
            put(&aside, &conn);
            let task = task(&aside);
            let peer = peer(&conn);
            let is_taken = match aside.take() {
                Taken::Conn(_) => {
                    aside.end();
                    true
                }
                // The task looks at it: it finds the peer's end, or hears of it.
                Taken::Busy | Taken::Nothing => false,
            };
            peer.join().unwrap();
            assert_eq!(task.join().unwrap(), !is_taken);
        });
    }

    /// One that is used again, and is over then, leaves no task behind.
    #[test]
    fn loom_the_task_ends_with_the_connection() {
        loom::model(|| {
            let (aside, conn) = (Kept::default(), Arc::new(Conn::default()));
            let task = task(&aside);
            put(&aside, &conn);
            let taken = aside.wait_and_take();
            assert!(taken.is_some(), "its peer goes on, so the task leaves it");
            aside.end();
            assert!(!task.join().unwrap());
        });
    }
}
