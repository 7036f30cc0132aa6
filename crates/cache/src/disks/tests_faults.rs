//! Faults of processes, disks and strangers: a response is the stored one, or there is none.
//!
//! Some tests run themselves once more as a process of their own, which is killed or has little room.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests look at the files themselves, and their processes write to pipes"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clearway_zone::Zones;

use super::testing::*;
use super::*;
use crate::key::Key;

/// Where the process of a test works.
const DIRECTORY: &str = "CLEARWAY_CACHE_FAULTS";
const OBJECTS: u64 = 10_000;
const KILLS: u64 = 12;

/// Runs this test once more in a process of its own, with a directory and a limit for the size of files
/// (`ulimit -f`).
fn child(test: &str, directory: &Path, limit: &str) -> Child {
    let program = std::env::current_exe().expect("a test runs");
    let name = format!("disks::tests_faults::{test}");
    Command::new("/bin/sh")
        .args(["-c", &format!("ulimit -f {limit}; exec \"$0\" \"$@\"")])
        .arg(program)
        .args([name.as_str(), "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs already")
}

/// Numbers that look random, the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn numbered(number: u64) -> Key {
    key(&format!("/object/{number}"))
}

/// The content of an object follows from its key: a line again and again, one in fifty objects large.
fn content(key: &Key) -> Vec<u8> {
    let digest = key.digest();
    let mut random = Random(u64::from(key.crc32()));
    let length = if random.below(50) == 0 { 60_000 + random.below(100_000) } else { random.below(3000) };
    let line = format!("{digest}\n");
    line.bytes().cycle().take(length as usize).collect()
}

/// A cache in an existing directory.
fn cache_in(directory: &Path) -> (Arc<Caches>, Arc<Cache>) {
    let caches = Arc::new(Caches::default());
    let cache = declare(directory, &Arc::new(Zones::create(None)), &caches, |_, _| {});
    (caches, cache)
}

/// Stores objects until it is killed, and says when it has begun.
fn store_until_killed(directory: &Path) {
    let (_caches, cache) = cache_in(directory);
    let mut random = Random(u64::from(std::process::id()));
    let temp = Arc::new(TempPlace::Beside);
    for round in 0_u64.. {
        let key = numbered(random.below(OBJECTS));
        store(&cache, &temp, &key, &content(&key)).expect("there is room");
        if round == 100 {
            println!("begun");
        }
    }
}

fn files_of(scratch: &Scratch) -> Vec<PathBuf> {
    let mut files = scratch.files("d1");
    files.sort();
    files
}

#[test]
fn no_byte_is_wrong_whatever_is_killed_cut_or_removed() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return store_until_killed(Path::new(&directory));
    }
    let mut scratch = Scratch::new("killed");
    let mut random = Random(16);
    for kill in 0..KILLS {
        let mut child =
            child("no_byte_is_wrong_whatever_is_killed_cut_or_removed", &scratch.path, "unlimited");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("begun") {
            line.clear();
            assert!(output.read_line(&mut line).expect("a pipe") > 0, "it ended by itself");
        }
        // Others use the directory while it writes.
        for _ in 0..500 + random.below(1000) {
            check(&scratch, &numbered(random.below(OBJECTS)));
        }
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        let files = files_of(&scratch);
        assert!(!files.is_empty());
        for _ in 0..20 {
            harm(&files[random.below(files.len() as u64) as usize], &mut random);
        }
        if kill % 3 == 0 {
            scratch.restart(|_, _| {});
        }
    }
    let hits = (0..OBJECTS).filter(|&number| check(&scratch, &numbered(number))).count();
    assert!(hits > 500, "{hits} hits");
}

/// Whether an object is stored. Asserts that its content is right.
fn check(scratch: &Scratch, key: &Key) -> bool {
    match scratch.open(key) {
        Ok(found) => {
            assert_eq!(found.head(), HEAD);
            assert!(body(&found) == content(key), "{} holds something else", found.path.display());
            true
        }
        Err(Miss::Failed(error)) => panic!("{error}"),
        Err(Miss::Unusable { .. } | Miss::Broken { .. } | Miss::Absent | Miss::Out | Miss::Doubtful) => false,
    }
}

/// Damages a file in a way that the cache itself never does.
fn harm(path: &Path, random: &mut Random) {
    // Another turn may have removed it.
    let Ok(bytes) = fs::read(path) else { return };
    let cut = random.below(bytes.len() as u64 + 1) as usize;
    let done = match random.below(4) {
        0 => fs::remove_file(path),
        1 => fs::write(path, &bytes[..cut]),
        2 => fs::write(path, [&bytes, &b"more"[..]].concat()),
        _ => fs::write(path, [&b"noise"[..], &bytes[..cut]].concat()),
    };
    done.expect("the test's own file");
}

/// Room for a file, as on a disk that is almost full, in blocks of 512 bytes: more than the zone has.
const ROOM_BLOCKS: &str = "4096";
const ROOM_BYTES: u64 = 2 << 20;

fn store_with_little_room(directory: &Path) {
    let (_caches, cache) = cache_in(directory);
    let temp = Arc::new(TempPlace::Beside);
    let large_content = vec![7; 3 << 20];
    for round in 0..20 {
        let small = key(&format!("/small/{round}"));
        store(&cache, &temp, &small, b"hello").expect("there is room for it");
        let large = key(&format!("/large/{round}"));
        let error = store(&cache, &temp, &large, &large_content).expect_err("there is none");
        assert!(error.to_string().contains("pwritev() \""), "{error}");
        assert!(matches!(open(&cache, &large), Err(Miss::Absent)));
        assert_eq!(body(&open(&cache, &small).expect("it was stored")), b"hello");
    }
    // This job runs after the job that removes the last object.
    while files_below(directory).iter().any(|path| fs::metadata(path).is_ok_and(|it| it.len() >= ROOM_BYTES))
    {
        std::thread::yield_now();
    }
    println!("all is well");
}

#[test]
fn a_file_that_does_not_fit_is_not_there() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return store_with_little_room(Path::new(&directory));
    }
    let scratch = Scratch::new("full");
    let mut child = child("a_file_that_does_not_fit_is_not_there", &scratch.path, ROOM_BLOCKS);
    let mut output = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut output).expect("a pipe");
    child.wait().expect("it has ended");
    assert!(output.contains("all is well"), "{output}");
    let files = scratch.files("d1");
    assert!(files.iter().all(|path| fs::metadata(path).expect("a file").len() < ROOM_BYTES));
    assert!(files.len() >= 20);
}
