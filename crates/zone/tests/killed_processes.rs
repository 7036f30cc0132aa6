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

use clearway_zone::{Unkept, Zone, ZoneKey, Zones};

const MODULE: &str = "test";
const NAME: &[u8] = b"shared";
/// Few slots and many keys: slots are filled anew all the time.
const BYTES: u64 = 4 * 1024;
const KEYS: u64 = 500;

/// Room for fewer values than there are keys.
const STORE_BYTES: u64 = 64 * 1024;

/// Where the child finds the memory: a path below /proc.
const MEMORY_VAR: &str = "CLEARWAY_TEST_ZONE";
/// What the child says when it has begun.
const AT_WORK: &str = "at work";

fn open(zones: &Zones, bytes: u64) -> Arc<Zone> {
    let zone = zones.declare(NAME, bytes, MODULE).unwrap();
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

/// Changes a value, every byte of which says whose it is.
fn change_value(zone: &Zone, turn: u64) {
    let (number, len) = (turn % KEYS, 1 + (turn * 37 % 800) as usize);
    let byte = (number % 251) as u8;
    let store = zone.store().expect("a process has a place");
    let updated = store.update(zone.hash(&number.to_le_bytes()), 0, 1 + turn, |present, out| {
        let whole = present.is_none_or(|found| found.iter().all(|&found| found == byte));
        assert!(whole, "the value of another key, or parts of two");
        out.resize(len, byte);
        true
    });
    // Where cells are short others may always be faster.
    assert!(updated != Err(Unkept::TooLarge));
}

/// Zones of bytes are told by their size.
fn change_in(zone: &Zone, turn: u64) {
    if zone.bytes() == STORE_BYTES { change_value(zone, turn) } else { change(zone, turn % KEYS) }
}

/// Not a test of its own: what the child process does until it is killed.
#[test]
#[ignore = "run by the other test"]
fn child() {
    let Ok(path) = std::env::var(MEMORY_VAR) else { return };
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let key = ZoneKey { name: NAME.into(), module: MODULE.into(), bytes };
    let zones = Zones::handed(vec![(key, file.into())]);
    let zone = open(&zones, bytes);
    let mut out = File::options().write(true).open("/proc/self/fd/1").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let zone = &zone;
            scope.spawn(move || {
                // Longer than it lives.
                (0..u64::MAX).for_each(|turn| change_in(zone, turn.wrapping_mul(7 + thread) % (1 << 40)));
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

/// Has children killed while they and this process change the zone.
fn kill_beside(zones: &Zones, zone: &Zone) {
    let (_, fd) = zones.list().pop().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let running = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
            running.for_each(|turn: u64| change_in(zone, turn * 11));
        });
        for round in 0..10 {
            let mut children = [start_child(&path), start_child(&path)];
            std::thread::sleep(Duration::from_millis(5 + 3 * round));
            for (child, _) in &mut children {
                child.kill().unwrap();
                let status = child.wait().unwrap();
                assert!(status.code().is_none(), "it ran until it was killed: {status}");
                // As the master does.
                zones.forget_worker(child.id());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn whoever_is_killed_the_others_go_on() {
    let zones = Zones::create(None);
    let zone = open(&zones, BYTES);
    kill_beside(&zones, &zone);
    // Nobody is left but this thread: as many keys find room as there are slots for.
    let slots = zone.table().slots();
    (0..KEYS).for_each(|number| change(&zone, number));
    let held =
        (0..KEYS).filter(|number| zone.table().get(zone.hash(&number.to_le_bytes())).is_some()).count();
    assert!(held > slots * 9 / 10, "{held} of {slots} slots are in use");
}

#[test]
fn whoever_is_killed_values_are_whole_and_no_room_is_lost() {
    let zones = Zones::create(None);
    let zone = open(&zones, STORE_BYTES);
    kill_beside(&zones, &zone);
    let store = zone.store().unwrap();
    // All of them are put once more: what those that were killed had taken is there again.
    let count = (store.capacity_bytes() / 224) as u64;
    for number in 0..2 * count {
        assert!(store.put(zone.hash(&number.to_le_bytes()), 0, number + (1 << 41), b"last").is_ok());
    }
    let held = (0..2 * count)
        .filter(|number| store.get(zone.hash(&number.to_le_bytes()), &mut Vec::new()).is_some())
        .count() as u64;
    assert!(held > count * 8 / 10, "{held} of {count} cells are in use");
}
