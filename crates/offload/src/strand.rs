//! `Strand`: jobs that run one after the other, in the order in which they came, on the threads of a pool.
//! What they share needs no lock, and stays with them. Any thread submits, loops included, without waiting.
//!
//! 1. A job is pushed, then counted in `pending`. The submitter that counts the first one gives the pool a
//!    job that works through the strand, so at most one such job is in the pool or runs, and it finds every
//!    job that is counted.
//! 2. That job runs [`JOBS_MAX`] of the strand's and then stands behind others of the pool. It ends when it
//!    has taken the last one off the count.
//! 3. Where the pool does not take it, its submitter refuses all jobs that are counted: they cannot wait for
//!    a thread that nobody asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use crate::Blocking;
use crate::pool::Pool;
use crate::task::{self, Error, Run, Task};

/// Jobs of a strand that run before others of its pool have their turn.
const JOBS_MAX: usize = 64;

/// A strand: its jobs run one after another.
pub struct Strand {
    pool: Arc<Pool>,
    jobs: SegQueue<Arc<dyn Run>>,
    /// Jobs that are counted (rule 1).
    pending: AtomicUsize,
    /// Jobs that may wait.
    most: usize,
}

impl std::fmt::Debug for Strand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strand").field("pool", &self.pool).field("pending", &self.pending).finish()
    }
}

impl Strand {
    /// A strand of which about `most` jobs may wait: submitters that come at the same time may each add one.
    #[must_use]
    pub fn new(pool: Arc<Pool>, most: usize) -> Arc<Self> {
        Arc::new(Self { pool, jobs: SegQueue::new(), pending: AtomicUsize::new(0), most: most.max(1) })
    }

    /// Gives it a job, as [`Pool::submit`] does. Never waits.
    pub fn submit<F, T>(self: &Arc<Self>, job: F) -> Task<T>
    where
        F: FnOnce(&Blocking) -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.pending.load(Ordering::Relaxed) > self.most {
            return Task::refused(Error::Overflow);
        }
        let (run, task) = task::new(job);
        self.jobs.push(run);
        if self.pending.fetch_add(1, Ordering::AcqRel) == 0
            && let Err(error) = self.hand_over()
        {
            self.refuse_all(error);
        }
        task
    }

    fn hand_over(self: &Arc<Self>) -> Result<(), Error> {
        let strand = Arc::clone(self);
        let task = self.pool.submit(move |blocking| strand.work(blocking));
        let refusal = task.refusal();
        task.detach();
        refusal.map_or(Ok(()), Err)
    }

    /// Works through the strand (rule 2).
    fn work(self: &Arc<Self>, blocking: &Blocking) {
        loop {
            for _ in 0..JOBS_MAX {
                if let Some(job) = self.jobs.pop() {
                    // The pool counts this one, and says what panics.
                    let ran = job.run(blocking, &|| ());
                    self.pool.note_of_strand(&ran);
                }
                if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                    return;
                }
            }
            if self.hand_over().is_ok() {
                return;
            }
            // The pool is full, or closed: what was taken is run here.
        }
    }

    /// Refuses all jobs that are counted (rule 3).
    fn refuse_all(&self, error: Error) {
        loop {
            if let Some(job) = self.jobs.pop() {
                job.refuse(error, &|| ());
            }
            if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use clearway_base::log::Discard;

    use super::*;
    use crate::pool::PoolConfig;

    fn pool(threads: u32, max_queue: u32) -> Arc<Pool> {
        let config = PoolConfig { threads, max_queue, ..PoolConfig::new("strands") };
        Arc::new(Pool::new(config, Arc::new(Discard)))
    }

    fn wait<T>(task: Task<T>) -> Result<T, Error> {
        let (mut task, began) = (pin!(task), Instant::now());
        loop {
            if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it comes to an end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn jobs_run_in_their_order_one_at_a_time() {
        let pool = pool(8, 100);
        pool.launch().unwrap();
        let strand = Strand::new(Arc::clone(&pool), 10_000);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..1000)
            .map(|n| {
                let seen = Arc::clone(&seen);
                strand.submit(move |_| seen.try_lock().expect("one at a time").push(n))
            })
            .collect();
        tasks.into_iter().for_each(|task| wait(task).unwrap());
        assert!(seen.lock().unwrap().iter().copied().eq(0..1000));
    }

    #[test]
    fn what_the_pool_does_not_take_is_refused() {
        let pool = pool(1, 0);
        let held = pool.submit(|_| ());
        let strand = Strand::new(Arc::clone(&pool), 10);
        assert_eq!(wait(strand.submit(|_| ())), Err(Error::Overflow));
        pool.launch().unwrap();
        wait(held).unwrap();
        assert_eq!(wait(strand.submit(|_| 7)), Ok(7), "the next one finds room");
    }

    #[test]
    fn no_more_wait_than_may() {
        let pool = pool(1, 10);
        let strand = Strand::new(Arc::clone(&pool), 2);
        let tasks: Vec<_> = (0..4).map(|_| strand.submit(|_| ())).collect();
        assert_eq!(tasks.iter().filter(|task| task.refusal().is_some()).count(), 1);
        pool.launch().unwrap();
        let run = tasks.into_iter().filter_map(|task| wait(task).ok()).count();
        assert_eq!(run, 3);
    }

    #[test]
    fn a_panic_is_that_jobs_own() {
        let pool = pool(1, 10);
        pool.launch().unwrap();
        let strand = Strand::new(Arc::clone(&pool), 10);
        let bad: Task<()> = strand.submit(|_| panic!("on purpose"));
        assert_eq!(wait(bad), Err(Error::Panicked));
        assert_eq!(wait(strand.submit(|_| 7)), Ok(7));
    }
}
