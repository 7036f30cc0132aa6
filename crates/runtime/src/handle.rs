//! The handles of a runtime's users: the runtime itself, its loops, timers.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll};
use std::time::Duration;

use clearway_os::clock;
use clearway_os::spin::Spin;
use clearway_os::thread;

use crate::event_loop::Loop;
use crate::event_loop::loops::Loops;
use crate::handover::observer::{Account, Observer};
use crate::handover::suspects::{Manner, Tag};
use crate::handover::word::{CARRIERS_MAX, Lease, PollId};
use crate::identities::Identities;
use crate::metrics::LoopValues;
use crate::shared::{Config, HABIT_NS, Shared};
use crate::task::timer::Handle;
use crate::task::{self, Binding};
use crate::threads::{carriers, stuck, watchdog};

/// How long the loops have for the tasks of one page that were woken together.
const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// The bytes that a task takes beside its future.
pub const TASK_OVERHEAD: usize = task::HEADER_SIZE;

/// A set of loops and the threads that run them. It lives until the process ends: dropping the
/// handle changes nothing, [`Runtime::stop`] ends the threads.
#[derive(Clone, Copy)]
pub struct Runtime(pub(crate) &'static Loops);

impl Runtime {
    /// Starts the loops. Their carriers inherit the priority of the calling thread.
    ///
    /// # Errors
    /// When descriptors or threads are refused, or the configuration has no loops or more carriers
    /// than a word can name (16,384).
    pub fn start(config: &Config) -> io::Result<Self> {
        if config.loops == 0 || config.loops + config.handover_carriers > CARRIERS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(config, carriers::probe_restore())));
        let all: &'static Loops = Box::leak(Box::new(Loops::new(shared)));
        let mut leases = Vec::new();
        let mut loops: Vec<&'static Loop> = Vec::new();
        for index in 0..config.loops {
            let (new, lease) = Loop::new(index, Spin::beside(config.loops), all)?;
            loops.push(Box::leak(Box::new(new)));
            leases.push(lease);
        }
        all.set(loops.into());
        carriers::start(all, leases)?;
        Ok(Self(all))
    }

    /// How many loops there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.all().len()
    }

    /// Never: a runtime has at least one loop.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Loop number `index`.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn at(self, index: usize) -> LoopRef {
        LoopRef(self.0.all()[index])
    }

    /// All loops.
    pub fn loops(self) -> impl Iterator<Item = LoopRef> {
        self.0.all().iter().map(|l| LoopRef(l))
    }

    /// Starts a set of identity threads, one per loop; a configuration that is run has one. Waits
    /// until they run: not to be called on a loop.
    ///
    /// # Errors
    /// When a thread is refused.
    pub fn identities(&self) -> io::Result<Arc<Identities>> {
        Identities::start(self.len()).map(Arc::new)
    }

    /// Shows the polls that do not come back to `observer`, from now on and for good; the first one stays.
    ///
    /// # Errors
    /// Where loops are not handed over the watchdog starts here: when its thread is refused.
    pub fn observe(self, observer: Arc<dyn Observer>) -> io::Result<()> {
        let is_first = self.0.shared.observer.set(observer).is_ok();
        if is_first && self.0.shared.handover_after.is_none() {
            return carriers::start_watchdog(self.0, watchdog::PERIOD_WITHOUT_HANDOVER);
        }
        Ok(())
    }

    /// Wakes every task that waits for a socket or listener, so that it looks at what was changed before
    /// this call. A task that is about to wait and looks after it has registered misses nothing.
    ///
    /// Takes a millisecond per few hundred tasks, so that loops with many do other things in between: not
    /// to be called on a loop.
    #[expect(clippy::disallowed_methods, reason = "called on threads that run no loop")]
    pub fn wake_all(self) {
        fence(Ordering::SeqCst);
        let pages = self.0.all().iter().map(|l| l.slots.pages()).max().unwrap_or(0);
        for page in 0..pages {
            let woken: usize = self.0.all().iter().map(|l| l.slots.wake_page(page)).sum();
            if woken > 0 && page + 1 < pages {
                std::thread::sleep(WAKE_PAUSE);
            }
        }
    }

    /// Ends every loop after its present turn. Tasks are not dropped.
    pub fn stop(self) {
        self.0.shared.stop();
    }
}

/// A loop. Any thread may hold it; loops are never freed.
#[derive(Clone, Copy)]
pub struct LoopRef(pub(crate) &'static Loop);

impl PartialEq for LoopRef {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for LoopRef {}

impl LoopRef {
    /// Starts a task; this loop is its home for life, though another one may poll it when it has nothing
    /// else to do. `tag` is what its first poll does.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(self, tag: Tag, future: F) {
        task::spawn(&self.0.remote, tag.0, Binding::Free, future);
    }

    /// As [`spawn`](Self::spawn), for a large future: it is made in the task's memory instead of being moved
    /// there.
    #[inline]
    pub fn spawn_with<F: Future<Output = ()> + Send + 'static>(self, tag: Tag, future: impl FnOnce() -> F) {
        task::spawn_with(&self.0.remote, tag.0, Binding::Free, future);
    }

    /// Starts a task that no other loop takes when this one is crowded.
    pub fn spawn_bound<F: Future<Output = ()> + Send + 'static>(self, tag: Tag, future: F) {
        task::spawn(&self.0.remote, tag.0, Binding::Bound, future);
    }

    /// Has the poll that calls this give an account of itself if it was seen stuck and an observer asks.
    /// Otherwise this is one load. To be called by tasks of this loop behind what may have held it, while
    /// they still know what they did.
    #[inline]
    pub fn account(self, describe: impl FnOnce() -> Account) {
        let shared = self.0.remote.shared;
        if shared.asked.load(Ordering::Relaxed) != 0 {
            stuck::give_account(shared, describe);
        }
    }

    /// Milliseconds of the monotonic clock, read once per turn of the loop.
    #[must_use]
    pub fn now_ms(self) -> u64 {
        self.0.remote.now_ms()
    }

    /// Milliseconds since the epoch, read once per turn of the loop.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.0.unix_ms()
    }

    /// Has those of the loop's sockets closed that their tasks can do without longest: a `share`-th of them,
    /// but one at least and `most` at most. How many were told so; they are closed soon, unless something
    /// has just come for them. Looks at every socket of the loop: for when there is no room.
    pub fn reclaim(self, share: usize, most: usize) -> usize {
        self.0.slots.reclaim(self.now_ms(), share, most)
    }

    /// How long what came to the loop had to wait lately, in milliseconds: the length of its turns. 0 for one
    /// that keeps up.
    #[must_use]
    pub fn lag_ms(self) -> u32 {
        self.0.lag_ms()
    }

    /// How much the loop has to do before it gets to what comes now: tasks that are ready, and
    /// [`BACKLOG_PER_MS`] for each millisecond of its lag, or of its present turn where that is longer. A
    /// guess, made from any thread, for which it is `now_ms`.
    ///
    /// [`BACKLOG_PER_MS`]: crate::BACKLOG_PER_MS
    #[must_use]
    pub fn backlog(self, now_ms: u64) -> u32 {
        self.0.backlog(now_ms)
    }

    /// How long the present turn of the loop has taken so far, in milliseconds. Reads the clock.
    #[must_use]
    pub fn turn_ms(self) -> u64 {
        self.0.turn_ms()
    }

    /// Nanoseconds of the monotonic clock, read now.
    #[must_use]
    pub fn clock_ns(self) -> u64 {
        clock::monotonic_ns()
    }

    /// Says that a task of this loop waits for an answer of another thread that mostly comes within
    /// microseconds, until the answer of this is dropped: the loop may look for it so long before it sleeps.
    #[must_use]
    pub fn expect_answer(self) -> Expected {
        self.0.expected.fetch_add(1, Ordering::Relaxed);
        Expected(self)
    }

    /// Another loop of its runtime.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub fn sibling(self, index: usize) -> Self {
        Self(self.0.all.all()[index])
    }

    /// The loop's counts of itself. Any thread.
    #[must_use]
    pub fn counted(self) -> LoopValues {
        self.0.counters.read()
    }

    /// Whether a poll of this runtime is under way away from its loop, which goes on meanwhile.
    #[must_use]
    pub fn is_away(self, poll: PollId) -> bool {
        let carriers = &self.0.remote.shared.carriers;
        carriers.get(Lease::from_bits(poll.0).carrier()).is_some_and(|carrier| {
            carrier.away.has(poll) || carrier.helps_in.load(Ordering::Relaxed) == poll.0
        })
    }

    /// Whether a poll that is under way away from its loop has used a processor for long, or has a tag whose
    /// polls slept before. Others that want the processor do not count.
    #[must_use]
    pub fn is_blocking(self, poll: PollId) -> bool {
        let shared = self.0.remote.shared;
        let Some(carrier) = shared.carriers.get(Lease::from_bits(poll.0).carrier()) else { return false };
        if !carrier.away.has(poll) {
            return false;
        }
        let tag = Tag(carrier.tag.load(Ordering::Relaxed));
        match shared.suspects.check(tag, self.now_ms()) {
            Some(Manner::Sleeps) => true,
            Some(Manner::Burns) | None => {
                let now_ns = thread::cpu_ns(carrier.tid.load(Ordering::Relaxed)).unwrap_or(0);
                now_ns.saturating_sub(carrier.away.cpu_ns.load(Ordering::Relaxed)) >= HABIT_NS
            }
        }
    }

    /// Which loop of its runtime this is, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.remote.index
    }
}

/// See [`LoopRef::expect_answer`].
pub struct Expected(LoopRef);

impl Drop for Expected {
    fn drop(&mut self) {
        let before = self.0.0.expected.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "what is expected is counted");
    }
}

/// A timer on a loop's wheel (1 ms), owned by one task. Arming it again is a store, dropping it
/// takes it off the wheel.
pub struct Timer {
    home: LoopRef,
    handle: Handle,
}

impl Timer {
    /// A timer that is not armed.
    #[must_use]
    pub fn new(home: LoopRef) -> Self {
        Self { home, handle: Handle::new(&home.0.remote) }
    }

    /// Has it expire when [`LoopRef::now_ms`] reaches `deadline_ms`, instead of any time set before.
    pub fn arm(&self, deadline_ms: u64) {
        self.handle.arm(deadline_ms);
    }

    /// Has it never expire until it is armed again.
    pub fn disarm(&self) {
        self.handle.disarm();
    }

    /// Disarms it and lets go of the task that has polled it: another one may have it from here on.
    pub fn rest(&self) {
        self.handle.rest();
    }

    /// Ready once the deadline has passed, and so until it is armed again.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.handle.poll_expired(cx.waker(), || self.home.now_ms()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
