//! The log of a process that has not opened the logs of a configuration yet, or never will (`-t`, `-s`): the
//! file of `-e` and standard error. Lines are written at once, on the main thread that says them.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

pub use clearway_base::log::Verbatim;
use clearway_base::log::{Level, Record, Sink, bytes_of};
use clearway_log::{Destination, Disk, ErrorLog, ErrorTarget, Writer};

use crate::options::DefaultErrorLog;

/// The log of a process without a configuration's logs.
pub(crate) struct EarlyLog {
    writer: Writer,
    log: Arc<ErrorLog>,
    console: Console,
}

impl EarlyLog {
    /// Opens the log, for lines of `level` and more severe ones. What cannot be opened is said, and standard
    /// error is the log then.
    pub(crate) fn open(target: &DefaultErrorLog, level: Level) -> Self {
        let writer = Writer::direct(Box::new(Disk));
        let opened = match target {
            DefaultErrorLog::Stderr => None,
            DefaultErrorLog::File(path) => match writer.open(path) {
                Ok(file) => Some(file),
                Err(error) => {
                    say(format_args!("[{}] could not open error log file: {error}", Level::Alert.as_str()));
                    None
                }
            },
        };
        let console = if opened.as_ref().is_some_and(|file| file.path().is_some()) {
            Console::Beside
        } else {
            Console::IsTheLog
        };
        // Without standard error there is nobody to talk to; the log then takes no lines.
        let file = opened.or_else(|| writer.stderr().ok());
        let targets =
            file.into_iter().map(|file| ErrorTarget { to: Destination::File(file), level }).collect();
        let log = Arc::new(ErrorLog::new(&writer, targets));
        Self { writer, log, console }
    }
}

impl Sink for EarlyLog {
    fn enabled(&self, level: Level) -> bool {
        self.log.enabled(level)
    }

    fn write(&self, record: &Record<'_>) {
        self.log.write(record);
        // Without a thread this writes the line, and cannot be late.
        let _ = self.writer.flush(Duration::ZERO);
        self.console.write(record);
    }
}

/// The relation of standard error to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    /// Standard error gets warnings and worse as well.
    Beside,
    /// The log goes there already.
    IsTheLog,
}

impl Console {
    /// Shows a record, if it is for people at a terminal.
    pub(crate) fn write(self, record: &Record<'_>) {
        if self == Self::Beside && record.level <= Level::Warn {
            say(format_args!("[{}] {}", record.level.as_str(), record.message));
        }
    }
}

/// Prints a line on standard error as nginx does.
pub fn say(message: fmt::Arguments<'_>) {
    // A failed write is ignored: standard error may be closed.
    let _ = std::io::stderr().write_all(&bytes_of(&format!("nginx: {message}\n")));
}
