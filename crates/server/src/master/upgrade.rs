//! Changing the binary under a running server: listening sockets go from the old master process to the
//! new one through the environment, as nginx's do, so that either side may be nginx. The master's
//! thread only.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_net::listen::ListenAddr;
use clearway_net::reuse;
use clearway_os::child::{self, OnExec};

use super::Failed;
use super::listening::Listening;
use crate::invocation::Invocation;

/// Names the inherited sockets: numbers, each with a semicolon (or, as nginx takes it, a colon).
pub(crate) const VARIABLE: &str = "NGINX";

/// Takes over the sockets that a variable of the environment names. To be called once: they are owned
/// from here on.
pub(crate) fn inherit(value: &str, log: &dyn Sink) -> Vec<(ListenAddr, OwnedFd)> {
    log.log(Level::Notice, format_args!("using inherited sockets from \"{value}\""));
    let mut sockets = Vec::new();
    let mut rest = value;
    while let Some(end) = rest.find([':', ';']) {
        let Some(number) = rest[..end].parse::<u16>().ok() else {
            let text = &rest[..end];
            log.log(
                Level::Emerg,
                format_args!(
                    "invalid socket number \"{text}\" in {VARIABLE} environment variable, ignoring the rest \
                     of the variable"
                ),
            );
            break;
        };
        debug_assert!(end < rest.len(), "a number ends within the text");
        rest = &rest[end + 1..];
        match child::adopt(i32::from(number)) {
            Ok(fd) => match reuse::address_of(&fd) {
                Some(address) => sockets.push((address, fd)),
                None => log
                    .log(Level::Crit, format_args!("getsockname() of the inherited socket #{number} failed")),
            },
            Err(error) => {
                let errno = Errno(&error);
                log.log(Level::Crit, format_args!("inherited socket #{number} cannot be used {errno}"));
            }
        }
    }
    sockets
}

/// Starts the binary that is now where this one came from. Returns its process id.
///
/// # Errors
/// After the reason has been logged.
pub(crate) fn start(
    invocation: &Invocation,
    environment: &[(OsString, OsString)],
    listening: &Listening,
    log: &dyn Sink,
) -> Result<u32, Failed> {
    let path = program(invocation.args.first().map(Path::new));
    let mut command = Command::new(&path);
    command
        .args(invocation.args.get(1..).unwrap_or_default())
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env(VARIABLE, listening.numbers());
    if let Some(name) = invocation.args.first() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
    }
    set_inheritable(listening, OnExec::Keep);
    let spawned = command.spawn();
    set_inheritable(listening, OnExec::Close);
    match spawned {
        Ok(child) => Ok(child.id()),
        Err(error) => {
            let errno = Errno(&error);
            log.log(
                Level::Alert,
                format_args!(
                    "execve() failed while executing new binary process \"{}\" {errno}",
                    Verbatim::path(&path)
                ),
            );
            Err(Failed)
        }
    }
}

fn set_inheritable(listening: &Listening, mode: OnExec) {
    for fd in listening.fds() {
        // The descriptor is open and ours: fcntl(2) has nothing to refuse.
        let _ = child::set_close_on_exec(fd, mode);
    }
}

/// The program to execute. nginx executes its first argument as it is, which needs a slash in it; without one
/// the file that this process was started from is looked up again by its name.
fn program(name: Option<&Path>) -> PathBuf {
    match name {
        Some(name) if name.as_os_str().as_encoded_bytes().contains(&b'/') => name.to_owned(),
        _ => {
            let own = std::env::current_exe().unwrap_or_default();
            let text = own.as_os_str().as_encoded_bytes();
            match text.strip_suffix(b" (deleted)") {
                Some(path) => crate::core_conf::bytes_path(path).to_owned(),
                None => own,
            }
        }
    }
}
