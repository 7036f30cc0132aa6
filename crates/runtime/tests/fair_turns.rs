//! Fair turns: tasks that take much CPU in many short polls go behind those that take little, and are not
//! forgotten there.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clearway_runtime::{Config, Runtime, Tag, yield_now};
use clearway_testkit::{chaos_lend, expect_soon};

/// Polls are lent on purpose: they overtake each other, and how many ran tells nothing about turns.
fn is_chaotic() -> bool {
    chaos_lend().is_some()
}

const HUNGRY: usize = 40;

fn start() -> Runtime {
    let config = Config { handover_after: None, ..Config::default() };
    Runtime::start(&config).unwrap()
}

/// Tasks that burn 300 µs in each poll until they are told to end, and how many such polls there were.
struct Hungry {
    polls: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    left: Arc<AtomicUsize>,
}

fn burn() {
    let end = Instant::now() + Duration::from_micros(300);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

impl Hungry {
    fn spawn(runtime: Runtime) -> Self {
        let hungry = Self {
            polls: Arc::new(AtomicUsize::new(0)),
            ends: Arc::new(AtomicBool::new(false)),
            left: Arc::new(AtomicUsize::new(HUNGRY)),
        };
        for _ in 0..HUNGRY {
            let (polls, ends, left) = (hungry.polls.clone(), hungry.ends.clone(), hungry.left.clone());
            runtime.at(0).spawn(Tag::NONE, async move {
                while !ends.load(Ordering::Relaxed) {
                    burn();
                    polls.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        hungry
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        expect_soon("hungry tasks end", || self.left.load(Ordering::Relaxed) == 0);
    }
}

#[test]
fn who_takes_little_goes_before_those_that_burn_in_short_polls() {
    let runtime = start();
    let hungry = Hungry::spawn(runtime);
    expect_soon("they are known", || hungry.polls() > 10 * HUNGRY);
    let mut waited: Vec<usize> = (0..50)
        .map(|_| {
            let (sender, receiver) = mpsc::channel();
            let (polls, before) = (hungry.polls.clone(), hungry.polls());
            runtime.at(0).spawn(Tag::NONE, async move {
                sender.send(polls.load(Ordering::Relaxed) - before).unwrap();
            });
            receiver.recv_timeout(Duration::from_secs(30)).unwrap()
        })
        .collect();
    waited.sort_unstable();
    // The spawning thread may have waited for a processor in between, so not each of them counts.
    assert!(is_chaotic() || waited[25] < HUNGRY / 4, "so many polls of others came first: {waited:?}");
    hungry.end();
    runtime.stop();
}

/// Other carriers poll hungry tasks beside their loop, each of them one at a time, and give them back.
#[test]
fn processors_that_are_to_spare_help() {
    let runtime = start();
    let before = clearway_runtime::metrics::HELPED.value();
    let is_polled = Arc::new([const { AtomicBool::new(false) }; HUNGRY]);
    let left = Arc::new(AtomicUsize::new(HUNGRY));
    for me in 0..HUNGRY {
        let (is_polled, left) = (Arc::clone(&is_polled), Arc::clone(&left));
        runtime.at(0).spawn(Tag::NONE, async move {
            for _ in 0..60 {
                assert!(!is_polled[me].swap(true, Ordering::Relaxed), "it is polled twice at once");
                burn();
                is_polled[me].store(false, Ordering::Relaxed);
                yield_now().await;
            }
            left.fetch_sub(1, Ordering::Relaxed);
        });
    }
    expect_soon("all end", || left.load(Ordering::Relaxed) == 0);
    let processors = std::thread::available_parallelism().unwrap().get();
    let helped = clearway_runtime::metrics::HELPED.value() > before;
    assert!(is_chaotic() || helped == (processors > 1), "{processors} processors");
    runtime.stop();
}

#[test]
fn those_behind_are_not_forgotten() {
    let runtime = start();
    let hungry = Hungry::spawn(runtime);
    expect_soon("they are known", || hungry.polls() > 10 * HUNGRY);
    // There is always somebody in front.
    let ends = Arc::clone(&hungry.ends);
    for _ in 0..2 {
        let ends = Arc::clone(&ends);
        runtime.at(0).spawn(Tag::NONE, async move {
            while !ends.load(Ordering::Relaxed) {
                yield_now().await;
            }
        });
    }
    let before = hungry.polls();
    expect_soon("all have their turns", || hungry.polls() > before + 10 * HUNGRY);
    hungry.end();
    runtime.stop();
}
