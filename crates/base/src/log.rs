//! The sink that every layer logs through. Who implements it decides where lines go; a sink never
//! blocks its caller, so it may be called from a loop, a pool thread or at boot alike.

use std::fmt;

/// Severity of an error log line, in nginx's order: a lower value is more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The server cannot run.
    Emerg = 1,
    /// Something must be done at once (a limit of the whole server was reached).
    Alert = 2,
    /// A system resource failed (no file descriptors, disk errors).
    Crit = 3,
    /// One request failed through our side or an upstream.
    Error = 4,
    /// Something unusual that was dealt with.
    Warn = 5,
    /// Normal but significant.
    Notice = 6,
    /// Informational, such as clients that went away.
    Info = 7,
    /// Debugging.
    Debug = 8,
}

impl Level {
    /// The word that stands in square brackets in a log line and in `error_log`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Crit => "crit",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The level that a word of the configuration names.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Emerg, Self::Alert, Self::Crit, Self::Error, Self::Warn, Self::Notice, Self::Info, Self::Debug]
            .into_iter()
            .find(|level| level.as_str().as_bytes() == name)
    }
}

/// One line for the error log, before the time and the process are put in front of it.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// How severe.
    pub level: Level,
    /// The identity thread of the loop that it is about (`PID#TID`); 0 outside loops.
    pub tid: u32,
    /// The connection's serial number, printed as `*N`.
    pub connection: Option<u64>,
    /// nginx's wording.
    pub message: fmt::Arguments<'a>,
}

/// Takes error log lines. Implementations return without waiting for anything.
pub trait Sink: Send + Sync {
    /// Whether a line of this level goes anywhere; asked before a message is formatted.
    fn enabled(&self, level: Level) -> bool;

    /// Takes one line. A line that cannot be taken is counted, never waited for.
    fn write(&self, record: &Record<'_>);

    /// Logs a message that belongs to no connection.
    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.enabled(level) {
            self.write(&Record { level, tid: 0, connection: None, message });
        }
    }
}

/// Drops everything; for tests and for the time before a configuration is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Sink for Discard {
    fn enabled(&self, _: Level) -> bool {
        false
    }

    fn write(&self, _: &Record<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_severity_is_ordered() {
        assert_eq!(Level::from_name(b"crit"), Some(Level::Crit));
        assert_eq!(Level::from_name(b"CRIT"), None);
        assert!(Level::Emerg < Level::Debug);
    }
}
