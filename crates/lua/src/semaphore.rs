//! Semaphores that lua-resty-core holds (`ngx.semaphore`): threads of one VM that wait for each other. Those
//! that have waited longest are woken first.
//!
//! 1. A thread that is woken was given one, which is counted as gone. It is the thread's when that goes on;
//!    where the thread is killed before, the semaphore has it back, and gives it to the next one.
//! 2. The lock is held while a bell is rung: a waiter that ends meanwhile learns which of both was first.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_runtime::LoopRef;

use crate::waiter::{Bell, Waiter};

/// Waiters before those that are over are forgotten.
const QUEUE_MIN: usize = 64;

/// A semaphore: its count and its waiters.
pub(crate) struct Semaphore(Mutex<Counted>);

struct Counted {
    left: i64,
    queue: VecDeque<Waiting>,
    /// Threads that were woken and have not gone on.
    given: HashSet<u64>,
    last: u64,
    swept: usize,
}

struct Waiting {
    number: u64,
    bell: Bell,
}

/// How asking a semaphore ends.
pub(crate) enum Asked {
    /// There was something left.
    Taken,
    /// The count was 0, and there is no time to wait.
    Timeout,
    Waits(Waiter, Claim),
}

impl Semaphore {
    pub(crate) fn new(left: i64) -> Self {
        let (queue, given) = (VecDeque::new(), HashSet::new());
        Self(Mutex::new(Counted { left, queue, given, last: 0, swept: 0 }))
    }

    fn enter(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one, or a place in the queue, for so many milliseconds.
    pub(crate) fn ask(self: &Arc<Self>, home: Option<LoopRef>, limit_ms: u64) -> Asked {
        let mut counted = self.enter();
        counted.skip();
        // One that does not want to wait comes behind those that were woken and have not gone on.
        if counted.left > 0 && counted.queue.is_empty() && (limit_ms > 0 || counted.given.is_empty()) {
            counted.left -= 1;
            return Asked::Taken;
        }
        let Some(home) = home.filter(|_| limit_ms > 0) else { return Asked::Timeout };
        let (waiter, bell) = Waiter::new(home, Some(limit_ms));
        counted.last += 1;
        let number = counted.last;
        counted.queue.push_back(Waiting { number, bell });
        Asked::Waits(waiter, Claim { semaphore: Arc::clone(self), number, is_taken: false })
    }

    /// There are so many more.
    pub(crate) fn post(&self, count: i64) {
        debug_assert!(count > 0, "one posts something");
        let mut counted = self.enter();
        counted.left += count;
        counted.give();
    }

    /// How many are left, less those that are waited for.
    pub(crate) fn count(&self) -> i64 {
        let counted = self.enter();
        let waiting = counted.queue.iter().filter(|waiting| waiting.bell.is_waited_for()).count();
        counted.left - waiting as i64
    }
}

impl Counted {
    /// Forgets waiters that have given up: those at the front, and all when there are many.
    fn skip(&mut self) {
        while self.queue.front().is_some_and(|waiting| !waiting.bell.is_waited_for()) {
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * self.swept.max(QUEUE_MIN) {
            self.queue.retain(|waiting| waiting.bell.is_waited_for());
            self.swept = self.queue.len();
            debug_assert!(self.given.len() as u64 <= self.last, "what was given had a place");
        }
    }

    /// Wakes threads while there is something for them.
    fn give(&mut self) {
        while self.left > 0
            && let Some(waiting) = self.queue.pop_front()
        {
            debug_assert!(waiting.number <= self.last, "numbers are given out in their order");
            if waiting.bell.ring() {
                self.left -= 1;
                let is_new = self.given.insert(waiting.number);
                debug_assert!(is_new, "a waiter is woken once");
            }
        }
    }
}

/// A place in the queue; a thread that was woken has something behind it (rule 1).
pub(crate) struct Claim {
    semaphore: Arc<Semaphore>,
    number: u64,
    is_taken: bool,
}

impl Claim {
    /// The thread goes on, so that is its own now.
    pub(crate) fn take(mut self) {
        self.is_taken = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut counted = self.semaphore.enter();
        let was_given = counted.given.remove(&self.number);
        debug_assert!(was_given || !self.is_taken, "what is taken was given");
        if was_given && !self.is_taken {
            counted.left += 1;
            counted.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_taken() {
        let semaphore = Arc::new(Semaphore::new(1));
        assert!(matches!(semaphore.ask(None, 5), Asked::Taken));
        assert!(matches!(semaphore.ask(None, 0), Asked::Timeout));
        semaphore.post(2);
        assert_eq!(semaphore.count(), 2);
        assert!(matches!(semaphore.ask(None, 0), Asked::Taken));
        assert_eq!(semaphore.count(), 1);
    }

    #[test]
    fn what_a_killed_thread_was_given_is_the_next_ones() {
        let semaphore = Arc::new(Semaphore::new(0));
        let claim = |number| Claim { semaphore: Arc::clone(&semaphore), number, is_taken: false };
        semaphore.enter().given.extend([1, 2]);
        claim(1).take();
        assert_eq!(semaphore.count(), 0);
        drop(claim(2));
        assert_eq!((semaphore.count(), semaphore.enter().given.len()), (1, 0));
        drop(claim(3));
        assert_eq!(semaphore.count(), 1, "one that was not woken has nothing to give back");
    }
}
