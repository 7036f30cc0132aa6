//! What loops may do at once, on the file systems of this machine: the disk that the temporary directory
//! is on, tmpfs, procfs, and where mounting is allowed overlayfs and a disk of which nothing is in memory.
//! Those tests run this binary again, as a user that owns nothing, in a namespace of its own.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests make their own files")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clearway_testkit::expect_soon;

use super::fetch::{COLD_READ_BYTES, COPY_BYTES, COPY_MIN_BYTES};
use super::*;

const READ: How = How { access: Access::Read, links: Links::Follow };
const SIZE: usize = 3 << 20;

fn blocking() -> Blocking {
    Blocking::on_this_thread()
}

/// A directory of the test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(format!("clearway-files-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A file that is on the disk as well as in memory.
    fn file(&self, name: &str, size: usize) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, contents(size)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn contents(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8).collect()
}

fn done<T: std::fmt::Debug>(attempt: Attempt<io::Result<T>>) -> T {
    match attempt {
        Attempt::Done(result) => result.unwrap(),
        Attempt::Cold => panic!("cold"),
    }
}

fn error<T: std::fmt::Debug>(attempt: Attempt<io::Result<T>>) -> Errno {
    match attempt {
        Attempt::Done(result) => Errno::from_io_error(&result.unwrap_err()).unwrap(),
        Attempt::Cold => panic!("cold"),
    }
}

fn is_cold<T>(attempt: &Attempt<T>) -> bool {
    matches!(attempt, Attempt::Cold)
}

fn open(files: Files, path: &Path) -> Opened {
    files.open_blocking(&blocking(), path, READ).unwrap()
}

fn range(warmed: Warmed) -> std::ops::Range<u64> {
    warmed.0
}

/// As many pool threads read as make a disk busy.
fn busy(opened: &Opened) -> Vec<mounts::InFlight<'static>> {
    (0..BUSY_READS).map(|_| opened.mount.reading()).collect()
}

fn forget(opened: &Opened) {
    fs::File::from(opened.as_fd().try_clone_to_owned().unwrap()).sync_all().unwrap();
    // What is still being read, or waits in some processor's batch, does not go at once.
    expect_soon("it is out of memory", || {
        clearway_os::page_cache::forget(opened.as_fd(), 0, opened.stat().size).unwrap();
        clearway_os::page_cache::count_cached(opened.as_fd(), 0, opened.stat().size).unwrap() == 0
    });
}

/// A directory on a disk whose page cache can be asked, or the reason why there is none.
fn disk(name: &str) -> Option<Scratch> {
    let scratch = Scratch::new(&std::env::temp_dir(), name);
    let files = Files::apart(Mode::Offload);
    let opened = open(files, &scratch.file("probe", 1));
    let answers = opened.read_now(&mut Vec::new(), 0, 1);
    if opened.class() == Class::Telling && !is_cold(&answers) {
        return Some(scratch);
    }
    eprintln!("skipped: the temporary directory is not on a disk whose page cache can be asked");
    None
}

/// A caller compares the two to learn whether the file has changed.
#[test]
fn an_open_file_that_has_not_changed_is_what_it_was() {
    let scratch = Scratch::new(&std::env::temp_dir(), "again");
    let path = scratch.file("file", 10);
    let file = open(Files::apart(Mode::Offload), &path);
    assert_eq!(file.stat_again().unwrap(), *file.stat());
    fs::write(&path, contents(11)).unwrap();
    assert_eq!((file.stat_again().unwrap().size, file.stat().size), (11, 10));
}

#[test]
fn a_mount_is_learned_on_a_pool() {
    let scratch = Scratch::new(&std::env::temp_dir(), "learn");
    let path = scratch.file("f", 10);
    let files = Files::apart(Mode::Offload);
    assert!(is_cold(&files.open(&path, READ)), "nothing is known about the mount");
    assert!(is_cold(&files.stat(&path, Links::Follow)));
    assert_eq!(files.stat_blocking(&blocking(), &path, Links::Follow).unwrap().size, 10);
    assert_eq!(done(files.stat(&path, Links::Follow)).size, 10);
    let opened = done(files.open(&path, READ));
    assert_eq!((opened.stat().size, opened.kind()), (10, crate::file::Kind::Regular));
    assert_eq!(error(files.open(Path::new("/a\0b"), READ)), Errno::INVAL);
}

#[test]
fn names_that_nobody_asked_for_are_cold_and_then_known() {
    let scratch = Scratch::new(&std::env::temp_dir(), "names");
    let files = Files::apart(Mode::Offload);
    let (here, missing) = (scratch.file("here", 1), scratch.0.join("missing"));
    open(files, &here);
    assert!(is_cold(&files.open(&missing, READ)));
    assert_eq!(files.open_blocking(&blocking(), &missing, READ).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(error(files.open(&missing, READ)), Errno::NOENT);
    assert_eq!(error(files.stat(&missing, Links::Follow)), Errno::NOENT);
    fs::rename(&here, &missing).unwrap();
    assert_eq!(done(files.stat(&missing, Links::Follow)).size, 1, "a name that is fresh is never old");
    done(files.open(&missing, READ));
}

#[test]
fn names_are_resolved_from_a_directory_and_through_links() {
    let scratch = Scratch::new(&std::env::temp_dir(), "at");
    let files = Files::apart(Mode::Offload);
    let path = scratch.file("f", 7);
    std::os::unix::fs::symlink("f", scratch.0.join("l")).unwrap();
    let how = How { access: Access::Directory, ..READ };
    let directory = files.open_blocking(&blocking(), &scratch.0, how).unwrap();
    assert_eq!(directory.kind(), crate::file::Kind::Directory);
    // Following a link may have to note when that was, which a loop does not.
    files.open_at_blocking(&blocking(), &directory, Path::new("l"), READ).unwrap();
    assert_eq!(done(files.open_at(&directory, Path::new("l"), READ)).stat().size, 7);
    let never = How { links: Links::Never, ..READ };
    assert_eq!(error(files.open_at(&directory, Path::new("l"), never)), Errno::LOOP);
    assert_eq!(done(files.open_at(&directory, Path::new("f"), never)).stat().size, 7);
    let link = files.stat_blocking(&blocking(), &scratch.0.join("l"), Links::NotLast).unwrap();
    assert_eq!(done(files.stat(&scratch.0.join("l"), Links::NotLast)), link);
    assert_ne!(done(files.stat(&path, Links::NotLast)).inode, link.inode);
}

#[test]
fn a_fifo_holds_nobody() {
    let scratch = Scratch::new(&std::env::temp_dir(), "fifo");
    let fifo = scratch.0.join("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let files = Files::apart(Mode::Offload);
    assert_eq!(open(files, &fifo).kind(), crate::file::Kind::Other);
    assert_eq!(done(files.open(&fifo, READ)).kind(), crate::file::Kind::Other);
}

#[test]
fn what_is_in_memory_is_read_at_once_and_the_rest_is_cold() {
    let Some(scratch) = disk("read") else { return };
    let files = Files::apart(Mode::Offload);
    let opened = open(files, &scratch.file("f", SIZE));
    let mut buf = b"old".to_vec();
    assert_eq!(done(opened.read_now(&mut buf, SIZE as u64 - 4, 100)), 4);
    assert_eq!(buf[3..], contents(SIZE)[SIZE - 4..]);
    assert_eq!(done(opened.read_now(&mut buf, SIZE as u64 + 1, 100)), 0);
    buf.truncate(3);
    // To look has the kernel begin to read: a fast disk may be done in time.
    expect_soon("it is not there in time", || {
        forget(&opened);
        buf.truncate(3);
        let cold = opened.read_now(&mut buf, 1 << 20, 1 << 20);
        is_cold(&cold) && buf == b"old"
    });
    expect_soon("it stays there", || {
        assert_eq!(opened.read(&blocking(), 1 << 20, 1 << 20).unwrap(), contents(SIZE)[1 << 20..2 << 20]);
        let now = opened.read_now(&mut buf, 1 << 20, 1 << 20);
        !is_cold(&now) && done(now) == 1 << 20
    });
}

#[test]
fn after_one_cold_part_a_response_does_not_ask_again() {
    let Some(scratch) = disk("warm") else { return };
    let files = Files::apart(Mode::Offload);
    let opened = open(files, &scratch.file("f", SIZE));
    let (mut learned, size) = (Learned::default(), SIZE as u64);
    assert!(opened.is_warm(0, size, &mut learned) && !learned.is_cold);
    forget(&opened);
    assert!(opened.is_warm(1 << 20, 1 << 20, &mut learned), "it has just been there");
    let files = Files::apart(Mode::Offload);
    let opened = open(files, &scratch.0.join("f"));
    let mut learned = Learned::default();
    assert!(!opened.is_warm(0, 100_000, &mut learned) && learned.is_cold);
    let half = opened.warm(&blocking(), 0, size).unwrap();
    assert_eq!(range(half.clone()), 0..COLD_READ_BYTES, "a part of what was asked for");
    learned.note(half);
    assert!(opened.is_warm(70_000, COLD_READ_BYTES - 70_000, &mut learned));
    // Read behind its back, so only asking would tell.
    let read_all = || drop(fs::read(scratch.0.join("f")).unwrap());
    read_all();
    assert!(!opened.is_warm(2 << 20, 1 << 20, &mut learned));
    expect_soon("others have seen it", || {
        // Where memory is short it may be gone again.
        read_all();
        opened.is_warm(2 << 20, 1 << 20, &mut Learned::default())
            && opened.is_warm(2 << 20, 1 << 20, &mut learned)
    });
}

#[test]
fn a_hole_in_memory_is_found() {
    let Some(scratch) = disk("hole") else { return };
    let part = 1_u64 << 20;
    open(Files::apart(Mode::Offload), &scratch.file("f", SIZE));
    let is_found = |hole| {
        let opened = open(Files::apart(Mode::Offload), &scratch.0.join("f"));
        // As a user that cachestat tells nothing.
        opened.files.policy.euid.store(NOBODY_YET - 1, Ordering::Relaxed);
        forget(&opened);
        rustix::fs::fadvise(opened.as_fd(), 0, None, rustix::fs::Advice::Random).unwrap();
        for there in (0..3).filter(|&at| at != hole) {
            opened.read(&blocking(), there * part, part as usize).unwrap();
        }
        opened.files.policy.ranges.forget_all();
        !opened.is_warm(0, SIZE as u64, &mut Learned::default())
    };
    for hole in 0..3 {
        // To look has the kernel begin to read: a fast disk may be done in time.
        expect_soon(&format!("the hole at {hole} MiB"), || is_found(hole));
    }
}

#[test]
fn a_pool_thread_reads_whole_blocks_around_what_is_wanted() {
    let Some(scratch) = disk("blocks") else { return };
    let opened = open(Files::apart(Mode::Offload), &scratch.file("f", SIZE));
    let read = |offset, count| range(opened.warm(&blocking(), offset, count).unwrap());
    assert_eq!(read(300_000, 1), 256 << 10..512 << 10);
    assert_eq!(read(SIZE as u64 - 1, 1), (SIZE as u64 - (256 << 10))..SIZE as u64);
    assert_eq!(read((1 << 20) - 1, 2 << 20), 768 << 10..(768 << 10) + COLD_READ_BYTES);
    let past = SIZE as u64 + (1 << 20);
    assert!(read(past, 10).is_empty());
}

#[test]
fn what_is_read_past_the_page_cache_is_the_same() {
    let Some(scratch) = disk("direct") else { return };
    let size = 1_000_001;
    let opened = open(Files::apart(Mode::Offload), &scratch.file("f", size));
    forget(&opened);
    opened.set_direct().unwrap();
    for (offset, count) in [(0, size), (1, 4096), (4095, 2), (size as u64 - 5, 100), (8192, 8192), (7, 0)] {
        let expected = &contents(size)[offset as usize..][..count.min(size - offset as usize)];
        assert_eq!(opened.read_direct(&blocking(), offset, count, 4096).unwrap(), expected, "{offset}");
    }
    assert_eq!(opened.read_direct(&blocking(), size as u64 + 9000, 10, 512).unwrap(), b"");
}

#[test]
fn a_busy_disk_is_not_asked_about_what_is_not_likely_there() {
    let Some(scratch) = disk("busy") else { return };
    let files = Files::apart(Mode::Offload);
    let (hot, other) = (open(files, &scratch.file("hot", 9000)), open(files, &scratch.file("other", 9000)));
    // As a user that cachestat tells nothing.
    files.policy.euid.store(NOBODY_YET - 1, Ordering::Relaxed);
    let read = |file: &Opened| !is_cold(&file.read_now(&mut Vec::new(), 0, 9000));
    let is_warm = |file: &Opened| file.is_warm(0, 9000, &mut Learned::default());
    expect_soon("what was there a moment ago is asked about", || {
        assert!(read(&hot), "nobody else reads");
        let _reading = busy(&other);
        assert!(!read(&other) && !is_warm(&other));
        read(&hot) && is_warm(&hot)
    });
    let opening: Vec<_> = (0..4).map(|_| mounts::InFlight::new(&files.policy.opens)).collect();
    assert!(!read(&other));
    drop(opening);
    let large = open(files, &scratch.file("large", SIZE));
    let reading = busy(&large);
    let expected = contents(COPY_BYTES);
    let mut learned = Learned::default();
    assert!(!large.is_warm(1 << 20, 2 << 20, &mut learned));
    expect_soon("wanted twice, and a pool thread has looked further", || {
        for _ in 0..2 {
            let fetched = large.fetch(&blocking(), 0, SIZE as u64).unwrap();
            assert!(matches!(fetched, Fetched::Data(data, _) if data == expected));
        }
        large.is_warm(1 << 20, 2 << 20, &mut learned)
    });
    drop(reading);
    assert!(matches!(large.fetch(&blocking(), 1, 1).unwrap(), Fetched::Data(data, _) if data == [1]));
    let fetched = large.fetch(&blocking(), 1, 100_000).unwrap();
    assert!(matches!(fetched, Fetched::Warm(warmed) if warmed.end() > 100_000));
    assert!(is_warm(&other));
}

#[test]
fn the_end_of_a_file_that_is_in_memory_is_found_there() {
    let Some(scratch) = disk("end") else { return };
    let opened = open(Files::apart(Mode::Offload), &scratch.file("f", 300_000));
    let sure = recent::Trust { read_ms: 0, in_memory_ms: u32::MAX };
    expect_soon("found twice soon enough", || {
        assert_eq!(opened.warm(&blocking(), 280_000, 1 << 20).unwrap().end(), 300_000);
        assert_eq!(opened.cold_ms.load(Ordering::Relaxed), 0);
        opened.is_trusted(&(280_000..300_000), sure, now_ms())
    });
    // A first look has the kernel begin to read: a fast disk may be done before the second.
    expect_soon("the disk was waited for", || {
        forget(&opened);
        opened.warm(&blocking(), 280_000, 1).unwrap();
        opened.cold_ms.load(Ordering::Relaxed) != 0
    });
    assert!(!opened.is_trusted(&(280_000..300_000), sure, now_ms()));
}

#[test]
fn copies_that_nobody_takes_are_bounded() {
    let Some(scratch) = disk("copies") else { return };
    let files = Files::apart(Mode::Offload);
    let opened = open(files, &scratch.file("f", 1 << 20));
    let _reading = busy(&opened);
    let fetch = || match opened.fetch(&blocking(), 0, 1 << 20).unwrap() {
        Fetched::Data(data, held) => (data.len(), held),
        Fetched::Warm(_) => panic!("the disk is busy"),
    };
    let cut_before = COPIES_CUT.value();
    // As many as may be whole: 256 where memory is not short.
    let whole = fetch::held_max_bytes() / COPY_BYTES;
    let copies: Vec<_> = (0..whole + 44).map(|_| fetch()).collect();
    assert!((1..=256).contains(&whole) && copies[..whole].iter().all(|copy| copy.0 == COPY_BYTES));
    assert!(copies[whole..].iter().all(|copy| copy.0 == 64 << 10));
    assert!(COPIES_CUT.value() >= cut_before + 44);
    // What is read into memory for a response counts as well, while it is read.
    assert_eq!(opened.warm(&blocking(), 0, 1 << 20).unwrap().end(), 256 << 10);
    drop(copies);
    assert_eq!(files.policy.held.bytes.load(Ordering::Relaxed), 0);
    assert_eq!(fetch().0, COPY_BYTES);
    assert_eq!(opened.warm(&blocking(), 0, 1 << 20).unwrap().end(), 1 << 20);
}

#[test]
fn a_disk_that_holds_much_leaves_others_their_part() {
    let files = Files::apart(Mode::Offload);
    let mount = |device| files.policy.mounts.find(&Stat { device, ..Stat::default() });
    let (slow, fast) = (mount(1), mount(2));
    let take = |mount| Held::take(&files.policy.held, mount, COPY_BYTES, COPY_MIN_BYTES);
    let whole = fetch::held_max_bytes() / COPY_BYTES;
    let of_slow: Vec<Held> = (0..=whole).map(|_| take(slow)).collect();
    assert!(of_slow[..whole].iter().all(|held| held.bytes == COPY_BYTES), "nobody else wants it");
    assert_eq!(of_slow[whole].bytes, COPY_MIN_BYTES);
    let of_fast: Vec<Held> = (0..=whole / 2).map(|_| take(fast)).collect();
    assert!(of_fast[..whole / 2].iter().all(|held| held.bytes == COPY_BYTES), "half of it is theirs");
    assert_eq!(of_fast[whole / 2].bytes, COPY_MIN_BYTES);
    assert_eq!(take(slow).bytes, COPY_MIN_BYTES, "it has more than its part");
    drop(of_slow);
    assert_eq!(take(fast).bytes, COPY_BYTES, "there is room again");
    drop(of_fast);
    let left = [&files.policy.held.bytes, &files.policy.held.mounts].map(|left| left.load(Ordering::Relaxed));
    assert_eq!(left, [0, 0]);
}

#[test]
fn a_copy_has_room_for_a_head_also_in_a_buffer_that_had_another() {
    let Some(scratch) = disk("buffers") else { return };
    let opened = open(Files::new(Mode::Offload), &scratch.file("f", 1 << 20));
    let _reading = busy(&opened);
    let fetch = || match opened.fetch(&blocking(), 0, 1 << 20).unwrap() {
        Fetched::Data(data, held) => (data, held),
        Fetched::Warm(_) => panic!("the disk is busy"),
    };
    let (first, _held) = fetch();
    let (second, held) = fetch();
    assert!(second.capacity() - second.len() >= 8 << 10, "a head fits before it");
    fetch::give_back(second);
    drop(held);
    fetch::give_back(first);
    let (third, _held) = fetch();
    assert!(third == contents(COPY_BYTES) && third.capacity() - third.len() >= 8 << 10);
}

#[test]
fn a_tmpfs_is_always_warm() {
    let parent = Path::new("/dev/shm");
    if !parent.is_dir() {
        eprintln!("skipped: no /dev/shm");
        return;
    }
    let scratch = Scratch::new(parent, "tmpfs");
    let opened = open(Files::apart(Mode::Offload), &scratch.file("f", SIZE));
    if opened.class() != Class::Memory {
        eprintln!("skipped: /dev/shm is no tmpfs");
        return;
    }
    assert!(opened.is_warm(0, SIZE as u64, &mut Learned::default()));
    let mut buf = Vec::new();
    assert_eq!(done(opened.read_now(&mut buf, 5, SIZE)), SIZE - 5);
    assert!(buf == contents(SIZE)[5..]);
}

#[test]
fn what_is_not_known_to_be_local_is_never_touched_by_a_loop() {
    let path = Path::new("/proc/self/task");
    let files = Files::apart(Mode::Offload);
    assert!(is_cold(&files.open(path, READ)));
    assert!(open(files, path).is_remote());
    assert!(is_cold(&files.open(path, READ)), "the directory is known");
    assert!(is_cold(&files.stat(Path::new("/proc/self/stat"), Links::Follow)));
    let opened = open(files, Path::new("/proc/self/stat"));
    assert!(!opened.is_warm(0, 0, &mut Learned::default()) || opened.stat().size == 0);
    assert!(opened.is_dear_to_close());
    let scratch = Scratch::new(&std::env::temp_dir(), "local");
    let local = scratch.file("f", 1);
    open(files, &local);
    done(files.open(&local, READ));
}

#[test]
fn a_remote_mount_that_is_reached_by_surprise_is_counted() {
    let scratch = Scratch::new(&std::env::temp_dir(), "surprise");
    let path = scratch.file("f", 1);
    let files = Files::apart(Mode::Offload);
    open(files, &path).mount.set_class(Class::Remote);
    let wrong = || tally::value(Operation::Open, FileOutcome::WrongGuess);
    let before = wrong();
    assert!(done(files.open(&path, READ)).is_remote() && wrong() > before);
    assert!(is_cold(&files.open(&path, READ)), "once only");
}

#[test]
fn without_openat2_everything_is_for_a_pool() {
    let scratch = Scratch::new(&std::env::temp_dir(), "old");
    let path = scratch.file("f", 1);
    let files = Files::apart(Mode::Offload);
    files.policy.no_cached_walk.store(true, Ordering::Relaxed);
    open(files, &path);
    assert!(is_cold(&files.open(&path, READ)) && is_cold(&files.stat(&path, Links::Follow)));
}

#[test]
fn inline_means_at_once_whatever_it_costs() {
    let scratch = Scratch::new(&std::env::temp_dir(), "inline");
    let files = Files::apart(Mode::Inline);
    let path = scratch.file("f", SIZE);
    assert_eq!(error(files.open(&scratch.0.join("missing"), READ)), Errno::NOENT);
    assert_eq!(done(files.stat(&path, Links::Follow)).size, SIZE as u64);
    let opened = done(files.open(&path, READ));
    forget(&opened);
    assert!(opened.is_warm(0, SIZE as u64, &mut Learned::default()));
    assert_eq!(done(opened.read_now(&mut Vec::new(), 0, SIZE)), SIZE);
    let proc = done(files.open(Path::new("/proc/self/stat"), READ));
    assert!(!proc.is_remote() && !proc.is_dear_to_close());
}

#[test]
fn a_large_file_that_was_removed_is_dear_to_close() {
    let scratch = Scratch::new(&std::env::temp_dir(), "close");
    let files = Files::apart(Mode::Offload);
    let (large, small) = (open(files, &scratch.file("large", SIZE)), open(files, &scratch.file("small", 1)));
    assert!(!large.is_dear_to_close());
    drop(fs::remove_dir_all(&scratch.0));
    assert!(large.is_dear_to_close() && !small.is_dear_to_close());
}

#[test]
fn a_file_that_was_cut_says_so() {
    let Some(scratch) = disk("cut") else { return };
    let opened = open(Files::apart(Mode::Offload), &scratch.file("f", 10_000));
    fs::File::options().write(true).open(scratch.0.join("f")).unwrap().set_len(4000).unwrap();
    assert_eq!(opened.read(&blocking(), 0, 10_000).unwrap().len(), 4000);
    assert!(is_cold(&opened.read_now(&mut Vec::new(), 0, 10_000)), "a pool thread finds out");
    assert_eq!(opened.warm(&blocking(), 0, 10_000).unwrap().end(), 4000);
}

/// Runs a test of this binary that is otherwise ignored, in a mount namespace where `mounts` was run
/// first, as a user that owns nothing. `$D` is a directory for it.
fn run_apart(test: &str, mounts: &str) {
    let scratch = Scratch::new(&std::env::temp_dir(), &format!("apart-{test}"));
    let drop_user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let script = format!(
        "set -e; cd /; chmod 755 \"$D\"; {mounts}\n\
         exec {drop_user} \"$EXE\" --exact files::tests::{test} --ignored --nocapture"
    );
    let exe = Scratch::new(Path::new("/var/tmp"), &format!("exe-{test}"));
    // The user may not be able to go where the build is.
    fs::copy(std::env::current_exe().unwrap(), exe.0.join("test")).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    unshare.env("D", &scratch.0).env("EXE", exe.0.join("test"));
    let Ok(output) = unshare.output() else {
        eprintln!("skipped: no unshare");
        return;
    };
    let told = String::from_utf8_lossy(&output.stdout);
    if told.contains("running 1 test") {
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    } else {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn directory_of_run() -> PathBuf {
    PathBuf::from(std::env::var_os("D").unwrap())
}

#[test]
fn on_an_overlay_what_was_read_lately_is_warm() {
    run_apart(
        "on_an_overlay",
        "mkdir $D/l $D/u $D/w $D/m; head -c 3145728 /dev/zero > $D/l/f; cp $D/l/f $D/l/g
         mount -t overlay overlay -o lowerdir=$D/l,upperdir=$D/u,workdir=$D/w $D/m",
    );
}

#[test]
#[ignore = "run by on_an_overlay_what_was_read_lately_is_warm"]
fn on_an_overlay() {
    let files = Files::apart(Mode::Offload);
    let (f, g) = (directory_of_run().join("m/f"), directory_of_run().join("m/g"));
    let opened = open(files, &f);
    assert_eq!(opened.class(), Class::Mute);
    done(files.open(&f, READ));
    let is_warm = |offset, count| opened.is_warm(offset, count, &mut Learned::default());
    assert!(!is_warm(0, 100), "nobody has read it");
    assert!(is_cold(&opened.read_now(&mut Vec::new(), 0, 100)));
    let mut learned = Learned::default();
    assert!(!opened.is_warm(0, 1 << 20, &mut learned));
    expect_soon("read and looked at soon enough", || {
        learned.note(opened.warm(&blocking(), 0, 1 << 20).unwrap());
        is_warm(0, 1 << 20) && !is_cold(&opened.read_now(&mut Vec::new(), 0, 100))
    });
    assert!(opened.is_warm(0, 1 << 20, &mut learned));
    assert!(!is_warm(0, (1 << 20) + 1) && !is_warm(2 << 20, 1));
    assert!(!open(files, &g).is_warm(0, 100, &mut Learned::default()), "another file");
    expect_soon("and then it is asked for again", || !is_warm(0, 1 << 20));
}

#[test]
fn on_a_disk_of_another_user_the_page_cache_is_asked() {
    run_apart(
        "on_a_fresh_disk",
        "truncate -s 16M $D/image; mkfs.ext4 -q $D/image; mkdir $D/m; mount -o loop $D/image $D/m
         mkdir -p $D/m/a/b; head -c 3145728 /dev/zero > $D/m/a/b/f; chmod -R go+rX $D/m
         cp $D/m/a/b/f $D/m/a/b/own; chown 65534 $D/m/a/b/own
         umount $D/m; mount -o loop,noatime $D/image $D/m",
    );
}

#[test]
#[ignore = "run by on_a_disk_of_another_user_the_page_cache_is_asked"]
fn on_a_fresh_disk() {
    let files = Files::apart(Mode::Offload);
    let path = directory_of_run().join("m/a/b/f");
    open(files, &directory_of_run().join("m"));
    assert!(is_cold(&files.open(&path, READ)) && is_cold(&files.stat(&path, Links::Follow)));
    let opened = open(files, &path);
    assert_eq!(done(files.open(&path, READ)).stat(), opened.stat());
    let refused = clearway_os::page_cache::count_cached(opened.as_fd(), 0, 100).unwrap_err();
    assert!(matches!(Errno::from_io_error(&refused), Some(Errno::PERM | Errno::NOSYS)));
    let mut learned = Learned::default();
    assert!(!opened.is_warm(0, SIZE as u64, &mut learned) && learned.is_cold);
    assert!(is_cold(&opened.read_now(&mut Vec::new(), 2 << 20, 100)));
    assert_eq!(opened.read(&blocking(), 0, SIZE).unwrap().len(), SIZE);
    assert!(!opened.is_warm(0, SIZE as u64, &mut learned), "it was read once, and may be gone");
    expect_soon("somebody has found it", || {
        // Where memory is short it may be gone again.
        fs::read(&path).unwrap();
        opened.is_warm(0, SIZE as u64, &mut Learned::default())
            && opened.is_warm(0, SIZE as u64, &mut learned)
    });
    what_is_ones_own_is_counted(&open(files, &path.with_file_name("own")));
    assert_eq!(done(opened.read_now(&mut Vec::new(), 2 << 20, 100)), 100);
}

/// Of files of one's own each page is known, also while the disk is busy, and nothing is started.
fn what_is_ones_own_is_counted(own: &Opened) {
    let _reading = busy(own);
    let count = || clearway_os::page_cache::count_cached(own.as_fd(), 0, SIZE as u64);
    match count() {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSYS) => {
            eprintln!("skipped: no cachestat");
            return;
        }
        cached => assert_eq!(cached.unwrap(), 0),
    }
    assert!(!own.is_warm(0, SIZE as u64, &mut Learned::default()));
    assert_eq!(count().unwrap(), 0, "asking has read nothing");
    assert!(is_cold(&own.read_now(&mut Vec::new(), 0, 9000)));
    // Where memory is short what was read may be gone again.
    expect_soon("what was read is known", || {
        fs::read(directory_of_run().join("m/a/b/own")).unwrap();
        own.is_warm(0, SIZE as u64, &mut Learned::default())
            && matches!(own.read_now(&mut Vec::new(), 0, 9000), Attempt::Done(Ok(9000)))
    });
}
