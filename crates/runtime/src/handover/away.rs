//! A poll that has lost its loop, as its carrier shows it (observer.rs): the task, since when, the lender.
//! Lenders and the carrier write it, the watchdog and observers read it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use clearway_os::{clock, thread};

use crate::handover::lenders::{Lender, Lenders};
use crate::handover::word::{Lease, PollId};

/// First sight of a poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) since_ns: u64,
    pub(crate) seen_ns: u64,
    pub(crate) cpu_ns: u64,
}

impl Sight {
    /// The state of a poll of thread `tid` that begins just now.
    pub(crate) fn now(tid: u32) -> Self {
        let now = clock::monotonic_ns();
        Self { since_ns: now, seen_ns: now, cpu_ns: thread::cpu_ns(tid).unwrap_or(0) }
    }
}

/// The facts that a carrier shows of its stuck poll. All values are of the poll in `lenders`.
pub(crate) struct Away {
    /// Rule 2.
    pub(crate) lenders: Lenders,
    pub(crate) loop_index: AtomicU32,
    pub(crate) since_ns: AtomicU64,
    pub(crate) seen_ns: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    pub(crate) lent_ns: AtomicU64,
    /// The poll that came back last, and when.
    pub(crate) back_of: AtomicU64,
    pub(crate) back_ns: AtomicU64,
    pub(crate) announced: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) stack_base: AtomicUsize,
}

impl Away {
    pub(crate) fn new() -> Self {
        Self {
            lenders: Lenders::new(),
            loop_index: AtomicU32::new(0),
            since_ns: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            lent_ns: AtomicU64::new(0),
            back_of: AtomicU64::new(0),
            back_ns: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            stack_base: AtomicUsize::new(0),
        }
    }

    /// The carrier's thread runs, and frames below this address are its own business.
    pub(crate) fn stands_on(&self, stack_base: usize) {
        self.stack_base.store(stack_base, Ordering::Relaxed);
    }

    /// Whether this poll has lost its loop and is under way.
    pub(crate) fn has(&self, poll: PollId) -> bool {
        self.lenders.have(poll.0)
    }

    /// Rule 2: before the swap.
    pub(crate) fn leave(&self, poll: Lease, loop_index: usize, sight: Sight, lender: Lender) {
        self.loop_index.store(loop_index as u32, Ordering::Relaxed);
        self.since_ns.store(sight.since_ns, Ordering::Relaxed);
        self.seen_ns.store(sight.seen_ns, Ordering::Relaxed);
        self.cpu_ns.store(sight.cpu_ns, Ordering::Relaxed);
        self.lent_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        self.lenders.enter(poll, lender);
    }

    /// Rule 2: after a swap that failed.
    pub(crate) fn stay(&self, poll: Lease, lender: Lender) {
        self.lenders.withdraw(poll, lender);
    }

    /// Rule 2: the carrier is back.
    pub(crate) fn come_back(&self) {
        self.back_of.store(self.lenders.poll().unwrap_or(0), Ordering::Relaxed);
        self.back_ns.store(clock::monotonic_ns(), Ordering::Release);
        self.lenders.clear();
    }
}
