//! A bounded queue for many producers and many consumers, which never waits: a thread that is
//! stopped in the middle of a push or a pop delays what stands behind it but makes nobody spin
//! (loops push here, and a carrier in mid-push may have been demoted). The slots are in `lap.rs`.
//!
//! 1. A queue has a short lap, and where it may hold more a long one, which is made when the short one is
//!    full for the first time: a queue takes the memory that it has needed.
//! 2. While the long lap holds anything, pushes go there. So an entry never overtakes one whose push had
//!    come back before its own began.
//! 3. A pop takes from the long lap only if the short one is empty after the long one was seen to be ready:
//!    what was pushed before to the short lap has left it then.
//! 4. A pop gives up when the first entry's push is still under way and later ones are complete. So: a
//!    producer rings its consumers after each push, and a consumer that takes one and sees another ready
//!    rings for it (`is_ready`); what was passed over while the first was under way is found through the
//!    first one's ring.

use std::sync::OnceLock;

use crate::lap::{self, Lap};

/// Entries of the short lap.
const SHORT: usize = 1024;

/// A bounded queue; see the rules at the head of the file.
#[derive(Debug)]
pub struct Ring<T> {
    short: Lap<T>,
    long: OnceLock<Box<Lap<T>>>,
    limit: usize,
}

/// A place in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    short: lap::Mark,
    /// Without a long lap nothing is there to be past.
    long: Option<lap::Mark>,
}

impl<T> Ring<T> {
    /// A queue for up to `limit` (at least 1) entries. Where pushes come at once, some more get in.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::with_short(limit, SHORT)
    }

    /// As [`new`](Self::new), with so many entries in the short lap: as many as are often there at a time.
    #[must_use]
    pub fn with_short(limit: usize, short: usize) -> Self {
        let limit = limit.max(1);
        Self { short: Lap::new(limit.min(short)), long: OnceLock::new(), limit }
    }

    /// Adds an entry at the end. Never waits.
    ///
    /// # Errors
    /// Gives the value back when the queue is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        match self.long.get() {
            // Rule 2.
            Some(long) if !long.is_empty() => self.push_long(long, value),
            _ => self.short.push(value).or_else(|value| self.push_behind(value)),
        }
    }

    /// Adds an entry that the short lap had no room for.
    #[cold]
    fn push_behind(&self, value: T) -> Result<(), T> {
        if self.limit <= self.short.limit() {
            return Err(value);
        }
        if self.long.get().is_none() {
            // If another thread was faster its lap is used: nobody waits for one that is being made.
            let _ = self.long.set(Box::new(Lap::new(self.limit)));
        }
        let long = self.long.get().expect("one of the threads has set it");
        self.push_long(long, value)
    }

    fn push_long(&self, long: &Lap<T>, value: T) -> Result<(), T> {
        if self.short.len() + long.len() >= self.limit {
            return Err(value);
        }
        long.push(value)
    }

    /// Takes the first entry, unless there is none or its push is still under way. Never waits.
    pub fn pop(&self) -> Option<T> {
        self.short.pop().or_else(|| {
            let long = self.long.get().filter(|long| long.is_ready())?;
            // Rule 3.
            if self.short.is_empty() { long.pop() } else { self.short.pop() }
        })
    }

    /// Whether a pop would find something now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.short.is_ready() || self.long.get().is_some_and(|long| long.is_ready() && self.short.is_empty())
    }

    /// Entries in the queue, those under way included; out of date at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.short.len() + self.long.get().map_or(0, |long| long.len())
    }

    /// Whether there is nothing, not even a push under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next entry will stand; those of pushes that have come back are before it.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { short: self.short.mark(), long: self.long.get().map(|long| long.mark()) }
    }

    /// Whether everything before the mark was taken.
    #[must_use]
    pub fn is_past(&self, mark: Mark) -> bool {
        let is_past = |long: &Lap<T>| mark.long.is_none_or(|mark| long.is_past(mark));
        self.short.is_past(mark.short) && self.long.get().is_none_or(|long| is_past(long))
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_its_limit_over_many_laps() {
        let ring = Ring::new(3);
        for lap in 0..10_u32 {
            for n in 0..3 {
                ring.push(lap * 3 + n).unwrap();
            }
            assert_eq!(ring.push(99), Err(99));
            assert_eq!(ring.len(), 3);
            for n in 0..3 {
                assert!(ring.is_ready());
                assert_eq!(ring.pop(), Some(lap * 3 + n));
            }
            assert!(!ring.is_ready() && ring.is_empty());
            assert_eq!(ring.pop(), None);
        }
    }

    /// What does not fit the short lap comes out behind it, up to the limit, lap after lap; without such a
    /// burst there is no long lap.
    #[test]
    fn a_burst_keeps_its_order_and_the_limit() {
        let (limit, burst) = (SHORT + 100, SHORT + 30);
        let ring = Ring::new(limit);
        for n in 0..3 * SHORT {
            ring.push(n).unwrap();
            assert_eq!(ring.pop(), Some(n));
        }
        assert!(ring.long.get().is_none(), "it never held so much");
        for _ in 0..5 {
            let mark = ring.mark();
            (0..burst).for_each(|n| ring.push(n).unwrap());
            let behind = ring.mark();
            assert!(ring.is_past(mark) && !ring.is_past(behind) && ring.long.get().is_some());
            (0..50).for_each(|n| assert_eq!(ring.pop(), Some(n)));
            // There is room before them, and they are not overtaken.
            (burst..limit + 50).for_each(|n| ring.push(n).unwrap());
            assert_eq!((ring.push(0), ring.len()), (Err(0), limit));
            (50..burst).for_each(|n| assert_eq!(ring.pop(), Some(n)));
            assert!(ring.is_past(behind) && ring.is_ready());
            (burst..limit + 50).for_each(|n| assert_eq!(ring.pop(), Some(n)));
            assert!(!ring.is_ready() && ring.is_empty());
        }
    }

    #[test]
    fn threads_keep_their_order_through_both_laps() {
        let ring = Ring::new(4 * SHORT);
        let (threads, each) = (3, 40_000_usize);
        std::thread::scope(|scope| {
            let ring = &ring;
            for thread in 0..threads {
                scope.spawn(move || {
                    for n in 0..each {
                        while ring.push((thread, n)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 3];
            while next.iter().sum::<usize>() < threads * each {
                // Now and then they get ahead.
                if next[0] % 4096 == 1 {
                    (0..200).for_each(|_| std::thread::yield_now());
                }
                if let Some((thread, n)) = ring.pop() {
                    assert_eq!(n, next[thread], "of thread {thread}");
                    next[thread] += 1;
                }
            }
        });
        assert!(ring.is_empty());
    }

    #[test]
    fn loses_and_doubles_nothing_between_threads() {
        let ring = Ring::new(16);
        let (threads, each) = (3_u64, 20_000_u64);
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let producer = |first: u64| {
                for n in first..first + each {
                    let mut value = n;
                    while let Err(back) = ring.push(value) {
                        value = back;
                        std::thread::yield_now();
                    }
                }
                0
            };
            let consumer = || {
                let mut sum = 0;
                for _ in 0..each {
                    sum += std::iter::repeat_with(|| ring.pop())
                        .inspect(|found| {
                            if found.is_none() {
                                std::thread::yield_now()
                            }
                        })
                        .flatten()
                        .next()
                        .unwrap();
                }
                sum
            };
            let handles: Vec<_> = (0..threads)
                .flat_map(|t| [scope.spawn(move || producer(t * each)), scope.spawn(consumer)])
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        let total = threads * each;
        assert_eq!(sums.iter().sum::<u64>(), total * (total - 1) / 2);
    }
}
