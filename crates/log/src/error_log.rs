//! `ErrorLog`: lines in nginx's form for the files of `error_log`. Formats on the thread that logs
//! and hands the line to the writer; nothing blocks.

use std::fmt::{self, Write};

use clearway_base::date::error_log_time;
use clearway_base::log::{Level, Record, Sink};

use crate::local_time::UtcOffset;
use crate::writer::{LogFile, Writer};

/// Bytes of an error log line at most, with its line feed (`NGX_MAX_ERROR_STR`); the rest is cut off.
pub const LINE_BYTES_MAX: usize = 2048;

/// Most lines fit into this many bytes.
const LINE_BYTES_USUAL: usize = 256;

/// One `error_log FILE LEVEL`.
#[derive(Clone, Debug)]
pub struct ErrorTarget {
    /// Where to.
    pub file: LogFile,
    /// Lines of this level and more severe ones.
    pub level: Level,
}

/// The error log of one level of the configuration: what its `error_log` directives name.
#[derive(Debug)]
pub struct ErrorLog {
    targets: Vec<ErrorTarget>,
    /// The most talkative level of all targets.
    threshold: Option<Level>,
    pid: u32,
    utc_offset: UtcOffset,
}

impl ErrorLog {
    /// A log that writes to these targets. To be made in the process that logs: it keeps its id.
    #[must_use]
    pub fn new(writer: &Writer, targets: Vec<ErrorTarget>) -> Self {
        let threshold = targets.iter().map(|target| target.level).max();
        Self { targets, threshold, pid: std::process::id(), utc_offset: writer.utc_offset() }
    }

    /// Logs trouble of the writer itself to all targets but `failing`, the file that is in trouble.
    pub(crate) fn report(&self, failing: Option<u64>, level: Level, message: fmt::Arguments<'_>) {
        let record = Record { level, tid: 0, connection: None, message };
        self.send(&record, |file| Some(file.id()) != failing);
    }

    fn send(&self, record: &Record<'_>, wanted: impl Fn(&LogFile) -> bool) {
        let mut takers =
            self.targets.iter().filter(|target| record.level <= target.level && wanted(&target.file));
        let Some(first) = takers.next() else { return };
        let line = self.line(record, clearway_os::clock::unix_ms() / 1000);
        for other in takers {
            other.file.write(line.clone());
        }
        first.file.write(line);
    }

    /// `2024/01/31 23:59:59 [error] PID#TID: *CONN message` and a line feed.
    fn line(&self, record: &Record<'_>, unix_seconds: u64) -> Vec<u8> {
        let time = error_log_time(unix_seconds.cast_signed(), self.utc_offset.minutes());
        let mut line = Cut(Vec::with_capacity(LINE_BYTES_USUAL));
        line.0.extend_from_slice(&time);
        let tid = if record.tid == 0 { self.pid } else { record.tid };
        // An error means that the line is full (or that a Display gave up): what is there is logged.
        let _ = write!(line, " [{}] {}#{tid}: ", record.level.as_str(), self.pid)
            .and_then(|()| record.connection.map_or(Ok(()), |number| write!(line, "*{number} ")))
            .and_then(|()| line.write_fmt(record.message));
        line.0.push(b'\n');
        line.0
    }
}

impl Sink for ErrorLog {
    fn enabled(&self, level: Level) -> bool {
        self.threshold.is_some_and(|threshold| level <= threshold)
    }

    fn write(&self, record: &Record<'_>) {
        self.send(record, |_| true);
    }
}

/// Takes text until one byte is left for the line feed.
struct Cut(Vec<u8>);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX - 1 - self.0.len();
        let taken = room.min(text.len());
        self.0.extend_from_slice(&text.as_bytes()[..taken]);
        if taken < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
