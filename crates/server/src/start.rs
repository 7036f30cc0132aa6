//! The start of masters and workers: the signals that they act on, by what a worker knows that it is one,
//! how is said that they give up, and what they leave behind.

use std::ffi::OsString;
use std::io;

use clearway_base::memory;
use clearway_os::program;
use clearway_os::signal::{self, Signal, SignalFd, SignalSet};

/// The variable that marks a worker in its environment.
pub(crate) const WORKER_VARIABLE: &str = "CLEARWAY_WORKER";

/// Why something was given up; everything about it has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Whether this process was started by a master to be its worker: [`crate::worker::process::run`] is all
/// it has to do then.
#[must_use]
pub fn is_worker() -> bool {
    worker_name().is_some()
}

/// The name that a worker has in lists of processes.
pub(crate) fn worker_name() -> Option<OsString> {
    std::env::var_os(WORKER_VARIABLE)
}

/// The signals that a server acts on.
pub(crate) fn signals() -> io::Result<SignalFd> {
    signal::block_all();
    signal::ignore_sigpipe();
    SignalFd::new(&SignalSet::of(&[
        Signal::TERM,
        Signal::INT,
        Signal::QUIT,
        Signal::HUP,
        Signal::USR1,
        Signal::USR2,
        Signal::WINCH,
        Signal::CHLD,
    ]))
}

/// Gives back the memory that to read and to build a configuration takes, and serving does not: what is free
/// of the heap, and the pages of code and constants.
pub(crate) fn give_memory_back() {
    memory::release();
    program::release_pages();
}
