//! Suspects that wait for a spare carrier: the last spares are kept for hand-overs (spares.rs), so there may
//! be none for them. Any thread.
//!
//! 1. One who finds no spare, or others in the line, joins it: nobody gets ahead.
//! 2. As long as somebody waits and there is a spare for it, somebody has been *released* (taken out of the
//!    line, to be polled next). So each of these looks at both, and releases one if it finds both: who
//!    joins; who returns a spare; who was released and has taken none, whatever the reason (it needs none any
//!    more, it was dropped, others were faster); who sweeps the line.
//! 3. Each of them has a SeqCst fence between what it writes and what it reads, so that of a joining suspect
//!    and a returning spare one sees the other.
//! 4. A suspect that burns CPU has a turn (turns.rs) before it joins, and keeps it: nobody who has a spare
//!    waits for a turn.

use crate::handover::line::{Line, Waits};
use crate::handover::spares::Spares;
use crate::sync::{Ordering, fence};

/// See the file's head.
pub(crate) struct Waiting<T> {
    line: Line<T>,
    /// Spares that suspects may not have.
    kept: usize,
}

impl<T: Waits> Waiting<T> {
    pub(crate) fn new(kept: usize) -> Self {
        Self { line: Line::new(), kept }
    }

    /// Spares that suspects may not have.
    #[cfg(not(loom))]
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Rule 1. It may be released at once.
    pub(crate) fn join(&self, who: T, spares: &Spares) {
        self.line.push(who);
        self.look(spares);
    }

    /// Rule 2.
    pub(crate) fn look(&self, spares: &Spares) {
        fence(Ordering::SeqCst);
        if spares.count() > self.kept {
            // Nobody there is as good as one who goes on.
            let _ = self.line.grant_first();
        }
    }

    /// A place in the line was left.
    pub(crate) fn note_left(&self, spares: &Spares) {
        if self.line.note_left() {
            self.look(spares);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::handover::line::{Departure, Place};
    use loom::sync::Arc;
    use loom::thread;

    type Places = std::sync::Arc<Place>;

    struct Model {
        spares: Spares,
        waiting: Waiting<Places>,
    }

    fn model(spares: usize) -> Arc<Model> {
        let model = Model { spares: Spares::new(3), waiting: Waiting::new(0) };
        (0..spares).for_each(|carrier| model.spares.push(carrier));
        Arc::new(model)
    }

    /// What a suspect does: takes a spare, or joins the line.
    fn come(model: &Model) -> Result<usize, Places> {
        if model.waiting.is_empty()
            && let Some(spare) = model.spares.pop(0)
        {
            return Ok(spare);
        }
        let place = Place::new();
        model.waiting.join(std::sync::Arc::clone(&place), &model.spares);
        Err(place)
    }

    fn give_back(model: &Model, spare: usize) {
        model.spares.push(spare);
        model.waiting.look(&model.spares);
    }

    /// The invariant of rule 2 when all is quiet: who waits was released, or there is no spare.
    fn expect_released(model: &Model, places: &[&Places]) {
        let released = places.iter().filter(|place| place.is_granted()).count();
        assert!(released >= places.len().min(model.spares.count()), "{released} of {}", places.len());
    }

    /// A spare returns while two suspects come.
    #[test]
    fn loom_nobody_waits_beside_a_spare() {
        loom::model(|| {
            let model = model(0);
            let others: Vec<_> = (0..2)
                .map(|who| {
                    let model = Arc::clone(&model);
                    thread::spawn(move || match who {
                        0 => {
                            give_back(&model, 2);
                            None
                        }
                        _ => Some(come(&model)),
                    })
                })
                .collect();
            let mut came = vec![come(&model)];
            came.extend(others.into_iter().filter_map(|other| other.join().unwrap()));
            let places: Vec<&Places> = came.iter().filter_map(|came| came.as_ref().err()).collect();
            expect_released(&model, &places);
        });
    }

    /// The first of two gives up while a spare returns: the other one is released in any case.
    #[test]
    fn loom_a_release_to_one_who_leaves_is_passed_on() {
        loom::model(|| {
            let model = model(0);
            let (first, second) = (come(&model).unwrap_err(), come(&model).unwrap_err());
            let returning = {
                let model = Arc::clone(&model);
                thread::spawn(move || give_back(&model, 2))
            };
            match first.leave() {
                Departure::InLine => model.waiting.note_left(&model.spares),
                Departure::Granted => model.waiting.look(&model.spares),
                Departure::Left => unreachable!("it was left once"),
            }
            returning.join().unwrap();
            expect_released(&model, &[&second]);
        });
    }

    /// One was released and needs no spare any more, while another one joins.
    #[test]
    fn loom_a_release_that_is_not_used_is_passed_on() {
        loom::model(|| {
            let model = model(0);
            let first = come(&model).unwrap_err();
            give_back(&model, 2);
            assert!(first.is_granted());
            let joining = {
                let model = Arc::clone(&model);
                // The line is empty but for it; the hand-over of another loop has the spare for a moment.
                thread::spawn(move || {
                    let spare = model.spares.pop(0);
                    let came = come(&model).err();
                    if let Some(spare) = spare {
                        give_back(&model, spare);
                    }
                    came
                })
            };
            model.waiting.look(&model.spares);
            let place = joining.join().unwrap();
            expect_released(&model, &place.iter().collect::<Vec<_>>());
        });
    }
}
