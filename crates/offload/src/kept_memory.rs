//! Memory that a pool thread has allocated and others, or itself, have freed: it stays with the thread until
//! that asks its allocator, which one without jobs never does. So a thread that has had no job for a while
//! gives it back, once. On that thread.

use std::time::{Duration, Instant};

use clearway_base::memory;

/// How long after its last job.
const LIMIT: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5000 });

/// What the thread knows of it.
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

    /// It has slept.
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
    use crate::Blocking;
    use crate::bell::Bell;
    use std::sync::atomic::{AtomicU32, Ordering};

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
}
