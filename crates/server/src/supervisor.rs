//! The supervisor: what a master process does (listening sockets, the pid file, signals), for now in
//! the process of its worker. It runs on the main thread, which is no carrier and may block.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Record, Sink};
use clearway_conf::Source;
use clearway_log::{Disk, ErrorLog, Writer};
use clearway_net::bind::{self, Request, Sockets};
use clearway_os::process;
use clearway_os::signal::{self, Signal, SignalSet};

use crate::load::{self, Loaded, Paths};
use crate::worker::Worker;

/// How long the log writer may take to write what is queued when the server ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// How often a draining server looks whether it is done.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// Descriptors for everything that is no connection: logs, epoll, files being sent.
const DESCRIPTORS_BESIDE: u64 = 512;

/// Why the server ended other than by a signal; everything about it has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Runs a server until a signal ends it. `ready` is called when it answers.
///
/// # Errors
/// When it cannot start: the message is on standard error, and in the error log if that is open.
pub fn run(source: &dyn Source, paths: &Paths, ready: impl FnOnce()) -> Result<(), Failed> {
    let signals = SignalSet::of(&[Signal::TERM, Signal::INT, Signal::QUIT]);
    signal::block_all();
    signal::ignore_sigpipe();
    let writer = Arc::new(Writer::new(Box::new(Disk)));
    writer.start().map_err(|error| say_emerg(&error))?;
    let result = run_with(source, paths, &writer, |worker, log| {
        ready();
        wait(worker, &signals, log)
    });
    if !writer.shutdown(FLUSH_LIMIT) {
        say(Level::Alert, &"log lines that could not be written in time are lost");
    }
    result
}

/// Everything between a log writer that runs and one that is to end: starts the server, has `serve`
/// wait for its end, cleans up.
fn run_with(
    source: &dyn Source,
    paths: &Paths,
    writer: &Arc<Writer>,
    serve: impl FnOnce(&Worker, &ErrorLog) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let loaded = load::load(source, paths, writer).map_err(|error| {
        say(error.level(), &String::from_utf8_lossy(&error.text()));
        Failed
    })?;
    let boot = Boot { log: Arc::clone(&loaded.log) };
    for warning in &loaded.warnings {
        boot.log(warning.level(), format_args!("{}", String::from_utf8_lossy(&warning.text())));
    }
    prepare_descriptors(&loaded, &boot);
    let requests: Vec<Request> =
        loaded.snapshot.iter().flat_map(|s| s.sockets()).map(clearway_http::Socket::request).collect();
    let sockets = open_sockets(&requests, loaded.core.loops(), &boot)?;
    announce(&loaded);
    let worker = Worker::start(&loaded, sockets).map_err(|error| boot.fail(&error))?;
    let pid_file = PidFile::write(loaded.core.pid_file(), &boot)?;
    let result = serve(&worker, &loaded.log);
    for request in &requests {
        bind::close_unix(&request.address, &*loaded.log);
    }
    drop(pid_file);
    loaded.log.log(Level::Notice, format_args!("exit"));
    result
}

/// What the configuration asks for that one process in the foreground does not give, and what runs.
fn announce(loaded: &Loaded) {
    let log = &loaded.log;
    if loaded.core.daemon() {
        log.log(Level::Notice, format_args!("\"daemon on\" has no effect yet: staying in the foreground"));
    }
    if loaded.core.master_process() {
        log.log(Level::Notice, format_args!("\"master_process on\" has no effect yet: one process"));
    }
    log.log(Level::Notice, format_args!("using the \"epoll\" event method"));
}

fn open_sockets(requests: &[Request], loops: usize, boot: &Boot) -> Result<Vec<Sockets>, Failed> {
    #[expect(clippy::disallowed_methods, reason = "boot, on the main thread, which runs no loop")]
    let mut pause = std::thread::sleep;
    bind::bind_all(requests, loops, boot, &mut pause).map_err(|_| Failed)
}

/// One process has the descriptors that nginx's workers have between them.
fn prepare_descriptors(loaded: &Loaded, boot: &Boot) {
    let loops = loaded.core.loops() as u64;
    let connections = u64::from(loaded.core.worker_connections());
    let Some(each) = process::descriptors_max() else { return };
    let limit = process::raise_descriptors(each.saturating_mul(loops)).unwrap_or(u64::MAX);
    if connections > limit / loops {
        let limit = limit / loops;
        boot.log(
            Level::Warn,
            format_args!("{connections} worker_connections exceed open file resource limit: {limit}"),
        );
    }
    process::grow_descriptor_table(limit.min(connections * loops + DESCRIPTORS_BESIDE));
}

/// Acts on signals until the server has ended.
fn wait(worker: &Worker, signals: &SignalSet, log: &ErrorLog) -> Result<(), Failed> {
    let mut draining = false;
    loop {
        let taken = signals.wait(draining.then_some(DRAIN_STEP));
        let signal = taken.map_err(|error| {
            log.log(Level::Alert, format_args!("sigtimedwait() failed {}", Errno(&error)));
            Failed
        })?;
        if let Some(signal) = signal {
            let (number, name) = (signal.0, signal.name());
            let action = if signal == Signal::QUIT { "shutting down" } else { "exiting" };
            log.log(Level::Notice, format_args!("signal {number} ({name}) received, {action}"));
            if signal != Signal::QUIT {
                break;
            }
            log.log(Level::Notice, format_args!("gracefully shutting down"));
            draining = true;
            worker.drain();
        }
        if draining && worker.connections() == 0 {
            break;
        }
    }
    log.log(Level::Notice, format_args!("exiting"));
    worker.stop();
    Ok(())
}

/// The file with the process's number, removed when the server ends.
struct PidFile(PathBuf);

impl PidFile {
    #[expect(clippy::disallowed_methods, reason = "boot, on the main thread, which runs no loop")]
    fn write(path: &Path, boot: &Boot) -> Result<Self, Failed> {
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(|error| {
            let errno = Errno(&error);
            boot.log(Level::Emerg, format_args!("open() \"{}\" failed {errno}", path.display()));
            Failed
        })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    #[expect(clippy::disallowed_methods, reason = "the end of the process, on the main thread")]
    fn drop(&mut self) {
        // Where somebody removed it already there is nothing to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Messages of the start: on standard error as nginx prints them, and in the error log.
struct Boot {
    log: Arc<ErrorLog>,
}

impl Boot {
    fn fail(&self, error: &io::Error) -> Failed {
        self.log(Level::Emerg, format_args!("cannot start {}", Errno(error)));
        Failed
    }
}

impl Sink for Boot {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Notice
    }

    fn write(&self, record: &Record<'_>) {
        say(record.level, &record.message);
        if self.log.enabled(record.level) {
            self.log.write(record);
        }
    }
}

fn say_emerg(error: &io::Error) -> Failed {
    say(Level::Emerg, &format_args!("cannot start the log writer {}", Errno(error)));
    Failed
}

#[expect(clippy::disallowed_macros, reason = "boot, on the main thread, which runs no loop")]
fn say(level: Level, message: &dyn fmt::Display) {
    eprintln!("nginx: [{}] {message}", level.as_str());
}
