//! Tests and models of those that wait in lines: places that are left, turns, spares. They stand by
//! themselves since a place knows what a task is, and the lines do not.

#[cfg(all(test, not(loom)))]
mod line {
    use crate::handover::line::{Line, SWEPT_MIN};
    use crate::task::place::{Departure, WaitingPlace};
    use std::sync::Arc;

    #[test]
    fn who_has_left_is_skipped_and_swept() {
        let line = Line::new();
        let places: Vec<_> = (0..200).map(|_| WaitingPlace::new()).collect();
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
    use crate::task::place::{Departure, WaitingPlace};
    use std::sync::Arc;

    fn join(turns: &Turns<Arc<WaitingPlace>>) -> Arc<WaitingPlace> {
        let place = WaitingPlace::new();
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
        assert_eq!(Turns::<Arc<WaitingPlace>>::new(0).limit, 1);
    }
}

#[cfg(all(test, loom))]
mod turns {
    use crate::handover::turns::Turns;
    use crate::task::place::{Departure, WaitingPlace};
    use loom::sync::Arc;
    use loom::thread;

    type Model = Turns<std::sync::Arc<WaitingPlace>>;

    /// Takes a turn or joins the line. One that has a turn gives it back; a place that has none is returned.
    fn come(turns: &Model) -> Option<std::sync::Arc<WaitingPlace>> {
        if turns.take() {
            turns.give_back();
            return None;
        }
        let place = WaitingPlace::new();
        turns.join(std::sync::Arc::clone(&place));
        Some(place)
    }

    /// All players have had their turn, or have it now and give it back, until none is left.
    fn play(turns: &Model, mut places: Vec<std::sync::Arc<WaitingPlace>>) {
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

    /// A player that comes while a turn is given back plays once, and no turn is lost.
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
    use crate::task::place::{Departure, WaitingPlace};
    use loom::sync::Arc;
    use loom::thread;

    type Places = std::sync::Arc<WaitingPlace>;

    struct Model {
        spares: Spares,
        waiting: Waiting<Places>,
    }

    fn model(spares: usize) -> Arc<Model> {
        let model = Model { spares: Spares::new(3), waiting: Waiting::new(0) };
        (0..spares).for_each(|carrier| model.spares.push(carrier));
        Arc::new(model)
    }

    /// The steps of a suspect: it takes a spare, or joins the line.
    fn come(model: &Model) -> Result<usize, Places> {
        if model.waiting.is_empty()
            && let Some(spare) = model.spares.pop(0)
        {
            return Ok(spare);
        }
        let place = WaitingPlace::new();
        model.waiting.join(std::sync::Arc::clone(&place), &model.spares);
        Err(place)
    }

    fn give_back(model: &Model, spare: usize) {
        model.spares.push(spare);
        model.waiting.look(&model.spares);
    }

    /// The invariant of rule 2 when all is quiet: every waiter was released, or there is no spare.
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
            // The side that only looks is the thread: loom plays other orders where its reads meet writes.
            let looking = {
                let model = Arc::clone(&model);
                thread::spawn(move || model.waiting.look(&model.spares))
            };
            // The line is empty but for it; the hand-over of another loop has the spare for a moment.
            let spare = model.spares.pop(0);
            let place = come(&model).err();
            if let Some(spare) = spare {
                give_back(&model, spare);
            }
            looking.join().unwrap();
            expect_released(&model, &place.iter().collect::<Vec<_>>());
        });
    }
}

#[cfg(all(test, loom))]
mod place {
    use crate::handover::line::Waits;
    use crate::task::place::{Departure, WaitingPlace};
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Notify};
    use loom::thread;
    use std::task::{Context, Wake, Waker};

    /// A waker that ends a wait; loom reports one that never ends as a deadlock.
    struct Unpark(Notify);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    /// Rule 2 of place.rs: a task that waits is woken whenever it is granted what it waits for, and then sees
    /// what was written before.
    #[test]
    #[expect(unsafe_code, reason = "loom reports an access that is not ordered after the last one")]
    fn loom_a_grant_wakes_the_task_that_waits() {
        loom::model(|| {
            let place = WaitingPlace::new();
            let before = Arc::new(UnsafeCell::new(0));
            let granting = {
                let (place, before) = (std::sync::Arc::clone(&place), Arc::clone(&before));
                thread::spawn(move || {
                    // SAFETY: that the grant orders the two is what the model checks.
                    before.with_mut(|value| unsafe { *value = 1 });
                    assert!(place.grant());
                })
            };
            let unpark = std::sync::Arc::new(Unpark(Notify::new()));
            let waker = Waker::from(std::sync::Arc::clone(&unpark));
            while place.poll_granted(&Context::from_waker(&waker)).is_pending() {
                unpark.0.wait();
            }
            // SAFETY: as above.
            assert_eq!(before.with(|value| unsafe { *value }), 1);
            granting.join().unwrap();
        });
    }

    /// Rule 1 of place.rs: of a grant and a departure one comes first, and both know which.
    #[test]
    fn loom_a_place_is_granted_or_left() {
        loom::model(|| {
            let place = WaitingPlace::new();
            let granting = {
                let place = std::sync::Arc::clone(&place);
                thread::spawn(move || place.grant())
            };
            let departure = place.leave();
            let was_granted = granting.join().unwrap();
            assert_eq!(departure == Departure::Granted, was_granted);
            assert!(!place.is_granted() && place.leave() == Departure::Left);
        });
    }
}

#[cfg(all(test, loom))]
mod line {
    use crate::handover::line::Line;
    use crate::sync::{AtomicU32, Ordering, fence};
    use crate::task::place::{Departure, WaitingPlace};
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        line: Line<std::sync::Arc<WaitingPlace>>,
        /// Things to be granted that nobody has.
        free: AtomicU32,
    }

    /// A look at both, as waiting.rs and turns.rs have it.
    fn look(shared: &Shared) {
        fence(Ordering::SeqCst);
        if shared.free.load(Ordering::Relaxed) == 1 && shared.line.grant_first() {
            shared.free.store(0, Ordering::Relaxed);
        }
    }

    /// Rule 2 of line.rs: one that finds nobody in a line while that is swept is made up for by the thread
    /// that sweeps, which looks again.
    #[test]
    fn loom_what_a_sweep_holds_is_found_again() {
        loom::model(|| {
            let shared = Arc::new(Shared { line: Line::new(), free: AtomicU32::new(0) });
            let (staying, leaving) = (WaitingPlace::new(), [WaitingPlace::new(), WaitingPlace::new()]);
            for place in std::iter::once(&staying).chain(&leaving) {
                shared.line.push(std::sync::Arc::clone(place));
            }
            let giving = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.free.store(1, Ordering::Relaxed);
                    look(&shared);
                })
            };
            let sweeps = leaving.map(|place| {
                assert_eq!(place.leave(), Departure::InLine, "another one is the first");
                shared.line.note_left()
            });
            if sweeps.contains(&true) {
                look(&shared);
            }
            giving.join().unwrap();
            assert!(staying.is_granted(), "there is something free, and it waits");
        });
    }
}

#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "tasks as queue entries")]
mod beside {
    use crate::event_loop::ready::Ring;
    use crate::handover::spares::Spares;
    use crate::handover::word::{Lease, Word};
    use crate::task::remote::Remote;
    use crate::task::waker_cell::WakerCell;
    use crate::task::{self, Header, PollOutcome};
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    const HELPER: usize = 1;

    /// Polls of the helper before it is a spare again: as many numbers as a loop uses from the poll that is
    /// lent to the next one.
    const POLLS: usize = 3;

    /// Rule 13 of word.rs: a poll beside a loop has a value that the word of a loop never has, also where
    /// that carrier is given a loop right after.
    #[test]
    fn loom_a_poll_beside_a_loop_has_a_value_of_its_own() {
        loom::model(|| {
            let (word, mut lease) = Word::new(0);
            let carrier = Arc::new((Spares::new(2), AtomicU64::new(0)));
            let helping = {
                let carrier = Arc::clone(&carrier);
                thread::spawn(move || {
                    let mut lease = Lease::from_bits(carrier.1.load(Relaxed));
                    let polls = [(); POLLS].map(|()| {
                        lease = lease.next_away(HELPER);
                        lease.bits()
                    });
                    carrier.1.store(lease.bits(), Relaxed);
                    carrier.0.push(HELPER);
                    polls
                })
            };
            word.begin_poll(&mut lease);
            let mut own = vec![lease.bits()];
            if let Some(spare) = carrier.0.pop(0) {
                let last = Lease::from_bits(carrier.1.load(Relaxed));
                let mut lent = word.lend(lease, spare, last).expect("nobody else lends");
                word.begin_poll(&mut lent);
                own.push(lent.bits());
            }
            let beside = helping.join().unwrap();
            assert!(own.iter().all(|poll| !beside.contains(poll)), "{own:?} {beside:?}");
        });
    }

    /// The steps of `Loop::serve_beside` with a ring. Returns how many polls ended their task.
    fn serve_beside(home: &'static Remote, ring: &Ring<Header>) -> u32 {
        let (mut lease, mut ended) = (Lease::from_bits(0), 0);
        let mut next = ring.pop();
        while let Some(task) = next.take() {
            lease = lease.next_away(HELPER);
            // SAFETY: alive as it is NOTIFIED.
            unsafe { task.as_ref() }.lease.store(lease.bits(), Relaxed);
            // SAFETY: it was taken from a queue, or was notified in its last poll here.
            let outcome = unsafe { task::poll(task, |_| {}) };
            next = ring.pop();
            match (outcome, next) {
                (PollOutcome::Complete, _) => ended += 1,
                (PollOutcome::Notified, None) => next = Some(task),
                (PollOutcome::Notified, Some(_)) => home.inject(task),
                (PollOutcome::Pending, _) => {}
            }
        }
        ended
    }

    /// A hungry task that is polled beside its loop, and woken at any moment, goes on there or at home: it
    /// ends once, and what it was woken for is not lost.
    #[test]
    fn loom_a_task_that_is_woken_beside_its_loop_goes_on() {
        loom::model(|| {
            let (word, _lease) = Word::new(0);
            let home: &'static Remote = Box::leak(Box::new(Remote::modelled(word)));
            let ring = Arc::new(Ring::new());
            let flag = Arc::new((AtomicBool::new(false), WakerCell::new()));
            task::spawn(home, 0, task::Binding::Free, {
                let flag = Arc::clone(&flag);
                poll_fn(move |cx| {
                    flag.1.register(cx.waker());
                    if flag.0.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            home.inject.take().for_each(|task| ring.push(task).unwrap());
            let helping = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || serve_beside(home, &ring))
            };
            flag.0.store(true, Relaxed);
            if let Some(waker) = flag.1.take() {
                waker.wake();
            }
            let mut ended = helping.join().unwrap();
            home.inject.take().for_each(|task| ring.push(task).unwrap());
            ended += serve_beside(home, &ring);
            assert_eq!(ended, 1);
            drop(flag.1.take());
        });
    }
}
