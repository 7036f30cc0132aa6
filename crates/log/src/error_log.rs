//! `ErrorLog`: lines in nginx's form for the files of `error_log`. Formats on the thread that logs
//! and hands the line to the writer; nothing blocks.

use std::fmt::{self, Write};

use clearway_base::date::error_log_time;
use clearway_base::log::{Level, Record, Sink, for_each_part};

use crate::local_time::UtcOffset;
use crate::writer::{LogFile, Syslog, Writer};

/// Bytes of an error log line at most, with its line feed (`NGX_MAX_ERROR_STR`); the rest is cut off.
pub const LINE_BYTES_MAX: usize = 2048;

/// Most lines fit into this many bytes.
const LINE_BYTES_USUAL: usize = 256;

/// Where an `error_log` goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// To a file or standard error.
    File(LogFile),
    /// To a syslog server.
    Syslog(Syslog),
}

/// One `error_log DESTINATION LEVEL`.
#[derive(Clone, Debug)]
pub struct ErrorTarget {
    /// Where to.
    pub to: Destination,
    /// Lines of this level and more severe ones.
    pub level: Level,
}

impl Destination {
    fn id(&self) -> u64 {
        match self {
            Self::File(file) => file.id(),
            Self::Syslog(syslog) => syslog.id(),
        }
    }
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

    /// Logs trouble of the writer itself to all targets but `failing`, the one that is in trouble.
    pub(crate) fn report(&self, failing: Option<u64>, level: Level, message: fmt::Arguments<'_>) {
        let record = Record { level, tid: 0, connection: None, message };
        self.send(&record, |to| Some(to.id()) != failing);
    }

    fn send(&self, record: &Record<'_>, wanted: impl Fn(&Destination) -> bool) {
        let mut takers =
            self.targets.iter().filter(|target| record.level <= target.level && wanted(&target.to));
        let Some(first) = takers.next() else { return };
        let unix_seconds = (clearway_os::clock::unix_ms() / 1000).cast_signed();
        let offset_minutes = self.utc_offset.minutes();
        let line = self.line(record, unix_seconds, offset_minutes);
        let message = |to: &Syslog| {
            let text = &line[..line.len() - 1];
            let mut message = to.begin(Some(record.level), unix_seconds, offset_minutes, text.len());
            message.extend_from_slice(text);
            message
        };
        for other in takers {
            match &other.to {
                Destination::File(file) => file.write(line.clone()),
                Destination::Syslog(syslog) => syslog.write(message(syslog)),
            }
        }
        match &first.to {
            Destination::Syslog(syslog) => syslog.write(message(syslog)),
            Destination::File(file) => file.write(line),
        }
    }

    /// `2024/01/31 23:59:59 [error] PID#TID: *CONN message` and a line feed.
    fn line(&self, record: &Record<'_>, unix_seconds: i64, offset_minutes: i32) -> Vec<u8> {
        let time = error_log_time(unix_seconds, offset_minutes);
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
        let mut is_cut = false;
        for_each_part(text, |part| {
            let room = LINE_BYTES_MAX - 1 - self.0.len();
            let taken = room.min(part.len());
            self.0.extend_from_slice(&part[..taken]);
            is_cut |= taken < part.len();
        });
        if is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}
