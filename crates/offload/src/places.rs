//! On which file systems a pool's threads are at work, so that one that does not answer (a server that is
//! gone, a FUSE process that hangs) does not get hold of all of them. Pool threads only, behind a lock that
//! no loop takes.
//!
//! 1. A job says where it is going ([`At`]). A thread enters that place before it runs the job, and leaves it
//!    when the job has come back, which shows that the place answers.
//! 2. Within a place that has not answered for [`ANSWER_MS`], a quarter of the threads (one at least) may be
//!    at work. Jobs that would be more are held back here, up to `held_max` for a place; beyond that they are
//!    refused. A place that answers may have all threads.
//! 3. Each job that comes back releases two that were held back: other threads take those first.
//! 4. What strange places (remote ones, and such of which nothing is known) hold beyond a quarter of the
//!    threads does not count as theirs: the pool may start as many threads more, `threads` at most; where
//!    there are so many a strange place gets no further one. So a place that stops to answer while many are
//!    there, or answers some and not others, always leaves three quarters of the threads to others.
//! 5. Held jobs that were given up are dropped when the list has doubled, and when it is full.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::task::Run;

/// A place where nothing has come back for so long does not answer, ms.
const ANSWER_MS: u64 = 250;
/// Held jobs are looked through when there are so many.
const SWEEP_MIN: usize = 64;
/// And where there is no more room, no more often than this, ms.
const SWEEP_MS: u64 = 100;

/// A file system, as pools tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSystemPlace {
    pub(crate) key: u64,
    pub(crate) kind: PlaceKind,
}

/// Whether a place may stop to answer at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// A disk of this machine.
    Local,
    /// The file system asks another machine, or is not known.
    Strange,
}

/// Finding out on what a path lies is work that may wait too.
pub(crate) const ASKING: FileSystemPlace = FileSystemPlace { key: 0, kind: PlaceKind::Strange };

/// The state of all file systems of a pool.
pub(crate) struct Places {
    state: Mutex<PlacesState>,
    /// Jobs that were released and not taken.
    released: AtomicUsize,
    /// Threads that rule 4 allows beyond those of the pool.
    beside: AtomicU32,
    /// Jobs that were ever held back.
    held_total: AtomicU64,
    limits: Limits,
}

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The number of threads of the pool.
    pub(crate) threads: u32,
    /// The most jobs that may be held (rule 2).
    pub(crate) held_max: usize,
}

#[derive(Default)]
struct PlacesState {
    /// File systems with jobs under way.
    entered: Vec<Entered>,
    released: VecDeque<Arc<dyn Run>>,
}

#[derive(Default)]
struct Entered {
    key: u64,
    running: u32,
    answered_ms: Option<u64>,
    held: VecDeque<Arc<dyn Run>>,
    /// The number of held jobs at which they are looked through, and the time when they were (rule 5).
    sweep_at: usize,
    swept_ms: u64,
}

/// Whether a thread may run a job.
pub(crate) enum Admission {
    Entered(Visit),
    /// The job was held back.
    Held,
    /// There is no room to hold it.
    Full,
}

/// A thread is at work in a place; to be given to [`Places::leave`].
#[must_use]
pub(crate) struct Visit {
    key: u64,
    /// Whether the thread does not count as one of the pool's.
    is_beside: bool,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            state: Mutex::new(PlacesState::default()),
            released: AtomicUsize::new(0),
            beside: AtomicU32::new(0),
            held_total: AtomicU64::new(0),
            limits,
        }
    }

    /// Rules 1 and 2.
    /// `done` is called for each job that is dropped.
    pub(crate) fn enter(
        &self,
        place: FileSystemPlace,
        job: &Arc<dyn Run>,
        now_ms: u64,
        done: &dyn Fn(),
    ) -> Admission {
        let quarter = self.limits.threads / 4;
        let share = quarter.max(1);
        let mut state = self.state();
        let at = state.find_or_add(place.key);
        let entered = &mut state.entered[at];
        let answers = entered.answered_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < ANSWER_MS);
        let beside = self.beside.load(Ordering::Relaxed);
        let is_strange = place.kind == PlaceKind::Strange;
        let may_be_more = answers && (!is_strange || beside < self.limits.threads);
        if entered.running >= share && !may_be_more {
            entered.sweep(self.limits.held_max, now_ms, done);
            let has_room = entered.held.len() < self.limits.held_max;
            if has_room {
                entered.held.push_back(Arc::clone(job));
            }
            self.held_total.fetch_add(u64::from(has_room), Ordering::Relaxed);
            return if has_room { Admission::Held } else { Admission::Full };
        }
        entered.running += 1;
        // To ask takes no time as a rule: a pool of few threads need not start another one for it.
        let own = if place == ASKING { share } else { quarter };
        let is_beside = is_strange && entered.running > own && beside < self.limits.threads;
        self.beside.store(beside + u32::from(is_beside), Ordering::Relaxed);
        Admission::Entered(Visit { key: place.key, is_beside })
    }

    /// Rule 3; how many jobs were released. `done` is called for each job that is dropped.
    pub(crate) fn leave(&self, visit: &Visit, now_ms: u64, done: &dyn Fn()) -> usize {
        let mut state = self.state();
        let PlacesState { entered, released } = &mut *state;
        let at = entered.iter().position(|entered| entered.key == visit.key).expect("it was entered");
        let place = &mut entered[at];
        place.running -= 1;
        place.answered_ms = Some(now_ms);
        let wanted = std::iter::from_fn(|| place.held.pop_front()).filter(|job| is_wanted(job, done));
        let before = released.len();
        released.extend(wanted.take(2));
        let count = released.len() - before;
        if place.running == 0 && place.held.is_empty() {
            entered.swap_remove(at);
        }
        let beside = self.beside.load(Ordering::Relaxed);
        self.beside.store(beside - u32::from(visit.is_beside), Ordering::Relaxed);
        self.released.fetch_add(count, Ordering::SeqCst);
        count
    }

    /// A job that was released.
    pub(crate) fn take_released(&self) -> Option<Arc<dyn Run>> {
        if !self.has_released() {
            return None;
        }
        let job = self.state().released.pop_front()?;
        self.released.fetch_sub(1, Ordering::SeqCst);
        Some(job)
    }

    pub(crate) fn has_released(&self) -> bool {
        self.released.load(Ordering::SeqCst) > 0
    }

    /// The threads beside those of the pool (rule 4).
    pub(crate) fn threads_beside(&self) -> u32 {
        self.beside.load(Ordering::Relaxed)
    }

    /// How many jobs were ever held back.
    pub(crate) fn held_total(&self) -> u64 {
        self.held_total.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl PlacesState {
    fn find_or_add(&mut self, key: u64) -> usize {
        self.entered.iter().position(|entered| entered.key == key).unwrap_or_else(|| {
            self.entered.push(Entered { key, ..Entered::default() });
            self.entered.len() - 1
        })
    }
}

impl Entered {
    /// Rule 5.
    fn sweep(&mut self, most: usize, now_ms: u64, done: &dyn Fn()) {
        let is_due = self.held.len() >= self.sweep_at.max(SWEEP_MIN)
            || (self.held.len() >= most && now_ms >= self.swept_ms + SWEEP_MS);
        if is_due {
            self.held.retain(|job| is_wanted(job, done));
            (self.sweep_at, self.swept_ms) = (self.held.len() * 2, now_ms);
        }
    }
}

/// Whether somebody waits for a job; if not, it is done with.
fn is_wanted(job: &Arc<dyn Run>, done: &dyn Fn()) -> bool {
    let is_wanted = !job.is_given_up();
    if !is_wanted {
        done();
    }
    is_wanted
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{self, Task};

    const HERE: FileSystemPlace = FileSystemPlace { key: 1, kind: PlaceKind::Local };
    const THERE: FileSystemPlace = FileSystemPlace { key: 2, kind: PlaceKind::Strange };

    fn job() -> (Arc<dyn Run>, Task<()>) {
        task::new(|_| ())
    }

    fn places(threads: u32, held_max: usize) -> Places {
        Places::new(Limits { threads, held_max })
    }

    fn enter(places: &Places, place: FileSystemPlace, now_ms: u64) -> Option<Visit> {
        let (run, task) = job();
        task.detach();
        match places.enter(place, &run, now_ms, &|| ()) {
            Admission::Entered(visit) => Some(visit),
            Admission::Held | Admission::Full => None,
        }
    }

    #[test]
    fn a_place_that_does_not_answer_holds_a_quarter() {
        let places = places(16, 100);
        let visits: Vec<Visit> = (0..10).filter_map(|_| enter(&places, THERE, 1000)).collect();
        assert_eq!((visits.len(), places.held_total(), places.threads_beside()), (4, 6, 0));
        assert!(enter(&places, HERE, 1000).is_some(), "others are not concerned");
        assert_eq!(places.leave(&visits[0], 2000, &|| ()), 2, "an answer lets two go on");
        assert!(places.take_released().is_some() && places.take_released().is_some());
        assert!(places.take_released().is_none());
    }

    #[test]
    fn a_place_that_answers_may_have_all_and_strange_ones_get_threads_of_their_own() {
        let places = places(16, 100);
        for place in [HERE, THERE] {
            let first = enter(&places, place, 1000).expect("nobody is there");
            let kept = enter(&places, place, 1000).expect("there is room");
            places.leave(&first, 1000, &|| ());
            let visits: Vec<Visit> = (0..30).filter_map(|_| enter(&places, place, 1249)).collect();
            assert_eq!(visits.len(), if place == THERE { 16 + 4 - 1 } else { 30 });
            assert!(enter(&places, place, 1250).is_none(), "it has not answered for a while");
            assert_eq!(places.threads_beside(), if place == THERE { 16 } else { 0 }, "as many again");
            visits.iter().chain([&kept]).for_each(|visit| _ = places.leave(visit, 1300, &|| ()));
            assert_eq!(places.threads_beside(), 0);
            while places.take_released().is_some() {}
        }
        assert!(places.state().entered.is_empty(), "nothing is kept of places where nobody is");
    }

    #[test]
    fn a_pool_of_one_thread_gets_a_second_one() {
        let places = places(1, 100);
        let visit = enter(&places, THERE, 1000).expect("the only one");
        assert_eq!(places.threads_beside(), 1);
        assert!(enter(&places, THERE, 1000).is_none());
        places.leave(&visit, 1000, &|| ());
    }

    #[test]
    fn what_is_held_is_bounded_and_what_is_given_up_makes_room() {
        let places = places(4, 3);
        let visit = enter(&places, THERE, 1000).expect("the first");
        let (runs, tasks): (Vec<_>, Vec<_>) = (0..3).map(|_| job()).unzip();
        for run in &runs {
            assert!(matches!(places.enter(THERE, run, 1000, &|| ()), Admission::Held));
        }
        let (more, _task) = job();
        assert!(matches!(places.enter(THERE, &more, 1001, &|| ()), Admission::Full));
        drop(tasks);
        let dropped = std::cell::Cell::new(0);
        let done = || dropped.set(dropped.get() + 1);
        assert!(matches!(places.enter(THERE, &more, 2000, &done), Admission::Held));
        assert_eq!(dropped.get(), 3, "each is told of");
        assert_eq!(places.leave(&visit, 2000, &done), 1);
    }
}
