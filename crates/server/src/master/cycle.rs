//! The master's life: waits for signals and for what workers report, and acts on them one after the
//! other, in the order in which nginx's master does. One thread, which blocks in poll(2) only.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_conf::Source;
use clearway_os::child::{self, Standard};
use clearway_os::poll;
use clearway_os::signal::{Received, Signal, SignalFd};

use super::configuration::Configuration;
use super::listening::Listening;
use super::pid_file::PidFile;
use super::upgrade;
use super::wanted::{Want, Wanted};
use super::workers::{self, Occasion, WorkerProcess};
use crate::control::Order;
use crate::core_conf::EnvValue;
use crate::invocation::Invocation;
use crate::messages::DirectLog;
use crate::start::{Failed, give_memory_back};

/// How long workers that were told to end at once may take before they are killed.
const KILL_AFTER: Duration = Duration::from_millis(1500);

/// The time between two attempts to write lines of the log that nobody reads.
const LOG_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How a master came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descent {
    /// The process that started it.
    pub(crate) parent: u32,
    /// Whether its sockets come from another binary.
    pub(crate) inherited: bool,
    /// Whether it went to the background.
    pub(crate) daemon: bool,
}

/// A master process.
pub(crate) struct Master<'a> {
    source: &'a dyn Source,
    pub(super) invocation: &'a Invocation,
    /// The environment that it was started with, without the variables that pass sockets on.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) config: Configuration,
    pub(super) listening: Listening,
    pub(super) signals: SignalFd,
    descent: Descent,
    pid_file: Option<PidFile>,
    /// The privileged agent among them.
    pub(super) workers: Vec<WorkerProcess>,
    /// The connections of the agent that code of the present configuration wants.
    pub(super) agent: Option<u32>,
    /// Processes that have tried something and are about to end.
    pub(super) tried: Vec<u32>,
    /// Counts configurations.
    pub(super) number: u64,
    pub(super) wanted: Wanted,
    new_binary: Option<u32>,
    /// WINCH: there is to be no worker.
    pub(super) no_accepting: bool,
    pub(super) ending: Option<Ending>,
    pub(super) respawn_at: Option<Instant>,
}

/// The server is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Graceful,
    /// Since when.
    Fast(Instant),
}

/// The parts that a master is made of.
pub(crate) struct Parts<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) invocation: &'a Invocation,
    pub(crate) config: Configuration,
    pub(crate) listening: Listening,
    pub(crate) signals: SignalFd,
    pub(crate) descent: Descent,
}

impl<'a> Master<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Self {
        let Parts { source, invocation, config, listening, signals, descent } = parts;
        let environment = std::env::vars_os().filter(|(name, _)| name != upgrade::VARIABLE).collect();
        Self {
            source,
            invocation,
            environment,
            config,
            listening,
            signals,
            descent,
            pid_file: None,
            workers: Vec::new(),
            agent: None,
            tried: Vec::new(),
            number: 0,
            wanted: Wanted::default(),
            new_binary: None,
            no_accepting: false,
            ending: None,
            respawn_at: None,
        }
    }

    /// Starts the first workers, waits until they serve, and writes the pid file.
    ///
    /// # Errors
    /// After the reason has been logged; nothing is left behind.
    pub(crate) fn start(&mut self, log: &dyn Sink) -> Result<(), Failed> {
        debug_assert!(self.workers.is_empty() && self.pid_file.is_none(), "a master starts once");
        let workers = match self.config.core.wants_worker() {
            true => self.start_workers(&self.groups(), Occasion::Start, log)?,
            false => {
                self.notice(format_args!("start worker processes"));
                Vec::new()
            }
        };
        match PidFile::write(self.config.core.pid_file(), log) {
            Ok(file) => self.pid_file = Some(file),
            Err(failed) => {
                workers.iter().for_each(|worker| worker.kill(Signal::KILL, log));
                return Err(failed);
            }
        }
        self.workers.extend(workers);
        self.redirect_stderr();
        self.renew_agent();
        give_memory_back();
        Ok(())
    }

    /// Whether it was told to end at once.
    pub(crate) fn is_told_to_end(&self) -> bool {
        self.wanted.has(Want::Terminate)
    }

    /// Runs until the server has ended.
    pub(crate) fn run(&mut self) {
        loop {
            self.wait(self.patience());
            if self.config.log.has_held_lines() {
                self.config.log.retry();
            }
            if self.wanted.take(Want::Reap) {
                self.reap();
            }
            if self.wanted.has(Want::Terminate) {
                self.terminate();
            } else if self.wanted.has(Want::Quit) {
                self.quit();
            }
            if self.ending.is_some() {
                if self.workers.is_empty() {
                    return self.end();
                }
                continue;
            }
            self.act();
        }
    }

    /// Does what signals have asked for, of a server that is not ending.
    fn act(&mut self) {
        if self.wanted.take(Want::Reconfigure) {
            if self.new_binary.is_some() {
                self.no_accepting = false;
                self.ensure_workers(Occasion::Start);
            } else {
                self.notice(format_args!("reconfiguring"));
                // What went wrong has been logged, and nothing has changed.
                let _ = self.reconfigure();
                give_memory_back();
            }
        }
        if self.wanted.take(Want::Reopen) {
            self.notice(format_args!("reopening logs"));
            self.reopen();
        }
        if self.wanted.take(Want::ChangeBinary) {
            self.notice(format_args!("changing binary"));
            self.change_binary();
        }
        if self.wanted.take(Want::StopAccepting) {
            self.no_accepting = true;
            // The sockets stay open here: new connections wait for the next worker.
            self.workers.iter_mut().for_each(|worker| worker.retire(&[]));
        }
        if self.respawn_at.is_some_and(|at| at <= Instant::now()) {
            self.respawn_at = None;
            self.ensure_workers(Occasion::Respawn);
        }
    }

    pub(super) fn log(&self) -> DirectLog {
        self.config.log.clone()
    }

    pub(super) fn notice(&self, message: std::fmt::Arguments<'_>) {
        self.config.notice(message);
    }

    /// How long the master may wait for signals and reports until it has something to do by itself.
    fn patience(&self) -> Option<Duration> {
        if self.wanted.is_any() || (self.wanted.ends() && self.ending.is_none()) {
            // A signal was noted while the master waited for something else.
            return Some(Duration::ZERO);
        }
        let kill_at = match self.ending {
            Some(Ending::Fast(since)) => Some(since + KILL_AFTER),
            _ => None,
        };
        let next = [kill_at, self.respawn_at].into_iter().flatten().min();
        let next = next.map(|at| at.saturating_duration_since(Instant::now()));
        match self.config.log.has_held_lines() {
            true => Some(next.unwrap_or(LOG_RETRY_AFTER).min(LOG_RETRY_AFTER)),
            false => next,
        }
    }

    /// Waits for signals and reports, `limit` at most, and takes them.
    fn wait(&mut self, limit: Option<Duration>) {
        let log = self.log();
        let connected: Vec<usize> =
            (0..self.workers.len()).filter(|&at| self.workers[at].is_connected()).collect();
        let channels = connected.iter().filter_map(|&at| self.workers[at].channel());
        let watched: Vec<_> = std::iter::once(self.signals.as_fd()).chain(channels).collect();
        let ready = match poll::wait(&watched, limit) {
            Ok(ready) => ready,
            Err(error) => return log.log(Level::Alert, format_args!("poll() failed {}", Errno(&error))),
        };
        debug_assert_eq!(ready.len(), connected.len() + 1, "signals, and each worker that can speak");
        for (&at, _) in connected.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.workers[at].listen(&log);
        }
        if ready[0] {
            while let Ok(Some(received)) = self.signals.take() {
                self.note(received);
            }
        }
    }

    /// Logs a signal and remembers what it asks for.
    pub(super) fn note(&mut self, received: Received) {
        let Received { signal, sender_pid } = received;
        let wanted = &mut self.wanted;
        let mut ignored = false;
        let action = match signal {
            Signal::QUIT => {
                wanted.add(Want::Quit);
                ", shutting down"
            }
            Signal::TERM | Signal::INT => {
                wanted.add(Want::Terminate);
                ", exiting"
            }
            Signal::WINCH if self.descent.daemon => {
                wanted.add(Want::StopAccepting);
                ", stop accepting connections"
            }
            Signal::HUP => {
                wanted.add(Want::Reconfigure);
                ", reconfiguring"
            }
            Signal::USR1 => {
                wanted.add(Want::Reopen);
                ", reopening logs"
            }
            Signal::USR2 => {
                ignored = child::parent_id() == self.descent.parent || self.new_binary.is_some();
                if !ignored {
                    wanted.add(Want::ChangeBinary);
                }
                if ignored { ", ignoring" } else { ", changing binary" }
            }
            Signal::CHLD => {
                wanted.add(Want::Reap);
                ""
            }
            _ => "",
        };
        let (number, name) = (signal.0, signal.name());
        match sender_pid {
            0 => self.notice(format_args!("signal {number} ({name}) received{action}")),
            pid => self.notice(format_args!("signal {number} ({name}) received from {pid}{action}")),
        }
        if ignored {
            self.config.log.log(
                Level::Crit,
                format_args!(
                    "the changing binary signal is ignored: you should shutdown or terminate before either \
                     old or new binary's process"
                ),
            );
        }
    }

    /// Collects children that have ended.
    fn reap(&mut self) {
        let log = self.log();
        while let Ok(Some((pid, exit))) = child::reap() {
            if self.new_binary == Some(pid) {
                workers::log_exit("new binary process", pid, exit, &log);
                self.new_binary = None;
                if let Some(file) = &mut self.pid_file {
                    file.take_back(&log);
                }
                if std::mem::take(&mut self.no_accepting) {
                    self.ensure_workers(Occasion::Start);
                }
                continue;
            }
            if let Some(at) = self.tried.iter().position(|tried| *tried == pid) {
                self.tried.swap_remove(at);
                self.config.forget_worker(pid);
                continue;
            }
            let Some(at) = self.workers.iter().position(|worker| worker.pid == pid) else {
                workers::log_exit("unknown process", pid, exit, &log);
                continue;
            };
            let mut worker = self.workers.remove(at);
            debug_assert!(self.workers.iter().all(|other| other.pid != pid), "a process is one worker");
            // Its last reports are still to be read.
            while worker.is_connected() && worker.has_news() {
                worker.listen(&log);
            }
            worker.log_end(exit, &log);
            self.config.forget_worker(pid);
            self.replace(&worker, exit);
        }
    }

    /// Loads the configuration anew and has it used, by the worker that is there or by a new one.
    fn reconfigure(&mut self) -> Result<(), Failed> {
        let log = self.log();
        let config = Configuration::read(self.source, &self.invocation.options, Some(&self.config), &log)?;
        let listening = self.listening.open(&config.requests, config.core.all_loops(), &log)?;
        let old_config = std::mem::replace(&mut self.config, config);
        let old_listening = std::mem::replace(&mut self.listening, listening);
        self.config.announce_events(&self.config.log);
        let result = self.hand_on(&old_config, &old_listening, &log);
        match result {
            Ok(()) => {
                self.config.log.take_held_lines(&old_config.log);
                if let Some(file) = &mut self.pid_file {
                    // The server runs on with its old file; the reason has been logged.
                    let _ = file.move_to(self.config.core.pid_file(), &self.config.log);
                }
                old_listening.unlink_dropped(&self.listening, &self.config.log);
                old_listening.give_way(&mut self.listening);
                self.renew_agent();
            }
            Err(_) => {
                old_config.log.take_held_lines(&self.config.log);
                self.config = old_config;
                let unused = std::mem::replace(&mut self.listening, old_listening);
                self.listening.forget(&unused, &log);
            }
        }
        result
    }

    /// Has the kernel refuse new connections to sockets that are gone from the configuration, which takes
    /// the master's rights; the worker accepts connections that were begun before.
    pub(super) fn refuse_removed(&self, old: &Listening) {
        if !self.has_heir() {
            old.refuse_removed_in(&self.listening);
        }
    }

    /// Where standard error of a daemon's processes goes; `None`: it stays.
    pub(super) fn stderr_file(&self) -> Option<OwnedFd> {
        let detached = self.descent.daemon && !self.descent.inherited;
        self.config.stderr_file(&self.invocation.options).filter(|_| detached)
    }

    /// Detaches from the terminal that a daemon was started from.
    fn redirect_stderr(&self) {
        if let Some(file) = self.stderr_file()
            && let Err(error) = child::redirect(file.as_fd(), Standard::Error)
        {
            self.config.log.log(Level::Alert, format_args!("dup2(STDERR) failed {}", Errno(&error)));
        }
    }

    fn reopen(&mut self) {
        self.config.reopen_logs();
        self.redirect_stderr();
        for worker in &self.workers {
            match self.config.logs() {
                Ok(logs) => worker.tell(&Order::Reopen(logs)),
                Err(error) => {
                    let errno = Errno(&error);
                    self.config.log.log(Level::Alert, format_args!("fcntl(F_DUPFD_CLOEXEC) failed {errno}"));
                }
            }
        }
    }

    fn change_binary(&mut self) {
        let log = self.log();
        let Some(file) = &mut self.pid_file else { return };
        if file.set_aside(&log).is_err() {
            return;
        }
        let environment = environment(&self.config, &self.environment);
        match upgrade::start(self.invocation, &environment, &self.listening, &log) {
            Ok(pid) => {
                log.log(Level::Notice, format_args!("start new binary process {pid}"));
                self.new_binary = Some(pid);
            }
            Err(Failed) => file.take_back(&log),
        }
    }

    fn terminate(&mut self) {
        let log = self.log();
        match self.ending {
            Some(Ending::Fast(since)) if since.elapsed() >= KILL_AFTER => {
                self.workers.iter().for_each(|worker| worker.kill(Signal::KILL, &log));
                self.ending = Some(Ending::Fast(Instant::now()));
            }
            Some(Ending::Fast(_)) => {}
            _ => {
                self.workers.iter().for_each(|worker| worker.tell(&Order::Terminate));
                self.ending = Some(Ending::Fast(Instant::now()));
            }
        }
    }

    fn quit(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(Ending::Graceful);
            let removed = match self.has_heir() {
                true => Vec::new(),
                false => self.listening.removed_in(&Listening::default()),
            };
            if !self.has_heir() {
                self.listening.refuse_removed_in(&Listening::default());
            }
            self.workers.iter_mut().for_each(|worker| worker.retire(&removed));
            self.close_sockets();
        }
    }

    /// Whether another binary listens on the same sockets.
    fn has_heir(&self) -> bool {
        let is_heir = self.descent.inherited && child::parent_id() == self.descent.parent;
        self.new_binary.is_some() || is_heir
    }

    /// Closes the listening sockets, and removes the files of unix sockets unless another binary uses them.
    fn close_sockets(&mut self) {
        let shared = self.has_heir();
        let listening = std::mem::take(&mut self.listening);
        if !shared {
            listening.unlink_all(&self.config.log);
        }
    }

    /// Removes the pid file, logs the end and closes the listening sockets.
    pub(crate) fn end(&mut self) {
        if let Some(file) = self.pid_file.take() {
            file.remove(&self.config.log);
        }
        self.notice(format_args!("exit"));
        self.close_sockets();
    }
}

/// What tests tell the loops of all processes (the runtime's feature `chaos`).
const OF_TESTS: &str = "CLEARWAY_CHAOS_LEND";

/// The environment of workers and new binaries.
pub(super) fn environment(config: &Configuration, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut result: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in config.core.environment() {
        let value = match value {
            EnvValue::Given(value) => Some(value),
            EnvValue::Inherited => own.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone()),
        };
        if let Some(value) = value.filter(|_| result.iter().all(|(known, _)| *known != name)) {
            result.push((name, value));
        }
    }
    if cfg!(feature = "testing") {
        result.extend(own.iter().filter(|(name, _)| *name == OF_TESTS).cloned());
    }
    result
}
