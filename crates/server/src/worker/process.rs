//! The worker as a process of its own: gives up the rights that it was started with, builds what its
//! master hands over, and acts on orders and signals. The main thread, which runs no loop. Where the
//! master is gone it finishes what is under way and ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clearway_base::log::Level;
use clearway_os::child::{self, Standard};
use clearway_os::poll;
use clearway_os::signal::{Received, Signal, SignalFd};

use super::builder::Builder;
use super::{Prepared, Worker, privileges};
use crate::board;
use crate::control::{Inbox, Order, Report};
use crate::load::Loaded;
use crate::messages::say_emerg;
use crate::start;

/// How often a draining worker looks whether it is done.
pub(crate) const DRAIN_STEP: Duration = Duration::from_millis(20);

/// How long the privileged agent may take to end when it was told to: nginx's ends at once.
const AGENT_DRAIN_MAX: Duration = Duration::from_secs(1);

/// Why nothing more can be done: the master is gone before the worker serves, or refuses to be understood.
struct Over;

/// Runs a worker process from its start to its end. To be called first thing in a process that a master
/// has started.
#[must_use]
pub fn run() -> ExitCode {
    let name = start::worker_name().unwrap_or_default();
    // A name that cannot be shown is not worth failing for.
    let _ = clearway_os::title::set_thread_name(&name.to_string_lossy());
    let started = start::signals().and_then(|signals| Ok((signals, take_channel()?)));
    let (signals, channel) = match started {
        Ok(started) => started,
        Err(error) => {
            say_emerg("starting a worker process", &error);
            return ExitCode::FAILURE;
        }
    };
    let mut process = Process {
        channel,
        inbox: Inbox::default(),
        signals,
        builder: Builder::new(),
        prepared: None,
        state: ProcessState::Serving,
        over_at: None,
        connected: true,
    };
    match process.first() {
        Ok(worker) => process.serve(worker),
        Err(Over) => ExitCode::FAILURE,
    }
}

/// The socket to the master is standard input, which is freed for its usual purpose.
fn take_channel() -> io::Result<OwnedFd> {
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    child::redirect(child::null_device()?.as_fd(), Standard::Input)?;
    Ok(channel)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    Serving,
    Draining,
    Over,
}

struct Process {
    channel: OwnedFd,
    inbox: Inbox,
    signals: SignalFd,
    builder: Builder,
    /// Built, and the master has not decided yet.
    prepared: Option<Prepared>,
    state: ProcessState,
    /// The time at which the master no longer waits for an agent that was told to end.
    over_at: Option<Instant>,
    connected: bool,
}

impl Process {
    /// Builds the first configuration with all that a process has once.
    fn first(&mut self) -> Result<Worker, Over> {
        debug_assert_eq!(self.state, ProcessState::Serving, "a process begins by serving");
        let (mut handover, is_trial) = match self.next_order()? {
            Order::Load(handover) => (handover, false),
            Order::Try(handover) => (handover, true),
            _ => return Err(Over),
        };
        let user = handover.user.take();
        let give_up = |loaded: &Loaded| privileges::give_up(loaded, user.as_ref());
        if is_trial {
            let report = match self.builder.try_out(*handover, give_up) {
                Ok(()) => Report::Ready { identities: Vec::new(), agent: None },
                Err(report) => report,
            };
            self.report(&report);
            return Err(Over);
        }
        match self.builder.first(*handover, give_up) {
            Ok((worker, prepared)) => {
                self.propose(prepared);
                Ok(worker)
            }
            Err(report) => {
                self.report(&report);
                Err(Over)
            }
        }
    }

    /// Serves until there is nothing left to serve.
    fn serve(mut self, mut worker: Worker) -> ExitCode {
        debug_assert_eq!(self.state, ProcessState::Serving, "orders and signals are taken from here on");
        while self.state != ProcessState::Over {
            let due = worker.keep_house();
            let is_late = self.over_at.is_some_and(|at| at <= Instant::now());
            if self.state == ProcessState::Draining && (is_late || worker.is_drained()) {
                break;
            }
            let limit = match self.state {
                ProcessState::Draining => Some(due.map_or(DRAIN_STEP, |due| due.min(DRAIN_STEP))),
                _ => due,
            };
            self.wait(limit, &worker);
            while let Ok(Some(received)) = self.signals.take() {
                self.obey_signal(received, &mut worker);
            }
            while let Ok(Some(order)) = self.inbox.order() {
                self.obey(order, &mut worker);
            }
            let ended = worker.take_ended();
            if !ended.is_empty() {
                // The last words come before the master's line about the end.
                self.builder.flush();
            }
            for identities in ended {
                self.report(&Report::Gone { identities });
            }
            if !self.connected && self.state == ProcessState::Serving {
                self.drain(&mut worker, &[]);
            }
        }
        worker.stop();
        self.builder.finish();
        ExitCode::SUCCESS
    }

    /// Waits for signals, orders and the end of configurations.
    fn wait(&mut self, limit: Option<Duration>, worker: &Worker) {
        let mut watched = vec![self.signals.as_fd(), worker.bell()];
        if self.connected {
            watched.push(self.channel.as_fd());
        }
        let ready = poll::wait(&watched, limit).unwrap_or_default();
        debug_assert!(ready.is_empty() || ready.len() == watched.len(), "each that is watched is told of");
        if ready.get(2) == Some(&true) {
            self.connected = self.inbox.fill(self.channel.as_fd()).unwrap_or(false);
        }
    }

    fn obey(&mut self, order: Order, worker: &mut Worker) {
        match order {
            Order::Load(handover) => match self.builder.next(*handover, worker) {
                Ok(prepared) => self.propose(prepared),
                Err(report) => self.report(&report),
            },
            // A process that serves tries nothing.
            Order::Try(_) => {}
            Order::Commit => {
                if let Some(prepared) = self.prepared.take() {
                    self.builder.commit(prepared, worker);
                }
            }
            Order::Abort => self.prepared = None,
            Order::Reopen(files) => self.builder.reopen(files, worker),
            Order::Quit { removed } => self.drain(worker, &removed),
            Order::Terminate => self.state = ProcessState::Over,
        }
    }

    /// As nginx's workers do.
    fn obey_signal(&mut self, received: Received, worker: &mut Worker) {
        let Received { signal, sender_pid } = received;
        if signal == Signal::WINCH && board::answer(sender_pid) {
            return;
        }
        let action = match signal {
            Signal::QUIT => ", shutting down",
            Signal::TERM | Signal::INT => ", exiting",
            Signal::USR1 => ", reopening logs",
            Signal::HUP | Signal::USR2 => ", ignoring",
            _ => "",
        };
        let (number, name) = (signal.0, signal.name());
        let from = if sender_pid == 0 { String::new() } else { format!(" from {sender_pid}") };
        let message = format_args!("signal {number} ({name}) received{from}{action}");
        worker.lasting_log().log(Level::Notice, message);
        match signal {
            Signal::QUIT => self.drain(worker, &[]),
            Signal::TERM | Signal::INT => self.state = ProcessState::Over,
            Signal::USR1 => self.builder.reopen_by_itself(worker),
            _ => {}
        }
    }

    fn drain(&mut self, worker: &mut Worker, removed: &[u64]) {
        if self.state == ProcessState::Serving {
            self.state = ProcessState::Draining;
            self.over_at = worker.is_agent().then(|| Instant::now() + AGENT_DRAIN_MAX);
            worker.drain(|serial| removed.contains(&serial));
            debug_assert_eq!(worker.listening_on(), 0, "a worker that drains accepts nothing");
        }
        debug_assert_ne!(self.state, ProcessState::Serving, "a worker that was told to end does not go on");
    }

    /// Tells the master that a configuration can be used.
    fn propose(&mut self, prepared: Prepared) {
        debug_assert!(self.prepared.is_none(), "the master decides before it hands over another one");
        let (identities, agent) = (prepared.identities().to_vec(), prepared.agent());
        self.prepared = Some(prepared);
        self.report(&Report::Ready { identities, agent });
    }

    /// A master that is gone is noticed where it is listened to.
    fn report(&self, report: &Report) {
        let _ = report.send(self.channel.as_fd());
    }

    /// Waits for an order.
    fn next_order(&mut self) -> Result<Order, Over> {
        loop {
            match self.inbox.order() {
                Ok(Some(order)) => return Ok(order),
                Ok(None) => {}
                Err(_) => return Err(Over),
            }
            if !self.inbox.fill(self.channel.as_fd()).unwrap_or(false) {
                return Err(Over);
            }
        }
    }
}
