//! Carriers run on the processors of the loop that they run (`worker_cpu_affinity`), also when it was
//! handed over; one that burns CPU away from its loop runs wherever there is room.
#![expect(clippy::disallowed_methods, reason = "waits on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clearway_base::log::Discard;
use clearway_os::thread::Processors;
use clearway_runtime::{Config, Runtime, Tag};

const PATIENCE: Duration = Duration::from_secs(30);

/// The numbers of the processors that this process may run on.
fn available() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap()).collect()
}

#[test]
fn the_pin_goes_with_the_loop() {
    let all = Processors::own().unwrap();
    let processors = available();
    let one = |at: usize| Processors::of(&[processors[at % processors.len()]]).unwrap();
    let pins = [one(0), one(1)];
    let config = Config {
        loops: 3,
        handover_after: Some(Duration::from_millis(1)),
        handover_carriers: 16,
        processors: pins.iter().copied().map(Some).collect(),
        sink: Arc::new(Discard),
    };
    let runtime = Runtime::start(&config).unwrap();
    let on_loop = |index: usize| {
        let (sender, receiver) = channel();
        runtime.at(index).spawn(Tag::NONE, async move { sender.send(Processors::own().unwrap()).unwrap() });
        receiver.recv_timeout(PATIENCE).unwrap()
    };
    assert_eq!([on_loop(0), on_loop(1), on_loop(2)], [pins[0], pins[1], all]);

    let over = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let theirs = Arc::clone(&over);
    runtime.at(0).spawn(Tag::NONE, async move {
        let begun = Instant::now();
        // Until it is freed, which needs a hand-over; then until the test has seen enough.
        while Processors::own().unwrap() != all && begun.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        sender.send(Processors::own().unwrap()).unwrap();
        while !theirs.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
    });
    assert_eq!(receiver.recv_timeout(2 * PATIENCE).unwrap(), all, "a burning carrier is freed");
    assert_eq!(on_loop(0), pins[0], "who took over is bound");
    over.store(true, Ordering::Relaxed);
}
