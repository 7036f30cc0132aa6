//! Tests and models of those that wait in lines: places that are left, turns, spares. They stand by
//! themselves since a place knows what a task is, and the lines do not.

#[cfg(all(test, not(loom)))]
mod line {
    use crate::handover::line::{Line, SWEPT_MIN};
    use crate::task::place::{Departure, Place};
    use std::sync::Arc;

    #[test]
    fn who_has_left_is_skipped_and_swept() {
        let line = Line::new();
        let places: Vec<_> = (0..200).map(|_| Place::new()).collect();
        places.iter().for_each(|place| line.push(Arc::clone(place)));
        let (leaving, staying) = places.split_at(150);
        let sweeps: usize = leaving
            .iter()
            .map(|place| {
                assert_eq!(place.leave(), Departure::InLine);
                usize::from(line.note_left())
            })
            .sum();
        assert!(sweeps > 0 && line.len() < 2 * staying.len() + SWEPT_MIN as usize);
        for place in staying {
            assert!(!place.is_granted() && line.grant_first() && place.is_granted(), "in their order");
        }
        assert!(!line.grant_first());
        assert_eq!(staying[0].leave(), Departure::Granted);
    }
}

#[cfg(all(test, not(loom)))]
mod turns {
    use crate::handover::turns::Turns;
    use crate::task::place::{Departure, Place};
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
mod turns {
    use crate::handover::turns::Turns;
    use crate::task::place::{Departure, Place};
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

#[cfg(all(test, loom))]
mod waiting {
    use crate::handover::spares::Spares;
    use crate::handover::waiting::Waiting;
    use crate::task::place::{Departure, Place};
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
