//! A token: what only one poll at a time may touch, wherever it runs, such as an interpreter or the session
//! of a connection. A task that finds it taken is parked. Any thread.
//!
//! 1. The word is 0, or names the poll that holds the token. It is entered by one compare-and-swap inside a
//!    poll, and left before that poll ends: the guard cannot cross an await, and a panic drops it.
//! 2. A poll that finds it taken, or others waiting, joins the line: nobody gets ahead.
//! 3. As long as somebody waits and the token is free, one task has been released (taken out of the line, to
//!    be polled next). So each of these looks at both, and releases one if it finds both: a task that joins;
//!    a poll that leaves the token; a released task that does not enter, as it was dropped; one that sweeps
//!    the line.
//! 4. Each of them has a SeqCst fence between what it writes and what it reads.
//! 5. The line is made by the first task that has to wait, and freed with the token.
#![expect(unsafe_code, reason = "a line that is made when it is needed")]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::handover::line::Line;
use crate::handover::word::PollId;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::task;
use crate::task::cell::{Entered, TaskCell};
#[cfg(not(loom))]
use crate::task::coop::note_waiting;
use crate::task::place::{Departure, WaitingPlace};

/// The holder in tasks of other executors: no value of a word in POLL.
const ELSEWHERE: u64 = 1;

/// A token.
pub struct Token {
    holder: AtomicU64,
    line: AtomicPtr<Line<Arc<WaitingPlace>>>,
}

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl Token {
    /// A token that nobody holds.
    #[must_use]
    pub fn new() -> Self {
        Self { holder: AtomicU64::new(0), line: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Enters if nobody holds it or waits for it.
    ///
    /// # Panics
    /// If this poll holds it already.
    pub fn try_enter(&self, cx: &Context<'_>) -> Option<Held<'_>> {
        if self.line().is_some_and(|line| !line.is_empty()) { None } else { self.take(cx) }
    }

    /// The poll that `cx` is of, as [`Token::holder`] names it; `None` in tasks of other executors.
    #[must_use]
    pub fn poll_of(cx: &Context<'_>) -> Option<PollId> {
        let lease = task::header(cx.waker())?.lease.load(Ordering::Relaxed);
        (lease != 0).then_some(PollId(lease))
    }

    /// The poll that holds it; `LoopRef::is_away` tells whether its loop was handed over.
    #[must_use]
    pub fn holder(&self) -> Option<PollId> {
        let holder = self.holder.load(Ordering::Relaxed);
        (holder != 0).then_some(PollId(holder))
    }

    fn take(&self, cx: &Context<'_>) -> Option<Held<'_>> {
        let me = task::header(cx.waker()).map_or(ELSEWHERE, |header| header.lease.load(Ordering::Relaxed));
        match self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Held { token: self, of_this_poll: PhantomData }),
            Err(holder) => {
                assert!(holder != me || me == ELSEWHERE, "a poll enters a token once");
                None
            }
        }
    }

    fn line(&self) -> Option<&Line<Arc<WaitingPlace>>> {
        // SAFETY: null, or made by `line_for_waiting` and freed with the token only.
        unsafe { self.line.load(Ordering::Acquire).as_ref() }
    }

    /// Rule 5.
    fn line_for_waiting(&self) -> &Line<Arc<WaitingPlace>> {
        if let Some(line) = self.line() {
            return line;
        }
        let new = Box::into_raw(Box::new(Line::new()));
        match self.line.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as in `line`.
            Ok(_) => unsafe { &*new },
            Err(others) => {
                // SAFETY: made above and never published.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `line`.
                unsafe { &*others }
            }
        }
    }

    /// Rule 3.
    fn look(&self) {
        fence(Ordering::SeqCst);
        if let Some(line) = self.line()
            && self.holder.load(Ordering::Relaxed) == 0
        {
            // An empty line is as good as a waiter that goes on.
            let _ = line.grant_first();
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let line = self.line.swap(ptr::null_mut(), Ordering::AcqRel);
        if !line.is_null() {
            // SAFETY: made by `line_for_waiting`; nobody else has the token.
            drop(unsafe { Box::from_raw(line) });
        }
    }
}

impl AsRef<Self> for Token {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The token is held by this poll until this is dropped.
///
/// It does not leave its thread, so a future that keeps it across an await cannot be spawned:
///
/// ```compile_fail
/// # use clearway_runtime::{Entering, LoopRef, Tag, Token};
/// fn spawn(home: LoopRef, token: &'static Token) {
///     home.spawn(Tag::NONE, async move {
///         let held = std::future::poll_fn(|cx| std::task::Poll::Ready(token.try_enter(cx))).await;
///         clearway_runtime::yield_now().await;
///         drop(held);
///     });
/// }
/// ```
#[must_use = "it is left when this is dropped"]
pub struct Held<'a> {
    token: &'a Token,
    of_this_poll: PhantomData<*const ()>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.token.holder.store(0, Ordering::Release);
        self.token.look();
    }
}

/// A task on its way into a token, and its place in the line where it has to wait. Dropping it leaves the
/// line. `T` leads to the token: a reference, or an `Arc` of the thing that the token guards.
pub struct Entering<T: Deref<Target: AsRef<Token>>> {
    token: T,
    place: Option<Arc<WaitingPlace>>,
}

impl<T: Deref<Target: AsRef<Token>>> Entering<T> {
    /// A place that is not in the line yet.
    pub fn new(token: T) -> Self {
        Self { token, place: None }
    }

    /// Enters when the token is free, in the order in which tasks came. What comes back is to be dropped in
    /// this poll; the next one may enter again by the same means.
    ///
    /// # Panics
    /// If this poll holds the token already.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Held<'_>> {
        enter_in_turn(self.token.deref().as_ref(), &mut self.place, cx)
    }
}

fn enter_in_turn<'a>(
    token: &'a Token,
    own_place: &mut Option<Arc<WaitingPlace>>,
    cx: &Context<'_>,
) -> Poll<Held<'a>> {
    let entered = match own_place {
        None => token.try_enter(cx),
        Some(place) if place.poll_granted(cx).is_pending() => {
            note_waiting(cx);
            return Poll::Pending;
        }
        Some(_) => token.take(cx),
    };
    if let Some(held) = entered {
        *own_place = None;
        return Poll::Ready(held);
    }
    // One that was released and comes too late joins again, which looks as rule 3 wants it.
    let place = WaitingPlace::new();
    *own_place = Some(Arc::clone(&place));
    token.line_for_waiting().push(Arc::clone(&place));
    token.look();
    if place.poll_granted(cx).is_ready() {
        // The release came at once, before the waker was there.
        cx.waker().wake_by_ref();
    }
    note_waiting(cx);
    Poll::Pending
}

#[cfg(loom)]
fn note_waiting(_: &Context<'_>) {}

impl<T: Deref<Target: AsRef<Token>>> Drop for Entering<T> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let token = self.token.deref().as_ref();
        let was_swept = match place.leave() {
            Departure::InLine => token.line().is_some_and(Line::note_left),
            Departure::Granted => true,
            Departure::Left => false,
        };
        if was_swept {
            token.look();
        }
    }
}

/// A token and the value that it guards.
pub struct Guarded<T> {
    token: Token,
    value: TaskCell<T>,
}

impl<T> Guarded<T> {
    /// With a token that nobody holds.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { token: Token::new(), value: TaskCell::new(value) }
    }

    /// As [`Token::try_enter`].
    ///
    /// # Panics
    /// If this poll holds the token already.
    pub fn try_enter(&self, cx: &Context<'_>) -> Option<HeldValue<'_, T>> {
        let held = self.token.try_enter(cx)?;
        Some(HeldValue { value: self.value.enter(), _held: held })
    }
}

impl<T> AsRef<Token> for Guarded<T> {
    fn as_ref(&self) -> &Token {
        &self.token
    }
}

impl<T, G: Deref<Target = Guarded<T>>> Entering<G> {
    /// As [`Entering::poll`], with what the token guards.
    ///
    /// # Panics
    /// If this poll holds the token already.
    pub fn poll_value(&mut self, cx: &Context<'_>) -> Poll<HeldValue<'_, T>> {
        let guarded = self.token.deref();
        let entered = enter_in_turn(&guarded.token, &mut self.place, cx);
        entered.map(|held| HeldValue { value: guarded.value.enter(), _held: held })
    }
}

/// The guarded value is this poll's until this is dropped.
#[must_use = "it is left when this is dropped"]
pub struct HeldValue<'a, T> {
    value: Entered<'a, T>,
    /// Left after the value, which stands before it.
    _held: Held<'a>,
}

impl<T> Deref for HeldValue<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for HeldValue<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn one_at_a_time_in_order_and_a_panic_leaves_it() {
        let token = Token::new();
        let cx = &Context::from_waker(Waker::noop());
        let held = token.try_enter(cx).unwrap();
        assert_eq!(token.holder(), Some(PollId(ELSEWHERE)));
        let (mut first, mut gone, mut second) =
            (Entering::new(&token), Entering::new(&token), Entering::new(&token));
        for waiting in [&mut first, &mut gone, &mut second] {
            assert!(waiting.poll(cx).is_pending());
        }
        drop(gone);
        drop(held);
        assert!(token.try_enter(cx).is_none() && second.poll(cx).is_pending(), "nobody gets ahead");
        let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = first.poll(cx);
            panic!("on purpose");
        }));
        assert!(thrown.is_err());
        // Released, and gone: its release is passed on to nobody, and the token is free.
        drop(second);
        assert!(token.try_enter(cx).is_some() && token.holder().is_none());
    }
}

#[cfg(all(test, not(loom)))]
mod guarded_tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_value_is_reached_by_one_guard_at_a_time() {
        let guarded = Arc::new(Guarded::new(vec![1]));
        let cx = &Context::from_waker(Waker::noop());
        let mut first = guarded.try_enter(cx).unwrap();
        first.push(2);
        assert!(guarded.try_enter(cx).is_none());
        let mut entering = Entering::new(Arc::clone(&guarded));
        assert!(entering.poll_value(cx).is_pending());
        drop(first);
        let Poll::Ready(mut second) = entering.poll_value(cx) else { panic!("it is free") };
        second.push(3);
        assert_eq!(*second, [1, 2, 3]);
        drop(second);
        assert!(Guarded::as_ref(&guarded).holder().is_none());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Notify;
    use loom::thread;
    use std::task::{Wake, Waker};

    /// The guarded data: loom reports an access that is not ordered after the last one.
    struct Guarded {
        token: Token,
        entries: UnsafeCell<u32>,
    }

    impl AsRef<Token> for Guarded {
        fn as_ref(&self) -> &Token {
            &self.token
        }
    }

    /// Ends a wait; loom reports one that never ends as a deadlock.
    struct Unpark(Notify);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    /// The options of a task that finds the token taken.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Patience {
        Waits,
        GivesUp,
    }

    fn enter(guarded: &loom::sync::Arc<Guarded>, patience: Patience) {
        let unpark = Arc::new(Unpark(Notify::new()));
        let waker = Waker::from(Arc::clone(&unpark));
        let cx = Context::from_waker(&waker);
        let mut entering = Entering::new(&**guarded);
        loop {
            if let Poll::Ready(held) = entering.poll(&cx) {
                // SAFETY: rule 1 is what the model checks.
                guarded.entries.with_mut(|p| unsafe { *p += 1 });
                drop(held);
                return;
            }
            if patience == Patience::GivesUp {
                return;
            }
            unpark.0.wait();
        }
    }

    fn model(of: &'static [Patience]) {
        loom::model(move || {
            let guarded = Guarded { token: Token::new(), entries: UnsafeCell::new(0) };
            let guarded = loom::sync::Arc::new(guarded);
            let others: Vec<_> = of
                .iter()
                .map(|&patience| {
                    let guarded = loom::sync::Arc::clone(&guarded);
                    thread::spawn(move || enter(&guarded, patience))
                })
                .collect();
            enter(&guarded, Patience::Waits);
            for other in others {
                other.join().unwrap();
            }
            assert!(guarded.token.holder().is_none());
        });
    }

    /// Every waiter enters, one at a time.
    #[test]
    fn loom_nobody_waits_for_a_free_token() {
        model(&[Patience::Waits, Patience::Waits]);
    }

    /// One gives up at any moment, also when it was released just now.
    #[test]
    fn loom_a_release_to_a_task_that_gives_up_is_passed_on() {
        model(&[Patience::GivesUp, Patience::Waits]);
    }
}
