//! Processes that share a zone and are killed at any instruction leave it usable for the others.
#![expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clearway_zone::{Zone, ZoneKey, Zones};

const MODULE: &str = "test";
const NAME: &[u8] = b"shared";
/// Few slots and many keys: slots are filled anew all the time.
const BYTES: u64 = 4 * 1024;
const KEYS: u64 = 500;

/// Where the child finds the memory: a path below /proc.
const MEMORY_VAR: &str = "CLEARWAY_TEST_ZONE";
/// What the child says when it has begun.
const AT_WORK: &str = "at work";

fn open(zones: &Zones) -> Arc<Zone> {
    let zone = zones.declare(NAME, BYTES, MODULE).unwrap();
    zones.open().unwrap();
    zone
}

/// Changes a key, whose payload says whose it is.
fn change(zone: &Zone, number: u64) {
    let key = zone.hash(&number.to_le_bytes());
    let updated = zone.table().update(key, 0, |present| {
        assert!(present.is_none_or(|payload| payload % KEYS == number), "the payload of another key");
        // Bounded, so that it never runs out of bits.
        Some(present.filter(|payload| *payload < 1 << 40).unwrap_or(number) + KEYS)
    });
    assert!(updated.is_ok(), "{updated:?}");
}

/// Not a test of its own: what the child process does until it is killed.
#[test]
#[ignore = "run by the other test"]
fn child() {
    let Ok(path) = std::env::var(MEMORY_VAR) else { return };
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let key = ZoneKey { name: NAME.into(), module: MODULE.into(), bytes: BYTES };
    let zones = Zones::handed(vec![(key, file.into())]);
    let zone = open(&zones);
    let mut out = File::options().write(true).open("/proc/self/fd/1").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let zone = &zone;
            scope.spawn(move || {
                // Longer than it lives.
                (0..u64::MAX).for_each(|turn| change(zone, turn.wrapping_mul(7 + thread) % KEYS));
            });
        }
        writeln!(out, "{AT_WORK}").unwrap();
    });
}

fn start_child(path: &str) -> (Child, impl Sized) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(MEMORY_VAR, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(AT_WORK)), "the child runs");
    (child, lines)
}

#[test]
fn whoever_is_killed_the_others_go_on() {
    let zones = Zones::create(None);
    let zone = open(&zones);
    let (_, fd) = zones.list().pop().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let running = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
            running.for_each(|turn: u64| change(&zone, (turn * 11) % KEYS));
        });
        for round in 0..10 {
            let mut children = [start_child(&path), start_child(&path)];
            std::thread::sleep(Duration::from_millis(5 + 3 * round));
            for (child, _) in &mut children {
                child.kill().unwrap();
                let status = child.wait().unwrap();
                assert!(status.code().is_none(), "it ran until it was killed: {status}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Nobody is left but this thread: as many keys find room as there are slots for.
    let slots = zone.table().slots();
    (0..KEYS).for_each(|number| change(&zone, number));
    let held =
        (0..KEYS).filter(|number| zone.table().get(zone.hash(&number.to_le_bytes())).is_some()).count();
    assert!(held > slots * 9 / 10, "{held} of {slots} slots are in use");
}
