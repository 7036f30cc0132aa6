//! A task: one future, its state, its references. It is polled by one carrier at a time, on
//! whichever thread runs its home loop (or has just lost it), and may be woken from anywhere.
//!
//! 1. `state` has NOTIFIED (it is in a queue, or the holder of RUNNING will put it there), RUNNING, COMPLETE
//!    and DOOMED, and above them the number of wakers. A thread that sets NOTIFIED while neither RUNNING nor
//!    COMPLETE is set puts the task into a queue.
//! 2. It lives while it is NOTIFIED and not COMPLETE, or RUNNING, or has wakers. So a queue entry and a poll
//!    need no reference: the entry is NOTIFIED, the poll that takes it makes RUNNING of that.
//! 3. The future is touched by the holder of RUNNING only, which drops it when it has completed, or when
//!    nothing can wake it any more. COMPLETE says that it is gone.
//! 4. The last waker of an unfinished task dooms it: the task is queued once more, and the poll that takes it
//!    drops the future instead of polling it. So no destructor runs outside the POLL window of a loop
//!    (rule 8 of word.rs), and none inside another one.
//! 5. `binding` is written by the task in its own poll, and read by another loop that has taken the task out
//!    of a queue. A task that binds itself while another loop polls it goes home before it does anything.
#![expect(unsafe_code, reason = "a reference-counted allocation behind RawWaker")]

pub(crate) mod appetite;
pub(crate) mod cell;
#[cfg(not(loom))]
pub(crate) mod coop;
#[cfg(not(loom))]
pub(crate) mod detach;
#[cfg(test)]
mod models;
pub(crate) mod place;
pub(crate) mod remote;
pub(crate) mod stack;
pub(crate) mod timer;
pub(crate) mod token;
pub(crate) mod waker_cell;

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::task::appetite::Appetite;
#[cfg(not(loom))]
use crate::task::place::Pass;
use crate::task::remote::Remote;
use crate::task::stack::Linked;

const NOTIFIED: u64 = 1;
const RUNNING: u64 = 2;
const COMPLETE: u64 = 4;
/// Rule 4.
const DOOMED: u64 = 8;
/// The count of one waker.
const REFERENCE: u64 = 16;

/// I/O operations that one poll may complete before it has to let others run.
pub(crate) const BUDGET: u32 = 128;

/// A state with more wakers than this means that they leak.
const REFERENCES_MAX: u64 = u64::MAX / 2;

/// The beginning of every task, whatever its future.
pub(crate) struct Header {
    state: AtomicU64,
    link: AtomicPtr<Header>,
    pub(crate) home: &'static Remote,
    table: &'static Table,
    /// The tag of the task's present work (suspects.rs); 0 is none.
    pub(crate) tag: AtomicU32,
    /// Whether other loops may take it for a poll (rule 5).
    binding: AtomicU8,
    /// The pass that it was granted while it waited to be polled (place.rs).
    pass: AtomicU8,
    /// How much CPU it takes (fair.rs).
    pub(crate) appetite: Appetite,
    /// The rest of the budget; written by the polling thread only.
    pub(crate) budget: AtomicU32,
    /// The word's value under which it is polled; its carrier is the one that polls.
    pub(crate) lease: AtomicU64,
}

impl Header {
    pub(crate) fn binding(&self) -> Binding {
        if self.binding.load(Ordering::Relaxed) == Binding::Free as u8 {
            Binding::Free
        } else {
            Binding::Bound
        }
    }

    /// Rule 5. By the task, in its own poll.
    pub(crate) fn set_binding(&self, binding: Binding) {
        self.binding.store(binding as u8, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
impl Header {
    /// Adds to what it has. By the thread that has the task in its hands: out of a queue, or of a line.
    pub(crate) fn add_pass(&self, pass: Pass) {
        let before = Pass::from_bits(self.pass.load(Ordering::Relaxed));
        self.pass.store(before.with(pass).bits(), Ordering::Relaxed);
    }

    /// Takes what it has. By the thread that is about to poll it.
    pub(crate) fn take_pass(&self) -> Pass {
        let pass = Pass::from_bits(self.pass.load(Ordering::Relaxed));
        if pass != Pass::NONE {
            self.pass.store(Pass::NONE.bits(), Ordering::Relaxed);
        }
        pass
    }
}

/// The threads that may poll a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Binding {
    /// The carrier of another loop that has nothing to do may poll it, too.
    Free = 0,
    /// Its home only.
    Bound = 1,
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

/// The state after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    /// The task is over, and may be gone.
    Complete,
    /// The task waits, or is gone with its last waker.
    Pending,
    /// The task was woken during the poll: the caller puts it into a queue.
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
    spawn_with(home, tag, binding, || future);
}

/// As [`spawn`], for a future that is made in the task's memory.
#[inline]
pub(crate) fn spawn_with<F: Future<Output = ()> + Send + 'static>(
    home: &'static Remote,
    tag: u32,
    binding: Binding,
    future: impl FnOnce() -> F,
) {
    // The future is made after its memory, so that nothing but its arguments is written there.
    let task = Box::write(
        Box::new_uninit(),
        Task {
            header: Header {
                state: AtomicU64::new(NOTIFIED),
                link: AtomicPtr::new(ptr::null_mut()),
                home,
                table: &Table { poll: poll_future::<F>, drop_future: drop_future::<F>, free: free::<F> },
                tag: AtomicU32::new(tag),
                binding: AtomicU8::new(binding as u8),
                pass: AtomicU8::new(0),
                appetite: Appetite::new(),
                budget: AtomicU32::new(BUDGET),
                lease: AtomicU64::new(0),
            },
            future: ManuallyDrop::new(future()),
        },
    );
    home.inject(NonNull::from(Box::leak(task)).cast());
}

/// Polls a task that was taken from a queue. `measure` is called while it is still RUNNING.
///
/// # Safety
/// `task` was taken from a queue, and nothing else is done with it.
pub(crate) unsafe fn poll(task: NonNull<Header>, measure: impl FnOnce(&Header)) -> PollOutcome {
    // SAFETY: alive as it is NOTIFIED.
    let header = unsafe { task.as_ref() };
    let before = header.state.fetch_xor(NOTIFIED | RUNNING, Ordering::AcqRel);
    debug_assert_eq!((before % REFERENCE) & !DOOMED, NOTIFIED, "in one queue, and not polled by anybody");
    let mut result = Poll::Ready(());
    if before & DOOMED == 0 {
        header.budget.store(BUDGET, Ordering::Relaxed);
        // SAFETY: RUNNING is ours.
        result = unsafe { poll_running(task) };
    } else {
        // SAFETY: RUNNING is ours, and COMPLETE follows, so this happens once.
        unsafe { drop_guarded(task) };
    }
    measure(header);
    // SAFETY: as for this function.
    unsafe { finish(task, result) }
}

/// Polls the future of a task, and drops it if it is over.
///
/// # Safety
/// The caller has `task` RUNNING, its future has not completed, and COMPLETE follows if this is ready.
unsafe fn poll_running(task: NonNull<Header>) -> Poll<()> {
    // SAFETY: alive as it is RUNNING.
    let header = unsafe { task.as_ref() };
    // SAFETY: a waker that is not dropped, and shorter than RUNNING.
    let waker = ManuallyDrop::new(unsafe { waker_of(task) });
    // A future that panicked is over.
    let result = guarded(|| {
        // SAFETY: RUNNING is ours, the future has not completed.
        unsafe { (header.table.poll)(task, &mut Context::from_waker(&waker)) }
    })
    .unwrap_or(Poll::Ready(()));
    if result.is_ready() {
        // SAFETY: RUNNING is ours, and COMPLETE follows, so this happens once.
        unsafe { drop_guarded(task) };
    }
    result
}

/// Ends RUNNING.
///
/// # Safety
/// The caller has `task` RUNNING, and its future is dropped if `result` says that it is ready.
unsafe fn finish(task: NonNull<Header>, result: Poll<()>) -> PollOutcome {
    // SAFETY: alive as it is RUNNING.
    let state = &unsafe { task.as_ref() }.state;
    let (after, outcome) = match result {
        Poll::Ready(()) => {
            let change = RUNNING | COMPLETE;
            (state.fetch_xor(change, Ordering::AcqRel) ^ change, PollOutcome::Complete)
        }
        Poll::Pending => match state.fetch_and(!RUNNING, Ordering::AcqRel) & !RUNNING {
            after if after & NOTIFIED != 0 => return PollOutcome::Notified,
            after => (after, PollOutcome::Pending),
        },
    };
    if is_dead(after) {
        if outcome == PollOutcome::Pending {
            // SAFETY: nobody else reaches it, and its future has not been dropped.
            unsafe { drop_guarded(task) };
        }
        // SAFETY: nobody else reaches it, and its future is gone.
        unsafe { (task.as_ref().table.free)(task) };
    }
    outcome
}

/// A notified task on its way from one queue to another. It must be requeued, or it is never polled again.
#[cfg(not(loom))]
pub(crate) struct Queued(NonNull<Header>);

// SAFETY: a task may be polled and dropped on any thread.
#[cfg(not(loom))]
unsafe impl Send for Queued {}

#[cfg(not(loom))]
impl Queued {
    /// # Safety
    /// `task` was taken from a queue and not polled.
    pub(crate) unsafe fn new(task: NonNull<Header>) -> Self {
        Self(task)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: alive as it is NOTIFIED.
        unsafe { self.0.as_ref() }
    }

    /// Puts it into its home's inject queue.
    pub(crate) fn requeue(self) {
        self.header().home.inject(self.0);
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
    let _ = ManuallyDrop::new(waker);
    // SAFETY: the waker's reference is given up here.
    if unsafe { notify(task) } {
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

/// A waker that takes over a reference.
///
/// # Safety
/// The caller has a reference to `task`, and gives it up.
pub(crate) unsafe fn waker_of(task: NonNull<Header>) -> Waker {
    // SAFETY: as for this function.
    unsafe { Waker::from_raw(RawWaker::new(task.as_ptr().cast(), &WAKER)) }
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

/// Makes a task NOTIFIED and gives up a reference to it. `true`: the caller puts it into a queue.
///
/// # Safety
/// The caller has a reference.
#[must_use]
unsafe fn notify(task: NonNull<Header>) -> bool {
    // SAFETY: the caller's reference keeps it alive until the swap.
    let state = &unsafe { task.as_ref() }.state;
    let mut before = state.load(Ordering::Relaxed);
    let after = loop {
        let notified = if before & COMPLETE == 0 { before | NOTIFIED } else { before };
        let after = notified - REFERENCE;
        match state.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break after,
            Err(now) => before = now,
        }
    };
    if before % REFERENCE == 0 {
        return true;
    }
    if is_dead(after) {
        // SAFETY: nobody else reaches it; it is COMPLETE, as it would be NOTIFIED otherwise.
        unsafe { (task.as_ref().table.free)(task) };
    }
    false
}

/// Whether a task whose state has become this can be reached no more (rule 2).
fn is_dead(state: u64) -> bool {
    let lives = state >= REFERENCE || state & RUNNING != 0 || state & (NOTIFIED | COMPLETE) == NOTIFIED;
    !lives
}

/// Rule 4, or the end of a task that is complete.
///
/// # Safety
/// The caller has taken away the last waker of a task that is neither queued nor polled: nobody else
/// reaches it.
#[cold]
unsafe fn release(task: NonNull<Header>, state: u64) {
    // SAFETY: nobody else reaches it.
    let header = unsafe { task.as_ref() };
    if state & COMPLETE != 0 {
        // SAFETY: its future is gone.
        return unsafe { (header.table.free)(task) };
    }
    header.state.store(NOTIFIED | DOOMED, Ordering::Relaxed);
    header.home.inject(task);
}

/// Drops the future. What a destructor that panics has not dropped yet is lost.
///
/// # Safety
/// The caller is the only one that touches the future, and does not touch it again.
unsafe fn drop_guarded(task: NonNull<Header>) {
    // SAFETY: as for this function.
    guarded(|| unsafe { (task.as_ref().table.drop_future)(task) });
}

/// The result of `f`; `None` if it panicked.
fn guarded<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            crate::metrics::TASK_PANICS.increment();
            // A payload may panic when it is dropped, and what that throws as well: it is leaked.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                let _ = ManuallyDrop::new(second);
            }
            None
        }
    }
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
    // SAFETY: the waker being cloned keeps it alive.
    let header = unsafe { &*data.cast::<Header>() };
    if header.state.fetch_add(REFERENCE, Ordering::Relaxed) > REFERENCES_MAX {
        std::process::abort();
    }
    RawWaker::new(data, &WAKER)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker holds a reference, which is given up; a task that is to be queued is alive.
    unsafe {
        let task = NonNull::new_unchecked(data.cast_mut().cast::<Header>());
        if notify(task) {
            task.as_ref().home.inject(task);
        }
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker keeps it alive.
    unsafe {
        let task = NonNull::new_unchecked(data.cast_mut().cast::<Header>());
        let before = task.as_ref().state.fetch_or(NOTIFIED, Ordering::AcqRel);
        if before % REFERENCE == 0 {
            task.as_ref().home.inject(task);
        }
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's reference keeps it alive until it is given up.
    unsafe {
        let task = NonNull::new_unchecked(data.cast_mut().cast::<Header>());
        let after = task.as_ref().state.fetch_sub(REFERENCE, Ordering::AcqRel) - REFERENCE;
        if is_dead(after) {
            release(task, after);
        }
    }
}
