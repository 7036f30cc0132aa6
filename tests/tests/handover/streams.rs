//! Streams of a connection of which one holds its thread.

use std::time::Duration;

use clearway_testkit::Binary;
use clearway_testkit::proofs::{HeldStream, Hold};

use crate::alone;

/// The others are answered while it does, though it was begun among them and nothing was known of it.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn streams_go_on_beside_one_that_holds_its_thread() {
    let _alone = alone();
    for hold in [Hold::Sleeps, Hold::Spins] {
        let time = Duration::from_secs(3);
        let plan = HeldStream { streams: 40, rounds: 2, hold, time, pause: Duration::ZERO };
        let report = plan.play(&Binary::under_test());
        assert_eq!((report.wrong, report.others.len()), (0, 2 * 39));
        let longest = report.others.iter().max().copied().unwrap_or_default();
        assert!(longest < plan.time, "{hold:?}: {longest:?}");
    }
}

/// The watchdog looks from the first poll on. Registering for membarrier(2) takes a process with threads ten
/// milliseconds, and a server that does so when it starts sees nothing meanwhile. The second round shows what
/// this machine takes beside its other work.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_server_that_has_just_started_notices_what_holds_its_thread() {
    const STARTS: usize = 15;
    const OTHERS: usize = 7;
    let _alone = alone();
    let time = Duration::from_millis(50);
    let plan = HeldStream { streams: 8, rounds: 2, hold: Hold::Sleeps, time, pause: Duration::ZERO };
    let mut longest: [Vec<Duration>; 2] = Default::default();
    for _ in 0..STARTS {
        let report = plan.play(&Binary::under_test());
        assert_eq!((report.wrong, report.others.len()), (0, 2 * OTHERS));
        for (all, round) in longest.iter_mut().zip(report.others.chunks(OTHERS)) {
            all.extend(round.iter().max());
        }
    }
    let [first, second] = longest.map(|mut all| {
        all.sort_unstable();
        all[STARTS / 2]
    });
    assert!(first < second + Duration::from_millis(3), "medians: {first:?}, and {second:?} later");
}
