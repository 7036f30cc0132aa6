//! Tests of the cache manager: removal of inactive and excess objects, loading at start, snapshots, disks
//! that hang or fail.
#![expect(clippy::disallowed_methods, reason = "tests look at the files themselves")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::testing::*;
use super::*;
use crate::header::HEADER_BYTES;
use crate::index::{BLOCK_BYTES, File, Stored};
use crate::key::Key;

fn keys(count: u32) -> Vec<Key> {
    (0..count).map(|number| key(&format!("/{number}"))).collect()
}

fn knows(scratch: &Scratch, key: &Key) -> bool {
    scratch.cache.index().get(key.digest()).is_some_and(|object| matches!(object.stored, Stored::File(_)))
}

#[test]
fn what_nobody_asks_for_goes() {
    let scratch = Scratch::with("inactive", |_, conf| conf.inactive_s = 1);
    keys(3).iter().for_each(|key| _ = scratch.store(key, b"hello").unwrap());
    scratch.cache.index().count_use(key("/asked").digest(), 1).unwrap();
    until("all are removed", || scratch.files("d1").is_empty());
    until("none is known", || scratch.cache.index().scan(0..scratch.cache.index().room()).count() == 0);
    assert!(scratch.store(&key("/again"), b"").is_ok());
}

#[test]
fn all_files_together_are_smaller_than_the_limit() {
    let blocks = 20;
    let scratch = Scratch::with("size", |_, conf| conf.max_bytes = blocks * BLOCK_BYTES);
    let keys = keys(60);
    for (number, key) in (0..).zip(&keys) {
        scratch.store(key, b"hello").unwrap();
        // Each object gets a time of use; the first one keeps its own, which is the latest.
        let stored =
            scratch.cache.index().get(key.digest()).filter(|_| number > 0).map(|object| object.stored);
        let used_s = super::cache::now_s() - 500 + number;
        stored.iter().for_each(|&stored| _ = scratch.cache.index().publish(key.digest(), stored, used_s));
    }
    let bytes = || scratch.files("d1").len() as u64 * BLOCK_BYTES;
    until("the oldest are removed", || bytes() < blocks * BLOCK_BYTES);
    assert!(bytes() > 0 && knows(&scratch, &keys[0]) && scratch.file(&keys[0]).exists());
    until("it is counted", || scratch.cache.bytes() == bytes());
}

#[test]
fn room_is_left_on_the_file_system() {
    let scratch = Scratch::with("free", |_, conf| conf.min_free_bytes = u64::MAX / 2);
    keys(3).iter().for_each(|key| _ = scratch.store(key, b"hello").unwrap());
    until("there is never so much room", || scratch.files("d1").is_empty());
}

#[test]
fn a_start_knows_what_was_there_at_once_and_then_all_of_it() {
    let mut scratch = Scratch::new("known");
    let keys = keys(200);
    keys.iter().for_each(|key| _ = scratch.store(key, b"hello").unwrap());
    let journal = scratch.path.join("d1/.clearway/journal");
    let length = || fs::metadata(&journal).map_or(0, |found| found.len());
    until("it is written down", || length() == 200 * crate::journal::ENTRY_BYTES as u64);
    // Changes of the directory that the index does not see: one file is removed, one is added, and there are
    // temporary and foreign files.
    fs::remove_file(scratch.file(&keys[0])).unwrap();
    let stranger = key("/stranger");
    let content = fs::read(scratch.file(&keys[1])).unwrap();
    let at = scratch.file(&stranger);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&at, &content).unwrap();
    let short = scratch.file(&key("/short"));
    fs::create_dir_all(short.parent().unwrap()).unwrap();
    fs::write(&short, &content[..HEADER_BYTES - 1]).unwrap();
    let (fresh, old) = (at.with_extension("0000000001"), at.with_extension("0000000002"));
    for (path, age_s) in [(&fresh, 0), (&old, 3600)] {
        fs::write(path, b"half").unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
    }
    let foreign = scratch.path.join("d1/README");
    fs::write(&foreign, b"not ours").unwrap();
    scratch.restart(|_, conf| conf.loader = Pace { files: 10, threshold_ms: 200, sleep_ms: 1 });
    until("all that was written down is known", || keys.iter().all(|key| knows(&scratch, key)));
    until("the directory is read", || !scratch.cache.is_cold());
    assert!(knows(&scratch, &stranger));
    assert!(!short.exists() && !old.exists() && fresh.exists() && foreign.exists());
    assert!(scratch.lines.has(&format!("cache file \"{}\" is too small", short.display())));
    assert!(scratch.lines.has(&format!("http file cache: {}/d1 0.", scratch.path.display())));
    assert!(matches!(scratch.open(&keys[0]), Err(Miss::Absent)) && !knows(&scratch, &keys[0]));
    let found = scratch.open(&stranger);
    assert!(matches!(found, Err(Miss::Unusable { .. })), "it holds another key");
    assert_eq!(body(&scratch.open(&keys[2]).unwrap()), b"hello");
}

#[test]
fn a_long_journal_becomes_a_snapshot() {
    let mut scratch = Scratch::new("snapshot");
    let keys = keys(500);
    let snapshot = scratch.path.join("d1/.clearway/index");
    let file = File { disk: 0, valid_s: 7, blocks: 1, body_start: 400, inode: 9, stored_s: 5, stamp: 0 };
    let mut rounds = 0;
    while !snapshot.exists() {
        keys.iter().for_each(|key| scratch.cache.publish(key.digest(), file));
        rounds += 1;
        assert!(rounds < 10_000);
        std::thread::yield_now();
    }
    scratch.cache.forget_file(keys[0].digest(), 0);
    until("all is written down", || !scratch.cache.disk(0).expect("one").notes().has_waiting());
    let journal = || fs::read(scratch.path.join("d1/.clearway/journal")).unwrap_or_default();
    let dropped = |bytes: &[u8]| {
        let last = crate::journal::read_changes(bytes).last();
        last == Some(crate::journal::Change::Dropped(keys[0].digest()))
    };
    until("the last change is there", || dropped(&journal()));
    scratch.restart(|_, _| {});
    until("it is known again", || keys[1..].iter().all(|key| knows(&scratch, key)));
    until("the directory is read", || !scratch.cache.is_cold());
    assert!(!knows(&scratch, &keys[0]));
}

#[test]
fn two_servers_may_have_one_directory() {
    let one = Scratch::new("two");
    let mut other = Scratch::new("two-other");
    let path = one.path.clone();
    other.restart(move |_, conf| conf.disks[0].path = path.join("d1"));
    let keys = keys(50);
    until("the directory is read", || !other.cache.is_cold());
    for key in &keys {
        one.store(key, b"hello").unwrap();
        other.store(key, b"hello").unwrap();
    }
    for (number, key) in keys.iter().enumerate() {
        let found = one.open(key).unwrap();
        if number % 2 == 0 {
            wait(other.cache.remove(other.open(key).unwrap().identity, None)).unwrap();
            assert!(matches!(one.open(key), Err(Miss::Absent)));
        }
        assert_eq!(body(&found), b"hello", "what is open is there");
    }
}

#[test]
fn a_disk_that_hangs_holds_nothing_but_itself() {
    let two = |path: &std::path::Path, conf: &mut CacheConf| {
        conf.disks = ["d1", "d2"].map(|name| DiskConf { path: path.join(name), weight: 1 }).into();
    };
    let scratch = Scratch::with("hangs", two);
    until("the directories are read", || !scratch.cache.is_cold());
    let keys = keys(20);
    let disk_of = |key: &Key| scratch.store(key, b"hello").unwrap().disk;
    let (hung, there): (Vec<_>, Vec<_>) = keys.iter().partition(|key| disk_of(key) == 0);
    let disk = Arc::clone(scratch.cache.disk(0).expect("the first"));
    let (answer, answered) = std::sync::mpsc::channel::<()>();
    let call = disk.submit(None, move |_, _| Ok(answered.recv().is_err()), |done| done);
    until("a thread hangs in it", || call.has_begun());
    // Jobs of the manager that end in between count as answers of the disk, so its silence is noted again.
    let while_out = |what: &str, is_so: &dyn Fn() -> bool| {
        until(what, || {
            disk.note_silence();
            is_so() && disk.is_out()
        });
    };
    let is_lost = |key: &&Key| scratch.cache.whereabouts(key.digest()) == Whereabouts::Out;
    while_out("its objects are misses", &|| hung.iter().all(is_lost));
    assert!(there.iter().all(|key| scratch.open(key).is_ok()));
    for number in 0..20 {
        let key = key(&format!("/new/{number}"));
        while_out("others go elsewhere", &|| scratch.store(&key, b"").unwrap().disk == 1);
    }
    drop(answer);
    assert!(wait(call).unwrap());
    until("it answers again", || !disk.is_out());
    assert!(hung.iter().all(|key| scratch.open(key).is_ok()));
}

#[test]
fn a_zone_goes_on_for_the_same_directory_alone() {
    let scratch = Scratch::new("zone");
    let next = |change: &dyn Fn(&mut CacheConf)| {
        let zones = clearway_zone::Zones::create(Some(&scratch.zones));
        let zone = zones.declare(b"one", 1 << 20, "proxy_cache").unwrap();
        let mut conf = CacheConf { zone, ..scratch.cache.conf().clone() };
        change(&mut conf);
        let cache = scratch.caches.declare(conf);
        let opened = zones.open().map_err(|text| String::from_utf8(text).unwrap());
        opened.map(|()| cache)
    };
    let key = key("/page");
    scratch.store(&key, b"hello").unwrap();
    let same = next(&|_| {}).unwrap();
    assert_eq!(same.whereabouts(key.digest()), Whereabouts::Disk(0));
    assert!(Arc::ptr_eq(same.fills(), scratch.cache.fills()));
    let levels = next(&|conf| conf.levels = crate::Levels::default());
    assert_eq!(levels.unwrap_err(), "cache \"one\" had previously different levels");
    let (d1, d2) = (scratch.path.join("d1"), scratch.path.join("d2"));
    let path = next(&|conf| conf.disks[0].path = d2.clone());
    let (d1, d2) = (d1.display(), d2.display());
    let text = format!(
        "cache \"one\" uses the \"{d2}\" cache path while previously it used the \"{d1}\" cache path"
    );
    assert_eq!(path.unwrap_err(), text);
}

#[test]
fn objects_are_spread_over_disks_and_one_that_fails_is_left_out() {
    let three = |path: &std::path::Path, conf: &mut CacheConf| {
        conf.disks = ["d1", "d2", "d3"].map(|name| DiskConf { path: path.join(name), weight: 1 }).into();
    };
    let scratch = Scratch::with("disks", three);
    until("the directories are read", || !scratch.cache.is_cold());
    let keys = keys(60);
    keys.iter().for_each(|key| _ = scratch.store(key, b"hello").unwrap());
    let count = |name| scratch.files(name).len();
    assert_eq!(count("d1") + count("d2") + count("d3"), 60);
    assert!([count("d1"), count("d2"), count("d3")].iter().all(|&files| files > 8));
    let disk = |key: &Key| scratch.cache.whereabouts(key.digest());
    let (lost, there): (Vec<_>, Vec<_>) = keys.iter().partition(|key| disk(key) == Whereabouts::Disk(1));
    let failing = Arc::clone(scratch.cache.disk(1).expect("the second"));
    (0..3).for_each(|_| failing.note_failure());
    assert!(failing.is_out());
    assert!(there.iter().all(|key| scratch.open(key).is_ok()), "the others do not notice");
    let (mut number, mut left_out) = (0, 0);
    while left_out < 30 {
        (0..3).for_each(|_| failing.note_failure());
        number += 1;
        let found = scratch.open(lost[number % lost.len()]);
        let stored = scratch.store(&key(&format!("/new/{number}")), b"hello").unwrap();
        // Only if no probe of the manager has put the disk back into service in between.
        if failing.is_out() {
            assert!(matches!(found, Err(Miss::Out)) && stored.disk != 1);
            left_out += 1;
        }
    }
    until("it takes files again", || !failing.is_out());
    assert!(lost.iter().all(|key| scratch.open(key).is_ok()), "what was there is there again");
}
