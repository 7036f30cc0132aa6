//! Cooperation between the tasks of a loop: the budget of a poll, yielding, and the announcement of
//! what a task is about to do, by which a suspect gives its loop away before it blocks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use crate::handover::suspects::{Manner, Tag};
use crate::handover::word::Lease;
use crate::shared::{Carrier, Lent, Shared};
use crate::task::detach::Admission;
use crate::task::place::{Departure, Pass, Waiter, WaitingPlace};
use crate::task::remote::Remote;
use crate::task::{self, Binding, Header};

/// Pending, and woken at once, when the poll has used up its budget. Tasks of other executors have
/// none.
pub(crate) fn poll_budget(cx: &mut Context<'_>) -> Poll<()> {
    if task::header(cx.waker()).is_none_or(|header| header.budget.load(Ordering::Relaxed) > 0) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Notes one operation against the task's budget.
pub(crate) fn spend(cx: &mut Context<'_>) {
    if let Some(header) = task::header(cx.waker()) {
        let left = header.budget.load(Ordering::Relaxed);
        header.budget.store(left.saturating_sub(1), Ordering::Relaxed);
    }
}

/// The tag of the poll; [`Tag::NONE`] in tasks of other executors.
#[must_use]
pub fn tag_of(cx: &Context<'_>) -> Tag {
    Polling::of(cx).map_or(Tag::NONE, |poll| Tag(poll.carrier.tag.load(Ordering::Relaxed)))
}

/// Whether the poll's tag has blocked, and then again for long in a poll that was away from its loop for
/// that: one time is a first run, or bad luck. `false` in tasks of other executors.
#[must_use]
pub fn repeats(cx: &Context<'_>) -> bool {
    Polling::of(cx).is_some_and(|poll| {
        let tag = Tag(poll.carrier.tag.load(Ordering::Relaxed));
        poll.header.home.shared.suspects.repeats(tag, poll.host().now_ms())
    })
}

/// The poll ends as it has to wait for a token: if it was that of a suspect, it says nothing for that one.
pub(crate) fn note_waiting(cx: &Context<'_>) {
    if let Some(poll) = Polling::of(cx) {
        poll.carrier.waited.store(true, Ordering::Relaxed);
    }
}

/// Lets the other ready tasks of the loop run first.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Says what the task does from here on, in this poll and later ones, as a phase handler of a location may
/// block. Completes at once, unless `tag` is a suspect that has to wait for a carrier or its turn: until then
/// the task is polled for all else that it waits for, and may drop this. Once it has completed, later polls
/// as a whole are suspect, and wait as a whole.
pub async fn enter(tag: Tag) {
    let mut gate = Gate::default();
    poll_fn(|cx| {
        ready!(gate.poll(tag, cx));
        if let Some(poll) = Polling::of(cx) {
            poll.header.tag.store(tag.0, Ordering::Relaxed);
            poll.carrier.tag.store(tag.0, Ordering::Relaxed);
        }
        Poll::Ready(())
    })
    .await;
}

/// Polls `future` as one that does what `tag` says: where that is a suspect, away from the loop. While it has
/// to wait for a carrier or its turn the task is polled for all else that it waits for (timers, its client),
/// without `future`; dropping this leaves the line. What the task does beside it is not suspect.
pub async fn within<F: Future>(tag: Tag, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut gate = Gate::default();
    poll_fn(|cx| {
        ready!(gate.poll(tag, cx));
        let Some(poll) = Polling::of(cx) else { return future.as_mut().poll(cx) };
        // The carrier is the same at the end, and it alone writes this: a poll stays on its thread.
        let carrier = poll.carrier;
        let around = carrier.tag.load(Ordering::Relaxed);
        carrier.tag.store(tag.0, Ordering::Relaxed);
        let polled = future.as_mut().poll(cx);
        carrier.tag.store(around, Ordering::Relaxed);
        polled
    })
    .await
}

/// Binds the task to its loop: until [`unbind`] no other one polls it when this one is crowded. Completes
/// when it is polled there, which is at once unless another loop polls it now.
pub async fn bind() {
    poll_fn(|cx| {
        let Some(poll) = Polling::of(cx) else { return Poll::Ready(()) };
        poll.header.set_binding(Binding::Bound);
        if poll.is_at_home() {
            return Poll::Ready(());
        }
        // Woken while it is polled, it goes to its home's queue, from which nobody takes it any more.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Ends what [`bind`] has begun, and the binding of a task that was spawned bound.
pub async fn unbind() {
    poll_fn(|cx| {
        if let Some(poll) = Polling::of(cx) {
            poll.header.set_binding(Binding::Free);
        }
        Poll::Ready(())
    })
    .await;
}

/// The poll that is under way.
struct Polling<'a> {
    header: &'a Header,
    carrier: &'static Carrier,
    lease: Lease,
}

impl<'a> Polling<'a> {
    /// `None` in tasks of other executors.
    fn of(cx: &Context<'a>) -> Option<Self> {
        let header = task::header(cx.waker())?;
        let lease = Lease::from_bits(header.lease.load(Ordering::Relaxed));
        Some(Self { header, carrier: &header.home.shared.carriers[lease.carrier()], lease })
    }

    /// Whether its own loop polls it, or polled it until that was lent.
    fn is_at_home(&self) -> bool {
        self.carrier.running.load(Ordering::Relaxed) as usize == self.header.home.index
    }

    /// The loop that polls, or polled until it was lent.
    fn host(&self) -> &'static Remote {
        self.header.home.shared.remotes()[self.carrier.running.load(Ordering::Relaxed) as usize]
    }
}

/// Before what may be suspect: lets a task through at once, or away from its loop, or has it wait.
#[derive(Default)]
struct Gate(Option<Standing>);

/// A place in one of the two lines. Dropping it leaves the line, and passes on what was granted.
struct Standing {
    shared: &'static Shared,
    place: Arc<WaitingPlace>,
    /// [`Pass::TURN`] or [`Pass::SPARE`].
    awaited: Pass,
    /// The turn with which it waits for a spare, if it has one.
    held: Pass,
}

impl Standing {
    /// Whether the line is the right one for what the tag now counts as.
    fn suits(&self, manner: Option<Manner>) -> bool {
        match manner {
            None => false,
            Some(Manner::Sleeps) => self.awaited == Pass::SPARE,
            Some(Manner::Burns) => self.awaited == Pass::TURN || self.held == Pass::TURN,
        }
    }

    /// Leaves the line. What it has.
    fn take(&mut self) -> Pass {
        let held = std::mem::replace(&mut self.held, Pass::NONE);
        match (self.place.leave(), self.awaited) {
            (Departure::Granted, awaited) => return held.with(awaited),
            (Departure::Left, _) => {}
            (Departure::InLine, Pass::TURN) => self.shared.turns.note_left(),
            (Departure::InLine, _) => self.shared.waiting.note_left(&self.shared.spares),
        }
        held
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let pass = self.take();
        self.shared.give_up(pass);
    }
}

impl Gate {
    fn poll(&mut self, tag: Tag, cx: &Context<'_>) -> Poll<()> {
        let Some(poll) = Polling::of(cx) else { return Poll::Ready(()) };
        let shared = poll.header.home.shared;
        let host = poll.host();
        let now_ms = host.now_ms();
        let manner = shared.suspicion(tag, now_ms);
        if manner.is_none() && self.0.is_none() {
            return Poll::Ready(());
        }
        let is_away = host.word.load() != poll.lease;
        if let Some(standing) = &self.0
            && !is_away
            && standing.suits(manner)
            && standing.place.poll_granted(cx).is_pending()
        {
            return Poll::Pending;
        }
        let pass = self.0.take().map_or(Pass::NONE, |mut standing| standing.take());
        if is_away {
            shared.give_up(pass);
            return Poll::Ready(());
        }
        let (awaited, held) = match shared.admit(tag, now_ms, pass) {
            Admission::Ordinary => return Poll::Ready(()),
            Admission::NeedsTurn => (Pass::TURN, Pass::NONE),
            Admission::Suspect(manner, pass) => {
                if shared.detach(host, poll.lease, tag, (manner, pass)) != Lent::NoSpare {
                    return Poll::Ready(());
                }
                (Pass::SPARE, pass.without(Pass::SPARE))
            }
        };
        self.wait(Standing { shared, place: WaitingPlace::new(), awaited, held }, cx)
    }

    fn wait(&mut self, standing: Standing, cx: &Context<'_>) -> Poll<()> {
        let waiter = Waiter::Inside(Arc::clone(&standing.place));
        match standing.awaited {
            Pass::TURN => standing.shared.wait_for_turn(waiter),
            _ => standing.shared.wait_for_spare(waiter),
        }
        if standing.place.poll_granted(cx).is_ready() {
            // The grant came at once, before the waker was there.
            cx.waker().wake_by_ref();
        }
        self.0 = Some(standing);
        Poll::Pending
    }
}
