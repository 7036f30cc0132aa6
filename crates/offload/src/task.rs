//! One job on its way through a pool, and the future that waits for it. The future lives on a loop,
//! the job runs on a pool thread; neither ever waits for the other.
//!
//! `word` has a phase and a bit:
//!
//! 1. QUEUED → RUNNING is the pool thread's, QUEUED → CANCELLED the future's when it is dropped (or
//!    when the pool turns out to be closed). The side that makes the move owns the `job` cell: to run it, or
//!    to drop it there and then.
//! 2. RUNNING → DONE follows the writing of `result`, which belongs to the future from then on.
//! 3. WAKER set means: the `waker` cell is full and belongs to the thread that makes the move to DONE. The
//!    future writes the cell while the bit is clear, then sets it, and clears it before it writes again.
//! 4. A future that finds DONE in the old value when it sets the bit came too late to be woken: it
//!    takes the result at once. One that finds DONE when it clears the bit leaves the waker alone.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use clearway_os::clock;

use crate::Blocking;
use crate::cell::Turn;
use crate::files::At;
use crate::sync::{AtomicU32, Ordering};

/// The low bits of the word.
const PHASE: u32 = 0b011;
const QUEUED: u32 = 0;
const RUNNING: u32 = 1;
const CANCELLED: u32 = 2;
const DONE: u32 = 3;
const WAKER: u32 = 0b100;

/// Why a job gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The pool had `max_queue` tasks waiting; the job was not taken.
    Overflow,
    /// The pool is shutting down; the job was not run.
    Closed,
    /// The job panicked; the panic's message is in the error log.
    Panicked,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "thread pool queue overflow",
            Self::Closed => "thread pool is shutting down",
            Self::Panicked => "a job panicked",
        })
    }
}

impl std::error::Error for Error {}

/// Waits for a job. Dropping it cancels the job if it has not started.
#[must_use = "dropping a task cancels its job"]
pub struct Task<T>(TaskState<T>);

enum TaskState<T> {
    Submitted(Arc<dyn JobOutcome<T>>),
    Ready(T),
    Refused(Error),
    Finished,
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            TaskState::Submitted(_) => "Task(submitted)",
            TaskState::Ready(_) => "Task(ready)",
            TaskState::Refused(_) => "Task(refused)",
            TaskState::Finished => "Task(finished)",
        })
    }
}

impl<T> Task<T> {
    /// A task whose result is known without a job.
    pub fn ready(value: T) -> Self {
        Self(TaskState::Ready(value))
    }

    /// A task that failed before it began.
    pub(crate) fn refused(error: Error) -> Self {
        Self(TaskState::Refused(error))
    }

    /// Lets the job run though nobody waits for it.
    pub fn detach(mut self) {
        self.0 = TaskState::Finished;
    }

    /// Whether a thread has begun it, or it was refused.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            TaskState::Submitted(job) => job.has_begun(),
            TaskState::Ready(_) | TaskState::Refused(_) | TaskState::Finished => true,
        }
    }

    /// Why it was not taken, if it was not: known at once.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        match &self.0 {
            TaskState::Refused(error) => Some(*error),
            TaskState::Submitted(_) | TaskState::Ready(_) | TaskState::Finished => None,
        }
    }

    /// Cancels the job if nothing has started it; `false` if it runs or has run.
    pub(crate) fn cancel(&self) -> bool {
        matches!(&self.0, TaskState::Submitted(job) if job.cancel())
    }
}

/// A job and the future that waits for it.
#[cfg(any(test, not(loom)))]
pub(crate) fn new<F, T>(job: F) -> (Arc<dyn Run>, Task<T>)
where
    F: FnOnce(&Blocking) -> T + Send + 'static,
    T: Send + 'static,
{
    new_at(At::Anywhere, job)
}

/// As [`new`], for a job that goes to a file system.
pub(crate) fn new_at<F, T>(at: At, job: F) -> (Arc<dyn Run>, Task<T>)
where
    F: FnOnce(&Blocking) -> T + Send + 'static,
    T: Send + 'static,
{
    let job = Arc::new(Job {
        at,
        submitted_ns: clock::monotonic_ns(),
        word: AtomicU32::new(QUEUED),
        job: Turn::new(Some(job)),
        result: Turn::new(None),
        waker: Turn::new(None),
    });
    (Arc::clone(&job) as Arc<dyn Run>, Task(TaskState::Submitted(job)))
}

impl<T> Unpin for Task<T> {}

impl<T> Future for Task<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let TaskState::Submitted(job) = &self.0 {
            let result = std::task::ready!(job.poll(cx.waker()));
            self.0 = TaskState::Finished;
            return Poll::Ready(result);
        }
        Poll::Ready(match std::mem::replace(&mut self.0, TaskState::Finished) {
            TaskState::Ready(value) => Ok(value),
            TaskState::Refused(error) => Err(error),
            TaskState::Submitted(_) | TaskState::Finished => {
                unreachable!("a task is not polled after it has completed")
            }
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The side of the pool.
pub(crate) trait Run: Send + Sync {
    /// When it was submitted, monotonic.
    fn submitted_ns(&self) -> u64;

    /// The place that the job goes to.
    fn at(&self) -> &At;

    /// Whether nobody waits for it any more.
    fn is_given_up(&self) -> bool;

    /// Ends a job that is not run after all; `done` as with [`Run::run`].
    fn refuse(&self, error: Error, done: &dyn Fn());

    /// Runs the job unless it was cancelled; never panics. `done` is called before anybody learns of the
    /// result.
    fn run(&self, blocking: &Blocking, done: &dyn Fn()) -> Ran;
}

/// The result of a job that a thread took.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The result was not needed any more.
    Cancelled,
    Finished,
    /// The text of the panic.
    Panicked(String),
}

/// The side of the future.
trait JobOutcome<T>: Send + Sync {
    fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>>;
    fn cancel(&self) -> bool;
    fn has_begun(&self) -> bool;
}

struct Job<F, T> {
    at: At,
    submitted_ns: u64,
    word: AtomicU32,
    job: Turn<F>,
    result: Turn<Result<T, Error>>,
    waker: Turn<Waker>,
}

impl<F, T> Job<F, T> {
    /// QUEUED → `phase`, whatever the bit.
    fn leave_queue(&self, phase: u32) -> bool {
        let claim = |word: u32| (word & PHASE == QUEUED).then_some(word | phase);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).is_ok()
    }

    /// Rule 2.
    fn settle(&self, result: Result<T, Error>, done: &dyn Fn()) {
        self.result.put(result);
        done();
        let before = self.word.fetch_or(DONE, Ordering::AcqRel);
        if before & WAKER != 0
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    fn result(&self) -> Poll<Result<T, Error>> {
        Poll::Ready(self.result.take().expect("written before DONE, taken by one poll"))
    }
}

impl<F, T> Run for Job<F, T>
where
    F: FnOnce(&Blocking) -> T + Send,
    T: Send,
{
    fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    fn run(&self, blocking: &Blocking, done: &dyn Fn()) -> Ran {
        if !self.leave_queue(RUNNING) {
            done();
            return Ran::Cancelled;
        }
        let job = self.job.take().expect("whoever leaves QUEUED owns the job");
        // Values that the job has captured are consumed by it or dropped while it unwinds: no other code sees
        // them again.
        let result = catch_unwind(AssertUnwindSafe(|| job(blocking)));
        let (result, ran) = match result {
            Ok(value) => (Ok(value), Ran::Finished),
            Err(panic) => (Err(Error::Panicked), Ran::Panicked(panic_text(panic.as_ref()))),
        };
        self.settle(result, done);
        ran
    }

    fn at(&self) -> &At {
        &self.at
    }

    fn is_given_up(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PHASE == CANCELLED
    }

    fn refuse(&self, error: Error, done: &dyn Fn()) {
        if self.leave_queue(RUNNING) {
            drop(self.job.take());
            self.settle(Err(error), done);
        } else {
            done();
        }
    }
}

impl<F, T> JobOutcome<T> for Job<F, T>
where
    F: FnOnce(&Blocking) -> T + Send,
    T: Send,
{
    fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        let word = self.word.load(Ordering::Acquire);
        if word & PHASE == DONE {
            return self.result();
        }
        if word & WAKER != 0 && self.word.fetch_and(!WAKER, Ordering::AcqRel) & PHASE == DONE {
            return self.result();
        }
        self.waker.put(waker.clone());
        if self.word.fetch_or(WAKER, Ordering::AcqRel) & PHASE == DONE {
            self.result()
        } else {
            Poll::Pending
        }
    }

    fn cancel(&self) -> bool {
        let cancelled = self.leave_queue(CANCELLED);
        if cancelled {
            // No other thread moves to DONE any more, so the waker is the future's as well.
            drop((self.job.take(), self.waker.take()));
        }
        cancelled
    }

    fn has_begun(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PHASE != QUEUED
    }
}

/// The text of a panic, if it has one.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn poll_once<T>(task: &mut Task<T>) -> Poll<Result<T, Error>> {
        Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn result_arrives_once() {
        let (run, mut task) = new(|_| 7);
        assert!(poll_once(&mut task).is_pending());
        assert!(poll_once(&mut task).is_pending());
        run.run(&Blocking::on_this_thread(), &|| ());
        assert_eq!(poll_once(&mut task), Poll::Ready(Ok(7)));
    }

    #[test]
    fn a_known_result_needs_no_thread() {
        let mut task = Task::ready(7);
        assert!(task.has_begun());
        assert_eq!(poll_once(&mut task), Poll::Ready(Ok(7)));
    }

    #[test]
    fn dropping_the_future_drops_what_the_job_holds() {
        let held = Arc::new(());
        let captured = Arc::clone(&held);
        let (run, task) = new(move |_| drop(captured));
        drop(task);
        assert_eq!(Arc::strong_count(&held), 1, "at once, not when a thread comes to it");
        run.run(&Blocking::on_this_thread(), &|| ());
    }

    #[test]
    fn a_detached_job_is_run() {
        let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&ran);
        let (run, task) = new(move |_| seen.store(true, Ordering::Relaxed));
        task.detach();
        assert_eq!(run.run(&Blocking::on_this_thread(), &|| ()), Ran::Finished);
        assert!(ran.load(Ordering::Relaxed));
    }

    #[test]
    fn a_panic_is_an_error() {
        let (run, mut task) = new(|_| -> u8 { std::panic::panic_any(String::from("told")) });
        assert_eq!(run.run(&Blocking::on_this_thread(), &|| ()), Ran::Panicked("told".to_owned()));
        assert_eq!(poll_once(&mut task), Poll::Ready(Err(Error::Panicked)));
    }
}
