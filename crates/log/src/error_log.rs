//! `ErrorLog`: lines in nginx's form for the files of `error_log`. Formats on the thread that logs
//! and hands the line to the writer; nothing blocks.

use std::fmt::{self, Write};

use clearway_base::date::error_log_time;
use clearway_base::kept_lines;
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
        let unix_ms = clearway_os::clock::unix_ms();
        let unix_seconds = (unix_ms / 1000).cast_signed();
        let offset_minutes = self.utc_offset.minutes();
        let line = self.line(record, unix_seconds, offset_minutes);
        if kept_lines::wants(record.level) {
            let kept = self.text(record, unix_seconds, offset_minutes, Cut::for_code());
            kept_lines::note(record.level, unix_ms, &kept);
        }
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
        let mut line = self.text(record, unix_seconds, offset_minutes, Cut::for_files());
        line.push(b'\n');
        line
    }

    fn text(&self, record: &Record<'_>, unix_seconds: i64, offset_minutes: i32, mut line: Cut) -> Vec<u8> {
        line.text.reserve(LINE_BYTES_USUAL);
        line.text.extend_from_slice(&error_log_time(unix_seconds, offset_minutes));
        let tid = if record.tid == 0 { self.pid } else { record.tid };
        // An error means that the line is full (or that a Display gave up): what is there is logged.
        let _ = write!(line, " [{}] {}#{tid}: ", record.level.as_str(), self.pid)
            .and_then(|()| record.connection.map_or(Ok(()), |number| write!(line, "*{number} ")))
            .and_then(|()| line.write_fmt(record.message));
        line.text
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
struct Cut {
    text: Vec<u8>,
    bytes_max: usize,
    /// Control characters are escaped as in an access log: a client that sends them could end lines of a file
    /// and write others, or command the terminal that shows them.
    is_escaped: bool,
}

impl Cut {
    fn for_files() -> Self {
        Self { text: Vec::new(), bytes_max: LINE_BYTES_MAX, is_escaped: true }
    }

    /// Code gets the text as it is, and as much of it as OpenResty has in a line.
    fn for_code() -> Self {
        Self { text: Vec::new(), bytes_max: kept_lines::LINE_BYTES_MAX, is_escaped: false }
    }

    fn put(&mut self, bytes: &[u8]) -> fmt::Result {
        let room = self.bytes_max - 1 - self.text.len();
        let taken = room.min(bytes.len());
        self.text.extend_from_slice(&bytes[..taken]);
        if taken < bytes.len() { Err(fmt::Error) } else { Ok(()) }
    }

    fn put_text(&mut self, text: &str) -> fmt::Result {
        let mut outcome = Ok(());
        for_each_part(text, |part| outcome = outcome.and_then(|()| self.put(part)));
        outcome
    }

    fn put_escaped(&mut self, control: char) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let mut utf8 = [0; 4];
        control.encode_utf8(&mut utf8).bytes().try_for_each(|byte| {
            self.put(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]])
        })
    }
}

impl Write for Cut {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        if !self.is_escaped {
            return self.put_text(text);
        }
        while let Some(at) = first_control(text) {
            let (before, rest) = text.split_at(at);
            let mut chars = rest.chars();
            self.put_text(before)?;
            chars.next().map_or(Ok(()), |control| self.put_escaped(control))?;
            text = chars.as_str();
        }
        self.put_text(text)
    }
}

/// Where the first control character stands.
fn first_control(text: &str) -> Option<usize> {
    // In UTF-8 those beyond ASCII, U+0080 to U+009F, begin with this byte.
    const HIGH_CONTROL_START: u8 = 0xc2;
    let may_be = |byte: &u8| byte.is_ascii_control() || *byte == HIGH_CONTROL_START;
    text.as_bytes().iter().any(may_be).then(|| text.find(char::is_control)).flatten()
}

#[cfg(test)]
mod tests {
    use clearway_base::log::Verbatim;

    use super::*;

    fn written(message: &[u8]) -> Vec<u8> {
        let mut line = Cut::for_files();
        // Full: what is there counts.
        let _ = write!(line, "{}", Verbatim(message));
        line.text
    }

    #[test]
    fn control_characters_are_escaped_and_nothing_else_is() {
        assert_eq!(written(b"/a\nb\x1b[31m\t\x7f\0"), b"/a\\x0Ab\\x1B[31m\\x09\\x7F\\x00");
        assert_eq!(
            written("\u{9b}2J \u{a9}\u{e9} \\ \"".as_bytes()),
            "\\xC2\\x9B2J \u{a9}\u{e9} \\ \"".as_bytes()
        );
        assert_eq!(written(b"\xff\x9b\n\x80"), b"\xff\x9b\\x0A\x80");
        let controls: Vec<u8> = (0..0x20).collect();
        assert!(written(&controls).iter().all(|byte| !byte.is_ascii_control()));
    }

    #[test]
    fn a_line_is_cut_at_its_limit_wherever_that_is() {
        for lead in 0..6 {
            let message = [vec![b'a'; LINE_BYTES_MAX - 6 + lead], vec![b'\n'; 3], vec![b'b'; 9]].concat();
            let line = written(&message);
            assert_eq!(line.len(), LINE_BYTES_MAX - 1);
            assert!(line.iter().all(|byte| !byte.is_ascii_control()));
        }
    }
}
