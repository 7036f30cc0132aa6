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
