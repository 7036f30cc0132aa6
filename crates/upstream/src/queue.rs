//! Requests that wait until a server of their group can be used (`queue`), in the order in which they came.
//! Any loop, without locks.
//!
//! 1. While there is a line, a request that comes goes to its end without a look at the servers, so none is
//!    overtaken, but by one that is called at the same moment. A request that has tried some servers already
//!    waits apart and looks again from time to time.
//! 2. What may have made room shows first (a lease is over), then looks whether there is a line, moves
//!    `changes`, and calls the first of the line. One that enters is counted first and looks at the servers
//!    then. A fence is in between on both sides, so one of the two sees the other.
//! 3. One that is called reads `changes` and looks for a server. Where it finds none it is the first again;
//!    where `changes` has moved meanwhile it calls, as it may not have been there to be called.
//! 4. One that leaves, with a server or without, is not counted any more; then it moves `changes` and calls
//!    the next one, since there may be more room, and since a call may have found this one.
//! 5. Entries of requests that left stay in the line until they would be called. Where they are more than the
//!    others, the next one that enters sweeps them out.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Fifo, Ordering, WakerSlot, fence};

/// Servers come back without a word when their `fail_timeout` is over: so often one looks, milliseconds.
pub const LOOK_AGAIN_MS: u64 = 1000;

/// How often a request looks that has tried some servers already, milliseconds.
pub const LOOK_AGAIN_APART_MS: u64 = 50;

/// Entries of requests that have left, beside as many as may wait.
const GONE_MAX: usize = 64;

/// The queue of one group.
#[derive(Default)]
pub struct Queue {
    line: Fifo<Arc<Ticket>>,
    /// Requests that were called and have found no server: before all others.
    front: Fifo<Arc<Ticket>>,
    /// Requests in the line, those that are called included.
    waiting: AtomicUsize,
    /// Requests that wait apart.
    apart: AtomicUsize,
    changes: AtomicU32,
    /// When one was called because of the time, last.
    looked_ms: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    timed_out: AtomicU64,
    left: AtomicU64,
}

/// Counts of requests since the process began, and those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Requests that wait.
    pub waiting: u64,
    /// A server was found.
    pub served: u64,
    /// There was no room in the queue.
    pub refused: u64,
    /// None was found in time.
    pub timed_out: u64,
    /// Requests that were given up, such as those of clients that leave.
    pub left: u64,
}

const WAITING: u8 = 0;
const CALLED: u8 = 1;
const GONE: u8 = 2;

#[derive(Default)]
struct Ticket {
    state: AtomicU8,
    waker: WakerSlot,
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Behind those that came before.
    InLine,
    /// By itself: it has tried some servers already (rule 1).
    Apart,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// A request begins to wait, where fewer than `limit` do. It is called at once if it is the first.
    /// `None`: there is no room.
    #[must_use]
    pub fn enter(self: &Arc<Self>, limit: usize, at: Where) -> Option<QueuePlace> {
        let seen = self.changes.load(Ordering::SeqCst);
        let (counter, other) = match at {
            Where::InLine => (&self.waiting, &self.apart),
            Where::Apart => (&self.apart, &self.waiting),
        };
        let beside = other.load(Ordering::Relaxed);
        let more = |count: usize| (count.saturating_add(beside) < limit).then_some(count + 1);
        let Ok(before) = counter.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        fence(Ordering::SeqCst);
        let ticket = (at == Where::InLine).then(Arc::<Ticket>::default);
        if let Some(ticket) = &ticket {
            if before == 0 {
                ticket.state.store(CALLED, Ordering::Relaxed);
            } else {
                self.sweep(limit);
                self.line.push(Arc::clone(ticket));
                self.call_if_changed(seen);
            }
        }
        Some(QueuePlace { queue: Arc::clone(self), ticket, seen, end: End::Left })
    }

    /// Something may have made room: it shows already (rule 2).
    pub fn room_was_made(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.change();
        }
    }

    /// Counts of requests.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        let Self { waiting, apart, served, refused, timed_out, left, .. } = self;
        let [served, refused, timed_out, left] =
            [served, refused, timed_out, left].map(|count| count.load(Ordering::Relaxed));
        let [waiting, apart] = [waiting, apart].map(|count| count.load(Ordering::Relaxed) as u64);
        QueueCounts { waiting: waiting + apart, served, refused, timed_out, left }
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.call();
    }

    fn call(&self) {
        while let Some(ticket) = self.front.pop().or_else(|| self.line.pop()) {
            if ticket.call() {
                return;
            }
        }
    }

    fn call_if_changed(&self, seen: u32) {
        fence(Ordering::SeqCst);
        if self.changes.load(Ordering::SeqCst) != seen {
            self.call();
        }
    }

    /// Rule 5. A call that finds nobody meanwhile has moved `changes`, which is looked at behind this.
    fn sweep(&self, limit: usize) {
        let entries = self.line.len();
        if entries <= limit.saturating_mul(2).saturating_add(GONE_MAX) {
            return;
        }
        for _ in 0..entries {
            let Some(ticket) = self.line.pop() else { return };
            if ticket.state.load(Ordering::Relaxed) == WAITING {
                self.line.push(ticket);
            }
        }
    }
}

impl Ticket {
    /// Whether it waited.
    fn call(&self) -> bool {
        let called = self.state.compare_exchange(WAITING, CALLED, Ordering::SeqCst, Ordering::Relaxed);
        if called.is_ok()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
        called.is_ok()
    }
}

/// How a request has ended its waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Served,
    TimedOut,
    Left,
}

/// A request that waits. It leaves when this is dropped.
#[derive(Debug)]
#[must_use = "it leaves when this is dropped"]
pub struct QueuePlace {
    queue: Arc<Queue>,
    ticket: Option<Arc<Ticket>>,
    seen: u32,
    end: End,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl QueuePlace {
    /// Ready when a server is to be looked for. One that waits apart is never called.
    pub fn poll_called(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ticket) = &self.ticket else { return Poll::Pending };
        let is_called = || ticket.state.load(Ordering::SeqCst) == CALLED;
        if !is_called() {
            ticket.waker.set(cx.waker());
            fence(Ordering::SeqCst);
            if !is_called() {
                return Poll::Pending;
            }
        }
        self.seen = self.queue.changes.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Poll::Ready(())
    }

    /// Notes that the request was called and has found no server (rule 3).
    pub fn wait_again(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        debug_assert_eq!(ticket.state.load(Ordering::Relaxed), CALLED);
        ticket.state.store(WAITING, Ordering::SeqCst);
        self.queue.front.push(Arc::clone(ticket));
        self.queue.call_if_changed(self.seen);
    }

    /// Where it waits.
    #[must_use]
    pub fn place(&self) -> Where {
        if self.ticket.is_some() { Where::InLine } else { Where::Apart }
    }

    /// Some time has passed: one of all that say so in [`LOOK_AGAIN_MS`] has the first of the line called.
    pub fn time_has_passed(&self, now_ms: u64) {
        let before = self.queue.looked_ms.load(Ordering::Relaxed);
        let looked = &self.queue.looked_ms;
        let is_due = now_ms.saturating_sub(before) >= LOOK_AGAIN_MS;
        if is_due && looked.compare_exchange(before, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.queue.change();
        }
    }

    /// A server was found.
    pub fn serve(mut self) {
        self.end = End::Served;
    }

    /// None was found in time.
    pub fn time_out(mut self) {
        self.end = End::TimedOut;
    }
}

impl Drop for QueuePlace {
    /// Rule 4.
    fn drop(&mut self) {
        let queue = &self.queue;
        let count = match self.end {
            End::Served => &queue.served,
            End::TimedOut => &queue.timed_out,
            End::Left => &queue.left,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let Some(ticket) = &self.ticket else {
            queue.apart.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        ticket.state.store(GONE, Ordering::SeqCst);
        if queue.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            queue.change();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize as Count;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(Count);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_called(waiting: &mut QueuePlace) -> bool {
        waiting.poll_called(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn enter(queue: &Arc<Queue>) -> QueuePlace {
        queue.enter(10, Where::InLine).expect("there is room")
    }

    #[test]
    fn they_are_called_in_the_order_in_which_they_came() {
        let queue = Arc::<Queue>::default();
        let mut line: Vec<QueuePlace> = (0..4).map(|_| enter(&queue)).collect();
        assert!(is_called(&mut line[0]), "the first looks at once");
        line[0].wait_again();
        assert_eq!(line.iter_mut().filter_map(|it| is_called(it).then_some(())).count(), 0);
        queue.room_was_made();
        assert!(is_called(&mut line[0]) && !is_called(&mut line[1]));
        // It finds none: it stays the first.
        line[0].wait_again();
        queue.room_was_made();
        assert!(is_called(&mut line[0]));
        line.remove(0).serve();
        assert!(is_called(&mut line[0]), "the next one looks whether there is more room");
        line[0].wait_again();
        assert!(!is_called(&mut line[1]));
        assert_eq!(queue.counts(), QueueCounts { waiting: 3, served: 1, ..QueueCounts::default() });
    }

    #[test]
    fn one_that_leaves_takes_no_call_along() {
        let queue = Arc::<Queue>::default();
        let mut line: Vec<QueuePlace> = (0..3).map(|_| enter(&queue)).collect();
        line[0].wait_again();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(line[2].poll_called(&mut Context::from_waker(&waker)).is_pending());
        drop(line.remove(1));
        assert!(is_called(&mut line[0]), "in its place");
        drop(line.remove(0));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(is_called(&mut line[0]));
        assert_eq!((queue.counts().left, queue.counts().waiting), (2, 1));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let queue = Arc::<Queue>::default();
        let apart = queue.enter(3, Where::Apart).expect("there is room");
        let line: Vec<QueuePlace> = (0..3).map_while(|_| queue.enter(3, Where::InLine)).collect();
        assert_eq!((line.len(), queue.counts().refused), (2, 1));
        assert!(queue.enter(3, Where::Apart).is_none());
        apart.time_out();
        assert!(queue.enter(3, Where::InLine).is_some());
        drop(line);
        assert_eq!(
            queue.counts(),
            QueueCounts { refused: 2, timed_out: 1, left: 3, ..QueueCounts::default() }
        );
    }

    #[test]
    fn entries_of_those_that_left_are_swept_out() {
        let queue = Arc::<Queue>::default();
        let mut held = [enter(&queue), enter(&queue)];
        held[0].wait_again();
        (0..1000).for_each(|_| drop(queue.enter(4, Where::InLine)));
        assert!(queue.line.len() <= 2 * 4 + GONE_MAX + 1, "{}", queue.line.len());
        let [first, mut second] = held;
        drop(first);
        queue.room_was_made();
        assert!(is_called(&mut second));
    }

    #[test]
    fn time_calls_one_in_a_while() {
        let queue = Arc::<Queue>::default();
        let mut line: Vec<QueuePlace> = (0..2).map(|_| enter(&queue)).collect();
        line[0].wait_again();
        line[1].time_has_passed(5000);
        assert!(is_called(&mut line[0]));
        line[0].wait_again();
        line.iter().for_each(|it| it.time_has_passed(5100));
        assert!(!is_called(&mut line[0]) && !is_called(&mut line[1]));
        line[0].time_has_passed(6000);
        assert!(is_called(&mut line[0]));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::future::block_on;
    use loom::thread;

    /// Waits in the line until there is one of these servers, and gives it back.
    fn use_server(queue: &Arc<Queue>, free: &AtomicU32) {
        let mut waiting = queue.enter(4, Where::InLine).expect("there is room");
        block_on(std::future::poll_fn(|cx| {
            loop {
                if waiting.poll_called(cx).is_pending() {
                    return Poll::Pending;
                }
                if take(free) {
                    return Poll::Ready(());
                }
                waiting.wait_again();
            }
        }));
        waiting.serve();
        give(queue, free);
    }

    fn take(free: &AtomicU32) -> bool {
        free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    fn give(queue: &Queue, free: &AtomicU32) {
        free.fetch_add(1, Ordering::Relaxed);
        queue.room_was_made();
    }

    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    /// A server becomes free while two requests begin to wait for it: both have it, one after the other.
    #[test]
    fn none_waits_while_a_server_is_free() {
        model(|| {
            let shared = Arc::new((Arc::<Queue>::default(), AtomicU32::new(0)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || use_server(&shared.0, &shared.1))
            };
            let third = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || use_server(&shared.0, &shared.1))
            };
            give(&shared.0, &shared.1);
            other.join().expect("it ends");
            third.join().expect("it ends");
            assert_eq!((shared.1.load(Ordering::Relaxed), shared.0.counts().waiting), (1, 0));
        });
    }

    /// The one that is called leaves instead of looking: the other one is served.
    #[test]
    fn a_call_is_not_lost_with_a_client() {
        model(|| {
            let shared = Arc::new((Arc::<Queue>::default(), AtomicU32::new(0)));
            let mut first = shared.0.enter(4, Where::InLine).expect("there is room");
            first.wait_again();
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || use_server(&shared.0, &shared.1))
            };
            let giver = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || give(&shared.0, &shared.1))
            };
            drop(first);
            giver.join().expect("it ends");
            other.join().expect("it ends");
        });
    }
}
