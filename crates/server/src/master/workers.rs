//! The worker processes of a master: starting them, telling them what to do, hearing of their end. The
//! master's thread only.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_os::channel;
use clearway_os::child::Exit;
use clearway_os::poll;
use clearway_os::signal::{self, Signal};

use crate::control::{Inbox, Order, Report};
use crate::core_conf::Duty;
use crate::start::{Failed, WORKER_VARIABLE};

/// The title of a worker in process lists.
const TITLE: &str = "nginx: worker process";

/// And of the agent.
const AGENT_TITLE: &str = "nginx: privileged agent process";

/// One worker process, or the privileged agent.
pub(crate) struct WorkerProcess {
    pub(crate) pid: u32,
    /// What it is there for.
    pub(crate) duty: Duty,
    started: Instant,
    channel: OwnedFd,
    inbox: Inbox,
    question: Question,
    /// The identities of the loops of each configuration that it still uses, the newest last.
    generations: Vec<Vec<u32>>,
    state: WorkerState,
    /// Its end of the channel is open.
    connected: bool,
}

/// Why a worker begins to use a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The server starts, or has loaded another configuration.
    Start,
    /// The worker takes the place of one that has ended.
    Respawn,
}

/// The expected action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    /// Serve; where it ends, another one takes its place.
    Serving,
    /// End when its connections have.
    Retiring,
}

/// An order that is answered.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    /// There was none, or its answer was taken.
    None,
    Asked,
    Answered(Answer),
}

/// The answer of a worker to a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ready(Built),
    Failed { level: Level, text: Vec<u8> },
}

/// A configuration that a worker has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Built {
    /// The identities of its loops.
    pub(crate) identities: Vec<u32>,
    /// The connections of the privileged agent that its code wants.
    pub(crate) agent: Option<u32>,
}

impl WorkerProcess {
    /// Starts one of this program's name for a duty, which waits for its first `Load`. Its standard error
    /// is `stderr`, or the master's.
    ///
    /// # Errors
    /// As fork(2) and execve(2).
    pub(crate) fn spawn(
        (name, duty): (&OsStr, Duty),
        environment: &[(OsString, OsString)],
        stderr: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let (ours, theirs) = channel::pair()?;
        // Not by its name: under that name there may be another file by now, or none.
        let mut command = Command::new("/proc/self/exe");
        let title = if is_agent(duty) { AGENT_TITLE } else { TITLE };
        std::os::unix::process::CommandExt::arg0(&mut command, title);
        command
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env(WORKER_VARIABLE, name)
            .stdin(Stdio::from(theirs))
            .stderr(stderr.map_or_else(Stdio::inherit, Stdio::from));
        let child = command.spawn()?;
        Ok(Self {
            pid: child.id(),
            duty,
            started: Instant::now(),
            channel: ours,
            inbox: Inbox::default(),
            question: Question::None,
            generations: Vec::new(),
            state: WorkerState::Serving,
            connected: true,
        })
    }

    /// The descriptor for poll(2), unless the worker is gone.
    pub(crate) fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.connected.then(|| self.channel.as_fd())
    }

    /// Whether it can be told anything.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether it is the privileged agent.
    pub(crate) fn is_agent(&self) -> bool {
        is_agent(self.duty)
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_agent() { "privileged agent process" } else { "worker process" }
    }

    /// How long ago it was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it serves, and is not on its way out.
    pub(crate) fn is_serving(&self) -> bool {
        self.state == WorkerState::Serving
    }

    /// Sends an order. A worker that is gone cannot be told anything, which shows elsewhere.
    pub(crate) fn tell(&self, order: &Order) {
        let _ = order.send(self.channel.as_fd());
    }

    /// Has it end when its connections have ended. Sockets that are `removed` nobody else listens on.
    pub(crate) fn retire(&mut self, removed: &[u64]) {
        if self.state == WorkerState::Serving {
            self.state = WorkerState::Retiring;
            self.tell(&Order::Quit { removed: removed.to_vec() });
        }
        debug_assert!(!self.is_serving(), "another one may take its place");
    }

    /// Sends a signal.
    pub(crate) fn kill(&self, signal: Signal, log: &dyn Sink) {
        if let Err(error) = signal::kill(self.pid, signal) {
            let (pid, number, errno) = (self.pid, signal.0, Errno(&error));
            log.log(Level::Alert, format_args!("kill({pid}, {number}) failed {errno}"));
        }
    }

    /// Whether there is something to read, or will never be again.
    pub(crate) fn has_news(&self) -> bool {
        let ready = poll::wait(&[self.channel.as_fd()], Some(Duration::ZERO));
        ready.is_ok_and(|ready| ready.contains(&true))
    }

    /// Takes what it reports. To be called when there is something to read.
    pub(crate) fn listen(&mut self, log: &dyn Sink) {
        self.connected = match self.inbox.fill(self.channel.as_fd()) {
            Ok(open) => open,
            Err(error) => {
                log.log(Level::Alert, format_args!("recvmsg() failed {}", Errno(&error)));
                false
            }
        };
        while let Ok(Some(report)) = self.inbox.report() {
            match report {
                Report::Ready { identities, agent } => {
                    self.question = Question::Answered(Answer::Ready(Built { identities, agent }));
                }
                Report::Failed { level, text } => {
                    self.question = Question::Answered(Answer::Failed { level, text });
                }
                Report::Gone { identities } => {
                    self.log_exited(&identities, log);
                    self.generations.retain(|generation| *generation != identities);
                }
            }
        }
    }

    /// Sends an order that is answered.
    pub(crate) fn ask(&mut self, order: &Order) {
        self.question = Question::Asked;
        self.tell(order);
    }

    /// Whether it owes an answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.question == Question::Asked
    }

    /// Whether it has used no configuration yet.
    pub(crate) fn is_new(&self) -> bool {
        self.generations.is_empty()
    }

    /// The answer to the last order that has one, once.
    pub(crate) fn take_answer(&mut self) -> Option<Answer> {
        match std::mem::replace(&mut self.question, Question::None) {
            Question::Answered(answer) => Some(answer),
            Question::None | Question::Asked => None,
        }
    }

    /// Tells the worker to use the configuration that it has built; its loops get these identities.
    pub(crate) fn begin(&mut self, identities: Vec<u32>, log: &dyn Sink) {
        debug_assert!(!identities.is_empty(), "a worker has loops");
        debug_assert!(!self.is_asked(), "a worker has answered before it begins");
        for id in self.numbers(&identities) {
            log.log(Level::Notice, format_args!("start {} {id}", self.name()));
        }
        self.generations.push(identities);
    }

    /// Logs how it ended. It has been reaped.
    pub(crate) fn log_end(&self, exit: Exit, log: &dyn Sink) {
        match exit {
            Exit::Code(0) => self.generations.iter().for_each(|identities| self.log_exited(identities, log)),
            other => log_exit(self.name(), self.pid, other, log),
        }
    }

    fn log_exited(&self, identities: &[u32], log: &dyn Sink) {
        self.numbers(identities).iter().for_each(|&id| log_exit(self.name(), id, Exit::Code(0), log));
    }

    /// The numbers that messages know it by: those of its loops, each of which stands for a worker of
    /// nginx's; that of the agent is its process, as nobody sends signals to its loop.
    fn numbers<'a>(&'a self, identities: &'a [u32]) -> &'a [u32] {
        if self.is_agent() { std::slice::from_ref(&self.pid) } else { identities }
    }
}

fn is_agent(duty: Duty) -> bool {
    matches!(duty, Duty::Agent { .. })
}

/// Logs the end of a child as nginx does.
pub(crate) fn log_exit(name: &str, pid: u32, exit: Exit, log: &dyn Sink) {
    match exit {
        Exit::Code(code) => log.log(Level::Notice, format_args!("{name} {pid} exited with code {code}")),
        Exit::Signal { number, dumped } => {
            let core = if dumped { " (core dumped)" } else { "" };
            log.log(Level::Alert, format_args!("{name} {pid} exited on signal {number}{core}"));
        }
    }
}

/// A worker that cannot be started.
pub(crate) fn cannot_start(error: &io::Error, log: &dyn Sink) -> Failed {
    log.log(Level::Alert, format_args!("fork() failed while spawning \"worker process\" {}", Errno(error)));
    Failed
}
