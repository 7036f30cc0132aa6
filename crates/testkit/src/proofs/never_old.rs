//! Files that change while they are asked for: each answer is what is there when its request is sent, as
//! from an nginx that keeps no file open. Every file has been quiet for long enough to be copied, and was
//! asked for, before it changes.
//!
//! Not promised: a change through a shared mapping, which Linux stamps late.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use std::io::Write;

use crate::place::{Mount, MountedDirectory};
use crate::server::is_root;
use crate::{Answer, Binary, Connection, Response, Server, Setup};

/// After this time a file is taken to be quiet.
const QUIET: Duration = Duration::from_millis(2300);
/// Sizes of files by round, bytes: copied, copied, sent from the page cache.
const SIZES: [usize; 3] = [1000, 20_000, 100_000];
/// How often a file is asked for before it changes: the second time it is copied, the third time sent so.
const ASKED_BEFORE: usize = 3;
/// Problems that are kept in words.
const TOLD: usize = 10;

/// How a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    RenameOver,
    /// In place and to the same size, twice within a tick of the clock.
    Rewrite,
    Chmod,
    SwapLink,
    /// The link is a directory of the path.
    SwapDirectory,
    Unlink,
}

const CHANGES: [Change; 6] = [
    Change::RenameOver,
    Change::Rewrite,
    Change::Chmod,
    Change::SwapLink,
    Change::SwapDirectory,
    Change::Unlink,
];

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct NeverOld {
    /// Files of each kind of change, each of which changes twice.
    pub rounds: usize,
    /// On what they lie.
    pub mount: Mount,
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct NeverOldReport {
    /// Answers that were looked at.
    pub asked: u64,
    /// Answers of the load beside them.
    pub beside: u64,
    /// Answers that were not of what was there.
    pub old: u64,
    told: Vec<String>,
}

impl fmt::Display for NeverOldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers beside {} others, {} old", self.asked, self.beside, self.old)?;
        self.told.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl NeverOld {
    /// Plays it; `None` where such a file system may not be mounted.
    ///
    /// # Panics
    /// If the files cannot be made.
    pub fn play(self, binary: &Binary) -> Option<NeverOldReport> {
        let place = MountedDirectory::new(self.mount, |dir| {
            for change in CHANGES {
                (0..self.rounds).for_each(|round| change.prepare(dir, round));
            }
        })?;
        let quiet_from = Instant::now();
        let server = start(binary, place.dir());
        thread::sleep(QUIET.saturating_sub(quiet_from.elapsed()));
        let stop = AtomicBool::new(false);
        let beside = AtomicU64::new(0);
        let mut report = thread::scope(|scope| {
            for seed in 0..2 {
                let (server, stop, beside) = (&server, &stop, &beside);
                scope.spawn(move || self.load(server, seed, stop, beside));
            }
            let report = self.ask_all(&server, place.dir());
            stop.store(true, Ordering::Relaxed);
            report
        });
        report.beside = beside.into_inner();
        // Before what it serves is unmounted.
        drop(server);
        Some(report)
    }

    fn ask_all(self, server: &Server, dir: &Path) -> NeverOldReport {
        let mut asker = Asker { connection: server.connect(), report: NeverOldReport::default() };
        for round in 0..self.rounds {
            for change in CHANGES {
                (0..ASKED_BEFORE).for_each(|_| asker.expect(change, round, 0));
                for state in 1..=2 {
                    change.make(dir, round, state);
                    asker.expect(change, round, state);
                }
            }
        }
        asker.report
    }

    /// Asks for all files over and over, whatever they are.
    fn load(self, server: &Server, seed: usize, stop: &AtomicBool, beside: &AtomicU64) {
        let mut connection = server.connect();
        for number in (seed * self.rounds / 2..).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let change = CHANGES[number % CHANGES.len()];
            let round = number / CHANGES.len() % self.rounds;
            connection.send(request(&change.target(round)).as_bytes());
            match connection.try_response(Answer::Whole) {
                Ok(_) => beside.fetch_add(1, Ordering::Relaxed),
                // A file that is rewritten while it is sent may be cut.
                Err(_) => {
                    connection = server.connect();
                    0
                }
            };
        }
    }
}

struct Asker {
    connection: Connection,
    report: NeverOldReport,
}

impl Asker {
    fn expect(&mut self, change: Change, round: usize, state: usize) {
        let response = self.connection.ask(&request(&change.target(round)));
        self.report.asked += 1;
        if change.is_answered(round, state, &response) {
            return;
        }
        self.report.old += 1;
        if self.report.told.len() < TOLD {
            let start: String = response.text().chars().take(40).collect();
            let status = response.status;
            let text = format!("{change:?} of {round}, state {state}: {status} {start:?}");
            self.report.told.push(text);
        }
    }
}

fn start(binary: &Binary, dir: &Path) -> Server {
    let user = if is_root() { "user nobody nogroup;" } else { "" };
    let dir = dir.display();
    let config = format!(
        "daemon off;\n{user}\nworker_processes 2;\npid nginx.pid;\nerror_log logs/error.log crit;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n%%TEMP%%\naccess_log off; sendfile on; keepalive_requests 1000000000;\n\
         server {{ listen 127.0.0.1:%%PORT%%; root {dir};\n\
         location /tried/ {{ alias {dir}/; try_files $uri =404; }} }} }}\n"
    );
    Setup::new(binary.clone(), &config).ready_at("127.0.0.1:%%PORT%%").start()
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

impl Change {
    /// The target of a request, every other time in a way that looks at the name before.
    fn target(self, round: usize) -> String {
        let way = if round.is_multiple_of(2) { "" } else { "/tried" };
        match self {
            Self::SwapDirectory => format!("{way}/{self:?}{round}/file"),
            _ => format!("{way}/{self:?}{round}"),
        }
    }

    /// All of one size, and different in each state from the first byte on.
    fn contents(self, round: usize, state: usize) -> String {
        let text = format!("{state} is the state of {self:?} {round} ");
        let size = SIZES[round % SIZES.len()];
        text.repeat(size / text.len() + 1)[..size].to_owned()
    }

    fn prepare(self, dir: &Path, round: usize) {
        let at = dir.join(format!("{self:?}{round}"));
        match self {
            Self::SwapLink => {
                for state in [0, 1] {
                    write(&dir.join(name_of(&at, state)), &self.contents(round, state));
                }
                symlink(name_of(&at, 0), at).expect("the directory is ours");
            }
            Self::SwapDirectory => {
                for state in [0, 1] {
                    let release = dir.join(name_of(&at, state));
                    fs::create_dir(&release).expect("the directory is ours");
                    fs::set_permissions(&release, Permissions::from_mode(0o755)).expect("it is ours");
                    write(&release.join("file"), &self.contents(round, state));
                }
                symlink(name_of(&at, 0), at).expect("the directory is ours");
            }
            _ => write(&at, &self.contents(round, 0)),
        }
    }

    /// Brings a file from the state before to this one.
    fn make(self, dir: &Path, round: usize, state: usize) {
        let at = dir.join(format!("{self:?}{round}"));
        let beside = dir.join(format!("new-{self:?}"));
        let done = match self {
            Self::RenameOver => {
                write(&beside, &self.contents(round, state));
                fs::rename(&beside, &at)
            }
            Self::Rewrite => File::options().write(true).open(&at).and_then(|mut file| {
                // The times of the first one are those of the second, as a rule.
                file.write_all(self.contents(round, state).as_bytes())
            }),
            Self::Chmod => {
                let mode = if state == 1 { 0o000 } else { 0o644 };
                fs::set_permissions(&at, Permissions::from_mode(mode))
            }
            Self::SwapLink | Self::SwapDirectory => {
                symlink(name_of(&at, state % 2), &beside).and_then(|()| fs::rename(&beside, &at))
            }
            Self::Unlink if state == 1 => fs::remove_file(&at),
            Self::Unlink => {
                write(&at, &self.contents(round, state));
                Ok(())
            }
        };
        done.unwrap_or_else(|e| panic!("{self:?} {round}, state {state}: {e}"));
    }

    fn is_answered(self, round: usize, state: usize, response: &Response) -> bool {
        let status = match (self, state) {
            (Self::Chmod, 1) => 403,
            (Self::Unlink, 1) => 404,
            _ => 200,
        };
        let shown = match self {
            Self::Chmod => 0,
            Self::SwapLink | Self::SwapDirectory => state % 2,
            _ => state,
        };
        response.status == status
            && (status != 200 || response.body == self.contents(round, shown).as_bytes())
    }
}

/// The target of a link in a state.
fn name_of(link: &Path, state: usize) -> String {
    let name = link.file_name().expect("it has a name").to_string_lossy();
    format!("{name}-{state}")
}

fn write(path: &Path, contents: &str) {
    fs::write(path, contents).expect("the directory is ours");
    fs::set_permissions(path, Permissions::from_mode(0o644)).expect("the file is ours");
}
