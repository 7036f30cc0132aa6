//! Identity threads: parked threads whose ids stand for the loops (`$pid`, `PID#TID` in logs). Each
//! configuration that a worker runs has a set of its own, so that a count of workers by their numbers shows a
//! reload. Started at boot and at reload, off the loops; dropped on any thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_os::{futex, thread};

use crate::threads::carriers;

/// Its word for "still needed".
const NEEDED: u32 = 0;
/// Its word for "may end".
const OVER: u32 = 1;

/// One parked thread per loop, for as long as this lives. Dropping it ends them and waits for nothing.
pub struct Identities {
    ids: Box<[u32]>,
    parked: Arc<Parked>,
}

/// The state that the threads and their owner share.
struct Parked {
    /// Whether they go on to wait; a futex.
    word: AtomicU32,
    /// The id of each, once it runs; futexes.
    ids: Box<[AtomicU32]>,
}

impl Identities {
    /// Starts the threads and waits until they run. Not to be called on a loop.
    ///
    /// # Errors
    /// When a thread is refused; those that were started end.
    pub(crate) fn start(loops: usize) -> io::Result<Self> {
        let ids = (0..loops).map(|_| AtomicU32::new(0)).collect();
        let parked = Arc::new(Parked { word: AtomicU32::new(NEEDED), ids });
        // Made first: where a thread is refused, its end is the end of the others.
        let mut identities = Self { ids: Box::default(), parked };
        for index in 0..loops {
            let parked = Arc::clone(&identities.parked);
            carriers::spawn(&format!("loop {index}"), carriers::SMALL_STACK, move || park(&parked, index))?;
        }
        identities.ids = identities.parked.ids.iter().map(wait_id).collect();
        Ok(identities)
    }

    /// The id of the thread that stands for a loop, by the loop's index.
    ///
    /// # Panics
    /// If the runtime has not that many loops.
    #[must_use]
    pub fn of(&self, loop_index: usize) -> u32 {
        self.ids[loop_index]
    }

    /// All ids, in the order of the loops.
    #[must_use]
    pub fn all(&self) -> &[u32] {
        &self.ids
    }
}

impl Drop for Identities {
    fn drop(&mut self) {
        self.parked.word.store(OVER, Ordering::Release);
        futex::wake(&self.parked.word, u32::try_from(self.parked.ids.len()).unwrap_or(u32::MAX));
    }
}

fn park(parked: &Parked, index: usize) {
    parked.ids[index].store(thread::current(), Ordering::Release);
    futex::wake(&parked.ids[index], 1);
    while parked.word.load(Ordering::Acquire) == NEEDED {
        futex::wait(&parked.word, NEEDED, None);
    }
}

/// Waits until a thread has said its id.
fn wait_id(id: &AtomicU32) -> u32 {
    loop {
        match id.load(Ordering::Acquire) {
            0 => futex::wait(id, 0, None),
            known => return known,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    fn task(id: u32) -> PathBuf {
        PathBuf::from(format!("/proc/self/task/{id}"))
    }

    #[test]
    fn sets_have_different_ids_and_end_with_their_owner() {
        let (first, second) = (Identities::start(3).unwrap(), Identities::start(3).unwrap());
        let mut all = [first.all(), second.all()].concat();
        assert!(all.iter().all(|&id| task(id).exists()));
        assert_eq!((first.of(2), second.of(0)), (all[2], all[3]));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        let gone = first.all().to_vec();
        drop(first);
        let begun = Instant::now();
        while gone.iter().any(|&id| task(id).exists()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "threads of a dropped set are still there");
            std::thread::yield_now();
        }
        assert!(second.all().iter().all(|&id| task(id).exists()));
    }
}
