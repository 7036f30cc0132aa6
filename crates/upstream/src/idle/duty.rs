//! When the keeper of a loop's idle connections looks after them, and when it may sleep without a timer:
//! nobody is woken once a second for nothing.
//!
//! 1. A task that has put a connection on a shelf calls the keeper ([`Duty::call`]) behind a fence: where it
//!    finds RESTING it makes it AWAKE, and wakes the keeper, or spawns it where there is none yet.
//! 2. The keeper rests ([`Duty::rest`]) only where it finds the shelves empty behind a fence that follows
//!    RESTING. Of the two fences one comes first: the keeper sees the connection, or the task sees RESTING.

use crate::sync::{AtomicU32, Ordering, fence};

const RESTING: u32 = 0;
const AWAKE: u32 = 1;

/// The duty of the keeper of one loop.
#[derive(Debug)]
pub(crate) struct Duty(AtomicU32);

impl Duty {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(RESTING))
    }

    /// Rule 1. Whether the caller has to wake the keeper.
    #[inline]
    pub(crate) fn call(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == RESTING && self.0.swap(AWAKE, Ordering::AcqRel) == RESTING
    }

    /// Rule 2. Whether the keeper may sleep until it is woken.
    pub(crate) fn rest(&self, is_empty: impl FnOnce() -> bool) -> bool {
        self.0.store(RESTING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = is_empty();
        if !may {
            self.0.store(AWAKE, Ordering::Relaxed);
        }
        may
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::idle::shelf::Shelf;
    use loom::sync::Arc;
    use loom::thread;

    /// What is put while the keeper is about to rest is noticed by the keeper, or the keeper is woken.
    #[test]
    fn nothing_is_left_without_a_keeper() {
        loom::model(|| {
            let shared = Arc::new((Shelf::with_places(2), Duty::new()));
            shared.1.call();
            let putters: Vec<_> = (0..2)
                .map(|number| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        shared.0.put(Box::new(number), 0).expect("there is room");
                        shared.1.call()
                    })
                })
                .collect();
            let rests = shared.1.rest(|| shared.0.is_empty());
            let woken = putters.into_iter().map(|putter| putter.join().expect("it ends"));
            let wakes = woken.filter(|&wakes| wakes).count();
            assert!(!rests || wakes == 1, "rests {rests}, woken {wakes} times");
        });
    }
}
