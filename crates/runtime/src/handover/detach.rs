//! Which tasks are polled away from their loop from the start, and which of them when: suspects that sleep
//! as soon as there is a carrier, those that burn CPU one after the other (turns.rs). Carriers, and the
//! watchdog where it says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clearway_os::clock;
use clearway_os::thread::{self, StateFile};

use crate::event_loop::remote::Remote;
use crate::handover::line::Waits;
use crate::handover::place::Place;
use crate::handover::suspects::{Manner, Tag};
use crate::handover::word::Lease;
use crate::metrics;
use crate::shared::{Lent, Shared};
use crate::task::Queued;

/// How long a turn lasts at most, in nanoseconds. Who burns CPU for longer goes on beside who is next, so
/// that a few that never end do not keep all others from their turns.
const TURN_MAX_NS: u64 = 50_000_000;

/// How a task may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// On its loop.
    Ordinary,
    /// Away from it, with what it has: a turn if it burns CPU.
    Suspect(Manner, Pass),
    /// Not now: it is to join the line of those that burn CPU.
    NeedsTurn,
}

/// What a task was granted that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass(u8);

impl Pass {
    pub(crate) const NONE: Self = Self(0);
    /// A turn, which is to be used or given back (turns.rs).
    pub(crate) const TURN: Self = Self(1);
    /// The first attempt at the next spare, which is to succeed or to be passed on (waiting.rs).
    pub(crate) const SPARE: Self = Self(2);

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What stands in the two lines.
pub(crate) enum Waiter {
    /// A task that is about to do something suspect inside a poll: it is polled for all else that it waits
    /// for, and may give up (coop.rs).
    Inside(Arc<Place>),
    /// One that is suspect from the beginning of its next poll, and what it is granted. It stays notified, in
    /// no queue: nothing else is known of it that could be done, so it is not polled before.
    Before(Queued, Pass),
}

impl Waits for Waiter {
    fn grant(self) -> bool {
        match self {
            Self::Inside(place) => place.grant(),
            Self::Before(task, pass) => {
                task.header().add_pass(pass);
                task.requeue();
                true
            }
        }
    }

    fn has_left(&self) -> bool {
        match self {
            Self::Inside(place) => place.has_left(),
            Self::Before(..) => false,
        }
    }
}

/// The turn of a carrier that polls a burner. The carrier takes it; it or the watchdog ends it.
pub(crate) struct HeldTurn {
    is_held: AtomicBool,
    /// The carrier's CPU clock when it was last seen asleep; the watchdog only. 0: it was not.
    asleep_at_ns: AtomicU64,
}

impl HeldTurn {
    pub(crate) fn new() -> Self {
        Self { is_held: AtomicBool::new(false), asleep_at_ns: AtomicU64::new(0) }
    }

    /// The carrier has it from now on.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }

    /// Ends it, if it is held. To be followed by [`Shared::pass_turn`].
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        self.is_held.swap(false, Ordering::AcqRel)
    }

    /// Whether thread `tid`, which holds it, sleeps and slept when it was asked last, and has not run in
    /// between.
    fn is_slept_over(&self, tid: u32) -> bool {
        let cpu_ns = thread::cpu_ns(tid).unwrap_or(0).max(1);
        let is_runnable = StateFile::open(tid).is_ok_and(|file| file.letter() == Some(b'R'));
        let asleep_at_ns = if is_runnable { 0 } else { cpu_ns };
        self.asleep_at_ns.swap(asleep_at_ns, Ordering::Relaxed) == cpu_ns && !is_runnable
    }
}

impl Shared {
    /// Whether, and how, a task may go on with `tag` that has `pass`.
    pub(crate) fn admit(&self, tag: Tag, now_ms: u64, pass: Pass) -> Admission {
        let manner = self.suspects.check(tag, now_ms);
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
        for carrier in self.carriers[..started].iter().filter(|c| c.turn.is_held.load(Ordering::Acquire)) {
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
