//! A shelf with 64 places, which any thread fills and empties without waiting: the idle connections of one
//! loop to one server, which other loops may take.
//!
//! 1. A thread that takes a bit out of `free` or `full` owns the place of that number, and no other does.
//! 2. To put: take the lowest bit of `free`, fill the place, set the bit in `full`.
//! 3. To take: take the lowest bit of `full`, empty the place, set the bit in `free`.
//! 4. A bit is set with Release and taken with Acquire: what was done with the place is seen by the next
//!    owner.
//! 5. Each place has a tag, by which what is there is looked for. Its owner writes it before the bit is set
//!    in `full`; to others it is a hint, and a thread that has taken the bit looks again.
//!
//! The lowest is the one that was put last, mostly: what is used stays in use, what is too much grows old at
//! the other end. No place is reused behind anybody's back, as a place has no meaning without its bit.

use crate::sync::{AtomicU64, Exclusive, Ordering};

/// How many there are.
pub(crate) const PLACES: usize = 64;

/// A shelf with 64 places.
pub(crate) struct Shelf<T> {
    full: AtomicU64,
    free: AtomicU64,
    places: Box<[Exclusive<T>]>,
    tags: Box<[AtomicU64]>,
}

impl<T> std::fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self::with_places(PLACES)
    }
}

impl<T> Shelf<T> {
    /// An empty shelf with so many places, 64 at most.
    pub(crate) fn with_places(places: usize) -> Self {
        let places = places.min(PLACES);
        let free = if places == PLACES { u64::MAX } else { (1 << places) - 1 };
        Self {
            full: AtomicU64::new(0),
            free: AtomicU64::new(free),
            places: (0..places).map(|_| Exclusive::new()).collect(),
            tags: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Puts something there, to be found by its tag.
    ///
    /// # Errors
    /// Gives it back where there is no room.
    pub(crate) fn put(&self, value: Box<T>, tag: u64) -> Result<(), Box<T>> {
        let Some(at) = take_lowest(&self.free) else { return Err(value) };
        self.tags[at].store(tag, Ordering::Relaxed);
        let before = self.places[at].replace(Some(value));
        debug_assert!(before.is_none(), "a free place is empty");
        self.full.fetch_or(1 << at, Ordering::Release);
        Ok(())
    }

    /// Takes what was put last with this tag, mostly.
    pub(crate) fn take(&self, tag: u64) -> Option<Box<T>> {
        let mut word = self.full.load(Ordering::Relaxed);
        let mut at = 0;
        while word >> at != 0 {
            at += (word >> at).trailing_zeros() as usize;
            let bit = 1 << at;
            if self.tags[at].load(Ordering::Relaxed) == tag
                && self.full.fetch_and(!bit, Ordering::Acquire) & bit != 0
            {
                if self.tags[at].load(Ordering::Relaxed) == tag {
                    return self.take_at(at);
                }
                // Other threads have emptied and filled the place meanwhile.
                self.full.fetch_or(bit, Ordering::Release);
            }
            at += 1;
            if at == PLACES {
                break;
            }
            word = self.full.load(Ordering::Relaxed);
        }
        None
    }

    /// Takes what has been there for longest, mostly.
    pub(crate) fn take_coldest(&self) -> Option<Box<T>> {
        self.take_at(take_highest(&self.full)?)
    }

    /// Takes out everything for which this is true, what has been there for longest first, mostly. What is
    /// put meanwhile may be missed.
    pub(crate) fn take_if(&self, mut wanted: impl FnMut(&T) -> bool) -> Vec<Box<T>> {
        let mut taken = Vec::new();
        for at in (0..self.places.len()).rev() {
            if self.full.fetch_and(!(1 << at), Ordering::Acquire) & (1 << at) == 0 {
                continue;
            }
            let value = self.places[at].replace(None);
            if value.as_deref().is_some_and(&mut wanted) {
                self.free.fetch_or(1 << at, Ordering::Release);
                taken.extend(value);
            } else {
                self.places[at].replace(value);
                self.full.fetch_or(1 << at, Ordering::Release);
            }
        }
        taken
    }

    fn take_at(&self, at: usize) -> Option<Box<T>> {
        let value = self.places[at].replace(None);
        self.free.fetch_or(1 << at, Ordering::Release);
        value
    }

    /// How many are there; out of date at once.
    pub(crate) fn len(&self) -> usize {
        self.full.load(Ordering::Relaxed).count_ones() as usize
    }

    /// Whether there is nothing; out of date at once.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rule 1.
fn take_lowest(bits: &AtomicU64) -> Option<usize> {
    take_bit(bits, |word| word.trailing_zeros() as usize)
}

fn take_highest(bits: &AtomicU64) -> Option<usize> {
    take_bit(bits, |word| 63 - word.leading_zeros() as usize)
}

fn take_bit(bits: &AtomicU64, which: impl Fn(u64) -> usize) -> Option<usize> {
    let mut word = bits.load(Ordering::Relaxed);
    while word != 0 {
        let at = which(word);
        match bits.compare_exchange_weak(word, word & !(1 << at), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(at),
            Err(now) => word = now,
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    #[test]
    fn what_was_put_last_is_taken_first() {
        let shelf = Shelf::with_places(3);
        for number in 0..3 {
            shelf.put(Box::new(number), 7).expect("there is room");
        }
        assert_eq!((shelf.put(Box::new(9), 7), shelf.len()), (Err(Box::new(9)), 3));
        assert_eq!(shelf.take_coldest().as_deref(), Some(&2));
        assert_eq!(shelf.take(7).as_deref(), Some(&0));
        shelf.put(Box::new(5), 7).expect("there is room");
        assert_eq!(
            [shelf.take(7), shelf.take(7), shelf.take(7)].map(|value| value.map(|value| *value)),
            [Some(5), Some(1), None]
        );
        assert!(shelf.is_empty());
    }

    #[test]
    fn only_those_with_the_tag_are_found() {
        let shelf = Shelf::default();
        for number in 0..PLACES {
            shelf.put(Box::new(number), number as u64 % 3).expect("there is room");
        }
        let found: Vec<usize> = std::iter::from_fn(|| shelf.take(2)).map(|value| *value).collect();
        assert_eq!(found, (0..PLACES).filter(|number| number % 3 == 2).collect::<Vec<_>>());
        assert_eq!((shelf.take(3), shelf.len()), (None, PLACES - found.len()));
        shelf.take_if(|&number| number != 63);
        assert_eq!((shelf.take(1), shelf.take(0).as_deref()), (None, Some(&63)));
    }

    #[test]
    fn some_are_picked() {
        let shelf = Shelf::default();
        (0..PLACES).for_each(|number| shelf.put(Box::new(number), 7).expect("there is room"));
        assert!(shelf.put(Box::new(0), 7).is_err());
        let odd: Vec<usize> =
            shelf.take_if(|number| number % 2 == 1).into_iter().map(|number| *number).collect();
        assert_eq!((odd.len(), shelf.len()), (32, 32));
        assert!(shelf.put(Box::new(0), 7).is_ok());
    }

    #[test]
    fn threads_lose_nothing_and_get_nothing_twice() {
        const EACH: usize = 20_000;
        let (shelf, seen) = (Shelf::with_places(7), Mutex::new(BTreeSet::new()));
        let note = |value: Box<usize>| assert!(seen.lock().expect("nobody panics").insert(*value), "twice");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (shelf, note) = (&shelf, &note);
                scope.spawn(move || {
                    for number in 0..EACH {
                        if let Err(value) = shelf.put(Box::new(thread * EACH + number), number as u64 % 2) {
                            note(value);
                        }
                        match number % 3 {
                            0 => shelf.take(number as u64 % 2).into_iter().for_each(note),
                            1 => shelf.take_coldest().into_iter().for_each(note),
                            _ => shelf.take_if(|value| value % 5 == 0).into_iter().for_each(note),
                        }
                    }
                });
            }
        });
        while let Some(value) = shelf.take_coldest() {
            note(value);
        }
        assert_eq!(seen.lock().expect("nobody panics").len(), 3 * EACH);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two put, one takes, on two places: each value comes out once, or is given back.
    #[test]
    fn values_come_out_once() {
        loom::model(|| {
            let shelf = Arc::new(Shelf::with_places(2));
            shelf.put(Box::new(0), 7).expect("there is room");
            let putters: Vec<_> = [1, 2]
                .map(|number| {
                    let shelf = Arc::clone(&shelf);
                    thread::spawn(move || shelf.put(Box::new(number), 7).err().map(|value| *value))
                })
                .into();
            let mut seen: Vec<u32> = shelf.take(7).into_iter().map(|value| *value).collect();
            seen.extend(putters.into_iter().filter_map(|putter| putter.join().expect("it ends")));
            seen.extend(std::iter::from_fn(|| shelf.take(7)).map(|value| *value));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }

    /// A thread that looks through the shelf meets one that takes and one that puts.
    #[test]
    fn who_looks_through_disturbs_nobody() {
        loom::model(|| {
            let shelf = Arc::new(Shelf::with_places(2));
            shelf.put(Box::new(1), 7).expect("there is room");
            let other = {
                let shelf = Arc::clone(&shelf);
                thread::spawn(move || {
                    let back = shelf.put(Box::new(2), 7).err();
                    back.into_iter().chain(shelf.take(7)).map(|value| *value).collect::<Vec<u32>>()
                })
            };
            let mut seen: Vec<u32> =
                shelf.take_if(|value| *value == 1).into_iter().map(|value| *value).collect();
            seen.extend(other.join().expect("it ends"));
            seen.extend(std::iter::from_fn(|| shelf.take(7)).map(|value| *value));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    /// A place is emptied and filled with another tag while another thread looks for the first: it gets
    /// nothing else.
    #[test]
    fn a_tag_is_looked_at_again() {
        loom::model(|| {
            let shelf = Arc::new(Shelf::with_places(1));
            shelf.put(Box::new(1), 1).expect("there is room");
            let other = {
                let shelf = Arc::clone(&shelf);
                thread::spawn(move || {
                    let first = shelf.take(1).map(|value| *value);
                    let refused = shelf.put(Box::new(2), 2).is_err();
                    (first, refused)
                })
            };
            let found = shelf.take(1).map(|value| *value);
            let (first, refused) = other.join().expect("it ends");
            assert!(found.is_none_or(|value| value == 1));
            assert!(found.is_none() || first.is_none(), "once");
            let last = shelf.take(2).map(|value| *value);
            assert_eq!(last.is_some(), !refused);
        });
    }
}
