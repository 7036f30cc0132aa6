//! The writer with real files: order, sharing, rotation, a full disk, a queue that overflows.

mod destinations;
mod stuck;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearway_base::log::{Level, Record, Sink, Verbatim};

use crate::{
    Destination, Disk, ErrorLog, ErrorTarget, LINES_LOST, LINES_UNWRITTEN, QUEUE_BYTES, QUEUE_LINES, Writer,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Held by tests in which lines get lost: the counters are the process's.
static COUNTERS: Mutex<()> = Mutex::new(());

/// A directory of the test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clearway-log-{name}-{}", std::process::id()));
        #[expect(clippy::disallowed_methods, reason = "a test")]
        fs::create_dir_all(&path).expect("the directory for temporary files is writable");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test")]
fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("the log is there")
}

/// Waits until a file has what is looked for.
fn wait_text(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = if path.exists() { text(path) } else { String::new() };
        if wanted(&text) {
            return text;
        }
        assert!(Instant::now() < end, "{}: {text}", path.display());
        std::thread::yield_now();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test")]
fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).expect("same directory");
}

fn started(queue_lines: usize, queue_bytes: usize) -> Writer {
    let writer = Writer::with_queue(Box::new(Disk), queue_lines, queue_bytes);
    writer.start().expect("a thread can be started");
    writer
}

fn error_log(writer: &Writer, path: &Path, level: Level) -> Arc<ErrorLog> {
    let file = writer.open(path).expect("a scratch file can be created");
    let log = Arc::new(ErrorLog::new(writer, vec![ErrorTarget { to: Destination::File(file), level }]));
    writer.report_to(&log);
    log
}

#[test]
fn lines_keep_their_order_and_a_path_is_one_file() {
    let (scratch, writer) = (Scratch::new("order"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("access.log");
    let (first, second) = (writer.open(&path).unwrap(), writer.open(&path).unwrap());
    assert_eq!(first.id(), second.id());
    for n in 0..5000 {
        let file = if n % 2 == 0 { &first } else { &second };
        file.write(format!("line {n}\n").into_bytes());
    }
    assert!(writer.flush(PATIENCE));
    let expected: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(text(&path), expected);
}

#[test]
fn producers_on_many_threads_lose_nothing() {
    let (scratch, writer) = (Scratch::new("threads"), started(QUEUE_LINES, QUEUE_BYTES));
    let file = writer.open(&scratch.file("access.log")).unwrap();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let file = file.clone();
            scope.spawn(move || (0..4000).for_each(|n| file.write(format!("{t} {n}\n").into_bytes())));
        }
    });
    assert!(writer.shutdown(PATIENCE), "what is queued is written at exit");
    let text = text(&scratch.file("access.log"));
    for t in 0..4 {
        let prefix = format!("{t} ");
        let numbers = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(numbers.eq((0..4000).map(|n| n.to_string())), "thread {t} in order");
    }
}

#[test]
fn files_that_cannot_be_opened_say_so_as_nginx_does() {
    let (scratch, writer) = (Scratch::new("open"), started(QUEUE_LINES, QUEUE_BYTES));
    let missing = scratch.file("none/access.log");
    let error = writer.open(&missing).unwrap_err();
    let expected = format!("open() \"{}\" failed (2: No such file or directory)", missing.display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn reopening_follows_a_rotation_and_reports_what_is_gone() {
    let (scratch, writer) = (Scratch::new("reopen"), started(QUEUE_LINES, QUEUE_BYTES));
    let (path, rotated) = (scratch.file("access.log"), scratch.file("access.log.1"));
    let log = error_log(&writer, &scratch.file("error.log"), Level::Error);
    let file = writer.open(&path).unwrap();
    let lost = writer.open(&scratch.file("lost.log")).unwrap();
    file.write(b"before\n".to_vec());
    rename(&path, &rotated);
    #[expect(clippy::disallowed_methods, reason = "a test")]
    fs::remove_file(scratch.file("lost.log")).unwrap();
    symlink("none/lost.log", scratch.file("lost.log")).unwrap();
    writer.reopen();
    assert!(writer.flush(PATIENCE));
    file.write(b"after\n".to_vec());
    lost.write(b"to the old file\n".to_vec());
    assert!(writer.flush(PATIENCE));
    assert_eq!((text(&rotated), text(&path)), ("before\n".to_owned(), "after\n".to_owned()));
    let told = text(&scratch.file("error.log"));
    let wanted = format!("open() \"{}/lost.log\" failed (2: No such file", scratch.0.display());
    assert!(told.contains("[emerg]") && told.contains(&wanted), "{told}");
    drop(log);
}

#[test]
fn a_full_disk_is_reported_once_a_minute_and_counted() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("full"), started(QUEUE_LINES, QUEUE_BYTES));
    let log = error_log(&writer, &scratch.file("error.log"), Level::Error);
    let full = writer.open(Path::new("/dev/full")).unwrap();
    let unwritten = LINES_UNWRITTEN.value();
    let start = Instant::now();
    for _ in 0..50 {
        full.write(b"no room\n".to_vec());
        assert!(writer.flush(PATIENCE));
    }
    let minutes = usize::try_from(start.elapsed().as_secs() / 60).unwrap();
    assert!(writer.flush(PATIENCE));
    assert_eq!(LINES_UNWRITTEN.value() - unwritten, 50);
    let told = text(&scratch.file("error.log"));
    assert!((1..=minutes + 1).contains(&told.lines().count()), "once a minute: {told}");
    for line in told.lines() {
        let message = "write() to \"/dev/full\" failed (28: No space left on device)";
        assert!(line.contains("[alert] ") && line.ends_with(message), "{line}");
    }
    drop(log);
}

#[test]
fn an_error_log_on_a_full_disk_does_not_report_to_itself() {
    let _counters = crate::writer::lock(&COUNTERS);
    let writer = started(QUEUE_LINES, QUEUE_BYTES);
    let log = error_log(&writer, Path::new("/dev/full"), Level::Error);
    log.log(Level::Error, format_args!("no room"));
    assert!(writer.flush(PATIENCE));
    assert!(writer.shutdown(PATIENCE), "the queue is empty and stays so");
}

#[test]
fn a_line_larger_than_the_queue_is_lost_alone() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("large"), started(16, 100));
    let file = writer.open(&scratch.file("access.log")).unwrap();
    file.write(vec![b'x'; 101]);
    file.write(b"small\n".to_vec());
    assert!(writer.flush(PATIENCE));
    assert_eq!(text(&scratch.file("access.log")), "small\n");
}

#[test]
fn error_lines_look_as_nginx_writes_them() {
    let (scratch, writer) = (Scratch::new("format"), started(QUEUE_LINES, QUEUE_BYTES));
    let (all, few) = (writer.open(&scratch.file("all")).unwrap(), writer.open(&scratch.file("few")).unwrap());
    let targets = [(all, Level::Info), (few, Level::Crit)]
        .map(|(file, level)| ErrorTarget { to: Destination::File(file), level })
        .to_vec();
    let log = ErrorLog::new(&writer, targets);
    assert!(log.enabled(Level::Info) && !log.enabled(Level::Debug));
    let message = format_args!("client {} went away", 7);
    log.write(&Record { level: Level::Info, tid: 42, connection: Some(3), message });
    log.log(Level::Alert, format_args!("\u{e9}{}", "x".repeat(4000)));
    assert!(writer.flush(PATIENCE));
    let pid = std::process::id();
    let (all, few) = (text(&scratch.file("all")), text(&scratch.file("few")));
    let (first, second) = all.split_once('\n').unwrap();
    let (time, rest) = first.split_at(19);
    assert!(time.bytes().all(|byte| byte.is_ascii_digit() || b"/ :".contains(&byte)), "{time}");
    assert_eq!(rest, format!(" [info] {pid}#42: *3 client 7 went away"));
    assert_eq!(second, few, "only what is severe enough goes to both");
    assert!(few[19..].starts_with(&format!(" [alert] {pid}#{pid}: \u{e9}x")));
    assert_eq!((few.len(), few.ends_with("x\n")), (2048, true), "cut as nginx cuts");
}

#[test]
fn bytes_are_written_as_they_are_and_cut_between_them() {
    let (scratch, writer) = (Scratch::new("bytes"), started(QUEUE_LINES, QUEUE_BYTES));
    let log = error_log(&writer, &scratch.file("error.log"), Level::Error);
    let bytes = [b"a\xff\xc3\xa9".repeat(2), vec![0xfe; 4000]].concat();
    log.log(Level::Error, format_args!("open() \"{}\"", Verbatim(&bytes)));
    assert!(writer.flush(PATIENCE));
    #[expect(clippy::disallowed_methods, reason = "a test")]
    let line = fs::read(scratch.file("error.log")).unwrap();
    assert_eq!((line.len(), line.ends_with(b"\xfe\n")), (2048, true));
    let at = line.iter().position(|&byte| byte == b'"').unwrap();
    assert_eq!(line[at + 1..][..100], bytes[..100]);
}

#[test]
fn without_a_thread_the_caller_writes_and_hands_files_on() {
    let (scratch, writer) = (Scratch::new("unstarted"), Writer::new(Box::new(Disk)));
    let (path, rotated) = (scratch.file("access.log"), scratch.file("access.log.1"));
    let file = writer.open(&path).unwrap();
    file.write(b"first\n".to_vec());
    assert_eq!(text(&path), "");
    assert!(writer.flush(PATIENCE));
    assert_eq!(text(&path), "first\n");
    file.write(b"second\n".to_vec());
    rename(&path, &rotated);
    writer.reopen();
    assert_eq!((text(&rotated), text(&path)), ("first\nsecond\n".to_owned(), String::new()));
    let gone = writer.open(&scratch.file("gone.log")).unwrap();
    drop(gone);
    let files = writer.files().unwrap();
    assert_eq!(files.len(), 1, "files without a handle are not handed on");
    let (name, mut copy) = files.into_iter().next().unwrap();
    assert_eq!(name, path);
    copy.write_all(b"by another\n").unwrap();
    writer.start().unwrap();
    writer.start().unwrap();
    file.write(b"third\n".to_vec());
    assert!(writer.shutdown(PATIENCE));
    assert_eq!(text(&path), "by another\nthird\n");
}

#[test]
fn a_flush_that_meets_the_end_finds_nobody_and_does_it_itself() {
    let scratch = Scratch::new("end");
    for round in 0..100 {
        let writer = started(16, QUEUE_BYTES);
        let path = scratch.file(&format!("{round}.log"));
        let file = writer.open(&path).unwrap();
        file.write(b"before\n".to_vec());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(writer.flush(PATIENCE)));
            assert!(writer.shutdown(PATIENCE));
        });
        file.write(b"after\n".to_vec());
        assert!(writer.flush(PATIENCE));
        assert_eq!(text(&path), "before\nafter\n");
    }
}

#[test]
fn no_target_means_nothing_is_enabled() {
    let writer = started(QUEUE_LINES, QUEUE_BYTES);
    let log = ErrorLog::new(&writer, Vec::new());
    assert!(!log.enabled(Level::Emerg));
}

#[test]
fn standard_error_by_its_name_is_standard_error() {
    let writer = started(QUEUE_LINES, QUEUE_BYTES);
    let by_name = writer.open(Path::new("/dev/stderr")).unwrap();
    assert_eq!(by_name.id(), writer.stderr().unwrap().id());
}
