//! Loops run away from polls where the environment says so, and nowhere else.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clearway_runtime::{Config, Runtime, Tag, yield_now};

const PATIENCE: Duration = Duration::from_secs(30);

const POLLS: usize = 50;

#[test]
fn threads_take_turns_at_a_loop_that_is_lent_on_purpose() {
    let config = Config { loops: 1, handover_after: None, handover_carriers: 64, ..Config::default() };
    let runtime = Runtime::start(&config).unwrap();
    let (sender, receiver) = mpsc::channel();
    runtime.at(0).spawn(Tag::NONE, async move {
        while sender.send(thread::current().id()).is_ok() {
            yield_now().await;
        }
    });
    let expected = cfg!(feature = "testing") && clearway_testkit::chaos_lend().is_some();
    let (mut threads, mut polls, began) = (HashSet::new(), 0, Instant::now());
    // On a busy machine the others come to their turn late.
    while polls < POLLS || (expected && threads.len() == 1 && began.elapsed() < PATIENCE) {
        threads.insert(receiver.recv_timeout(PATIENCE).unwrap());
        polls += 1;
    }
    drop(receiver);
    assert_eq!(threads.len() > 1, expected, "{threads:?}");
    runtime.stop();
}
