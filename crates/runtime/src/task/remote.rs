//! The side of a loop that every thread may touch: its word, the queues into it, and the eventfd
//! that ends its sleep (rule 6 of word.rs). A task's wakers know this part of their home only.
#![expect(unsafe_code, reason = "tasks enter the inject queue as pointers")]

use std::ptr::NonNull;

#[cfg(not(loom))]
use crate::handover::word::Phase;
use crate::handover::word::{Lease, Word};
use crate::sync::AtomicU64;
#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::task::Header;
use crate::task::stack::Stack;
use crate::task::timer::Node;

#[cfg(not(loom))]
pub(crate) use clearway_os::epoll::EventFd as Signal;
#[cfg(loom)]
pub(crate) use loom_signal::Signal;

/// The side of one loop that every thread may touch.
pub(crate) struct Remote {
    pub(crate) word: Word,
    /// Tasks that became ready elsewhere than in the owner's RUN, and what the ring had no room for.
    pub(crate) inject: Stack<Header>,
    /// Timer nodes that the wheel must look at.
    pub(crate) timers: Stack<Node>,
    pub(crate) signal: Signal,
    /// The time, in milliseconds, as of this turn: see [`Remote::now_ms`].
    pub(crate) now_ms: AtomicU64,
    /// Which loop this is.
    #[cfg(not(loom))]
    pub(crate) index: usize,
    #[cfg(not(loom))]
    pub(crate) shared: &'static crate::shared::Shared,
}

impl Remote {
    /// A loop for models.
    #[cfg(loom)]
    pub(crate) fn modelled(word: Word) -> Self {
        Self {
            word,
            inject: Stack::new(),
            timers: Stack::new(),
            signal: Signal::new(),
            now_ms: AtomicU64::new(0),
        }
    }

    /// Puts a task that was made NOTIFIED (task.rs) into the inject queue.
    pub(crate) fn inject(&self, task: NonNull<Header>) {
        // SAFETY: NOTIFIED keeps the task alive until the owner of the loop polls it, and makes sure that
        // it is in one queue only.
        unsafe { self.inject.push(task) };
        self.notify();
    }

    /// Milliseconds of the monotonic clock: as of this turn, or read now if the loop sleeps. It does not go
    /// back, whichever thread asks: what is read while the loop sleeps holds for its next turn as well, and a
    /// turn says what time it is before it says that it runs.
    #[cfg(not(loom))]
    pub(crate) fn now_ms(&self) -> u64 {
        match self.word.load().phase() {
            Phase::Wait => {
                let now = clearway_os::clock::monotonic_ms();
                self.now_ms.fetch_max(now, Ordering::Relaxed).max(now)
            }
            _ => self.now_ms.load(Ordering::Relaxed),
        }
    }

    /// Rule 6, after a push.
    pub(crate) fn notify(&self) {
        if self.word.may_sleep() {
            self.signal.signal();
        }
    }

    /// Ends the loop's sleep, if it sleeps; whether it did.
    #[cfg(not(loom))]
    pub(crate) fn end_sleep(&self) -> bool {
        let sleeps = self.word.load().phase() == Phase::Wait;
        if sleeps {
            self.signal.signal();
        }
        sleeps
    }

    /// Rule 6, the other side: announces sleep; `true` if there is something to do first.
    pub(crate) fn begin_wait(&self, lease: &mut Lease) -> bool {
        self.word.begin_wait(lease);
        !self.inject.is_empty() || !self.timers.is_empty()
    }
}

#[cfg(loom)]
mod loom_signal {
    use loom::sync::Notify;

    /// Stands for the eventfd and epoll_wait: a signal is kept until somebody waits.
    pub(crate) struct Signal(Notify);

    impl Signal {
        pub(crate) fn new() -> Self {
            Self(Notify::new())
        }

        pub(crate) fn signal(&self) {
            self.0.notify();
        }

        pub(crate) fn wait(&self) {
            self.0.wait();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::event_loop::ready::Ring;
    use crate::task::waker_cell::WakerCell;
    use crate::task::{self, PollOutcome};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use loom::thread;
    use std::future::poll_fn;
    use std::task::{Context, Poll};

    fn remote() -> (&'static Remote, Lease) {
        let (word, lease) = Word::new(0);
        (Box::leak(Box::new(Remote::modelled(word))), lease)
    }

    /// The event that a task waits for.
    struct Flag {
        is_set: AtomicBool,
        waker: WakerCell,
    }

    impl Flag {
        fn new() -> Arc<Self> {
            Arc::new(Self { is_set: AtomicBool::new(false), waker: WakerCell::new() })
        }

        fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
            self.waker.register(cx.waker());
            if self.is_set.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        }

        /// Sets it on another thread, at any moment, and wakes the waiter.
        fn set_elsewhere(flag: &Arc<Self>) -> thread::JoinHandle<()> {
            let flag = Arc::clone(flag);
            thread::spawn(move || {
                flag.is_set.store(true, Relaxed);
                if let Some(waker) = flag.waker.take() {
                    waker.wake();
                }
            })
        }
    }

    /// Runs the loop until the task in it is complete; a lost wake-up is a deadlock to loom.
    fn run(remote: &'static Remote, lease: &mut Lease) {
        loop {
            if !remote.begin_wait(lease) {
                remote.signal.wait();
            }
            remote.word.end_wait(lease);
            for task in remote.inject.take() {
                remote.word.begin_poll(lease);
                // SAFETY: it was taken from a queue.
                let outcome = unsafe { task::poll(task, |_| {}) };
                assert!(remote.word.end_poll(lease));
                match outcome {
                    PollOutcome::Complete => return,
                    PollOutcome::Notified => remote.inject(task),
                    PollOutcome::Pending => {}
                }
            }
        }
    }

    /// A task that waits for a flag, set and woken from another thread at any moment, is polled
    /// once more and ends; its future is dropped exactly once, at that time.
    #[test]
    fn loom_a_wakeup_from_another_thread_reaches_a_sleeping_loop() {
        loom::model(|| {
            let (remote, mut lease) = remote();
            let flag = Flag::new();
            task::spawn(remote, 0, task::Binding::Free, {
                let flag = Arc::clone(&flag);
                poll_fn(move |cx| flag.poll(cx))
            });
            let waking = Flag::set_elsewhere(&flag);
            run(remote, &mut lease);
            waking.join().unwrap();
            drop(flag.waker.take());
        });
    }

    /// A task that is polled for another reason finds itself registered and leaves it so: the wake-up at any
    /// moment reaches it nevertheless.
    #[test]
    fn loom_a_task_that_stays_registered_is_woken() {
        loom::model(|| {
            let (remote, mut lease) = remote();
            let flag = Flag::new();
            task::spawn(remote, 0, task::Binding::Free, {
                let flag = Arc::clone(&flag);
                let mut is_first = true;
                poll_fn(move |cx| {
                    let polled = flag.poll(cx);
                    if polled.is_pending() && std::mem::take(&mut is_first) {
                        cx.waker().wake_by_ref();
                    }
                    polled
                })
            });
            let waking = Flag::set_elsewhere(&flag);
            run(remote, &mut lease);
            waking.join().unwrap();
            drop(flag.waker.take());
        });
    }

    /// Takes what is ready or injected at `home` and polls it in the word of `on` (rule 12 of word.rs); how
    /// many polls ended their task.
    fn poll_all(home: &'static Remote, ring: &Ring<task::Header>, (on, lease): (&Remote, &mut Lease)) -> u32 {
        let mut ended = 0;
        while let Some(task) = ring.pop() {
            on.word.begin_poll(lease);
            // SAFETY: it was taken from a queue.
            let outcome = unsafe { task::poll(task, |_| {}) };
            assert!(on.word.end_poll(lease));
            match outcome {
                PollOutcome::Complete => ended += 1,
                PollOutcome::Notified => home.inject(task),
                PollOutcome::Pending => {}
            }
        }
        ended
    }

    /// A ready task that its home and another loop want, and that is woken meanwhile, is polled by one of
    /// them; what it is woken for is not lost, and it ends once.
    #[test]
    fn loom_a_stolen_task_that_is_woken_goes_home() {
        loom::model(|| {
            let (home, mut lease) = remote();
            let (other, mut others_lease) = remote();
            let ring = Arc::new(Ring::new());
            let flag = Flag::new();
            let stolen_from = Arc::clone(&ring);
            task::spawn(home, 0, task::Binding::Free, {
                let flag = Arc::clone(&flag);
                poll_fn(move |cx| flag.poll(cx))
            });
            for task in home.inject.take() {
                ring.push(task).unwrap();
            }
            let thief = thread::spawn(move || poll_all(home, &stolen_from, (other, &mut others_lease)));
            let waking = Flag::set_elsewhere(&flag);
            let mut ended = poll_all(home, &ring, (home, &mut lease));
            waking.join().unwrap();
            ended += thief.join().unwrap();
            for task in home.inject.take() {
                ring.push(task).unwrap();
            }
            ended += poll_all(home, &ring, (home, &mut lease));
            assert_eq!(ended, 1);
            drop(flag.waker.take());
        });
    }

    /// A task that binds itself, wherever it is polled first, goes home, and no other loop polls it any more.
    #[test]
    fn loom_a_task_that_binds_itself_is_polled_at_home() {
        const THIEF: usize = 1;
        /// Polls a task from the ring of `home`. Returns whether the task has ended.
        fn poll_found(home: &'static Remote, ring: &Ring<task::Header>, polling: usize) -> bool {
            let Some(task) = ring.pop() else { return false };
            // SAFETY: alive as it is NOTIFIED.
            let header = unsafe { task.as_ref() };
            if polling == THIEF && header.binding() == task::Binding::Bound {
                home.inject(task);
                return false;
            }
            header.lease.store(Word::new(polling).1.bits(), Relaxed);
            // SAFETY: it was taken from a queue.
            let outcome = unsafe { task::poll(task, |_| {}) };
            if outcome == PollOutcome::Notified {
                home.inject(task);
            }
            outcome == PollOutcome::Complete
        }
        loom::model(|| {
            let (home, _lease) = remote();
            let ring = Arc::new(Ring::new());
            task::spawn(home, 0, task::Binding::Free, {
                poll_fn(move |cx| {
                    let header = task::header(cx.waker()).unwrap();
                    let polling = Lease::from_bits(header.lease.load(Relaxed)).carrier();
                    if header.binding() == task::Binding::Bound {
                        assert_ne!(polling, THIEF, "it is bound");
                        return Poll::Ready(());
                    }
                    header.set_binding(task::Binding::Bound);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
            });
            let refill = || home.inject.take().for_each(|task| ring.push(task).unwrap());
            refill();
            let stolen_from = Arc::clone(&ring);
            let thief =
                thread::spawn(move || (0..2).filter(|_| poll_found(home, &stolen_from, THIEF)).count());
            let mut ended = 0;
            for _ in 0..2 {
                ended += usize::from(poll_found(home, &ring, 0));
                refill();
            }
            ended += thief.join().unwrap();
            while ended == 0 {
                refill();
                ended += usize::from(poll_found(home, &ring, 0));
            }
            assert_eq!(ended, 1);
        });
    }
}
