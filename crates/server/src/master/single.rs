//! `master_process off`: master and worker in one process, as two objects. The main thread does what
//! both do on theirs.

use std::os::fd::AsFd;
use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_os::poll;
use clearway_os::signal::{Received, Signal};

use super::configuration::Configuration;
use super::cycle::Parts;
use super::pid_file::PidFile;
use super::workers;
use crate::control::Report;
use crate::core_conf::Duty;
use crate::start::Failed;
use crate::worker::builder::Builder;
use crate::worker::process::DRAIN_STEP;
use crate::worker::{Prepared, Worker, privileges};

/// Runs a server until a signal ends it.
///
/// # Errors
/// When it cannot start, after the reason has been logged.
pub(super) fn run(mut parts: Parts<'_>, boot: &dyn Sink, started: impl FnOnce()) -> Result<(), Failed> {
    let mut builder = Builder::new();
    let handover = parts.config.hand((1, Duty::Group(0)), parts.invocation, &parts.listening);
    let handover = handover.map_err(|error| workers::cannot_start(&error, boot))?;
    parts.config.clear_up();
    let settle = |loaded: &crate::load::Loaded| {
        privileges::limit_descriptors(&loaded.core, boot);
        if loaded.core.no_new_privileges() {
            privileges::refuse_new_privileges(boot);
        }
        Ok(())
    };
    let (mut worker, prepared) = builder.first(handover, settle).map_err(|report| refuse(&report, boot))?;
    builder.commit(prepared, &mut worker);
    debug_assert_eq!(
        parts.listening.len(),
        parts.config.requests.len(),
        "each address that is asked for is listened on"
    );
    let pid_file = PidFile::write(parts.config.core.pid_file(), boot)?;
    let mut single = Single { parts, builder, worker, pid_file, number: 1, state: SingleState::Serving };
    started();
    single.serve();
    Ok(())
}

fn refuse(report: &Report, log: &dyn Sink) -> Failed {
    if let Report::Failed { level, text } = report {
        log.log(*level, format_args!("{}", Verbatim(text)));
    }
    Failed
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SingleState {
    Serving,
    Draining,
    Over,
}

struct Single<'a> {
    parts: Parts<'a>,
    builder: Builder,
    worker: Worker,
    pid_file: PidFile,
    number: u64,
    state: SingleState,
}

impl Single<'_> {
    fn serve(&mut self) {
        debug_assert_eq!(self.state, SingleState::Serving, "signals are taken from here on");
        while self.state != SingleState::Over {
            let due = self.worker.keep_house();
            if self.state == SingleState::Draining && self.worker.is_drained() {
                break;
            }
            let limit = match self.state {
                SingleState::Draining => Some(due.map_or(DRAIN_STEP, |due| due.min(DRAIN_STEP))),
                _ => due,
            };
            // Whatever ended the wait, both are looked at.
            let _ = poll::wait(&[self.parts.signals.as_fd(), self.worker.bell()], limit);
            while let Ok(Some(received)) = self.parts.signals.take() {
                self.obey(received);
            }
            self.worker.take_ended();
        }
        self.end();
    }

    fn obey(&mut self, received: Received) {
        let Received { signal, sender_pid } = received;
        let action = match signal {
            Signal::QUIT => ", shutting down",
            Signal::TERM | Signal::INT => ", exiting",
            Signal::HUP => ", reconfiguring",
            Signal::USR1 => ", reopening logs",
            _ => "",
        };
        let (number, name) = (signal.0, signal.name());
        let from = if sender_pid == 0 { String::new() } else { format!(" from {sender_pid}") };
        self.notice(format_args!("signal {number} ({name}) received{from}{action}"));
        match signal {
            Signal::QUIT if self.state == SingleState::Serving => {
                self.state = SingleState::Draining;
                self.worker.drain(|_| true);
                debug_assert_eq!(self.worker.listening_on(), 0, "a server that drains accepts nothing");
            }
            Signal::TERM | Signal::INT => self.state = SingleState::Over,
            Signal::HUP if self.state == SingleState::Serving => {
                self.notice(format_args!("reconfiguring"));
                // What went wrong has been logged, and nothing has changed.
                let _ = self.reconfigure();
            }
            Signal::USR1 => self.reopen(),
            _ => {}
        }
    }

    fn log(&self) -> Arc<dyn Sink> {
        self.worker.lasting_log()
    }

    fn notice(&self, message: std::fmt::Arguments<'_>) {
        self.log().log(Level::Notice, message);
    }

    fn reconfigure(&mut self) -> Result<(), Failed> {
        debug_assert_eq!(self.state, SingleState::Serving, "a server that drains takes no configuration");
        let log = self.log();
        let parts = &mut self.parts;
        let options = &parts.invocation.options;
        let mut config = Configuration::read(parts.source, options, Some(&parts.config), &*log)?;
        config.clear_up();
        if config.core.process_traits() != parts.config.core.process_traits() {
            let message = "what changes the process itself takes effect at the next start: \
                           \"master_process\" is off";
            log.log(Level::Warn, format_args!("{message}"));
        }
        let mut listening = parts.listening.open(&config.requests, parts.config.core.all_loops(), &*log)?;
        config.announce_events(&*log);
        let prepared = match self.prepare(&config, &listening) {
            Ok(prepared) => prepared,
            Err(failed) => {
                self.parts.listening.forget(&listening, &*log);
                return Err(failed);
            }
        };
        self.parts.listening.refuse_removed_in(&listening);
        self.builder.commit(prepared, &mut self.worker);
        // The server runs on with its old file; the reason has been logged.
        let _ = self.pid_file.move_to(config.core.pid_file(), &*log);
        self.parts.listening.unlink_dropped(&listening, &*log);
        self.parts.listening.give_way(&mut listening);
        debug_assert_eq!(
            listening.len(),
            config.requests.len(),
            "each address that is asked for is listened on"
        );
        (self.parts.config, self.parts.listening) = (config, listening);
        Ok(())
    }

    fn prepare(
        &mut self,
        config: &Configuration,
        listening: &super::listening::Listening,
    ) -> Result<Prepared, Failed> {
        let log = self.log();
        self.number += 1;
        let handover = config.hand((self.number, Duty::Group(0)), self.parts.invocation, listening);
        let handover = handover.map_err(|error| workers::cannot_start(&error, &*log))?;
        self.builder.next(handover, &self.worker).map_err(|report| refuse(&report, &*log))
    }

    fn reopen(&mut self) {
        self.parts.config.reopen_logs();
        match self.parts.config.logs() {
            Ok(files) => self.builder.reopen(files, &self.worker),
            Err(error) => {
                let errno = Errno(&error);
                self.log().log(Level::Alert, format_args!("fcntl(F_DUPFD_CLOEXEC) failed {errno}"));
            }
        }
    }

    fn end(&mut self) {
        let log = self.log();
        self.worker.stop();
        self.parts.listening.unlink_all(&*log);
        self.pid_file.remove(&*log);
        log.log(Level::Notice, format_args!("exit"));
        self.builder.finish();
    }
}
