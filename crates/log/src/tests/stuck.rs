//! Destinations that hang, queues that overflow, rotation under load.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use super::*;
use crate::LogFile;

const BLOCK: usize = 1 << 16;

/// A pipe that nobody reads until it is asked to: it holds a writer as a stuck disk would.
struct Pipe {
    reader: File,
    log: LogFile,
}

impl Pipe {
    fn new(writer: &Writer, path: &Path) -> Self {
        let made = std::process::Command::new("mkfifo").arg(path).spawn().unwrap().wait().unwrap();
        assert!(made.success());
        // O_NONBLOCK
        let mut options = fs::OpenOptions::new();
        #[expect(clippy::disallowed_methods, reason = "a test")]
        let reader = options.read(true).write(true).custom_flags(0o4000).open(path).unwrap();
        Self { reader, log: writer.open(path).unwrap() }
    }

    /// A line as large as what a pipe holds.
    fn write_block(&self) {
        self.log.write([vec![b'x'; BLOCK - 1], b"\n".to_vec()].concat());
    }

    /// Reads until so many bytes have come.
    fn read(&mut self, expected: usize) {
        self.read_until(|| expected);
    }

    /// Reads until so many bytes have come; what is expected may change meanwhile.
    fn read_until(&mut self, expected: impl Fn() -> usize) {
        let (mut received, mut buffer) = (0, vec![0; BLOCK]);
        let end = Instant::now() + PATIENCE;
        while received < expected() {
            match self.reader.read(&mut buffer) {
                Ok(size) => received += size,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(Instant::now() < end, "{received} of {} bytes", expected());
            std::thread::yield_now();
        }
    }
}

/// How many lines were lost by what the error log says.
fn told(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("[alert] ")?.1.split_once("log queue overflow: ")?;
        rest.split_once(" lines lost")?.0.parse::<u64>().ok()
    });
    numbers.sum()
}

#[test]
fn what_hangs_holds_up_nothing_else() {
    let (scratch, writer) = (Scratch::new("stuck"), started(QUEUE_LINES, QUEUE_BYTES));
    let (path, error_path) = (scratch.file("access.log"), scratch.file("error.log"));
    let log = error_log(&writer, &error_path, Level::Error);
    let mut pipes = [Pipe::new(&writer, &scratch.file("pipe1")), Pipe::new(&writer, &scratch.file("pipe2"))];
    let file = writer.open(&path).unwrap();
    for round in 0..3 {
        for _ in 0..4 {
            pipes.iter().for_each(Pipe::write_block);
        }
        file.write(format!("{round}\n").into_bytes());
        log.log(Level::Error, format_args!("round {round}"));
        wait_text(&path, |text| text.ends_with(&format!("{round}\n")));
        wait_text(&error_path, |text| text.ends_with(&format!("round {round}\n")));
    }
    assert!(!writer.flush(Duration::from_millis(1)), "not all is written");
    writer.reopen();
    file.write(b"reopened\n".to_vec());
    wait_text(&path, |text| text.ends_with("reopened\n"));
    pipes.iter_mut().for_each(|pipe| pipe.read(12 * BLOCK));
    assert!(writer.flush(PATIENCE));
    pipes.iter().for_each(|pipe| pipe.log.write(b"once more\n".to_vec()));
    pipes.iter_mut().for_each(|pipe| pipe.read(10));
    assert!(writer.shutdown(PATIENCE));
}

#[test]
fn a_writer_without_threads_waits_for_no_reader() {
    let scratch = Scratch::new("held");
    let writer = Writer::direct(Box::new(Disk));
    let mut pipe = Pipe::new(&writer, &scratch.file("pipe"));
    let file = writer.open(&scratch.file("error.log")).unwrap();
    for n in 0..3 {
        pipe.write_block();
        file.write(format!("{n}\n").into_bytes());
        assert!(writer.flush(Duration::ZERO));
    }
    assert_eq!(text(&scratch.file("error.log")), "0\n1\n2\n");
    assert!(writer.has_held_lines());
    // Another writer goes on where this one has stopped.
    let other = Writer::direct(Box::new(Disk));
    let log = other.open(&scratch.file("pipe")).unwrap();
    log.write(b"last\n".to_vec());
    other.take_held_lines(&writer);
    assert!(!writer.has_held_lines());
    let mut received = Vec::new();
    let end = Instant::now() + PATIENCE;
    while !received.ends_with(b"last\n") && Instant::now() < end {
        let _ = pipe.reader.read_to_end(&mut received);
        assert!(other.flush(Duration::ZERO));
    }
    assert!(!other.has_held_lines() && received.len() == 3 * BLOCK + 5, "{} bytes", received.len());
}

#[test]
fn an_overflow_loses_lines_counts_them_and_says_so() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("overflow"), started(4, 1 << 20));
    let error_path = scratch.file("error.log");
    let log = error_log(&writer, &error_path, Level::Error);
    let mut pipe = Pipe::new(&writer, &scratch.file("pipe"));
    let (before, mut sent) = (LINES_LOST.value(), 0);
    while LINES_LOST.value() - before < 3 {
        pipe.write_block();
        sent += 1;
    }
    let lost = || LINES_LOST.value() - before;
    pipe.read_until(|| usize::try_from(sent - lost()).unwrap() * BLOCK);
    wait_text(&error_path, |text| told(text) == lost());
    drop(log);
}

#[test]
fn what_waits_for_one_that_hangs_is_bounded() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("bounded"), started(QUEUE_LINES, QUEUE_BYTES));
    let error_path = scratch.file("error.log");
    let log = error_log(&writer, &error_path, Level::Error);
    let mut pipe = Pipe::new(&writer, &scratch.file("pipe"));
    let (before, mut sent) = (LINES_LOST.value(), 0);
    // Slowly enough for the queue: what is lost is lost behind it.
    while LINES_LOST.value() == before {
        pipe.write_block();
        sent += 1;
        log.log(Level::Error, format_args!("line {sent}"));
        wait_text(&error_path, |text| text.contains(&format!("line {sent}\n")));
        assert!(sent < 1000, "8 MiB are not enough");
    }
    let lost = LINES_LOST.value() - before;
    let text = wait_text(&error_path, |text| told(text) == lost);
    assert!(text.contains("pipe\"\n"), "it says where: {text}");
    pipe.read(usize::try_from(sent - lost).unwrap() * BLOCK);
    assert!(writer.flush(PATIENCE));
    drop(log);
}

#[test]
fn rotation_under_load_loses_and_misplaces_nothing() {
    const THREADS: usize = 3;
    const LINES: usize = 3000;
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("rotate"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("access.log");
    let file = writer.open(&path).unwrap();
    let mut rotated = Vec::new();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let file = file.clone();
                scope.spawn(move || {
                    for line in 0..LINES {
                        file.write(format!("{thread} {line}\n").into_bytes());
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        while !producers.iter().all(std::thread::ScopedJoinHandle::is_finished) && rotated.len() < 200 {
            let to = scratch.file(&format!("access.log.{}", rotated.len()));
            rename(&path, &to);
            writer.reopen();
            assert!(writer.flush(PATIENCE));
            assert!(path.exists(), "opened when flush says so");
            let size = text(&to).len();
            rotated.push((to, size));
        }
    });
    assert!(writer.shutdown(PATIENCE));
    let mut all = String::new();
    for (old, size) in &rotated {
        let text = text(old);
        assert_eq!(text.len(), *size, "nothing is written to an old file once the new one is open");
        all.push_str(&text);
    }
    all.push_str(&text(&path));
    for thread in 0..THREADS {
        let prefix = format!("{thread} ");
        let numbers = all.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(numbers.eq((0..LINES).map(|line| line.to_string())), "thread {thread} in order");
    }
}
