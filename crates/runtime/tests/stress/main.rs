//! Everything at once, for as long as `CLEARWAY_STRESS_SECONDS` says (`cargo xtask stress`): tasks that come
//! and are given up, timers that are moved, sockets that are closed and moved while their loop is lent,
//! wake-ups from foreign threads, panics, blockers with and without spares for them. Nothing may be lost,
//! polled twice, or left behind. A failure names the seed of the jobs.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod jobs;
mod ledger;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_runtime::{Config, Runtime, metrics};
use clearway_testkit::wait_until;

use crate::jobs::Jobs;
use crate::ledger::{Ledger, Random};

const LOOPS: usize = 3;

/// Threads that make jobs.
const FEEDERS: u64 = 2;

/// Tasks at a time, about.
const LIVE_MAX: i64 = 400;

/// How long a run may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Carriers beside those of the loops: enough, and far too few.
const CARRIERS: [usize; 2] = [48, 5];

#[test]
#[ignore = "takes as long as it is told to: cargo xtask stress"]
fn stress() {
    let seconds = std::env::var("CLEARWAY_STRESS_SECONDS").map_or(20, |text| text.parse().unwrap());
    let seed = std::env::var("CLEARWAY_STRESS_SEED").map_or(1, |text| text.parse().unwrap());
    for carriers in CARRIERS {
        run(carriers, Duration::from_secs(seconds) / 2, seed);
    }
}

/// A short one of each kind, in every run of the tests.
#[test]
fn a_second_of_everything() {
    for carriers in CARRIERS {
        run(carriers, Duration::from_millis(500), 7);
    }
}

fn run(carriers: usize, length: Duration, seed: u64) {
    let config = Config {
        loops: LOOPS,
        handover_after: Some(Duration::from_millis(2)),
        handover_carriers: carriers,
        ..Config::default()
    };
    let descriptors = open_descriptors();
    let runtime = Runtime::start(&config).unwrap();
    let ledger = Arc::new(Ledger::default());
    let jobs = Arc::new(Jobs::new(runtime, Arc::clone(&ledger)));
    let over = Arc::new(AtomicBool::new(false));
    let feeders: Vec<_> = (0..FEEDERS)
        .map(|number| {
            let (jobs, over) = (Arc::clone(&jobs), Arc::clone(&over));
            let mut random = Random::new(seed * FEEDERS + number);
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    match jobs.ledger.live() > LIVE_MAX {
                        true => thread::sleep(Duration::from_millis(1)),
                        false => jobs.spawn(&mut random),
                    }
                }
            })
        })
        .collect();
    let end = Instant::now() + length;
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    over.store(true, Ordering::Relaxed);
    feeders.into_iter().for_each(|feeder| feeder.join().unwrap());
    let is_over = wait_until(PATIENCE, || ledger.live() == 0);
    report(runtime, &ledger, (carriers, seed));
    assert!(is_over, "{} tasks are left, seed {seed}", ledger.live());
    ledger.check(seed);
    drop(jobs);
    runtime.stop();
    // Those of the loops themselves live on: an epoll and an eventfd each.
    let left = || open_descriptors().saturating_sub(descriptors + 2 * LOOPS);
    assert!(wait_until(PATIENCE, || left() == 0), "{} descriptors are left, seed {seed}", left());
    assert!(wait_until(PATIENCE, || carrier_threads() == 0), "{} carriers are left", carrier_threads());
}

#[expect(clippy::disallowed_macros, reason = "a test says what it did")]
fn report(runtime: Runtime, ledger: &Ledger, (carriers, seed): (usize, u64)) {
    let handovers: u64 = runtime.loops().map(|home| home.counted().handovers).sum();
    eprintln!(
        "{carriers} carriers, seed {seed}: {} jobs; so far {handovers} hand-overs, {} detached, {} waited \
         for a spare, {} for a turn, {} times out of spares, {} steals, {} panics",
        ledger.jobs(),
        metrics::SUSPECTS_DETACHED.value(),
        metrics::SUSPECTS_QUEUED.value(),
        metrics::BURNERS_QUEUED.value(),
        metrics::CARRIERS_EXHAUSTED.value(),
        metrics::STEALS.value(),
        metrics::TASK_PANICS.value(),
    );
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn carrier_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter(|task| {
            let comm = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm"));
            comm.is_ok_and(|comm| comm.starts_with("carrier"))
        })
        .count()
}
