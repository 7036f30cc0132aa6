//! Objects come, are found, change and go.
#![expect(clippy::disallowed_methods, reason = "tests look at the files themselves")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::testing::*;
use super::*;
use crate::header::StoredHeader;
use crate::header::Unusable;
use crate::index::{File, Stored};

fn large() -> Vec<u8> {
    (0..200_000_u32).map(|n| (n / 7) as u8).collect()
}

#[test]
fn what_was_stored_is_found_with_its_head_and_body() {
    let scratch = Scratch::new("stored");
    for (text, content) in [("/small", b"hello".to_vec()), ("/empty", Vec::new()), ("/large", large())] {
        let key = key(text);
        assert!(matches!(scratch.open(&key), Err(Miss::Absent)));
        let identity = scratch.store(&key, &content).unwrap();
        assert_eq!(scratch.cache.whereabouts(key.digest()), Whereabouts::Disk(0));
        let found = scratch.open(&key).unwrap();
        assert_eq!((found.identity, &found.head()[..]), (identity, HEAD));
        assert_eq!((body(&found), found.is_sealed()), (content.clone(), true));
        assert_eq!(found.header(&key).valid_sec, 1_795_000_600);
        assert_eq!(found.body(), (content.len() < 60_000).then(|| Bytes::from(content)));
        assert_eq!(&*found.path, scratch.file(&key));
    }
    assert_eq!(scratch.files("d1").len(), 3, "no temporary file is left");
}

#[test]
fn a_file_is_there_when_it_is_complete_or_not_at_all() {
    let scratch = Scratch::new("complete");
    let key = key("/page");
    let filling = scratch.begin(&key);
    assert!(filling.growing().is_none() && scratch.files("d1").is_empty(), "nothing is written yet");
    let filling = wait(filling.add(vec![Bytes::from_static(b"ha")], Part::Some)).unwrap();
    let filling = wait(filling.add(vec![Bytes::from_static(b"lf")], Part::Some)).unwrap();
    assert!(matches!(scratch.open(&key), Err(Miss::Absent)));
    let growing = filling.growing().unwrap().clone();
    assert_eq!(filling.written(), growing.body_start() + 4);
    assert_eq!(wait(growing.read(growing.body_start(), 100)).unwrap(), b"half");
    // Not all file systems can tell which pages are in memory.
    assert!(growing.read_cached(growing.body_start(), 100).is_none_or(|data| data == b"half"));
    assert_eq!(growing.read_cached(filling.written(), 100), None, "that is the end");
    assert_eq!(scratch.files("d1").len(), 1);
    drop(filling);
    // After the job that removes the file, which any thread of the pool may have taken.
    while !scratch.files("d1").is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(wait(growing.read(growing.body_start(), 100)).unwrap(), b"half", "it is still open");
    assert!(matches!(scratch.open(&key), Err(Miss::Absent)));
}

#[test]
fn one_job_or_many_make_the_same_file() {
    let scratch = Scratch::new("jobs");
    let (one, many) = (key("/one"), key("/two"));
    let content = large();
    let pieces = || content.chunks(1000).map(Bytes::copy_from_slice);
    assert!(pieces().len() > 64, "more than one call takes");
    let filling = wait(scratch.begin(&one).add(pieces().collect(), Part::Last)).unwrap();
    assert_eq!(filling.written(), filling.published().unwrap().length);
    scratch.store(&many, &content).unwrap();
    for key in [&one, &many] {
        let found = scratch.open(key).unwrap();
        assert_eq!(body(&found), content);
    }
    let files = [&one, &many].map(|key| std::fs::read(scratch.file(key)).unwrap());
    let difference = files[0].iter().zip(&files[1]).filter(|(a, b)| a != b).count();
    // Digest and name of the keys, and the checksum of the head that has the name.
    assert!(files[0].len() == files[1].len() && difference <= 4 + 3 + 8, "{difference}");
}

#[test]
fn a_temporary_directory_may_lie_anywhere() {
    let mut scratch = Scratch::new("temporary");
    scratch.temp = Arc::new(TempPlace::Below { directory: scratch.path.join("temp"), levels: vec![1, 2] });
    let key = key("/page");
    let filling = wait(scratch.begin(&key).add(Vec::new(), Part::Some)).unwrap();
    assert_eq!((scratch.files("temp").len(), scratch.files("d1").len()), (1, 0));
    assert!(wait(filling.add(Vec::new(), Part::Last)).unwrap().published().is_some());
    assert_eq!((scratch.files("temp").len(), scratch.files("d1").len()), (0, 1));
    assert_eq!(body(&scratch.open(&key).unwrap()), b"");
}

#[test]
fn a_large_body_that_was_changed_is_known_by_its_checksum() {
    let mut scratch = Scratch::new("changed");
    let key = key("/large");
    for round in 0..2 {
        scratch.store(&key, &large()).unwrap();
        assert_eq!(body(&scratch.open(&key).unwrap()), large());
        // Written in the same place, with the same length.
        let path = scratch.file(&key);
        let mut content = std::fs::read(&path).unwrap();
        *content.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &content).unwrap();
        if round > 0 {
            scratch.restart(|_, _| {});
        }
        assert!(matches!(scratch.open(&key), Err(Miss::Broken { .. })), "round {round}");
        assert!(matches!(scratch.open(&key), Err(Miss::Absent)));
    }
}

#[test]
fn what_is_as_it_was_written_is_not_in_doubt() {
    let mut scratch = Scratch::new("sure");
    let key = key("/large");
    scratch.store(&key, &large()).unwrap();
    let is_sure = |scratch: &Scratch| {
        let opened = scratch.open(&key).unwrap();
        let stat = *opened.file().unwrap().stat();
        scratch.cache.is_sure(0, &stat, key.digest())
    };
    assert!(is_sure(&scratch));
    // The same after a start, if the file is the one that the notes name.
    until("it is written down", || !scratch.cache.kept.disks[0].notes().has_waiting());
    scratch.restart(|_, _| {});
    assert!(is_sure(&scratch));
}

#[test]
fn a_full_disk_takes_nothing_for_a_moment() {
    let scratch = Scratch::new("no-room");
    let disk = &scratch.cache.kept.disks[0];
    scratch.store(&key("/before"), b"hello").unwrap();
    disk.note_full(disk::Others::Stay);
    assert!(matches!(scratch.store(&key("/page"), b"hello"), Err(DiskError::Out(_))));
    assert_eq!(body(&scratch.open(&key("/before")).unwrap()), b"hello");
    until("it is tried again", || scratch.store(&key("/page"), b"hello").is_ok());
    disk.note_full(disk::Others::Go);
    scratch.cache.kept.alarm.ring();
    until("the manager makes room", || !disk.wants_room() && scratch.files("d1").is_empty());
    scratch.store(&key("/page"), b"hello").unwrap();
}

#[test]
fn another_file_system_costs_a_copy() {
    let shm = Path::new("/dev/shm");
    assert!(shm.is_dir(), "every Linux has it");
    let name = format!("clearway-disks-{}", std::process::id());
    let directory = shm.join(name);
    std::fs::create_dir(&directory).unwrap();
    let mut scratch = Scratch::new("devices");
    scratch.temp = Arc::new(TempPlace::Below { directory: directory.clone(), levels: vec![] });
    let key = key("/page");
    scratch.store(&key, &large()).unwrap();
    assert_eq!(body(&scratch.open(&key).unwrap()), large());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn files_that_changed_behind_our_back_are_misses() {
    let scratch = Scratch::new("behind");
    let content = large();
    for (text, cut) in [("/a", 199_999), ("/b", 100), ("/c", 0)] {
        let key = key(text);
        scratch.store(&key, &content).unwrap();
        let path = scratch.file(&key);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - content.len() + cut]).unwrap();
        assert!(matches!(scratch.open(&key), Err(Miss::Broken { path: at }) if at == path));
        assert!(!path.exists() && matches!(scratch.open(&key), Err(Miss::Absent)));
        assert_eq!(scratch.cache.index().get(key.digest()), None);
    }
    let (key, other) = (key("/d"), key("/e"));
    scratch.store(&key, b"small").unwrap();
    let path = scratch.file(&key);
    let mut whole = std::fs::read(&path).unwrap();
    *whole.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &whole).unwrap();
    assert!(matches!(scratch.open(&key), Err(Miss::Broken { .. })), "its checksum is another one");
    scratch.store(&key, b"small").unwrap();
    std::fs::create_dir_all(scratch.file(&other).parent().unwrap()).unwrap();
    std::fs::rename(&path, scratch.file(&other)).unwrap();
    let found = scratch.open(&other);
    // Once the walk through the directory is over, only objects that the index knows are looked for.
    let is_other = matches!(found, Err(Miss::Unusable { why: Unusable::Collision, .. } | Miss::Absent));
    assert!(is_other, "{found:?}");
    let found = scratch.open(&key);
    assert!(matches!(found, Err(Miss::Absent)), "{found:?}");
    std::fs::write(&path, b"short").unwrap();
    let found = scratch.open(&key);
    let is_short = matches!(found, Err(Miss::Unusable { why: Unusable::TooSmall, .. } | Miss::Absent));
    assert!(is_short, "{found:?}");
}

#[test]
fn a_validated_response_is_written_in_place_if_it_is_still_there() {
    let scratch = Scratch::new("validated");
    let key = key("/page");
    let first = scratch.store(&key, b"hello").unwrap();
    let later =
        StoredHeader { body_start: scratch.open(&key).unwrap().body_start() as u16, ..header(1_795_009_999) };
    let refresh = |identity| wait(scratch.cache.refresh(identity, &key, &later, None)).unwrap();
    assert_eq!(refresh(first), Refreshed::Written);
    let found = scratch.open(&key).unwrap();
    assert_eq!((found.header(&key).valid_sec, body(&found)), (1_795_009_999, b"hello".to_vec()));
    let known = scratch.cache.index().get(key.digest()).unwrap().stored;
    assert!(matches!(known, Stored::File(file) if file.valid_s == 1_795_009_999));
    let second = scratch.store(&key, b"other").unwrap();
    assert_eq!(refresh(first), Refreshed::Changed);
    wait(scratch.cache.remove(first, None)).unwrap();
    assert_eq!(body(&scratch.open(&key).unwrap()), b"other", "another file has the name");
    wait(scratch.cache.remove(second, None)).unwrap();
    assert_eq!(refresh(second), Refreshed::Gone);
    until("the directory is read", || scratch.cache.whereabouts(key.digest()) == Whereabouts::Nowhere(0));
}

#[test]
fn a_start_finds_files_that_it_does_not_know() {
    let mut scratch = Scratch::new("start");
    let key = key("/page");
    scratch.store(&key, b"hello").unwrap();
    scratch.restart(|_, _| {});
    assert_eq!(body(&scratch.open(&key).unwrap()), b"hello");
    assert_eq!(scratch.cache.whereabouts(key.digest()), Whereabouts::Disk(0));
}

#[test]
fn heads_that_the_format_cannot_hold_are_not_stored() {
    let scratch = Scratch::new("heads");
    let key = key("/page");
    let head = [b"HTTP/1.1 200 OK\r\nA: ", vec![b'a'; 65_200].as_slice(), b"\r\n\r\n"].concat();
    let what =
        NewFile { key: &key, digest: key.digest(), header: header(0), head: &head, temp: &scratch.temp };
    assert!(scratch.cache.begin(&what, None).is_none());
}

#[test]
fn a_head_that_was_stored_fits_its_buffer_again() {
    let (scratch, other) = (Scratch::new("buffers"), Scratch::new("buffers-other"));
    until("the directories are read", || !scratch.cache.is_cold() && !other.cache.is_cold());
    for (text, bytes) in [("/small", 5), ("/large", 100_000)] {
        let key = key(text);
        let wanted =
            |head_max_bytes| Wanted { key: Arc::new(key.clone()), digest: key.digest(), head_max_bytes };
        scratch.store(&key, &vec![7; bytes]).unwrap();
        let start = wait(scratch.cache.open(wanted(1), None)).expect("the index knows").body_start();
        // A server that knows only that the object exists.
        std::fs::create_dir_all(other.file(&key).parent().unwrap()).unwrap();
        std::fs::copy(scratch.file(&key), other.file(&key)).unwrap();
        let file = File { disk: 0, valid_s: 0, blocks: 1, body_start: 0, inode: 0, stored_s: 0, stamp: 0 };
        other.cache.publish(key.digest(), file);
        let without_seal = start as usize - crate::seal::LINE_BYTES;
        let found = wait(other.cache.open(wanted(without_seal - 1), None));
        assert!(matches!(found, Err(Miss::Unusable { why: Unusable::TooLongHeader, .. })), "{found:?}");
        assert!(wait(other.cache.open(wanted(without_seal), None)).is_ok());
    }
}

#[test]
fn a_directory_that_was_replaced_takes_files_again() {
    let scratch = Scratch::new("replaced");
    scratch.store(&key("/old"), b"hello").unwrap();
    until("the directory is read", || !scratch.cache.is_cold());
    let (now, before) = (scratch.path.join("d1"), scratch.path.join("before"));
    std::fs::rename(&now, &before).unwrap();
    std::fs::create_dir(&now).unwrap();
    std::fs::remove_dir_all(&before).unwrap();
    assert!(matches!(scratch.open(&key("/old")), Err(Miss::Absent)));
    scratch.store(&key("/new"), b"hello").unwrap();
    assert_eq!(body(&scratch.open(&key("/new")).unwrap()), b"hello");
    assert_eq!(scratch.files("d1").len(), 1);
}

#[test]
fn failures_have_nginx_words() {
    let mut scratch = Scratch::new("words");
    std::fs::remove_dir_all(scratch.path.join("d1")).unwrap();
    scratch.restart(|_, _| {});
    let Err(error) = scratch.store(&key("/page"), b"") else { panic!("there is no directory") };
    let path = scratch.path.join("d1");
    assert_eq!(
        error.to_string(),
        format!("open() \"{}\" failed (2: No such file or directory)", path.display())
    );
    assert!(matches!(scratch.open(&key("/page")), Err(Miss::Failed(_))));
}
