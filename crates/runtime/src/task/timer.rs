//! Timers: what a task holds ([`Timer`]), and the node that it shares with its loop's wheel.
//!
//! Arming again is a store: the wheel looks at a node when it was told to, and finds out then when
//! to look again. Only an earlier deadline needs the wheel's attention at once.
//!
//! 1. `deadline` is written by the task, `looked_at` (when the wheel will look) by the loop's owner.
//! 2. Arming stores `deadline`, fences (SeqCst), reads `looked_at`; if that is later, the node goes
//!    into the timer inbox of the loop (rule 6 of word.rs), unless it is there already (`queued`).
//!    A deadline that is only moved back needs none of this: the wheel looks at the earlier time. If it
//!    was just doing so, it takes the waker and wakes the task, whose next `poll_expired` finds none
//!    (rule 4 of waker_cell.rs), registers again and makes up for it.
//! 3. The owner stores `looked_at`, fences (SeqCst), reads `deadline` again; if that is earlier, it
//!    starts over. So one of the two sees the other, and no deadline is overslept.
//! 4. The owner clears `queued` before it reads `deadline`.
//! 5. The inbox, the wheel and the task each hold a reference (`Arc`) of their own.
#![expect(unsafe_code, reason = "nodes enter the timer inbox as pointers")]

mod wheel;

use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use crate::task::remote::Remote;
use crate::task::stack::Linked;
use crate::task::timer::wheel::{Key, Wheel};
use crate::task::waker_cell::{Registered, WakerCell};

#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

const NEVER: u64 = u64::MAX;
const NOT_IN_WHEEL: u32 = u32::MAX;

/// The state that task and wheel share.
pub(crate) struct Node {
    deadline: AtomicU64,
    looked_at: AtomicU64,
    queued: AtomicU32,
    /// The node's place in the wheel; the owner of the loop only.
    key: AtomicU32,
    link: AtomicPtr<Node>,
    waker: WakerCell,
}

// SAFETY: `link` is one field, used by the stacks only.
unsafe impl Linked for Node {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

impl Node {
    fn new() -> Self {
        Self {
            deadline: AtomicU64::new(NEVER),
            looked_at: AtomicU64::new(NEVER),
            queued: AtomicU32::new(0),
            key: AtomicU32::new(NOT_IN_WHEEL),
            link: AtomicPtr::new(ptr::null_mut()),
            waker: WakerCell::new(),
        }
    }
}

/// The task's side of a timer, below the public type (which adds the clock).
pub(crate) struct Handle {
    home: &'static Remote,
    node: Arc<Node>,
}

impl Handle {
    pub(crate) fn new(home: &'static Remote) -> Self {
        Self { home, node: Arc::new(Node::new()) }
    }

    pub(crate) fn arm(&self, deadline_ms: u64) {
        let before = self.node.deadline.load(Ordering::Relaxed);
        self.node.deadline.store(deadline_ms, Ordering::Relaxed);
        if deadline_ms < before || before == NEVER {
            self.have_it_looked_at();
        }
    }

    /// Rule 2.
    fn have_it_looked_at(&self) {
        fence(Ordering::SeqCst);
        let deadline = self.node.deadline.load(Ordering::Relaxed);
        if deadline < self.node.looked_at.load(Ordering::Relaxed) && self.enqueue() {
            self.home.notify();
        }
    }

    pub(crate) fn disarm(&self) {
        self.node.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Disarms it, and has it keep no task.
    pub(crate) fn rest(&self) {
        self.disarm();
        drop(self.node.waker.take());
    }

    /// Whether the deadline has passed; if not, `waker` is woken when it does.
    pub(crate) fn poll_expired(&self, waker: &Waker, now_ms: impl Fn() -> u64) -> bool {
        let due = || self.node.deadline.load(Ordering::Relaxed) <= now_ms();
        if due() {
            return true;
        }
        if self.node.waker.register(waker) == Registered::Before {
            return false;
        }
        self.have_it_looked_at();
        due()
    }

    fn enqueue(&self) -> bool {
        let first = self.node.queued.swap(1, Ordering::AcqRel) == 0;
        if first {
            let pointer = Arc::into_raw(Arc::clone(&self.node)).cast_mut();
            // SAFETY: the reference just made keeps the node alive until it is taken; `queued`
            // makes sure that it is in the inbox once.
            unsafe { self.home.timers.push(NonNull::new_unchecked(pointer)) };
        }
        first
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The node may stay in the wheel for long, as a loop that sleeps is not woken to look at it.
        self.rest();
        fence(Ordering::SeqCst);
        if self.node.looked_at.load(Ordering::Relaxed) != NEVER {
            // The wheel lets go of it at its next turn; nobody needs to be woken for that.
            self.enqueue();
        }
    }
}

/// The owner's side: the wheel of a loop.
pub(crate) struct Timers {
    wheel: Wheel<Arc<Node>>,
}

impl Timers {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { wheel: Wheel::new(now_ms) }
    }

    /// When to wake up next, at the latest.
    pub(crate) fn next_ms(&mut self) -> Option<u64> {
        self.wheel.next()
    }

    /// Looks at every node that asked for it.
    pub(crate) fn take_inbox(&mut self, remote: &Remote) {
        if remote.timers.is_empty() {
            return;
        }
        for node in remote.timers.take() {
            // SAFETY: the pointer and its reference come from `enqueue`.
            let node = unsafe { Arc::from_raw(node.as_ptr()) };
            node.queued.swap(0, Ordering::AcqRel);
            self.place(node);
        }
    }

    /// Gives out the wakers of all timers that are due.
    pub(crate) fn expire(&mut self, now_ms: u64, mut wake: impl FnMut(Waker)) {
        while let Some(node) = self.wheel.advance(now_ms) {
            node.key.store(NOT_IN_WHEEL, Ordering::Relaxed);
            node.looked_at.store(NEVER, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if node.deadline.load(Ordering::Relaxed) > now_ms {
                self.place(node);
                continue;
            }
            if let Some(waker) = node.waker.take() {
                wake(waker);
            }
        }
    }

    /// Puts a node where its deadline is (rule 3), or out of the wheel.
    fn place(&mut self, node: Arc<Node>) {
        let key = node.key.load(Ordering::Relaxed);
        if key != NOT_IN_WHEEL {
            drop(self.wheel.remove(Key(key)));
            node.key.store(NOT_IN_WHEEL, Ordering::Relaxed);
        }
        let mut when = node.deadline.load(Ordering::Relaxed);
        loop {
            node.looked_at.store(when, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let now = node.deadline.load(Ordering::Relaxed);
            if now >= when {
                break;
            }
            when = now;
        }
        if when != NEVER {
            let key = self.wheel.insert(when, Arc::clone(&node));
            node.key.store(key.0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::handover::word::Word;
    use crate::task::{self, PollOutcome};
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    /// A deadline that is moved from any thread while the wheel places the node is not overslept:
    /// when both are quiet, the wheel looks at it no later than at its deadline.
    #[test]
    fn loom_no_deadline_is_overslept() {
        loom::model(|| {
            let remote = remote();
            let handle = Handle::new(remote);
            let node = Arc::clone(&handle.node);
            handle.arm(200);
            let task = thread::spawn(move || {
                handle.arm(300);
                handle.arm(100);
                handle
            });
            let mut timers = Timers::new(0);
            timers.take_inbox(remote);
            let handle = task.join().unwrap();
            timers.take_inbox(remote);
            assert_eq!(node.deadline.load(Ordering::Relaxed), 100);
            assert!(timers.next_ms().unwrap() <= 100);
            let mut woken = 0;
            timers.expire(100, |_| woken += 1);
            drop(handle);
            timers.take_inbox(remote);
            assert_eq!(timers.next_ms(), None);
            assert_eq!(woken, 0, "nobody had registered");
        });
    }

    /// A deadline that is moved back while the wheel finds the old one due: the task is woken, and
    /// when it has looked again the wheel will look at the new deadline, and wake it then.
    #[test]
    fn loom_a_deadline_moved_back_is_not_forgotten() {
        loom::model(|| {
            let remote = remote();
            let handle = Handle::new(remote);
            let mut timers = Timers::new(0);
            let (woken, waker) = counting_waker();
            handle.arm(100);
            assert!(!handle.poll_expired(&waker, || 0));
            timers.take_inbox(remote);
            let task = thread::spawn(move || {
                handle.arm(200);
                assert!(!handle.poll_expired(&waker, || 150));
                (handle, waker)
            });
            timers.expire(150, Waker::wake);
            let (handle, waker) = task.join().unwrap();
            if woken.0.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                assert!(!handle.poll_expired(&waker, || 150));
            }
            timers.take_inbox(remote);
            assert!(timers.next_ms().is_some_and(|next| next <= 200));
            let before = woken.0.load(std::sync::atomic::Ordering::Relaxed);
            timers.expire(200, Waker::wake);
            assert_eq!(
                woken.0.load(std::sync::atomic::Ordering::Relaxed),
                before + 1,
                "and the task is woken"
            );
            drop(handle);
            timers.take_inbox(remote);
        });
    }

    /// Polls what is in the queue now; what is woken meanwhile is in it again.
    fn poll_queue(remote: &'static Remote) {
        for task in remote.inject.take() {
            // SAFETY: it was taken from a queue.
            if unsafe { task::poll(task, |_| {}) } == PollOutcome::Notified {
                remote.inject(task);
            }
        }
    }

    /// The same for a task of a loop, which leaves its waker where it finds it.
    #[test]
    fn loom_a_task_whose_deadline_is_moved_back_is_not_forgotten() {
        loom::model(|| {
            let remote = remote();
            let mut timers = Timers::new(0);
            let now = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            task::spawn(remote, 0, task::Binding::Free, {
                let (handle, now) = (Handle::new(remote), std::sync::Arc::clone(&now));
                handle.arm(100);
                let mut polls = 0;
                poll_fn(move |cx| {
                    polls += 1;
                    match polls {
                        1 => cx.waker().wake_by_ref(),
                        2 => handle.arm(200),
                        _ => {}
                    }
                    let now = || now.load(std::sync::atomic::Ordering::Relaxed);
                    if handle.poll_expired(cx.waker(), now) { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            poll_queue(remote);
            timers.take_inbox(remote);
            now.store(150, std::sync::atomic::Ordering::Relaxed);
            let polling = thread::spawn(move || poll_queue(remote));
            timers.expire(150, Waker::wake);
            polling.join().unwrap();
            poll_queue(remote);
            timers.take_inbox(remote);
            now.store(200, std::sync::atomic::Ordering::Relaxed);
            timers.expire(200, Waker::wake);
            assert!(!remote.inject.is_empty(), "it is woken");
            poll_queue(remote);
            timers.take_inbox(remote);
            assert_eq!(timers.next_ms(), None, "it has ended, and let go of its timer");
        });
    }

    /// Counts wake-ups.
    struct Count(std::sync::atomic::AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn counting_waker() -> (std::sync::Arc<Count>, Waker) {
        let count = std::sync::Arc::new(Count(std::sync::atomic::AtomicUsize::new(0)));
        (std::sync::Arc::clone(&count), Waker::from(count))
    }

    fn remote() -> &'static Remote {
        let (word, _lease) = Word::new(0);
        Box::leak(Box::new(Remote::modelled(word)))
    }
}
