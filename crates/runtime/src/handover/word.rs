//! The state word of a loop, and with it the protocol by which a loop is lent.
//!
//! A *loop* is a scheduling context, a *carrier* is a thread that runs one. What follows are the
//! rules; `loom` models at the end of this file, of `remote.rs`, `ready.rs`, `waker_cell.rs`,
//! `timer.rs` and `lenders.rs` check them. This file runs on carriers and on the watchdog.

// The rules.
//
//  1. The word is (phase, carrier, sequence). Phases: WAIT (its carrier sleeps in epoll_wait or is
//     about to), RUN (its carrier works on loop-local data), POLL (its carrier polls a task; the
//     loop belongs to nobody). Every store and every successful swap of the word has a sequence
//     number that the word never had before, except the swap of rule 3. The numbers of a carrier grow
//     from loop to loop as well, so that the word of a poll names it among those of all loops.
//  2. In WAIT and RUN only the carrier named in the word writes it. It enters POLL by a plain
//     release store.
//  3. It leaves POLL by one compare-and-swap of exactly the value it stored, to RUN. This is the
//     only read-modify-write of the fast path. If it fails, the loop was lent: the carrier touches
//     nothing that is local to the loop any more.
//  4. In POLL anybody may swap exactly the value read to (RUN, another carrier): the *lender* (the
//     watchdog, or the polling carrier itself before it runs a suspect). The new carrier is a spare
//     that the lender has popped, and it starts only after the swap.
//  5. Loop-local data (wheel, event buffer, the producer side of the ready ring) is touched by the
//     carrier named in the word in phase RUN only. The swap of rule 4 acquires, and the spare is
//     started with a release store, so it sees all that was written in RUN before.
//  6. A producer that gives a loop something to do from outside RUN pushes it (inject queue, timer inbox),
//     then fences (SeqCst), then reads the word and signals the loop's eventfd if it says WAIT. The carrier
//     stores WAIT, fences (SeqCst), then looks at the queues before it sleeps. One of the two sees the other.
//  7. The carrier of a lost loop finishes its one poll, restores its priority (demotion.rs), puts
//     the task back through the inject queue if it was woken meanwhile, always signals the eventfd,
//     and becomes a spare.
//  8. The future of a task is dropped inside the POLL window, also that of a task which nothing can wake any
//     more (rule 4 of task.rs): a destructor may block too.
//  9. The watchdog sleeps when every loop has been in WAIT for a while. It announces that, issues a
//     membarrier on all threads, reads every word once more, and only then sleeps. A carrier that
//     leaves WAIT stores the word, then (compiler fence only: the membarrier is the other half)
//     reads the announcement and wakes the watchdog if it is set.
// 10. A carrier that is detached (its loop lent) is demoted by the watchdog, or by itself after it has lent
//     its loop to run a suspect that burns CPU; it is restored by itself alone. demotion.rs has the states.
// 11. A socket's slot in the event table is never freed, only recycled under a new generation, so
//     that a late event finds a generation that is not its own (slots.rs). Nothing that an epoll
//     token names needs an owner to be released.
// 12. A carrier in RUN whose loop has nothing ready may take a task out of another loop's ring (ready.rs)
//     and poll it, in a POLL of its own loop. A task that was woken meanwhile goes to the inject queue of
//     its home, and so does a bound one, unpolled.
// 13. A spare may take hungry tasks out of the ring of a loop that has asked for help (helpers.rs) and poll
//     them beside it. Such a poll has a value that no word ever has, (POLL, carrier, next number of that
//     carrier), so it is away from its loop from the start: nothing local to a loop is touched, nobody lends
//     anything for it. A task that was woken meanwhile goes on there if nobody else is behind, or else to the
//     inject queue of its home.

use crate::sync::{AtomicU64, Ordering, fence};

const PHASE_MASK: u64 = 0b11;
const CARRIER_SHIFT: u32 = 2;
const CARRIER_BITS: u32 = 14;
const SEQUENCE_SHIFT: u32 = CARRIER_SHIFT + CARRIER_BITS;

/// The most carriers that a word can tell apart.
pub(crate) const CARRIERS_MAX: usize = 1 << CARRIER_BITS;

/// The contents of the word at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(u64);

/// Names one poll of one runtime: the word under which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollId(pub(crate) u64);

impl PollId {
    /// A number that no other poll of the runtime has, and that is not 0.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// See rule 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Wait,
    Run,
    Poll,
}

impl Lease {
    fn new(phase: Phase, carrier: usize, sequence: u64) -> Self {
        debug_assert!(carrier < CARRIERS_MAX);
        Self(sequence << SEQUENCE_SHIFT | (carrier as u64) << CARRIER_SHIFT | phase as u64)
    }

    /// The next value in that phase, with a sequence number never seen before (46 bits: at ten
    /// million turns and polls a second they last 80 days before one repeats, and a repetition
    /// would have to meet a watchdog that looked exactly one cycle ago).
    fn next(self, phase: Phase, carrier: usize) -> Self {
        Self::new(phase, carrier, self.sequence().wrapping_add(1))
    }

    /// Rule 13: the next poll of `carrier`, which held this last, away from every loop.
    pub(crate) fn next_away(self, carrier: usize) -> Self {
        self.next(Phase::Poll, carrier)
    }

    fn sequence(self) -> u64 {
        self.0 >> SEQUENCE_SHIFT
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 & PHASE_MASK {
            0 => Phase::Wait,
            1 => Phase::Run,
            _ => Phase::Poll,
        }
    }

    pub(crate) fn carrier(self) -> usize {
        (self.0 >> CARRIER_SHIFT) as usize & (CARRIERS_MAX - 1)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The word itself.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// A loop that `carrier` owns in RUN, and what that carrier holds.
    pub(crate) fn new(carrier: usize) -> (Self, Lease) {
        let lease = Lease::new(Phase::Run, carrier, 0);
        (Self(AtomicU64::new(lease.0)), lease)
    }

    pub(crate) fn load(&self) -> Lease {
        Lease(self.0.load(Ordering::Acquire))
    }

    /// Rule 2: RUN → POLL, by the owner.
    pub(crate) fn begin_poll(&self, lease: &mut Lease) {
        debug_assert_eq!(lease.phase(), Phase::Run);
        *lease = lease.next(Phase::Poll, lease.carrier());
        self.0.store(lease.0, Ordering::Release);
    }

    /// Rule 3: POLL → RUN, by the carrier that polled. `false`: the loop was lent.
    #[must_use]
    pub(crate) fn end_poll(&self, lease: &mut Lease) -> bool {
        debug_assert_eq!(lease.phase(), Phase::Poll);
        let run = Lease(lease.0 & !PHASE_MASK | Phase::Run as u64);
        if cfg!(clearway_no_lease) {
            self.0.store(run.0, Ordering::Relaxed);
            *lease = run;
            return true;
        }
        // Acquire also where it fails: what the lender has written before its swap is there to be undone.
        let swapped = self.0.compare_exchange(lease.0, run.0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        *lease = run;
        swapped
    }

    /// Rule 4: gives the loop, seen in POLL, to `carrier`, which held `last` before; `None` if it has moved
    /// on.
    pub(crate) fn lend(&self, seen: Lease, carrier: usize, last: Lease) -> Option<Lease> {
        debug_assert_eq!(seen.phase(), Phase::Poll);
        if cfg!(clearway_no_lease) {
            return None;
        }
        let latest = if last.sequence() > seen.sequence() { last } else { seen };
        let lent = latest.next(Phase::Run, carrier);
        self.0.compare_exchange(seen.0, lent.0, Ordering::AcqRel, Ordering::Relaxed).ok().map(|_| lent)
    }

    /// Rule 6: RUN → WAIT, by the owner, which then looks at the queues once more.
    pub(crate) fn begin_wait(&self, lease: &mut Lease) {
        *lease = lease.next(Phase::Wait, lease.carrier());
        // Release, for the reader that finds a poll's value gone and asks whether it was lent (observer.rs).
        self.0.store(lease.0, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// WAIT → RUN, by the owner.
    pub(crate) fn end_wait(&self, lease: &mut Lease) {
        *lease = lease.next(Phase::Run, lease.carrier());
        self.0.store(lease.0, Ordering::Release);
    }

    /// Rule 6, the other side, after the push: whether the loop may sleep and must be signalled.
    #[must_use]
    pub(crate) fn may_sleep(&self) -> bool {
        fence(Ordering::SeqCst);
        Lease(self.0.load(Ordering::Relaxed)).phase() == Phase::Wait
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_its_parts() {
        let lease = Lease::new(Phase::Poll, CARRIERS_MAX - 1, (1 << 46) - 1);
        assert_eq!((lease.phase(), lease.carrier()), (Phase::Poll, CARRIERS_MAX - 1));
        let next = lease.next(Phase::Wait, 3);
        assert_eq!((next.phase(), next.carrier()), (Phase::Wait, 3));
    }

    #[test]
    fn a_lent_poll_cannot_be_ended_and_an_ended_one_not_lent() {
        let (word, mut lease) = Word::new(0);
        word.begin_poll(&mut lease);
        let seen = word.load();
        assert!(word.end_poll(&mut lease));
        assert_eq!(word.lend(seen, 1, seen), None);
        word.begin_poll(&mut lease);
        let mut lent = word.lend(word.load(), 1, seen).unwrap();
        assert!(!word.end_poll(&mut lease));
        word.begin_poll(&mut lent);
        assert!(word.end_poll(&mut lent));
        assert_eq!(word.load().carrier(), 1);
    }

    #[test]
    fn a_carrier_that_changes_loops_does_not_repeat_itself() {
        let ((first, mut lease), (second, mut others)) = (Word::new(0), Word::new(1));
        for _ in 0..5 {
            first.begin_poll(&mut lease);
            assert!(first.end_poll(&mut lease));
        }
        first.begin_poll(&mut lease);
        first.lend(lease, 2, others).unwrap();
        // Carrier 0 takes over the second loop, whose numbers are lower.
        second.begin_poll(&mut others);
        let mut taken = second.lend(others, 0, lease).unwrap();
        second.begin_poll(&mut taken);
        assert!(taken.carrier() == 0 && taken.sequence() > lease.sequence());
    }
}

#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "the model touches loop-local data as the loop does")]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        word: Word,
        /// Loop-local data: loom reports an access that is not ordered after the last one.
        local: UnsafeCell<u32>,
    }

    fn touch(shared: &Shared) {
        // SAFETY: rule 5 is what the model checks.
        shared.local.with_mut(|p| unsafe { *p += 1 });
    }

    /// Rules 2 to 5: whichever side wins, exactly one carrier goes on in RUN, and loop-local data is handed
    /// over without a race.
    #[test]
    fn loom_one_owner_after_a_lend() {
        loom::model(|| {
            let (word, mut lease) = Word::new(0);
            let shared = Arc::new(Shared { word, local: UnsafeCell::new(0) });
            touch(&shared);
            shared.word.begin_poll(&mut lease);
            let lender = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let seen = shared.word.load();
                    if seen.phase() != Phase::Poll {
                        return false;
                    }
                    let lent = shared.word.lend(seen, 1, seen);
                    if lent.is_some() {
                        touch(&shared);
                    }
                    lent.is_some()
                })
            };
            let kept = shared.word.end_poll(&mut lease);
            if kept {
                touch(&shared);
                shared.word.begin_poll(&mut lease);
                let kept_again = shared.word.end_poll(&mut lease);
                let lent = lender.join().unwrap();
                assert!(kept_again != lent);
            } else {
                assert!(lender.join().unwrap());
            }
        });
    }
}
