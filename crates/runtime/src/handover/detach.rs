//! Which tasks are polled away from their loop from the start, and which of them when: suspects that sleep
//! as soon as there is a carrier, those that burn CPU one after the other (turns.rs). Carriers, and the
//! watchdog where it says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use clearway_os::clock;
use clearway_os::thread::{self, StateFile};

use crate::handover::suspects::{Manner, Tag};
use crate::handover::turns::Place;
use crate::metrics;
use crate::shared::{Carrier, Lent, Shared};
use crate::task::{self, Header};

/// How long a turn lasts at most, in nanoseconds. Who burns CPU for longer goes on beside who is next, so
/// that a few that never end do not keep all others from their turns.
const TURN_MAX_NS: u64 = 50_000_000;

/// How a task may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// On its loop.
    Ordinary,
    /// Away from it; who burns CPU has a turn.
    Suspect(Manner),
    /// Not now: it stands in the line and is woken when its turn comes.
    Stands,
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
    /// Whether, and how, a task may go on with `tag`. It is not in the line, or is about to be polled.
    #[inline]
    pub(crate) fn admit(
        &self,
        header: &Header,
        tag: Tag,
        now_ms: u64,
        waker: impl FnOnce() -> Waker,
    ) -> Admission {
        let manner = self.suspects.check(tag, now_ms);
        match (header.place(), manner) {
            (Place::Outside, None) => Admission::Ordinary,
            (Place::Outside, Some(Manner::Sleeps)) => Admission::Suspect(Manner::Sleeps),
            (place, manner) => self.admit_by_turn(header, place, manner, waker),
        }
    }

    #[cold]
    fn admit_by_turn(
        &self,
        header: &Header,
        place: Place,
        manner: Option<Manner>,
        waker: impl FnOnce() -> Waker,
    ) -> Admission {
        match place {
            Place::InLine => return Admission::Stands,
            Place::Granted => {
                header.set_place(Place::Outside);
                if manner != Some(Manner::Burns) {
                    self.pass_turn();
                }
            }
            Place::Outside if !self.turns.take() => {
                metrics::BURNERS_QUEUED.increment();
                header.set_place(Place::InLine);
                if let Some(next) = self.turns.join(waker()) {
                    task::grant(next);
                }
                return Admission::Stands;
            }
            Place::Outside => {}
        }
        manner.map_or(Admission::Ordinary, Admission::Suspect)
    }

    /// Gives a turn to who has waited longest for one.
    pub(crate) fn pass_turn(&self) {
        if let Some(next) = self.turns.give_back() {
            task::grant(next);
        }
    }

    /// What becomes of the turn with which a carrier has tried to give its loop away.
    pub(crate) fn hold_turn(&self, carrier: &Carrier, lent: Lent) {
        match lent {
            Lent::NoSpare => self.pass_turn(),
            Lent::Done | Lent::MovedOn => carrier.turn.is_held.store(true, Ordering::Release),
        }
    }

    /// Passes on the turns of carriers that sleep instead of burning CPU: what they do counts as sleeping
    /// for a while, and needs no turn. So too those that have lasted too long. The watchdog, while carriers
    /// are away from their loops.
    pub(crate) fn pass_overdue_turns(&self, started: usize) {
        for carrier in self.carriers[..started].iter().filter(|c| c.turn.is_held.load(Ordering::Acquire)) {
            let since_ns = carrier.detached_ns.load(Ordering::Relaxed);
            if since_ns != 0 && clock::monotonic_ns().saturating_sub(since_ns) > TURN_MAX_NS {
                if carrier.turn.end() {
                    self.pass_turn();
                }
            } else if carrier.turn.is_slept_over(carrier.tid.load(Ordering::Relaxed)) && carrier.turn.end() {
                let tag = Tag(carrier.tag.load(Ordering::Relaxed));
                self.suspects.blame(tag, Manner::Sleeps, clock::monotonic_ms());
                self.pass_turn();
            }
        }
    }
}
