//! Clocks, and lines of the error log with a request's circumstances behind them, as nginx writes them.
//! Used by the request's task.

use std::fmt;

use clearway_base::log::{Level, Record};
use clearway_message::Known;
use clearway_offload::moving::Journal;

use super::{Request, RequestLine};
use clearway_base::log::Verbatim;

/// Writes the URL of what another server is asked for, as the error log shows it:
/// `http://192.0.2.1:8080/path`.
pub type UpstreamUrl = fn(&Request<'_>, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Clocks and logs.
impl Request<'_> {
    /// Notes the server that is asked, for lines of the error log from now on.
    pub fn set_upstream(&mut self, url: UpstreamUrl) {
        self.contexts.set_upstream(url);
    }

    /// Seconds since the epoch, as of this turn of the loop.
    pub fn now_unix_s(&self) -> i64 {
        (self.client.home.unix_ms() / 1000) as i64
    }

    /// Milliseconds since the epoch, as of this turn of the loop.
    pub fn now_unix_ms(&self) -> u64 {
        self.client.home.unix_ms()
    }

    /// How far local time is ahead of UTC, minutes.
    pub fn utc_offset_minutes(&self) -> i32 {
        self.snapshot.utc_offset.minutes()
    }

    /// Milliseconds of the monotonic clock, which all processes of the machine share, as of this turn of
    /// the loop.
    pub fn now_ms(&self) -> u64 {
        self.client.home.now_ms()
    }

    /// When it was received at the latest, nanoseconds of the monotonic clock, where several requests came at
    /// once: what is found out after that time is true for all of them. `None` once something was done for it
    /// that may have changed what was found.
    pub fn arrived_ns(&self) -> Option<u64> {
        self.link.arrived_ns()
    }

    /// Nanoseconds of the monotonic clock, read now.
    pub fn clock_ns(&self) -> u64 {
        self.client.home.clock_ns()
    }

    /// Milliseconds since the first byte of the request.
    pub fn elapsed_ms(&self) -> u64 {
        self.client.home.now_ms().saturating_sub(self.started_ms)
    }

    /// Logs what a job on files has to say.
    pub fn log_journal(&self, journal: &Journal) {
        journal.tell(|level, line| self.log(level, line));
    }

    /// `log` for a request whose head is not complete. As in nginx, what was received of the request
    /// line stands for it from then on, if the line is logged at all.
    pub(crate) fn log_incomplete(&mut self, level: Level, message: fmt::Arguments<'_>) {
        if self.logs(level) {
            self.line = RequestLine::AsReceived;
            self.log(level, message);
        }
    }

    /// Logs the lines of the head that were skipped (`ignore_invalid_headers`).
    #[cold]
    pub(crate) fn log_ignored_lines(&mut self) {
        self.action = "reading client request headers";
        for &line in self.parts.parser.ignored() {
            let line = Verbatim(self.bytes(line));
            self.log(Level::Info, format_args!("client sent invalid header line: \"{line}\""));
        }
    }

    /// Logs a file that is not there, where `log_not_found` asks for that.
    pub fn log_not_found(&self, message: fmt::Arguments<'_>) {
        if *self.location().core.log_not_found {
            self.log(Level::Error, message);
        }
    }

    /// Whether a line of this level goes anywhere.
    #[must_use]
    pub fn logs(&self, level: Level) -> bool {
        self.location().core.error_log.iter().any(|sink| sink.enabled(level))
    }

    /// Writes a line to the error log of the location, with the request's circumstances behind it.
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        let circumstances = Circumstances { request: self, action: self.action };
        for sink in self.location().core.error_log.iter().filter(|sink| sink.enabled(level)) {
            sink.write(&Record {
                level,
                tid: self.setup.identity(self.client.home),
                connection: Some(self.client.serial),
                message: format_args!("{message}{circumstances}"),
            });
        }
    }
}

/// The text that nginx puts behind a message about a request.
pub(crate) struct Circumstances<'a, 'c> {
    pub(crate) request: &'a Request<'c>,
    /// The action; empty: it is left out.
    pub(crate) action: &'static str,
}

impl fmt::Display for Circumstances<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.request;
        if !self.action.is_empty() {
            write!(f, " while {}", self.action)?;
        }
        if !request.is_internal() {
            write!(f, ", client: {}", request.peer())?;
        }
        write!(f, ", server: {}", Verbatim(request.server.name()))?;
        let line = request.request_line().or_else(|| request.received_line());
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            write!(f, ", request: \"{}\"", Verbatim(line))?;
        }
        if !request.is_main() {
            write!(f, ", subrequest: \"{}\"", Verbatim(request.path()))?;
        }
        if let Some(url) = request.contexts.upstream() {
            f.write_str(", upstream: \"")?;
            url(request, f)?;
            f.write_str("\"")?;
        }
        if let Some(host) = request.header(Known::Host) {
            write!(f, ", host: \"{}\"", Verbatim(host))?;
        }
        if let Some(referer) = request.header(Known::Referer) {
            write!(f, ", referrer: \"{}\"", Verbatim(referer))?;
        }
        Ok(())
    }
}
