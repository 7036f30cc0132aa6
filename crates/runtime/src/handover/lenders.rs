//! The lender of a poll's loop, in the two entries of a carrier: rule 2 of observer.rs, and with it whether a
//! poll is under way (rule 1). Lenders and the carrier write, any thread looks.

use crate::handover::word::{Lease, Word};
use crate::sync::{AtomicU64, Ordering};

/// The thread that lends a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lender {
    /// The watchdog.
    Watchdog,
    /// The carrier that polls.
    Itself,
}

/// The poll whose loop each lender has lent, or is about to; 0: none.
#[derive(Debug)]
pub(crate) struct Lenders([AtomicU64; 2]);

impl Lenders {
    pub(crate) fn new() -> Self {
        Self([AtomicU64::new(0), AtomicU64::new(0)])
    }

    /// Before the swap of the word.
    pub(crate) fn enter(&self, poll: Lease, lender: Lender) {
        self.0[lender as usize].store(poll.bits(), Ordering::Release);
    }

    /// After a swap that failed.
    pub(crate) fn withdraw(&self, poll: Lease, lender: Lender) {
        let entry = &self.0[lender as usize];
        // Cleared already if the carrier has come back meanwhile.
        let _ = entry.compare_exchange(poll.bits(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The carrier is back.
    pub(crate) fn clear(&self) {
        for entry in &self.0 {
            entry.store(0, Ordering::Release);
        }
    }

    /// Whether `poll` is in an entry.
    pub(crate) fn have(&self, poll: u64) -> bool {
        self.0.iter().any(|entry| entry.load(Ordering::Acquire) == poll)
    }

    /// Whether this lender has entered `poll`.
    #[cfg(not(loom))]
    pub(crate) fn has_entered(&self, poll: u64, lender: Lender) -> bool {
        self.0[lender as usize].load(Ordering::Acquire) == poll
    }

    /// The poll that is in an entry.
    pub(crate) fn poll(&self) -> Option<u64> {
        self.0.iter().map(|entry| entry.load(Ordering::Acquire)).find(|&poll| poll != 0)
    }
}

/// Rule 1 of observer.rs. In this order: a reader that finds the word changed by a lender finds its entry.
pub(crate) fn is_under_way(word: &Word, lenders: &Lenders, poll: u64) -> bool {
    word.load().bits() == poll || lenders.have(poll)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    struct Shared {
        word: Word,
        lenders: Lenders,
        /// Stands for all that the carrier does before its poll ends.
        ended: AtomicBool,
    }

    fn shared() -> (Arc<Shared>, Lease) {
        let (word, lease) = Word::new(0);
        (Arc::new(Shared { word, lenders: Lenders::new(), ended: AtomicBool::new(false) }), lease)
    }

    /// The steps of `Shared::lend`.
    fn lend(shared: &Shared, poll: Lease, spare: usize, lender: Lender) {
        shared.lenders.enter(poll, lender);
        if shared.word.lend(poll, spare, poll).is_none() {
            shared.lenders.withdraw(poll, lender);
        }
    }

    /// The kind of task that is polled.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Task {
        Ordinary,
        /// A suspect: its carrier lends the loop itself.
        Suspect,
    }

    /// The steps of `Loop::poll`. The result is the lease of the poll.
    fn poll(shared: &Shared, mut lease: Lease, task: Task) -> Lease {
        shared.word.begin_poll(&mut lease);
        let poll = lease;
        if task == Task::Suspect {
            lend(shared, poll, 1, Lender::Itself);
        }
        shared.ended.store(true, Ordering::Relaxed);
        if !shared.word.end_poll(&mut lease) {
            shared.lenders.clear();
        }
        poll
    }

    /// A look from a third thread: a poll that was seen under way, and is not, has ended.
    fn look(shared: &Shared) {
        let seen = shared.word.load();
        if seen.phase() == crate::handover::word::Phase::Poll
            && !is_under_way(&shared.word, &shared.lenders, seen.bits())
        {
            assert!(shared.ended.load(Ordering::Relaxed), "it is still under way");
        }
    }

    fn model(task: Task) {
        loom::model(move || {
            let (shared, lease) = shared();
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let seen = shared.word.load();
                    if seen.phase() == crate::handover::word::Phase::Poll {
                        lend(&shared, seen, 2, Lender::Watchdog);
                    }
                })
            };
            let looker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || look(&shared))
            };
            let poll = poll(&shared, lease, task);
            watchdog.join().unwrap();
            looker.join().unwrap();
            assert!(!is_under_way(&shared.word, &shared.lenders, poll.bits()), "it is over");
            assert_eq!(shared.lenders.poll(), None, "nothing is left in the entries");
        });
    }

    /// The watchdog lends a poll, or comes too late.
    #[test]
    fn loom_a_lent_poll_is_under_way_until_it_ends() {
        model(Task::Ordinary);
    }

    /// Both lenders want to: the loser takes nothing from the winner.
    #[test]
    fn loom_a_poll_that_two_lend_is_under_way_until_it_ends() {
        model(Task::Suspect);
    }
}
