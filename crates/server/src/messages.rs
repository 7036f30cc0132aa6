//! Where messages of boot and of the master go: the error log, written at once on the thread that says
//! them, and while the server starts standard error as well. Main threads only.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Record, Sink};
use clearway_log::{ErrorLog, Writer};

/// The error log of a main thread that has no loops to keep going: a line is written when `log`
/// returns if nothing else writes for it, else queued for the thread that does.
#[derive(Clone)]
pub(crate) struct DirectLog {
    pub(crate) writer: Arc<Writer>,
    pub(crate) log: Arc<ErrorLog>,
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

/// Messages of the start: on standard error as nginx prints them, and in the error log.
pub(crate) struct Boot<'a> {
    /// Open as soon as the configuration says where it is.
    pub(crate) log: Option<&'a dyn Sink>,
}

impl Sink for Boot<'_> {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Warn || self.log.is_some_and(|log| log.enabled(level))
    }

    fn write(&self, record: &Record<'_>) {
        if record.level <= Level::Warn {
            say(record.level, &record.message);
        }
        if let Some(log) = self.log
            && log.enabled(record.level)
        {
            log.write(record);
        }
    }
}

/// Prints a message as nginx does before it has a log.
#[expect(clippy::disallowed_macros, reason = "a main thread, which runs no loop")]
pub(crate) fn say(level: Level, message: &dyn fmt::Display) {
    eprintln!("nginx: [{}] {message}", level.as_str());
}

/// Prints why something that every start needs failed.
pub(crate) fn say_emerg(what: &str, error: &io::Error) {
    say(Level::Emerg, &format_args!("{what} failed {}", Errno(error)));
}
