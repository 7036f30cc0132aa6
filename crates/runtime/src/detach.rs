//! Which tasks are polled away from their loop from the start, and which of them when: suspects that sleep
//! as soon as there is a carrier, those that burn CPU one after the other (turns.rs). Carriers only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use clearway_os::thread;

use crate::metrics;
use crate::shared::{Carrier, Lent, Shared};
use crate::suspects::{Manner, Tag};
use crate::task::{self, Header};
use crate::turns::Place;

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

/// The turn of a carrier that polls a burner; written by the carrier only.
pub(crate) struct HeldTurn {
    is_held: AtomicBool,
    cpu_ns: AtomicU64,
    sleeps: AtomicU64,
}

/// A carrier's clocks when its turn began.
pub(crate) struct Before {
    cpu_ns: u64,
    sleeps: u64,
}

impl HeldTurn {
    pub(crate) fn new() -> Self {
        Self { is_held: AtomicBool::new(false), cpu_ns: AtomicU64::new(0), sleeps: AtomicU64::new(0) }
    }

    fn begin(&self, tid: u32) {
        self.cpu_ns.store(thread::cpu_ns(tid).unwrap_or(0), Ordering::Relaxed);
        self.sleeps.store(thread::sleeps(), Ordering::Relaxed);
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// The carrier holds it no more, if it did. To be followed by [`Shared::pass_turn`].
    pub(crate) fn end(&self) -> Option<Before> {
        self.is_held.swap(false, Ordering::Relaxed).then(|| Before {
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        })
    }
}

impl Before {
    /// Whether the calling thread, with the id `tid`, has slept for most of `wall_ns` since. One that only
    /// waited for a processor has not.
    pub(crate) fn has_slept(&self, tid: u32, wall_ns: u64) -> bool {
        let cpu_ns = thread::cpu_ns(tid).unwrap_or(0).saturating_sub(self.cpu_ns);
        thread::sleeps() > self.sleeps && cpu_ns.saturating_mul(2) < wall_ns
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
            Lent::Done | Lent::MovedOn => carrier.turn.begin(carrier.tid.load(Ordering::Relaxed)),
        }
    }
}
