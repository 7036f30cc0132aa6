//! Memory that a pool thread has allocated and others, or itself, have freed: it stays with the thread until
//! that asks its allocator, which one without jobs never does. So a thread that has had no job for a while
//! gives it back, once, if it does not end then (rule 5 of `pool`). On that thread.

use std::time::{Duration, Instant};

use clearway_base::memory;

/// How long after its last job.
const LIMIT: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 1000 });

/// The thread's own state of it.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    /// Whether there may be some.
    has_some: bool,
    /// When the thread fell asleep with some.
    since: Option<Instant>,
}

impl KeptMemory {
    /// The thread has a job.
    pub(crate) fn note_job(&mut self) {
        self.has_some = true;
    }

    /// How long the thread may sleep that has no job; `None`: until it is rung for. Models know no time.
    pub(crate) fn begin_sleep(&mut self) -> Option<Duration> {
        let limit = (self.has_some && !cfg!(loom)).then_some(LIMIT);
        self.since = limit.map(|_| Instant::now());
        limit
    }

    /// Ends the sleep.
    pub(crate) fn end_sleep(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= LIMIT) {
            *self = Self::default();
            memory::release();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::{Blocking, Pool, PoolConfig};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};

    #[test]
    fn a_thread_without_jobs_gives_memory_back_once() {
        static RELEASED: AtomicU32 = AtomicU32::new(0);
        memory::register(|| {
            RELEASED.fetch_add(1, Ordering::Relaxed);
        });
        let (mut kept, bell, blocking) = (KeptMemory::default(), Bell::new(), Blocking::on_this_thread());
        assert_eq!(kept.begin_sleep(), None, "it has done nothing");
        kept.note_job();
        kept.begin_sleep();
        kept.end_sleep();
        assert!(kept.begin_sleep().is_some(), "it was rung for before its time");
        bell.sleep(&blocking, Some(LIMIT), || false);
        kept.end_sleep();
        assert!(kept.begin_sleep().is_none() && RELEASED.load(Ordering::Relaxed) > 0);
    }

    /// Rule 5 of `pool`.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own thread and those of a pool may block")]
    fn one_thread_of_a_pool_without_jobs_is_left() {
        let config = PoolConfig { threads: 4, ..PoolConfig::new("idle") };
        let pool = Pool::start(config, Arc::new(clearway_base::log::Discard)).unwrap();
        for _ in 0..3 {
            let together = Arc::new(Barrier::new(4));
            for _ in 0..4 {
                let together = Arc::clone(&together);
                // Each needs a thread of its own.
                pool.submit(move |_| together.wait()).detach();
            }
            let end = Instant::now() + Duration::from_secs(30);
            while pool.stats().threads > 1 || pool.stats().pending > 0 {
                assert!(Instant::now() < end, "{:?}", pool.stats());
                std::thread::sleep(LIMIT / 4);
            }
        }
        assert_eq!(pool.stats().threads, 1, "it takes what comes next");
    }
}
