//! The counters of a loop: polls, and its lag.
#![expect(clippy::disallowed_methods, reason = "holds a loop on purpose")]

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clearway_runtime::{Config, Runtime, Tag, yield_now};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long the loop is held.
const HELD: Duration = Duration::from_millis(50);

const YIELDS: u64 = 10;

#[test]
fn a_held_loop_lags_for_as_long() {
    let config = Config {
        loops: 2,
        // Nobody takes the loop over, so that all of it is lag.
        handover_after: None,
        handover_carriers: 0,
        ..Config::default()
    };
    let runtime = Runtime::start(&config).unwrap();
    let before = runtime.at(0).counted();
    let (sender, receiver) = channel();
    runtime.at(0).spawn(Tag::NONE, async move {
        for _ in 0..YIELDS {
            yield_now().await;
        }
        std::thread::sleep(HELD);
        yield_now().await;
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    let held_ns = u64::try_from(HELD.as_nanos()).unwrap();
    let begun = Instant::now();
    // A chaotic build lends the loop, and then others than the sleeper run it: it has not lagged.
    let is_lent = clearway_testkit::chaos_lend().is_some();
    while !is_lent && runtime.at(0).counted().lag.sum_ns < held_ns {
        assert!(begun.elapsed() < PATIENCE, "{:?}", runtime.at(0).counted());
        // The turn ends with the next look for events.
        runtime.at(0).spawn(Tag::NONE, async {});
        std::thread::sleep(Duration::from_millis(1));
    }
    let counted = runtime.at(0).counted();
    assert!(counted.polls >= before.polls + YIELDS + 2, "{counted:?}");
    assert!(is_lent || counted.lag.counts[28..].iter().sum::<u64>() > 0, "above 49 ms: {counted:?}");
    runtime.stop();
}
