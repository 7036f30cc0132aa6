//! Logs that cannot be written as fast as they are made, or not at all, and logs that are reopened.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Signal;

use super::{BODY, deployed, lines_with};
use crate::client::PATIENCE;
use crate::load::{Load, Tally};
use crate::response::{Answer, Parsed, Stream, parse};
use crate::{Address, Binary, Server, Setup, wait_until};

/// Requests that are sent at once on a connection of a burst.
const BATCH: usize = 100;
/// Connections of a burst.
const CONNECTIONS: usize = 4;
/// Every line of a load has this.
const MARK: &str = "GET /load ";

fn config(log: &str) -> String {
    deployed(
        "",
        &format!(
            "access_log {log};\nserver {{ listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site;\n\
             location = /load {{ return 200 {BODY}; }} }}"
        ),
    )
}

/// As many requests as there can be, each of which leaves a line.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// How many.
    pub requests: usize,
}

/// The results of a [`Burst`].
#[derive(Clone, Copy, Debug)]
pub struct BurstReport {
    /// From the first request to the last answer.
    pub took: Duration,
    /// Lines in the log.
    pub lines: u64,
    /// Lines that the error log calls lost.
    pub lost: u64,
    /// The longest that a client beside the burst waited for an answer.
    pub slowest: Duration,
}

impl Burst {
    /// Plays it.
    ///
    /// # Panics
    /// If an answer is missing or wrong.
    pub fn play(self, binary: &Binary) -> BurstReport {
        let server = Setup::new(binary.clone(), &config("logs/access.log")).start();
        let beside = Load::new(server.address()).target("/load").bodies(&[BODY]).clients(1, 1).start();
        let began = Instant::now();
        let each = self.requests / CONNECTIONS;
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| pipeline(&server.address(), each));
            }
        });
        let took = began.elapsed();
        let mut beside = beside.finish();
        assert_eq!(beside.failed(), 0, "{beside}");
        let asked = (each * CONNECTIONS) as u64 + beside.answered;
        let (mut lines, mut lost) = (0, 0);
        wait_until(PATIENCE, || {
            lines = lines_with(&server.read("logs/access.log"), MARK);
            lost = lost_lines(&server);
            lines + lost >= asked
        });
        assert_eq!(lines + lost, asked, "{lines} lines and {lost} lost for {asked} requests");
        BurstReport { took, lines, lost, slowest: beside.quantile(1.0) }
    }
}

/// Asks so many times over one connection, a batch at a time. All answers are of the same length.
fn pipeline(to: &Address, count: usize) {
    let Address::Tcp(to) = to else { panic!("bursts go over TCP") };
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a TCP connection has timeouts");
    let request: &[u8] = b"GET /load HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("the server reads");
    let mut first = Vec::new();
    let length = loop {
        let mut chunk = [0; 4096];
        let got = stream.read(&mut chunk).expect("an answer comes");
        first.extend_from_slice(&chunk[..got]);
        if let Parsed::Complete(_, length) = parse(&first, Answer::Whole, Stream::Open) {
            break length;
        }
    };
    let mut left = count - 1;
    while left > 0 {
        let batch = left.min(BATCH);
        stream.write_all(&request.repeat(batch)).expect("the server reads");
        let mut answers = vec![0; batch * length];
        stream.read_exact(&mut answers).expect("all answers come");
        for answer in answers.chunks(length) {
            assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(BODY.as_bytes()));
        }
        left -= batch;
    }
}

/// The number of lost lines by the error log.
fn lost_lines(server: &Server) -> u64 {
    let log = server.lines("logs/error.log");
    let lost = log
        .lines()
        .filter_map(|line| line.strip_suffix(" lines lost")?.rsplit(' ').next()?.parse::<u64>().ok());
    lost.sum()
}

/// The access log is a device that is always full, under load; what the error log says of that.
///
/// # Panics
/// If nothing is said.
pub fn full_device(binary: &Binary, answers: u64) -> (Tally, String) {
    let server = Setup::new(binary.clone(), &config("/dev/full")).start();
    let load = Load::new(server.address()).target("/load").bodies(&[BODY]).start();
    load.wait_answers(answers);
    let said = server.wait_log("logs/error.log", "write() to \"/dev/full\" failed");
    (load.finish(), said)
}

/// The results of [`stuck_log`].
#[derive(Clone, Debug)]
pub struct StuckReport {
    /// The load while the log was stuck.
    pub load: Tally,
    /// The lines in the error log before the access log moved on.
    pub said_meanwhile: String,
    /// Lines of the load that arrived in the end.
    pub lines: u64,
    /// Lines that the error log calls lost.
    pub lost: u64,
}

/// The access log is a pipe that nobody reads until so many requests have been answered, as a disk
/// that does not answer for a while.
///
/// # Panics
/// If requests wait for the log.
pub fn stuck_log(binary: &Binary, answers: u64) -> StuckReport {
    let setup = Setup::new(
        binary.clone(),
        &config("%%PREFIX%%/logs/pipe").replace("logs/error.log notice", "logs/error.log error"),
    );
    let pipe = Rc::new(Pipe::default());
    let made = Rc::clone(&pipe);
    let server = setup.prepared(move |prefix| made.make(&prefix.join("logs/pipe"))).start();
    let load = Load::new(server.address()).target("/load").bodies(&[BODY]).start();
    load.wait_answers(answers);
    assert_eq!(server.get("/missing").status, 404);
    let said_meanwhile = server.wait_log("logs/error.log", "/site/missing\" failed (2: ");
    let load = load.finish();
    let (mut lines, mut lost, mut text) = (0, 0, Vec::new());
    wait_until(PATIENCE, || {
        pipe.read(&mut text);
        lines = lines_with(&String::from_utf8_lossy(&text), MARK);
        lost = lost_lines(&server);
        lines + lost >= load.answered
    });
    StuckReport { load, said_meanwhile, lines, lost }
}

/// The end of a pipe that a test holds.
#[derive(Default)]
struct Pipe(std::cell::OnceCell<File>);

impl Pipe {
    fn make(&self, path: &std::path::Path) {
        let made =
            Command::new("mkfifo").arg("-m").arg("666").arg(path).status().expect("mkfifo is installed");
        assert!(made.success());
        // For both directions, so that a writer that opens it does not wait for a reader.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
        let file = fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        assert!(self.0.set(file.expect("the pipe is ours")).is_ok(), "made once");
    }

    /// Appends what is there.
    fn read(&self, text: &mut Vec<u8>) {
        let mut file = self.0.get().expect("it was made");
        let mut chunk = vec![0; 1 << 16];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return,
                Ok(got) => text.extend_from_slice(&chunk[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("reading the pipe: {error}"),
            }
        }
    }
}

/// Logs that are moved and reopened under load.
#[derive(Clone, Copy, Debug)]
pub struct Reopen {
    /// How many times.
    pub rounds: usize,
}

/// The results of a [`Reopen`].
#[derive(Clone, Debug)]
pub struct ReopenReport {
    /// The load.
    pub load: Tally,
    /// Lines of the load in all files together.
    pub lines: u64,
    /// Files that got none.
    pub empty: usize,
}

impl Reopen {
    /// Plays it.
    ///
    /// # Panics
    /// If the log is not opened anew.
    pub fn play(self, binary: &Binary) -> ReopenReport {
        let server = Setup::new(binary.clone(), &config("logs/access.log")).start();
        let load = Load::new(server.address()).target("/load").bodies(&[BODY]).start();
        let mut files = vec!["logs/access.log".to_owned()];
        for round in 0..self.rounds {
            load.wait_answers(50);
            let moved = format!("logs/access.{round}.log");
            let log = server.prefix().join("logs/access.log");
            fs::rename(&log, server.prefix().join(&moved)).expect("the log is there");
            files.push(moved);
            server.signal(Signal::USR1);
            assert!(wait_until(PATIENCE, || log.exists()), "the log is not reopened: {}", server.described());
            // It is the worker's file when it has lines.
            let used = wait_until(PATIENCE, || server.access_log().contains(MARK));
            assert!(used, "nothing is written to the new log: {}", server.described());
        }
        let load = load.finish();
        let mut counts = Vec::new();
        wait_until(PATIENCE, || {
            counts = files.iter().map(|file| lines_with(&server.read(file), MARK)).collect();
            counts.iter().sum::<u64>() >= load.answered
        });
        let empty = counts.iter().filter(|count| **count == 0).count();
        ReopenReport { load, lines: counts.iter().sum(), empty }
    }
}
