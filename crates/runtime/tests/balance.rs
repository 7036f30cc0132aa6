//! Several loops, and several tasks that burn CPU: tasks that are ready on a crowded loop are polled by
//! others, bound ones are not; suspects that burn CPU are polled in turn.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use clearway_runtime::{Config, LoopRef, Runtime, Tag, enter};
use clearway_testkit::{chaos_lend, expect_soon};

/// Polls are lent on purpose, so that threads tell nothing about loops.
fn is_chaotic() -> bool {
    chaos_lend().is_some()
}

fn start(loops: usize, handover_after: Option<Duration>) -> Runtime {
    let config = Config { loops, handover_after, handover_carriers: 64, ..Config::default() };
    Runtime::start(&config).unwrap()
}

/// How tasks are spawned.
type Spawn = fn(LoopRef, Pin<Box<dyn Future<Output = ()> + Send>>);

/// The threads that polled 64 tasks of loop 0, each of which holds its thread for a moment.
fn threads_of(runtime: Runtime, spawn: Spawn) -> HashSet<ThreadId> {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let home = runtime.at(0);
    let polled = Arc::clone(&threads);
    // Spawned from a task, so that all of them are ready in one turn.
    home.spawn_bound(Tag::NONE, async move {
        for _ in 0..64 {
            let polled = Arc::clone(&polled);
            let task = async move {
                thread::sleep(Duration::from_millis(2));
                polled.lock().unwrap().push(thread::current().id());
            };
            spawn(home, Box::pin(task));
        }
    });
    expect_soon("all are polled", || threads.lock().unwrap().len() == 64);
    threads.lock().unwrap().iter().copied().collect()
}

#[test]
fn a_loop_that_has_nothing_to_do_helps_a_crowded_one() {
    let runtime = start(2, None);
    let before = clearway_runtime::metrics::STEALS.value();
    let free: Spawn = |home, task| home.spawn(Tag::NONE, task);
    expect_soon("both loops poll tasks of the first", || threads_of(runtime, free).len() > 1);
    if !is_chaotic() {
        assert!(clearway_runtime::metrics::STEALS.value() > before);
        let bound: Spawn = |home, task| home.spawn_bound(Tag::NONE, task);
        assert_eq!(threads_of(runtime, bound).len(), 1, "bound tasks stay");
    }
    runtime.stop();
}

/// Burns CPU until another task of the loop has run, for which the loop must have been handed over.
fn make_suspect(runtime: Runtime, tag: Tag) {
    let (caught, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (seen, end) = (Arc::clone(&caught), Arc::clone(&over));
    runtime.at(0).spawn(Tag::NONE, async move {
        enter(tag).await;
        runtime.at(0).spawn(Tag::NONE, async move { seen.store(true, Ordering::Relaxed) });
        while !caught.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        end.store(true, Ordering::Relaxed);
    });
    expect_soon("a spinner loses its loop", || over.load(Ordering::Relaxed));
}

/// How long each of them burns CPU.
const BURN: Duration = Duration::from_millis(3);

/// What tasks that burn CPU under one tag came to.
struct Burned {
    /// How many did so at once, at most.
    most: usize,
    /// How many of them took so long that they must have waited for a processor: a task that has its turn and
    /// cannot use it gives it up, so one more is let in for each of them.
    late: usize,
}

fn burn(runtime: Runtime, tag: Tag, tasks: usize) -> Burned {
    let [at_once, most, late, done] = [0; 4].map(|_: u8| Arc::new(AtomicUsize::new(0)));
    for _ in 0..tasks {
        let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
        let (late, done) = (Arc::clone(&late), Arc::clone(&done));
        runtime.at(0).spawn(Tag::NONE, async move {
            enter(tag).await;
            let begin = Instant::now();
            let now = at_once.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            while begin.elapsed() < BURN {
                std::hint::spin_loop();
            }
            at_once.fetch_sub(1, Ordering::Relaxed);
            late.fetch_add(usize::from(begin.elapsed() > BURN * 3), Ordering::Relaxed);
            enter(Tag::NONE).await;
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all are done", || done.load(Ordering::Relaxed) == tasks);
    Burned { most: most.load(Ordering::Relaxed), late: late.load(Ordering::Relaxed) }
}

#[test]
fn those_that_burn_the_processor_are_polled_in_turn() {
    const TASKS: usize = 40;
    let runtime = start(1, Some(Duration::from_millis(1)));
    let turns = thread::available_parallelism().unwrap().get();
    if is_chaotic() {
        burn(runtime, Tag::of(b"burns"), TASKS);
        return;
    }
    let found: Vec<(usize, usize)> = (0..10_u8)
        .map(|round| {
            let tag = Tag::of(&[round]);
            make_suspect(runtime, tag);
            let Burned { most, late } = burn(runtime, tag, TASKS);
            (most, late)
        })
        // One or another may have lost its loop before it said what it does.
        .take_while(|&(most, late)| most > turns + late + 4)
        .collect();
    assert!(found.len() < 10, "of {TASKS} at once, and late, with {turns} turns: {found:?}");
}
