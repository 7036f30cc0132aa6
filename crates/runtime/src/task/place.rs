//! The place of a task in a line (line.rs): it waits there inside a poll, and may give up. Beside it what a
//! task is granted, and what stands in the lines of suspects. Any thread.
//!
//! 1. A place is WAITING until one swap makes it GRANTED, by the thread that is to let somebody go on, or
//!    LEFT, by its task, which has given up or is dropped. A task that leaves a place that was GRANTED passes
//!    on what it was granted.
//! 2. The task registers its waker, then looks at the state; the granting thread changes the state, then
//!    takes the waker. One of the two sees the other (rule 3 of waker_cell.rs).
//! 3. A place that was left keeps no task.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::handover::line::Waits;
use crate::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use crate::task::Queued;
use crate::task::waker_cell::WakerCell;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const LEFT: u32 = 2;

/// A waiter inside a poll, which may give up.
pub(crate) struct WaitingPlace {
    state: AtomicU32,
    waker: WakerCell,
}

impl WaitingPlace {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU32::new(WAITING), waker: WakerCell::new() })
    }

    /// Ready when it was granted what it waits for. Rule 2, the task's side.
    pub(crate) fn poll_granted(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_granted() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.state.load(Ordering::Acquire) == GRANTED
    }

    /// Rule 1, the task's side.
    #[must_use]
    pub(crate) fn leave(&self) -> Departure {
        let before = self.state.swap(LEFT, Ordering::AcqRel);
        drop(self.waker.take());
        match before {
            WAITING => Departure::InLine,
            GRANTED => Departure::Granted,
            _ => Departure::Left,
        }
    }
}

/// In what state a place was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The waiter is still in the line.
    InLine,
    /// The waiter had been granted what it waited for; that has to be passed on.
    Granted,
    /// The waiter had left the line before.
    Left,
}

impl Waits for Arc<WaitingPlace> {
    fn grant(self) -> bool {
        let granted =
            self.state.compare_exchange(WAITING, GRANTED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if granted && let Some(waker) = self.waker.take() {
            waker.wake();
        }
        granted
    }

    fn has_left(&self) -> bool {
        self.state.load(Ordering::Acquire) == LEFT
    }
}

/// The grants of a task that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(not(loom))]
pub(crate) struct Pass(u8);

#[cfg(not(loom))]
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

/// An entry of the two lines.
#[cfg(not(loom))]
pub(crate) enum Waiter {
    /// A task that is about to do something suspect inside a poll: it is polled for all else that it waits
    /// for, and may give up (coop.rs).
    Inside(Arc<WaitingPlace>),
    /// One that is suspect from the beginning of its next poll, and what it is granted. It stays notified, in
    /// no queue: nothing else is known of it that could be done, so it is not polled before.
    Before(Queued, Pass),
}

#[cfg(not(loom))]
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
