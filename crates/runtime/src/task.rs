//! A task: one future, its state, its references. It is polled by one carrier at a time, on
//! whichever thread runs its home loop (or has just lost it), and may be woken from anywhere.
//!
//! 1. `state` has NOTIFIED (it is in a queue, or will be put there by who has it RUNNING), RUNNING
//!    and COMPLETE. Who sets NOTIFIED while neither of the others is set puts it into a queue.
//! 2. A queue entry owns a reference, the poll that takes the entry inherits it.
//! 3. The future is touched by the holder of RUNNING only, and after the last reference is gone by
//!    who dropped that. It is dropped when it completes (rule 8 of word.rs), or with the last
//!    reference. COMPLETE says that it is gone.
#![expect(unsafe_code, reason = "a reference-counted allocation behind RawWaker")]

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::remote::Remote;
use crate::stack::Linked;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use crate::turns::Place;

const NOTIFIED: u32 = 1;
const RUNNING: u32 = 2;
const COMPLETE: u32 = 4;

/// I/O operations that one poll may complete before it has to let others run.
pub(crate) const BUDGET: u32 = 128;

/// More references than this mean that they leak.
const REFERENCES_MAX: u32 = u32::MAX / 2;

/// What every task begins with, whatever its future.
pub(crate) struct Header {
    state: AtomicU32,
    references: AtomicU32,
    link: AtomicPtr<Header>,
    pub(crate) home: &'static Remote,
    table: &'static Table,
    /// What the task does now (suspects.rs); 0 is nothing in particular.
    pub(crate) tag: AtomicU32,
    /// Whether other loops may take it for a poll.
    pub(crate) binding: Binding,
    /// Whether it waits for its turn (turns.rs).
    place: AtomicU32,
    /// What is left of the budget; written by the polling thread only.
    pub(crate) budget: AtomicU32,
    /// The word's value under which it is polled; its carrier is the one that polls.
    pub(crate) lease: AtomicU64,
}

impl Header {
    pub(crate) fn place(&self) -> Place {
        Place::of(self.place.load(Ordering::Acquire))
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.place.store(place as u32, Ordering::Release);
    }
}

/// Who may poll a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// Another loop that has nothing to do, too.
    Free,
    /// Its home only.
    Bound,
}

struct Table {
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    drop_future: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Task<F> {
    header: Header,
    future: ManuallyDrop<F>,
}

// SAFETY: `link` is one field, used by the stacks only.
unsafe impl Linked for Header {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// What a poll left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The task is over; its reference is gone.
    Complete,
    /// It waits; its reference is gone.
    Pending,
    /// It was woken during the poll: the caller has its reference and puts it into a queue.
    Notified,
}

/// The bytes that a task takes beside its future.
pub(crate) const HEADER_SIZE: usize = size_of::<Header>();

/// Makes a task and puts it into `home`'s inject queue.
pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
    home: &'static Remote,
    tag: u32,
    binding: Binding,
    future: F,
) {
    let task = Box::new(Task {
        header: Header {
            state: AtomicU32::new(NOTIFIED),
            references: AtomicU32::new(1),
            link: AtomicPtr::new(ptr::null_mut()),
            home,
            table: &Table { poll: poll_future::<F>, drop_future: drop_future::<F>, free: free::<F> },
            tag: AtomicU32::new(tag),
            binding,
            place: AtomicU32::new(Place::Outside as u32),
            budget: AtomicU32::new(BUDGET),
            lease: AtomicU64::new(0),
        },
        future: ManuallyDrop::new(future),
    });
    home.inject(NonNull::from(Box::leak(task)).cast());
}

/// Polls a task that was taken from a queue.
///
/// # Safety
/// `task` comes with the reference of its queue entry, which this call takes over.
pub(crate) unsafe fn poll(task: NonNull<Header>) -> Outcome {
    // SAFETY: valid by the caller's reference.
    let header = unsafe { task.as_ref() };
    let before = header.state.fetch_xor(NOTIFIED | RUNNING, Ordering::AcqRel);
    debug_assert_eq!(before, NOTIFIED, "in one queue, and not polled by anybody");
    header.budget.store(BUDGET, Ordering::Relaxed);
    // SAFETY: a waker that shares the caller's reference and is not dropped.
    let waker = ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(task.as_ptr().cast(), &WAKER)) });
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: RUNNING is ours, the future has not completed.
        unsafe { (header.table.poll)(task, &mut Context::from_waker(&waker)) }
    }));
    if result.is_err() {
        crate::metrics::TASK_PANICS.increment();
    }
    // A future that panicked is over.
    let result = result.unwrap_or(Poll::Ready(()));
    if result.is_ready() {
        // What a destructor that panics has not dropped yet is lost.
        // SAFETY: RUNNING is ours, and COMPLETE follows, so this happens once.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (header.table.drop_future)(task) }));
        if dropped.is_err() {
            crate::metrics::TASK_PANICS.increment();
        }
    }
    // SAFETY: as for this function.
    unsafe { finish(task, result) }
}

/// Leaves a task that was taken from a queue unpolled, since it stands in a line. It is woken when its turn
/// comes: if that is so already, it is put into its home's inject queue.
///
/// # Safety
/// As for [`poll`].
pub(crate) unsafe fn park(task: NonNull<Header>) {
    // SAFETY: valid by the caller's reference.
    let header = unsafe { task.as_ref() };
    header.state.fetch_and(!NOTIFIED, Ordering::AcqRel);
    // Against the one in `grant`: its wake finds the task not notified, or its grant is seen here.
    fence(Ordering::SeqCst);
    if header.place() == Place::Granted && header.state.fetch_or(NOTIFIED, Ordering::AcqRel) == 0 {
        header.home.inject(task);
        return;
    }
    // SAFETY: the reference is the caller's, given up here.
    unsafe { release(task) };
}

/// Grants a turn to the task of a waker that stood in the line, which is polled next.
pub(crate) fn grant(waker: Waker) {
    if let Some(header) = header(&waker) {
        header.set_place(Place::Granted);
        fence(Ordering::SeqCst);
    }
    waker.wake();
}

/// A waker of a task that was taken from a queue.
///
/// # Safety
/// `task` comes with a reference, which stays the caller's.
#[cfg(not(loom))]
pub(crate) unsafe fn waker(task: NonNull<Header>) -> Waker {
    // SAFETY: the waker gets a reference of its own.
    unsafe { Waker::from_raw(clone_waker(task.as_ptr().cast())) }
}

/// Ends RUNNING.
///
/// # Safety
/// As for [`poll`], by whose caller's reference `task` lives.
unsafe fn finish(task: NonNull<Header>, result: Poll<()>) -> Outcome {
    // SAFETY: valid by the caller's reference.
    let header = unsafe { task.as_ref() };
    let outcome = match result {
        Poll::Ready(()) => {
            header.state.fetch_xor(RUNNING | COMPLETE, Ordering::AcqRel);
            Outcome::Complete
        }
        Poll::Pending => match header.state.fetch_and(!RUNNING, Ordering::AcqRel) & NOTIFIED {
            0 => Outcome::Pending,
            _ => return Outcome::Notified,
        },
    };
    // SAFETY: the reference is the caller's, given up here.
    unsafe { release(task) };
    outcome
}

/// A notified task on its way from one queue to another, with the reference of the entry. It must
/// be requeued, or it is never polled again.
#[cfg(not(loom))]
pub(crate) struct Queued(NonNull<Header>);

// SAFETY: a task may be polled and dropped on any thread.
#[cfg(not(loom))]
unsafe impl Send for Queued {}

#[cfg(not(loom))]
impl Queued {
    /// # Safety
    /// `task` was taken from a queue, comes with its entry's reference, and was not polled.
    pub(crate) unsafe fn new(task: NonNull<Header>) -> Self {
        Self(task)
    }

    /// Puts it into its home's inject queue.
    pub(crate) fn requeue(self) {
        // SAFETY: alive by the reference, which goes to the queue.
        unsafe { self.0.as_ref() }.home.inject(self.0);
    }
}

/// Wakes `waker`. If it belongs to a task of `here`, whose owner the caller is, the task is handed
/// to `push` instead of going through the inject queue.
pub(crate) fn wake_local(waker: Waker, here: &'static Remote, push: impl FnOnce(NonNull<Header>)) {
    let Some(task) = of_waker(&waker) else { return waker.wake() };
    // SAFETY: the waker holds a reference.
    let header = unsafe { task.as_ref() };
    if !ptr::eq(header.home, here) {
        return waker.wake();
    }
    if header.state.fetch_or(NOTIFIED, Ordering::AcqRel) == 0 {
        // The waker's reference becomes that of the queue entry.
        let _ = ManuallyDrop::new(waker);
        push(task);
    }
}

/// The task that a waker is of, if it is one of ours. It lives as long as the waker.
pub(crate) fn of_waker(waker: &Waker) -> Option<NonNull<Header>> {
    if !ptr::eq(waker.vtable(), &raw const WAKER) {
        return None;
    }
    NonNull::new(waker.data().cast_mut().cast())
}

/// The header of the task that is being polled with `waker`.
pub(crate) fn header(waker: &Waker) -> Option<&Header> {
    // SAFETY: the reference behind the waker keeps it alive as long as the waker is borrowed.
    of_waker(waker).map(|task| unsafe { task.as_ref() })
}

unsafe fn poll_future<F: Future<Output = ()>>(task: NonNull<Header>, cx: &mut Context<'_>) -> Poll<()> {
    let task: NonNull<Task<F>> = task.cast();
    // SAFETY: `Task` is repr(C) with the header first; RUNNING gives the future to us alone; it is
    // never moved out of its allocation.
    unsafe { Pin::new_unchecked(&mut *(&raw mut (*task.as_ptr()).future).cast::<F>()) }.poll(cx)
}

unsafe fn drop_future<F>(task: NonNull<Header>) {
    let task: NonNull<Task<F>> = task.cast();
    // SAFETY: as in `poll_future`; the caller sees to it that it happens once.
    unsafe { ptr::drop_in_place((&raw mut (*task.as_ptr()).future).cast::<F>()) };
}

unsafe fn free<F>(task: NonNull<Header>) {
    // SAFETY: made by `Box::new` of this type; the last reference is gone; the future is dropped.
    drop(unsafe { Box::from_raw(task.cast::<Task<F>>().as_ptr()) });
}

/// Gives up one reference.
unsafe fn release(task: NonNull<Header>) {
    // SAFETY: the caller's reference keeps it alive until the decrement.
    let header = unsafe { task.as_ref() };
    if header.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    if header.state.load(Ordering::Acquire) & COMPLETE == 0 {
        // SAFETY: no reference is left, so nobody polls it.
        unsafe { (header.table.drop_future)(task) };
    }
    // SAFETY: no reference is left and the future is gone.
    unsafe { (header.table.free)(task) };
}

/// `std::panic::catch_unwind`; loom's own panics must pass, since they end its threads.
fn catch_unwind<R>(f: AssertUnwindSafe<impl FnOnce() -> R>) -> std::thread::Result<R> {
    #[cfg(loom)]
    return Ok((f.0)());
    #[cfg(not(loom))]
    std::panic::catch_unwind(f)
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: the waker being cloned holds a reference.
    let header = unsafe { &*data.cast::<Header>() };
    if header.references.fetch_add(1, Ordering::Relaxed) > REFERENCES_MAX {
        std::process::abort();
    }
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker holds a reference, which goes to the queue or is given up.
    unsafe {
        let task = NonNull::new_unchecked(data.cast_mut().cast::<Header>());
        if task.as_ref().state.fetch_or(NOTIFIED, Ordering::AcqRel) == 0 {
            task.as_ref().home.inject(task);
        } else {
            release(task);
        }
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker holds a reference; the queue gets another.
    unsafe {
        let task = NonNull::new_unchecked(data.cast_mut().cast::<Header>());
        if task.as_ref().state.fetch_or(NOTIFIED, Ordering::AcqRel) == 0 {
            task.as_ref().references.fetch_add(1, Ordering::Relaxed);
            task.as_ref().home.inject(task);
        }
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's reference is given up.
    unsafe { release(NonNull::new_unchecked(data.cast_mut().cast())) };
}
