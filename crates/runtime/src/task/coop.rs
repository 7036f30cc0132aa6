//! Cooperation between the tasks of a loop: the budget of a poll, yielding, and the announcement of
//! what a task is about to do, by which a suspect gives its loop away before it blocks.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::handover::detach::Admission;
use crate::handover::suspects::Tag;
use crate::handover::word::Lease;
use crate::shared::{Lent, Waiting};
use crate::task;

/// Pending, and woken at once, when the poll has used up its budget. Tasks of other executors have
/// none.
pub(crate) fn poll_budget(cx: &mut Context<'_>) -> Poll<()> {
    if task::header(cx.waker()).is_none_or(|header| header.budget.load(Ordering::Relaxed) > 0) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// One operation was done.
pub(crate) fn spend(cx: &mut Context<'_>) {
    if let Some(header) = task::header(cx.waker()) {
        let left = header.budget.load(Ordering::Relaxed);
        header.budget.store(left.saturating_sub(1), Ordering::Relaxed);
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

/// Says what the task does from here on, as a phase handler of a location may block. Completes at
/// once, unless `tag` is a suspect and no carrier is to be had for it.
pub async fn enter(tag: Tag) {
    poll_fn(|cx| poll_enter(tag, cx)).await;
}

/// [`enter`] for hand-written futures.
pub fn poll_enter(tag: Tag, cx: &mut Context<'_>) -> Poll<()> {
    let Some(header) = task::header(cx.waker()) else { return Poll::Ready(()) };
    let shared = header.home.shared;
    let lease = Lease::from_bits(header.lease.load(Ordering::Relaxed));
    let carrier = &shared.carriers[lease.carrier()];
    header.tag.store(tag.0, Ordering::Relaxed);
    carrier.tag.store(tag.0, Ordering::Relaxed);
    let host = shared.loops()[carrier.running.load(Ordering::Relaxed) as usize];
    let now = host.now_ms();
    if shared.suspects.check(tag, now).is_none() || host.remote.word.load() != lease {
        return Poll::Ready(());
    }
    match shared.admit(header, tag, now, || cx.waker().clone()) {
        Admission::Ordinary => return Poll::Ready(()),
        Admission::Stands => return Poll::Pending,
        Admission::Suspect(manner) => {
            if shared.lend_own(&host.remote, lease, tag, manner) != Lent::NoSpare {
                return Poll::Ready(());
            }
        }
    }
    shared.wait_for_spare(Waiting::Inside(cx.waker().clone()));
    Poll::Pending
}
