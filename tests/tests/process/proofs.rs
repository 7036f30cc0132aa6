//! The scenarios of the test kit, with what they promise.

use clearway_testkit::proofs::{
    Burst, Crash, Objects, Reload, Reopen, Stampede, Torn, Tunnels, full_device, stuck_log, upgrade,
};
use clearway_testkit::{Binary, Failure};

/// In steps of about so many bytes the allocator takes memory, for threads that came late as well.
const ALLOCATED_AT_ONCE: u64 = 4 << 20;

fn is_clearway() -> bool {
    Binary::under_test().is_clearway()
}

#[test]
fn reloads_are_noticed_by_nobody() {
    let report = Reload { rounds: 100, idle: 1000 }.play(&Binary::under_test());
    assert_eq!(report.staying.failed(), 0, "{}", report.staying);
    assert_eq!(report.lines, report.staying.answered, "a line for each request");
    if !is_clearway() {
        // nginx closes what is idle, and resets what waits in the queue of a listener that goes.
        return;
    }
    assert_eq!(report.staying.stale, 0, "kept connections stay: {}", report.staying);
    let gone = &report.coming_and_going;
    assert_eq!(gone.failed(), gone.failed_by(Failure::Refused), "answered or refused: {gone}");
    assert!(gone.answered > 0, "{gone}");
    assert_eq!((report.idle_open, report.idle_answered), (1000, 1000));
    assert_eq!(report.processes, 2, "master and worker");
    let (early, late) = (report.rss_early, report.rss_late);
    // What one thread allocates and another one frees is kept for longer, so that memory is no measure where
    // each poll is lent to another thread.
    let is_lent = std::env::var_os("CLEARWAY_CHAOS_LEND").is_some();
    let most = early + early / 20 + ALLOCATED_AT_ONCE;
    assert!(is_lent || late <= most, "memory grew from {early} to {late} bytes");
}

#[test]
fn tunnels_outlive_reloads() {
    let plan = Tunnels { rounds: 6, tunnels: 40 };
    let report = plan.play(&Binary::under_test());
    assert_eq!((report.alive, report.load.failed()), (plan.tunnels, 0), "{report:?}");
}

#[test]
fn a_killed_worker_takes_only_its_connections_along() {
    let report = Crash { kills: 20 }.play(&Binary::under_test());
    let lost = report.load.failed_by(Failure::Reset)
        + report.load.failed_by(Failure::Closed)
        + report.load.failed_by(Failure::Short);
    assert_eq!(report.load.failed(), lost, "nothing is refused: {}", report.load);
    assert!(lost <= report.connections_killed, "{}", report.load);
}

#[test]
fn another_binary_takes_over_and_gives_back() {
    let tally = upgrade(&Binary::under_test(), &Binary::under_test());
    assert_eq!(tally.failed(), 0, "{tally}");
}

#[test]
#[ignore = "needs an nginx and the rights of root"]
fn nginx_and_this_server_take_over_from_each_other() {
    let ours = Binary::under_test();
    let nginx = Binary::oracle();
    for (from, to) in [(&nginx, &ours), (&ours, &nginx)] {
        let tally = upgrade(from, to);
        assert_eq!(tally.failed(), 0, "from {from:?} to {to:?}: {tally}");
    }
}

#[test]
fn a_full_disk_stops_nothing_and_is_told() {
    let (load, said) = full_device(&Binary::under_test(), 2000);
    assert_eq!(load.failed(), 0, "{load}");
    assert!(said.contains("failed (28: No space left on device)"), "{said}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_stuck_log_stops_nothing() {
    let report = stuck_log(&Binary::under_test(), 5000);
    assert_eq!(report.load.failed(), 0, "{}", report.load);
    assert_eq!(report.lines + report.lost, report.load.answered, "every line is written or counted");
    assert!(!report.said_meanwhile.contains("lines lost"), "{}", report.said_meanwhile);
}

#[test]
fn many_lines_are_all_written() {
    let report = Burst { requests: 100_000 }.play(&Binary::under_test());
    assert!(report.lines > 0, "{report:?}");
}

#[test]
fn reopening_logs_loses_no_line() {
    let report = Reopen { rounds: 20 }.play(&Binary::under_test());
    assert_eq!(report.load.failed(), 0, "{}", report.load);
    assert_eq!((report.lines, report.empty), (report.load.answered, 0));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its followers wait for the end")]
fn of_many_that_want_the_same_one_asks() {
    let plan = Stampede { clients: 50, bytes: 1 << 20, bytes_per_second: 4_000_000 };
    let report = plan.play(&Binary::under_test());
    assert_eq!((report.asked, report.wrong), (1, 0), "{report:?}");
    let uncached = plan.play_uncached(&Binary::under_test(), 5);
    let each = plan.clients * 5 * Stampede::TURNS;
    assert_eq!((uncached.locked.len(), uncached.unlocked.len()), (each, each));
}

#[test]
#[cfg_attr(not_root, ignore = "mounts file systems")]
#[cfg_attr(nginx_under_test, ignore = "nginx answers 500")]
fn no_byte_of_a_cache_is_wrong_whatever_is_done_to_it() {
    let plan = Torn { objects: 1500, faults: 40, requests_between: 100, seed: 16 };
    let report = plan.play(&Binary::under_test());
    assert_eq!((report.wrong, report.failed), (0, 0), "{report:?}");
    assert!(report.hits > 0, "{report:?}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "it looks through its directories first")]
fn objects_are_known_at_once_and_after_a_kill() {
    let plan = Objects { objects: 20_000, sample: 500, kills: 3 };
    let report = plan.play(&Binary::under_test());
    assert!(report.after_start > 0.99 && report.after_kills.iter().all(|part| *part > 0.99), "{report:?}");
}
