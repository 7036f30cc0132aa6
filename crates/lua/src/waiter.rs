//! A thread that waits until other code of its VM wakes it, which may be that of another request.
//!
//! 1. `state` leaves WAITING once: by a waker in the VM, by the time of the waiter, or because that is given
//!    up. The one that has changed it knows what became of it.
//! 2. The waiter puts its waker in, then looks at `state`; one that wakes it changes `state`, then takes the
//!    waker. With a fence between the two steps on either side one of them sees what the other has done.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwapOption;
use clearway_base::log::{Level, Sink};
use clearway_runtime::{LoopRef, Timer};

const WAITING: u8 = 0;
const WOKEN: u8 = 1;
const OVER: u8 = 2;

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    waker: ArcSwapOption<Waker>,
}

impl Shared {
    /// Leaves the wait with this outcome (rule 1).
    fn leave(&self, to: u8) -> bool {
        debug_assert!(matches!(to, WOKEN | OVER), "a waiter does not wait again");
        self.state.compare_exchange(WAITING, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Has the log told, at debug level, that a thread which waited was ended.
pub(crate) struct EndLine {
    sink: Option<Arc<dyn Sink>>,
    text: &'static str,
}

impl EndLine {
    pub(crate) fn new(sink: Option<Arc<dyn Sink>>, text: &'static str) -> Self {
        Self { sink, text }
    }

    /// The thread was not ended.
    pub(crate) fn forget(mut self) {
        self.sink = None;
    }
}

impl Drop for EndLine {
    fn drop(&mut self) {
        if let Some(sink) = &self.sink {
            sink.log(Level::Debug, format_args!("{}", self.text));
        }
    }
}

/// Wakes one waiter.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Weak<Shared>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Bell {
    pub(crate) fn is_waited_for(&self) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.state.load(Ordering::SeqCst) == WAITING)
    }

    /// Wakes it; whether it was still waiting.
    pub(crate) fn ring(&self) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        let has_woken = shared.leave(WOKEN);
        fence(Ordering::SeqCst);
        if has_woken && let Some(waker) = shared.waker.swap(None) {
            waker.wake_by_ref();
        }
        has_woken
    }
}

/// Waits for its bell, or until its time is over: whether it was woken.
pub(crate) struct Waiter {
    shared: Arc<Shared>,
    timer: Option<Timer>,
}

impl Waiter {
    /// A wait of at most `limit_ms` milliseconds, if there is a limit, and the bell that ends it.
    pub(crate) fn new(home: LoopRef, limit_ms: Option<u64>) -> (Self, Bell) {
        let shared = Arc::<Shared>::default();
        let bell = Bell(Arc::downgrade(&shared));
        let timer = limit_ms.map(|limit_ms| {
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + limit_ms);
            timer
        });
        (Self { shared, timer }, bell)
    }
}

impl Future for Waiter {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let shared = &self.shared;
        let is_registered = shared.waker.load().as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if !is_registered {
            shared.waker.store(Some(Arc::new(cx.waker().clone())));
        }
        fence(Ordering::SeqCst);
        debug_assert_ne!(shared.state.load(Ordering::SeqCst), OVER, "rule 1: one that is over waits no more");
        if shared.state.load(Ordering::SeqCst) == WOKEN {
            return Poll::Ready(true);
        }
        match &self.timer {
            Some(timer) if timer.poll_expired(cx).is_ready() => Poll::Ready(!shared.leave(OVER)),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.shared.leave(OVER);
    }
}

/// Bells of a VM, by number. Those of waiters that are over are forgotten when the number of bells has
/// doubled.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    by_number: HashMap<u64, (Bell, Weak<Given>)>,
    /// Grants for waiters that were woken and have not taken them.
    given: HashMap<u64, Weak<Given>>,
    last: u64,
    swept: usize,
}

/// Lives until the thread that was woken goes on, or is killed before that.
#[derive(Debug)]
pub(crate) struct Given;

impl Bells {
    /// The number of a bell, and what its thread has until it goes on.
    pub(crate) fn add(&mut self, bell: Bell) -> (u64, Arc<Given>) {
        if self.by_number.len() > 2 * self.swept.max(64) {
            self.by_number.retain(|_, (bell, _)| bell.is_waited_for());
            self.swept = self.by_number.len();
        }
        self.last += 1;
        let given = Arc::new(Given);
        let before = self.by_number.insert(self.last, (bell, Arc::downgrade(&given)));
        debug_assert!(before.is_none(), "a number stands for one bell");
        (self.last, given)
    }

    pub(crate) fn is_waited_for(&self, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|(bell, _)| bell.is_waited_for())
    }

    /// Wakes one; whether it was still waiting. What it gets is known until it is taken or lost.
    pub(crate) fn ring(&mut self, number: u64) -> bool {
        let Some((bell, given)) = self.by_number.remove(&number) else { return false };
        let has_woken = bell.ring();
        if has_woken {
            let before = self.given.insert(number, given);
            debug_assert!(before.is_none(), "a waiter is woken once");
        }
        has_woken
    }

    /// The thread that was woken has gone on.
    pub(crate) fn take(&mut self, number: u64) {
        self.given.remove(&number);
    }

    /// Whether the thread that was woken was killed before it went on; said once.
    pub(crate) fn is_lost(&mut self, number: u64) -> bool {
        let is_lost = self.given.get(&number).is_some_and(|given| given.strong_count() == 0);
        if is_lost {
            self.given.remove(&number);
        }
        is_lost
    }
}
