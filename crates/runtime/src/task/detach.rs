//! Which tasks are polled away from their loop from the start, and which of them when: suspects that sleep
//! as soon as there is a carrier, those that burn CPU one after the other (turns.rs). Carriers, and the
//! watchdog where it says so.

use std::sync::atomic::Ordering;

use clearway_os::clock;

use crate::handover::suspects::{Manner, Repute, Tag};
use crate::handover::word::Lease;
use crate::metrics;
use crate::shared::{Lent, Shared};
use crate::task::place::{Pass, Waiter};
use crate::task::remote::Remote;

/// How long a turn lasts at most, in nanoseconds. A task that burns CPU for longer goes on beside the next
/// one, so that a few that never end do not keep all others from their turns.
const TURN_MAX_NS: u64 = 50_000_000;

/// How a task may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The poll is on its loop.
    Ordinary,
    /// Away from it, with what it has: a turn if it burns CPU.
    Suspect(Manner, Pass),
    /// The task cannot leave its loop now: it is to join the line of those that burn CPU.
    NeedsTurn,
}

impl Shared {
    /// Whether, and how, a task may go on with `tag` that has `pass`.
    pub(crate) fn admit(&self, tag: Tag, now_ms: u64, pass: Pass) -> Admission {
        let manner = self.suspicion(tag, now_ms);
        if manner == Some(Manner::Burns) {
            if pass.has(Pass::TURN) || self.turns.take() {
                return Admission::Suspect(Manner::Burns, pass.with(Pass::TURN));
            }
            self.give_up(pass);
            return Admission::NeedsTurn;
        }
        if manner.is_none() {
            self.give_up(pass);
            return Admission::Ordinary;
        }
        self.give_up(pass.without(Pass::SPARE));
        Admission::Suspect(Manner::Sleeps, pass.without(Pass::TURN))
    }

    /// How `tag`, of which a poll begins, blocked lately. While little is known of it the watchdog looks
    /// closely: a first poll that blocks is found as soon as any other.
    pub(crate) fn suspicion(&self, tag: Tag, now_ms: u64) -> Option<Manner> {
        match self.suspects.meet(tag, now_ms) {
            Repute::Familiar => None,
            Repute::Stranger => {
                self.want_look();
                None
            }
            Repute::Suspect(manner) => Some(manner),
        }
    }

    /// Passes on what a task does not need any more.
    pub(crate) fn give_up(&self, pass: Pass) {
        if pass.has(Pass::TURN) {
            self.turns.give_back();
        }
        if pass.has(Pass::SPARE) {
            self.waiting.look(&self.spares);
        }
    }

    /// Gives the loop of a poll away as its task is suspect. [`Lent::NoSpare`]: the task is to wait for a
    /// spare, with its turn if it has one.
    pub(crate) fn detach(
        &self,
        remote: &Remote,
        lease: Lease,
        tag: Tag,
        (manner, pass): (Manner, Pass),
    ) -> Lent {
        let is_first = pass.has(Pass::SPARE) || self.waiting.is_empty();
        let lent = if is_first { self.lend_own(remote, lease, tag, manner) } else { Lent::NoSpare };
        if lent != Lent::Done {
            self.give_up(pass.without(Pass::TURN));
        }
        lent
    }

    /// A suspect needs a turn.
    pub(crate) fn wait_for_turn(&self, waiter: Waiter) {
        metrics::BURNERS_QUEUED.increment();
        self.turns.join(waiter);
    }

    /// A suspect needs a spare.
    pub(crate) fn wait_for_spare(&self, waiter: Waiter) {
        metrics::SUSPECTS_QUEUED.increment();
        if self.alive() == self.carriers.len() {
            self.alert_exhausted();
        }
        self.call_starter();
        self.waiting.join(waiter, &self.spares);
    }

    /// Passes on the turns of carriers that sleep instead of burning CPU: what they do counts as sleeping
    /// for a while, and needs no turn. So too those that have lasted too long. The watchdog, while carriers
    /// are away from their loops.
    pub(crate) fn pass_overdue_turns(&self, started: usize) {
        for carrier in self.carriers[..started].iter().filter(|c| c.turn.is_held()) {
            let since_ns = carrier.detached_ns.load(Ordering::Relaxed);
            if since_ns != 0 && clock::monotonic_ns().saturating_sub(since_ns) > TURN_MAX_NS {
                if carrier.turn.end() {
                    self.turns.give_back();
                }
            } else if carrier.turn.is_slept_over(carrier.tid.load(Ordering::Relaxed)) && carrier.turn.end() {
                let tag = Tag(carrier.tag.load(Ordering::Relaxed));
                self.suspects.blame(tag, Manner::Sleeps, clock::monotonic_ms());
                self.turns.give_back();
            }
        }
    }
}
