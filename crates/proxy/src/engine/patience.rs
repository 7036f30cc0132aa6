//! How long a request waits for a job on a cache's disk: for a moment only, since the upstream can be asked
//! instead of a disk that does not answer. Polled by the request's task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use clearway_base::log::Level;
use clearway_http::{Errand, Request};
use clearway_offload::Task;
use clearway_runtime::Timer;

/// The longest wait for one job, milliseconds.
const PATIENCE_MS: u64 = 2_000;

/// Waits for a job; `None` where the pool refused it, or where it takes too long, which is logged: the job
/// then goes on without a waiter.
pub(super) async fn patiently<T>(request: &Request<'_>, task: Task<T>) -> Option<T> {
    let mut waiting = pin!(request.wait_for(task, Errand::Question));
    let (home, mut timer) = (request.home(), None);
    let done = poll_fn(|cx| {
        if let Poll::Ready(done) = waiting.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        let timer = timer.get_or_insert_with(|| {
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + PATIENCE_MS);
            timer
        });
        timer.poll_expired(cx).map(|()| None)
    });
    match done.await {
        Some(done) => done.ok(),
        None => {
            let message = format_args!("cache directory does not answer within {PATIENCE_MS} ms");
            request.log(Level::Error, message);
            None
        }
    }
}
