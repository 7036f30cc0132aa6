//! A server under test, Clearway or nginx, in a directory of its own: talked to, signalled, read about
//! in its logs, and ended with all its processes.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::Duration;

use rustix::process::{Pid as KernelPid, Signal, kill_process};

use crate::binary::Binary;
use crate::client::{Address, Connection, PATIENCE};
use crate::prefix::Prefix;
use crate::process::{Pid, is_running};
use crate::wait_until;

/// Whether this process may change users and raise priorities.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A running server; killed with all its processes, and its directory removed, when dropped (the
/// directory stays when the test has failed).
pub struct Server {
    pub(crate) leader: Leader,
    pub(crate) program: PathBuf,
    pub(crate) prefix: Prefix,
    pub(crate) exited: Option<ExitStatus>,
}

/// The process that the server is told by.
pub(crate) enum Leader {
    /// Started by this process.
    Child(Child),
    /// Went to the background: somebody else hears of its end.
    Daemon(Pid),
}

impl Server {
    /// The port that `%%PORT%%` became.
    pub fn port(&self) -> u16 {
        self.port_of("PORT")
    }

    /// The port that another key became.
    pub fn port_of(&self, key: &str) -> u16 {
        self.prefix.port(key)
    }

    /// The text with keys in place of this server's ports and prefix.
    pub fn with_keys(&self, text: &str) -> String {
        self.prefix.with_keys(text)
    }

    /// `%%PORT%%` on 127.0.0.1.
    pub fn address(&self) -> Address {
        self.address_of("127.0.0.1:%%PORT%%")
    }

    /// The address that is written in nginx's words, with keys: `127.0.0.1:%%PORT2%%`, `[::1]:%%PORT%%`,
    /// `unix:%%PREFIX%%/sock`.
    pub fn address_of(&self, listen: &str) -> Address {
        self.prefix.address(listen)
    }

    /// A connection to [`Server::address`].
    ///
    /// # Panics
    /// If it is refused.
    pub fn connect(&self) -> Connection {
        Connection::open(&self.address()).expect("the server listens")
    }

    /// One GET over a connection of its own that is closed afterwards.
    pub fn get(&self, target: &str) -> crate::Response {
        self.connect().ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Where its files are.
    pub fn prefix(&self) -> &Path {
        &self.prefix.dir
    }

    /// The process that gets signals: its master, or its only process.
    pub fn pid(&self) -> Pid {
        match &self.leader {
            Leader::Child(child) => child.id(),
            Leader::Daemon(pid) => *pid,
        }
    }

    /// The number in `nginx.pid`; nothing if it is not there.
    pub fn pid_file(&self) -> Option<Pid> {
        self.pid_in("nginx.pid")
    }

    /// The number in a pid file; nothing if it is not there.
    pub fn pid_in(&self, path: &str) -> Option<Pid> {
        self.read(path).trim().parse().ok()
    }

    /// From now on this process is what the server is told by: after a binary upgrade, for instance.
    pub fn follow(&mut self, pid: Pid) {
        self.leader = Leader::Daemon(pid);
        self.exited = None;
    }

    /// Sends a signal to [`Server::pid`].
    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits for its end, at most `limit`; nothing if it goes on. The status of a daemon is not known:
    /// it counts as 0.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_until(limit, || self.has_exited());
        self.exited
    }

    /// Ends it with SIGTERM and returns how it ended.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(PATIENCE).expect("SIGTERM ends a server")
    }

    /// Writes another configuration, which takes effect when the server reads it.
    pub fn configure(&mut self, config: &str) {
        self.prefix.assign_ports(config);
        self.prefix.write("nginx.conf", config.as_bytes());
    }

    /// Puts another program in the place of a [copied](crate::Setup::copied) one, as an upgrade does.
    pub fn replace_program(&self, by: &Binary) {
        let new = self.program.with_extension("new");
        by.copy_to(&new);
        fs::rename(&new, &self.program).expect("both lie in the prefix");
    }

    /// Runs its program once more with the same prefix and configuration and these arguments.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.arg("-p").arg(self.prefix()).arg("-c").arg(self.prefix().join("nginx.conf"));
        command.args(["-e", "stderr"]);
        command.args(arguments).current_dir(self.prefix()).output().expect("the program is there")
    }

    /// A file below the prefix as text; empty if it is not there.
    pub fn read(&self, path: &str) -> String {
        self.prefix.read(path)
    }

    /// `logs/error.log`.
    pub fn error_log(&self) -> String {
        self.read("logs/error.log")
    }

    /// Ends it with SIGQUIT and returns `logs/error.log` with all that it had to say: lines are written by a
    /// thread of their own and may come later than the answers that they are about.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn last_error_log(&mut self) -> String {
        self.signal(Signal::QUIT);
        self.wait_exit(PATIENCE).expect("SIGQUIT ends a server");
        self.error_log()
    }

    /// `logs/access.log`.
    pub fn access_log(&self) -> String {
        self.read("logs/access.log")
    }

    /// Waits until a line of a log file holds the text, and returns the file.
    ///
    /// # Panics
    /// If none ever does.
    pub fn wait_log(&self, path: &str, text: &str) -> String {
        self.wait_lines(path, text, 1)
    }

    /// Waits until so many lines of a log file hold the text, and returns the file. Lines are written
    /// by a thread of their own some time after what they tell, so a test waits for the last one that it
    /// needs before it looks at any.
    ///
    /// # Panics
    /// If they never do.
    pub fn wait_lines(&self, path: &str, text: &str, count: usize) -> String {
        let mut log = String::new();
        let found = wait_until(PATIENCE, || {
            log = self.lines(path);
            log.lines().filter(|line| line.contains(text)).count() >= count
        });
        assert!(found, "{text:?} is not in {count} lines of {path}:\n{log}");
        log
    }

    /// The whole lines of a file: of one that is just being written, half a line may be there.
    pub fn lines(&self, path: &str) -> String {
        let mut text = self.read(path);
        text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
        text
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        if self.exited.is_none() {
            self.exited = match &mut self.leader {
                Leader::Child(child) => child.try_wait().expect("the child is ours"),
                Leader::Daemon(pid) => (!is_running(*pid)).then(|| ExitStatus::from_raw(0)),
            };
        }
        self.exited.is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Twice and more: one may just be starting another.
        wait_until(PATIENCE, || {
            let left = self.processes();
            left.iter().for_each(|&pid| send_signal(pid, Signal::KILL));
            left.is_empty()
        });
        if let Leader::Child(child) = &mut self.leader {
            // It was killed: there is nothing that this could fail on.
            drop(child.wait());
        }
        if std::thread::panicking() {
            eprintln!("the server's files are in {}", self.prefix().display());
        } else {
            self.prefix.remove();
        }
    }
}

/// Sends a signal to a process of a server.
pub fn send_signal(pid: Pid, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(KernelPid::from_raw) {
        // A process that has ended meanwhile is what was wanted.
        let _ = kill_process(pid, signal);
    }
}
