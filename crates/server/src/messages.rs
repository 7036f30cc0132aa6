//! Where messages of boot and of the master go: the error log, written at once on the thread that says
//! them, and while the server starts standard error as well. Main threads only.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Record, Sink};
use clearway_log::{ErrorLog, Writer};

use crate::core_conf::{ErrorLogSpec, ErrorLogTarget};
use crate::early_log;
use crate::early_log::Console;

/// The error log of a main thread that has no loops to keep going: a line is written when `log`
/// returns if nothing else writes for it, else queued for the thread that does.
#[derive(Clone)]
pub(crate) struct DirectLog {
    pub(crate) writer: Arc<Writer>,
    pub(crate) log: Arc<ErrorLog>,
}

impl DirectLog {
    /// Whether lines wait for a reader, for which this thread must not wait.
    pub(crate) fn has_held_lines(&self) -> bool {
        self.writer.has_held_lines()
    }

    /// Takes over what another configuration's log still holds.
    pub(crate) fn take_held_lines(&self, other: &Self) {
        self.writer.take_held_lines(&other.writer);
    }

    /// Writes as many of those as can be written without waiting.
    pub(crate) fn retry(&self) {
        let _ = self.writer.flush(Duration::ZERO);
    }
}

impl Sink for DirectLog {
    fn enabled(&self, level: Level) -> bool {
        self.log.enabled(level)
    }

    fn write(&self, record: &Record<'_>) {
        self.log.write(record);
        // Without a thread this writes the line and is done; with one it need not wait for it.
        let _ = self.writer.flush(Duration::ZERO);
    }
}

/// Messages of the start: in the error log, and on standard error as nginx prints them, unless the log is
/// there already.
pub(crate) struct Boot {
    log: DirectLog,
    /// Lines of this level and more severe ones go to standard error by the configuration's will.
    shown: Option<Level>,
}

impl Boot {
    /// With the log of a configuration whose error logs are `specs`.
    pub(crate) fn new(log: DirectLog, specs: &[ErrorLogSpec]) -> Self {
        let to_stderr = specs.iter().filter(|spec| spec.target == ErrorLogTarget::Stderr);
        Self { log, shown: to_stderr.map(|spec| spec.level).max() }
    }
}

impl Sink for Boot {
    fn enabled(&self, level: Level) -> bool {
        self.log.enabled(level)
    }

    fn write(&self, record: &Record<'_>) {
        self.log.write(record);
        let is_shown = self.shown.is_some_and(|level| record.level <= level);
        let console = if is_shown { Console::IsTheLog } else { Console::Beside };
        console.write(record);
    }
}

/// Prints a message as nginx does before it has a log.
pub(crate) fn say(level: Level, message: &dyn fmt::Display) {
    early_log::say(format_args!("[{}] {message}", level.as_str()));
}

/// Prints why something that every start needs failed.
pub(crate) fn say_emerg(what: &str, error: &io::Error) {
    say(Level::Emerg, &format_args!("{what} failed {}", Errno(error)));
}
