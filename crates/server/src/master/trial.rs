//! Code that runs when a configuration comes into use (`init_by_lua*`) is tried before the worker that serves
//! runs it: in a process of its own, executed anew, with the rights of a worker. What crashes there, or does
//! not end, disturbs nobody. The master's thread.

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_os::child::{self, Exit};
use clearway_os::signal::Signal;

use super::cycle::{Master, environment};
use super::wanted::Want;
use super::workers::{self, Answer, WorkerProcess};
use crate::control::Order;
use crate::core_conf::Duty;
use crate::start::Failed;

impl Master<'_> {
    /// Has the code of the present configuration tried. It may take as long as it does; another reload ends
    /// it.
    ///
    /// # Errors
    /// After the reason has been logged.
    pub(super) fn try_out(&mut self, log: &dyn Sink) -> Result<(), Failed> {
        let environment = environment(&self.config, &self.environment);
        let name = self.invocation.name();
        let spawned = WorkerProcess::spawn((name, Duty::Group(0)), &environment, self.stderr_file());
        let mut process = spawned.map_err(|error| workers::cannot_start(&error, log))?;
        let hand = self.config.hand((self.number + 1, Duty::Group(0)), self.invocation, &self.listening);
        let mut handover = hand.map_err(|error| workers::cannot_start(&error, log))?;
        // A trial listens on nothing.
        handover.sockets.clear();
        process.ask(&Order::Try(Box::new(handover)));
        self.await_answers(std::slice::from_mut(&mut process), Want::Reconfigure);
        match process.take_answer() {
            Some(Answer::Ready(_)) => {
                self.tried.push(process.pid);
                Ok(())
            }
            Some(Answer::Failed { level, text }) => {
                self.tried.push(process.pid);
                log.log(level, format_args!("{}", Verbatim(&text)));
                Err(Failed)
            }
            None if process.is_connected() => {
                process.kill(Signal::KILL, log);
                self.tried.push(process.pid);
                log.log(Level::Notice, format_args!("what was tried in process {} was ended", process.pid));
                Err(Failed)
            }
            None => {
                self.config.forget_worker(process.pid);
                log_end(process.pid, log);
                Err(Failed)
            }
        }
    }
}

/// Says how a process has ended that was expected to say something.
fn log_end(pid: u32, log: &dyn Sink) {
    let what = "the process that tried init_by_lua*";
    match child::wait_for(pid) {
        Ok(Exit::Signal { number, dumped }) => {
            let core = if dumped { " (core dumped)" } else { "" };
            log.log(Level::Alert, format_args!("{what} died of signal {number}{core}"));
        }
        Ok(Exit::Code(code)) => log.log(Level::Alert, format_args!("{what} exited with code {code}")),
        Err(error) => log.log(Level::Alert, format_args!("{what} ended {}", Errno(&error))),
    }
}
