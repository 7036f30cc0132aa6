//! Waiters for a VM that is to be made, and makers, which have one made: the protocol of `of_loop`'s rules 3
//! to 6, without VMs, so that its models are about nothing else. Any thread.
//!
//! 1. A waiter leaves its waker in the line and then looks again; a maker stores first and then takes
//!    the wakers. Between the two there is a SeqCst fence on either side, so one of them sees the other.
//! 2. The line has a limit. A waiter that finds it full looks again as well, and is refused only then.
//! 3. A making is begun by one exchange of its flag, and ended behind what it publishes and before the wakers
//!    are taken. Its maker looks again whether it is wanted, as the one before may have ended since.
//! 4. A look reads the flag before it reads what is published: a making that is over by then is seen.

use std::task::{Poll, Waker};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowded;

#[cfg(not(loom))]
type Wakers = crossbeam_queue::ArrayQueue<Waker>;

/// The queue for models: loom tries all orders of its uses.
#[cfg(loom)]
struct Wakers(loom::sync::Mutex<std::collections::VecDeque<Waker>>, usize);

#[cfg(loom)]
impl Wakers {
    fn new(most: usize) -> Self {
        Self(loom::sync::Mutex::default(), most)
    }

    fn push(&self, waker: Waker) -> Result<(), Waker> {
        let mut wakers = self.0.lock().expect("no model panics in here");
        if wakers.len() == self.1 {
            return Err(waker);
        }
        wakers.push_back(waker);
        Ok(())
    }

    fn pop(&self) -> Option<Waker> {
        self.0.lock().expect("no model panics in here").pop_front()
    }
}

/// The line of waiters.
pub(crate) struct Line(Wakers);

impl Line {
    pub(crate) fn new(most: usize) -> Self {
        Self(Wakers::new(most))
    }

    /// Polls for `look`'s result, which may be asked twice (rules 1 and 2).
    pub(crate) fn poll<T>(
        &self,
        waker: &Waker,
        mut look: impl FnMut() -> Option<T>,
    ) -> Poll<Result<T, Crowded>> {
        if let Some(found) = look() {
            return Poll::Ready(Ok(found));
        }
        let pushed = self.0.push(waker.clone());
        fence(Ordering::SeqCst);
        match look() {
            Some(found) => Poll::Ready(Ok(found)),
            None if pushed.is_err() => Poll::Ready(Err(Crowded)),
            None => Poll::Pending,
        }
    }

    /// Wakes all waiters after the result was published (rule 1).
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        while let Some(waker) = self.0.pop() {
            waker.wake();
        }
    }
}

/// Whether a VM is being made: one at a time.
pub(crate) struct Making(AtomicBool);

impl Making {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether a build is under way (rule 4).
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Rule 3: whether one begins now. `is_wanted` looks again.
    pub(crate) fn begin(&self, is_wanted: impl FnOnce() -> bool) -> bool {
        if self.0.swap(true, Ordering::SeqCst) {
            return false;
        }
        let begins = is_wanted();
        if !begins {
            let was_under_way = self.0.swap(false, Ordering::SeqCst);
            debug_assert!(was_under_way, "one making at a time");
        }
        begins
    }

    /// Ends the making: its result is published.
    pub(crate) fn end(&self, line: &Line) {
        // An exchange, which has its place among those of `begin`.
        let was_under_way = self.0.swap(false, Ordering::SeqCst);
        debug_assert!(was_under_way, "a making ends once");
        line.wake_all();
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;
    use std::future::poll_fn;

    use super::*;

    /// A loop's own VM, as numbers: 0 is poisoned.
    struct Own {
        published: AtomicUsize,
        making: Making,
        line: Line,
        made: AtomicUsize,
    }

    impl Own {
        fn new(most: usize) -> Arc<Self> {
            Arc::new(Self {
                published: AtomicUsize::new(0),
                making: Making::new(),
                line: Line::new(most),
                made: AtomicUsize::new(0),
            })
        }

        /// The steps of a builder.
        fn make(&self) {
            let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
            self.published.store(number, Ordering::SeqCst);
            self.making.end(&self.line);
        }

        fn find(&self) -> Option<usize> {
            Some(self.published.load(Ordering::SeqCst)).filter(|number| *number > 0)
        }

        /// The steps of a request: it has a VM made if there is none. `build` stands for the pool.
        fn request(own: &Arc<Self>, build: &mut Vec<thread::JoinHandle<()>>) -> Result<usize, Crowded> {
            let mut look = || {
                let is_under_way = own.making.is_under_way();
                let found = own.find();
                if found.is_none() && !is_under_way && own.making.begin(|| own.find().is_none()) {
                    let builder = Arc::clone(own);
                    build.push(thread::spawn(move || builder.make()));
                }
                found
            };
            block_on(poll_fn(|cx| own.line.poll(cx.waker(), &mut look)))
        }
    }

    #[test]
    fn models_nobody_misses_what_is_published_and_one_is_made() {
        loom::model(|| {
            let own = Own::new(4);
            let other = Arc::clone(&own);
            let beside = thread::spawn(move || {
                let mut builders = Vec::new();
                let found = Own::request(&other, &mut builders);
                builders.into_iter().for_each(|builder| builder.join().unwrap());
                found
            });
            let mut builders = Vec::new();
            let found = Own::request(&own, &mut builders);
            builders.into_iter().for_each(|builder| builder.join().unwrap());
            assert_eq!(found, Ok(1));
            assert_eq!(beside.join().unwrap(), Ok(1));
            assert_eq!(own.made.load(Ordering::SeqCst), 1);
            assert!(own.making.begin(|| true), "none is under way");
        });
    }

    #[test]
    fn models_a_full_line_refuses_only_where_nothing_was_published() {
        loom::model(|| {
            let own = Own::new(0);
            own.making.begin(|| true);
            let other = Arc::clone(&own);
            let builder = thread::spawn(move || other.make());
            let mut builders = Vec::new();
            let found = Own::request(&own, &mut builders);
            assert!(matches!(found, Ok(1) | Err(Crowded)), "{found:?}");
            builder.join().unwrap();
            assert_eq!(Own::request(&own, &mut builders), Ok(1));
            assert!(builders.is_empty());
        });
    }

    #[test]
    fn models_one_that_is_poisoned_is_made_anew_once() {
        loom::model(|| {
            let own = Own::new(4);
            let mut builders = Vec::new();
            own.making.begin(|| true);
            own.make();
            // A request finds the first one poisoned while another one asks.
            let other = Arc::clone(&own);
            let beside = thread::spawn(move || {
                let _ = other.published.compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst);
                let mut builders = Vec::new();
                let found = Own::request(&other, &mut builders);
                builders.into_iter().for_each(|builder| builder.join().unwrap());
                found
            });
            let found = Own::request(&own, &mut builders);
            builders.into_iter().for_each(|builder| builder.join().unwrap());
            assert!(matches!(found, Ok(1 | 2)), "{found:?}");
            assert_eq!(beside.join().unwrap(), Ok(2));
            assert_eq!(own.made.load(Ordering::SeqCst), 2);
        });
    }
}
