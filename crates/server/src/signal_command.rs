//! `-s`: finds the master process that runs, in the pid file that the configuration names, and sends it a
//! signal. The main thread of a process that does nothing else.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_base::{Errno, units};
use clearway_conf::Source;
use clearway_os::signal::{self, Signal};

use crate::check::Unopened;
use crate::early_log::EarlyLog;
use crate::options::{Options, Order};
use crate::start::Failed;

/// As much of a pid file as can matter: a number, a sign, and a line feed.
const PID_FILE_BYTES: u64 = 22;

/// Sends the signal.
///
/// # Errors
/// It was not sent, and why has been said.
pub fn run(source: &dyn Source, options: &Options, order: Order) -> Result<(), Failed> {
    let log = EarlyLog::open(&options.error_log, Level::Notice);
    let core = Unopened::read(source, options, &std::sync::Arc::default(), &log, || ())?.loaded.core;
    log.log(Level::Notice, format_args!("signal process started"));
    let pid = running(core.pid_file(), &log)?;
    let signal = match order {
        Order::Stop => Signal::TERM,
        Order::Quit => Signal::QUIT,
        Order::Reopen => Signal::USR1,
        Order::Reload => Signal::HUP,
    };
    signal::kill(pid, signal).map_err(|error| {
        log.log(Level::Alert, format_args!("kill({pid}, {}) failed {}", signal.0, Errno(&error)));
        Failed
    })
}

/// The number in the pid file. 0 would be a process group, this process included, so it is refused.
fn running(path: &Path, log: &dyn Sink) -> Result<u32, Failed> {
    let text = head(path).map_err(|error| {
        let (shown, errno) = (Verbatim::path(path), Errno(&error));
        match error.kind() {
            io::ErrorKind::IsADirectory => {
                log.log(Level::Crit, format_args!("pread() \"{shown}\" failed {errno}"))
            }
            _ => log.log(Level::Error, format_args!("open() \"{shown}\" failed {errno}")),
        }
        Failed
    })?;
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let number = units::parse_number(&text[..end]).and_then(|number| u32::try_from(number).ok());
    number.filter(|&pid| pid > 0).ok_or_else(|| {
        let digits = Verbatim(&text[..end]);
        log.log(
            Level::Error,
            format_args!("invalid PID number \"{digits}\" in \"{}\"", Verbatim::path(path)),
        );
        Failed
    })
}

#[expect(clippy::disallowed_methods, reason = "the main thread, which runs no loop")]
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(PID_FILE_BYTES).read_to_end(&mut text)?;
    Ok(text)
}
