//! How a server is started: its configuration, its files, what it is started through, and when it counts
//! as started.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::binary::Binary;
use crate::client::{Address, Connection, PATIENCE};
use crate::prefix::Prefix;
use crate::process::Pid;
use crate::server::{Leader, Server};
use crate::wait_until;

/// The frame around the `http` part of most tests: one process in the foreground, its logs in `logs/`.
const FRAME: &str = "\
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log logs/error.log info;
events { worker_connections 256; }
http {
    %%TEMP%%
    access_log logs/access.log;
";

/// A server that could be started.
pub struct Setup {
    binary: Binary,
    config: String,
    files: Vec<(String, Vec<u8>)>,
    wrapper: Vec<String>,
    arguments: Vec<String>,
    ready: Vec<String>,
    place: ProgramPlace,
    mode: Mode,
    prepare: Option<Prepare>,
}

/// The contents of an `http` block with the usual frame.
pub(crate) fn framed(content: &str) -> String {
    format!("{FRAME}{content}\n}}\n")
}

/// A preparation of a prefix.
type Prepare = Box<dyn Fn(&Path)>;

/// Which file of the program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramPlace {
    /// The one that was built.
    Built,
    /// A copy in the prefix.
    Copied,
}

/// The value of `daemon` in the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Foreground,
    Daemon,
}

/// How a server refused to start.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The text on standard error, with keys in place of ports and prefix.
    pub said: String,
    /// New files in the prefix.
    pub left: Vec<String>,
}

impl Setup {
    /// With a whole configuration.
    pub fn new(binary: Binary, config: &str) -> Self {
        Self {
            binary,
            config: config.to_owned(),
            files: Vec::new(),
            wrapper: Vec::new(),
            arguments: Vec::new(),
            ready: Vec::new(),
            place: ProgramPlace::Built,
            mode: Mode::Foreground,
            prepare: None,
        }
    }

    /// With the contents of the `http` block and a usual frame: one process in the foreground.
    pub fn http(binary: Binary, content: &str) -> Self {
        Self::new(binary, &framed(content))
    }

    /// Adds a file, its path relative to the prefix; `%%KEY%%` that the configuration has are filled in.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// Adds command-line arguments behind `-p` and `-c`; `%%KEY%%` are filled in.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&word| word.to_owned()));
        self
    }

    /// Does this to the prefix when everything else is in it.
    #[must_use]
    pub fn prepared(mut self, prepare: impl Fn(&Path) + 'static) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    /// Starts the server through a program that replaces itself with it (`setpriv`, `taskset`, `sh -c
    /// 'ulimit …; exec "$@"' sh`).
    #[must_use]
    pub fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper.extend(wrapper.iter().map(|&word| word.to_owned()));
        self
    }

    /// Runs it without privileges, as the user and group 65534 (`nobody`). Only root can.
    #[must_use]
    pub fn as_nobody(self) -> Self {
        self.copied().through(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"])
    }

    /// Runs a copy of the program in the prefix: for users that may not read the directory it was built in,
    /// and where [`Server::replace_program`] is to put another in its place.
    #[must_use]
    pub fn copied(mut self) -> Self {
        self.place = ProgramPlace::Copied;
        self
    }

    /// The configuration says `daemon on` and `pid nginx.pid`: the program goes to the background, and
    /// the server is the process whose number is in that file.
    #[must_use]
    pub fn daemon(mut self) -> Self {
        self.mode = Mode::Daemon;
        self
    }

    /// It is ready when these listen (`%%KEY%%` may be used), instead of every port on 127.0.0.1.
    #[must_use]
    pub fn ready_at(mut self, listen: &str) -> Self {
        self.ready.push(listen.to_owned());
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(self) -> Server {
        let mut server = self.launch();
        if self.mode == Mode::Daemon {
            server.go_to_background(&self.binary);
        }
        let wanted: Vec<Address> = if self.ready.is_empty() {
            server.prefix.addresses()
        } else {
            self.ready.iter().map(|text| server.address_of(text)).collect()
        };
        let up = wait_until(PATIENCE, || {
            server.has_exited() || wanted.iter().all(|at| Connection::open(at).is_ok())
        });
        if !up || server.has_exited() {
            server.did_not_start(&self.binary);
        }
        server
    }

    /// Runs it, expecting that it refuses to start: its exit code and what it wrote to standard error,
    /// with keys in place of ports and prefix.
    ///
    /// # Panics
    /// If it goes on running.
    pub fn refused(self) -> (Option<i32>, String) {
        let refusal = self.refusal();
        (refusal.code, refusal.said)
    }

    /// Runs it, expecting that it refuses to start.
    ///
    /// # Panics
    /// If it goes on running, or leaves processes behind.
    pub fn refusal(self) -> Refusal {
        let mut server = self.launch();
        let before = self.files_before();
        let status = server.wait_exit(PATIENCE);
        let path = self.binary.path.display();
        assert!(status.is_some(), "{path} accepts what it should refuse:\n{}", self.config);
        let alone = wait_until(PATIENCE, || server.processes().is_empty());
        assert!(alone, "{path} leaves processes behind: {:?}", server.processes());
        let mut left = server.prefix.files();
        left.retain(|file| !before.contains(file));
        let said = server.with_keys(&server.read("stderr.log"));
        Refusal { code: status.and_then(|status| status.code()), said, left }
    }

    /// The files that [`Self::launch`] puts into the prefix.
    fn files_before(&self) -> Vec<String> {
        let mut names = vec!["nginx.conf".to_owned(), "stderr.log".to_owned(), self.program_name()];
        names.extend(self.files.iter().map(|(path, _)| path.clone()));
        names
    }

    fn program_name(&self) -> String {
        let name = self.binary.path.file_name().expect("a program has a name");
        name.to_string_lossy().into_owned()
    }

    /// Makes the directory with everything in it and runs the program.
    fn launch(&self) -> Server {
        let mut prefix = Prefix::new(self.binary.product);
        prefix.assign_ports(&self.config);
        for (path, content) in &self.files {
            prefix.write(path, content);
        }
        prefix.write("nginx.conf", self.config.as_bytes());
        let mut program = self.binary.path.clone();
        if self.place == ProgramPlace::Copied {
            program = prefix.dir.join(self.program_name());
            self.binary.copy_to(&program);
        }
        if let Some(prepare) = &self.prepare {
            prepare(&prefix.dir);
        }
        let child = self.spawn(&prefix, &program);
        Server { leader: Leader::Child(child), program, prefix, exited: None }
    }

    fn spawn(&self, prefix: &Prefix, program: &Path) -> Child {
        let said = fs::File::create(prefix.dir.join("stderr.log")).expect("the prefix is writable");
        let mut words = self.wrapper.iter().map(PathBuf::from).chain([program.to_owned()]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command.args(words).arg("-p").arg(&prefix.dir).arg("-c").arg(prefix.dir.join("nginx.conf"));
        // No test writes to a log of the system; times of day are the same on every machine.
        command.args(["-e", "stderr"]).env("TZ", "UTC");
        command.args(self.arguments.iter().map(|argument| prefix.fill(argument)));
        command.current_dir(&prefix.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.binary.path.display()))
    }
}

impl Server {
    /// Waits until the program has ended and the pid file says where the server is.
    fn go_to_background(&mut self, binary: &Binary) {
        let status = self.wait_exit(PATIENCE);
        if status.and_then(|status| status.code()) != Some(0) {
            self.did_not_start(binary);
        }
        let mut pid: Option<Pid> = None;
        // nginx writes the file after that.
        wait_until(PATIENCE, || {
            pid = self.pid_file();
            pid.is_some()
        });
        let Some(pid) = pid else { self.did_not_start(binary) };
        self.leader = Leader::Daemon(pid);
        self.exited = None;
    }

    fn did_not_start(&mut self, binary: &Binary) -> ! {
        let how = match self.exited {
            Some(status) => format!("code {:?}, signal {:?}", status.code(), status.signal()),
            None => "still running".to_owned(),
        };
        let said = self.read("stderr.log") + &self.error_log();
        panic!("{} did not start ({how}): {said}", binary.path.display());
    }
}
