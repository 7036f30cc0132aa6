//! What the threads of a runtime do while nothing happens, and while something burns CPU. One test,
//! since it looks at all threads of the process.
#![expect(clippy::disallowed_methods, reason = "looks at procfs and waits on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clearway_os::thread;
use clearway_runtime::{Config, Runtime, Tag};
use clearway_testkit::expect_soon;

/// The ids of the threads whose name begins like this.
fn threads(name: &str) -> Vec<u32> {
    let tids = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().file_name());
    tids.map(|tid| tid.to_str().unwrap().parse::<u32>().unwrap())
        .filter(|tid| {
            let comm = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
            comm.is_ok_and(|comm| comm.starts_with(name))
        })
        .collect()
}

/// Whether a thread's priority is lower than that of this one, in either way.
fn is_demoted(tid: u32) -> bool {
    // A spare that has ended meanwhile is not demoted.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")) else { return false };
    // Behind the name in parentheses: the state is field 3, the policy field 41 of proc(5).
    let policy = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(41 - 3).unwrap().to_owned();
    let own = thread::nice(thread::current()).unwrap();
    thread::nice(tid).is_ok_and(|nice| nice > own) || policy != "0"
}

#[test]
fn an_idle_runtime_sleeps_and_a_burning_carrier_is_demoted_and_restored() {
    let config = Config { loops: 2, ..Config::default() };
    let runtime = Runtime::start(&config).unwrap();

    expect_soon("there is a watchdog", || threads("watchdog").len() == 1);
    let watchdog = threads("watchdog")[0];
    let stretch = Duration::from_millis(300);
    expect_soon("the watchdog goes to sleep", || {
        let before = thread::cpu_ns(watchdog).unwrap();
        std::thread::sleep(stretch);
        thread::cpu_ns(watchdog).unwrap() == before
    });

    // Nothing is lower than this.
    if thread::nice(thread::current()).unwrap() < 19 {
        demotes_and_restores(runtime);
    }
    ends_what_nobody_needs(runtime);
    stops_with_a_carrier_away(runtime);
}

/// Threads that a burst of sleepers needed end a few seconds later, and their places are used again.
fn ends_what_nobody_needs(runtime: Runtime) {
    let first = threads("carrier").len();
    for _ in 0..2 {
        let enough = Arc::new(AtomicBool::new(false));
        for _ in 0..12 {
            let (seen, noticed) = (Arc::clone(&enough), Arc::new(AtomicBool::new(false)));
            runtime.at(0).spawn(Tag::NONE, async move {
                while !seen.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let others = Arc::clone(&noticed);
            runtime.at(0).spawn(Tag::NONE, async move { others.store(true, Ordering::Relaxed) });
            expect_soon("the loop is handed over", || noticed.load(Ordering::Relaxed));
        }
        assert!(threads("carrier").len() > first, "most of them are asleep");
        enough.store(true, Ordering::Relaxed);
        expect_soon("they end", || threads("carrier").len() <= first);
    }
}

fn demotes_and_restores(runtime: Runtime) {
    let enough = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&enough);
    runtime.at(0).spawn(Tag::NONE, async move { while !seen.load(Ordering::Relaxed) {} });
    expect_soon("the watchdog was woken, and demotes", || threads("carrier").into_iter().any(is_demoted));
    enough.store(true, Ordering::Relaxed);
    expect_soon("restored", || !threads("carrier").into_iter().any(is_demoted));
}

/// A carrier that comes back when the runtime has stopped ends like the others.
fn stops_with_a_carrier_away(runtime: Runtime) {
    let enough = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&enough);
    runtime.at(0).spawn(Tag::NONE, async move {
        while !seen.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let handed_over = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&handed_over);
    runtime.at(0).spawn(Tag::NONE, async move { noticed.store(true, Ordering::Relaxed) });
    expect_soon("the loop is handed over", || handed_over.load(Ordering::Relaxed));
    runtime.stop();
    expect_soon("all others end", || threads("carrier").len() == 1);
    enough.store(true, Ordering::Relaxed);
    expect_soon("nobody is left", || threads("carrier").is_empty());
}
