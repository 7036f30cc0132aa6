//! Turns of suspects that burn CPU: as many of them are polled away from their loops at a time as there
//! are processors or loops, the others stand in a line. More of them would only take turns on the same
//! processors, end later, and not in the order in which they came. Who sleeps needs no turn, and no turn
//! lasts for ever (detach.rs).
//!
//! 1. `taken` counts the turns that a carrier holds, or that were granted to a task in the line.
//! 2. A task that finds no turn joins the line, then looks again: a turn may have become free meanwhile.
//! 3. A turn that is given back goes to the first in the line without becoming free, so that nobody who
//!    comes later is faster. If nobody is there it is given up; then the line is looked at again.
//! 4. Each side of rules 2 and 3 has a SeqCst fence between what it writes and what it reads.
//! 5. A place that was left is skipped; a turn that had been granted to it is given back (line.rs).

use crate::handover::line::{Line, Waits};
use crate::sync::{AtomicU32, Ordering, fence};

/// See the file's head. `T` wakes a task.
pub(crate) struct Turns<T> {
    limit: u32,
    taken: AtomicU32,
    line: Line<T>,
}

impl<T: Waits> Turns<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit.max(1)).unwrap_or(u32::MAX);
        Self { limit, taken: AtomicU32::new(0), line: Line::new() }
    }

    /// Takes a turn unless others stand in the line.
    pub(crate) fn take(&self) -> bool {
        self.line.is_empty() && self.take_free()
    }

    fn take_free(&self) -> bool {
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken < self.limit {
            match self.taken.compare_exchange(taken, taken + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// Rule 2: joins the line. Its turn may come at once.
    pub(crate) fn join(&self, who: T) {
        self.line.push(who);
        self.look();
    }

    /// Rule 2, behind the push.
    fn look(&self) {
        fence(Ordering::SeqCst);
        if self.take_free() {
            self.give_back();
        }
    }

    /// Rule 3: gives a turn back, to the first in the line.
    pub(crate) fn give_back(&self) {
        loop {
            if self.line.grant_first() {
                return;
            }
            self.taken.fetch_sub(1, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if self.line.is_empty() || !self.take_free() {
                return;
            }
        }
    }

    /// A place in the line was left.
    pub(crate) fn note_left(&self) {
        if self.line.note_left() {
            self.look();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::handover::line::{Departure, Place};
    use std::sync::Arc;

    fn join(turns: &Turns<Arc<Place>>) -> Arc<Place> {
        let place = Place::new();
        turns.join(Arc::clone(&place));
        place
    }

    #[test]
    fn turns_come_in_order_and_nobody_gets_ahead() {
        let turns = Turns::new(2);
        assert!(turns.take() && turns.take() && !turns.take());
        let (first, gone, second) = (join(&turns), join(&turns), join(&turns));
        assert_eq!(gone.leave(), Departure::InLine);
        turns.note_left();
        turns.give_back();
        assert!(first.is_granted() && !second.is_granted());
        // The turn was handed on, not freed.
        assert!(!turns.take());
        turns.give_back();
        assert!(second.is_granted());
        turns.give_back();
        turns.give_back();
        assert!(turns.take());
        assert!(join(&turns).is_granted());
        turns.give_back();
        assert!(turns.take());
        assert_eq!(Turns::<Arc<Place>>::new(0).limit, 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::handover::line::{Departure, Place};
    use loom::sync::Arc;
    use loom::thread;

    type Model = Turns<std::sync::Arc<Place>>;

    /// Takes a turn or joins the line. One that has a turn gives it back; a place that has none is returned.
    fn come(turns: &Model) -> Option<std::sync::Arc<Place>> {
        if turns.take() {
            turns.give_back();
            return None;
        }
        let place = Place::new();
        turns.join(std::sync::Arc::clone(&place));
        Some(place)
    }

    /// All who came have had their turn, or have it now and give it back, until nobody is left.
    fn play(turns: &Model, mut places: Vec<std::sync::Arc<Place>>) {
        while !places.is_empty() {
            let before = places.len();
            places.retain(|place| {
                let is_granted = place.is_granted();
                if is_granted {
                    turns.give_back();
                }
                !is_granted
            });
            assert!(places.len() < before, "nobody has the turn");
        }
        assert!(turns.take() && !turns.take(), "the turn is free, and there is one");
    }

    /// Whoever comes while a turn is given back plays once, and no turn is lost.
    #[test]
    fn loom_nobody_is_left_in_the_line() {
        loom::model(|| {
            let turns = Arc::new(Turns::new(1));
            let others: Vec<_> = (1..3)
                .map(|_| {
                    let turns = Arc::clone(&turns);
                    thread::spawn(move || come(&turns))
                })
                .collect();
            let mut places: Vec<_> = come(&turns).into_iter().collect();
            places.extend(others.into_iter().filter_map(|other| other.join().unwrap()));
            play(&turns, places);
        });
    }

    /// The first of two in the line leaves while a turn is given back, which sweeps the line: the other one
    /// gets the turn, whichever comes first.
    #[test]
    fn loom_a_turn_of_one_who_leaves_is_passed_on() {
        loom::model(|| {
            let turns: Arc<Model> = Arc::new(Turns::new(1));
            assert!(turns.take());
            let (first, second) = (come(&turns).unwrap(), come(&turns).unwrap());
            let giving = {
                let turns = Arc::clone(&turns);
                thread::spawn(move || turns.give_back())
            };
            match first.leave() {
                Departure::InLine => turns.note_left(),
                Departure::Granted => turns.give_back(),
                Departure::Left => unreachable!("it was left once"),
            }
            giving.join().unwrap();
            play(&turns, vec![second]);
        });
    }
}
