//! The parser of response heads: its state while a head arrives, and what the head says of its body and of
//! the connection. One value per upstream connection in use, which the request's task owns.
//!
//! Invariants: the same bytes give the same result however they were split; no byte is looked at twice; a
//! head that is accepted has one framing.

use std::fmt;

use clearway_base::log::Verbatim;
use clearway_message::{HEAD_MAX_BYTES, Header, Known, Span, Version, name_hash};
use smallvec::SmallVec;

use super::fault::ResponseFault;
use super::status_line::{StatusLine, StatusProgress};
use crate::head::{contains_ignoring_case, decimal};
use crate::header_line::{HeaderLine, Line, Sender};

/// How many interim responses (1xx) may come before the one that answers the request.
pub const INTERIM_HEADS_MAX: u32 = 1000;

/// Room for the lines of most heads.
const LINES_FIRST: usize = 16;

/// How many lines that were dropped are remembered for the log.
const DROPPED_KEPT_MAX: usize = 16;

/// Facts about the request on which the framing of its response depends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// A response with a body.
    #[default]
    Whole,
    /// A body without bytes, as the response has only a head (`HEAD`).
    Head,
}

/// How the body of a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is none.
    Empty,
    /// A body of so many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All bytes up to the end of the connection.
    UntilClose,
}

/// How far the head of a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseProgress {
    /// More bytes are needed.
    Incomplete,
    /// An interim response (1xx but 101) is complete: the owner passes it on or not, and goes on with
    /// [`ResponseParser::next_head`].
    Interim,
    /// The head of the response is complete.
    Final,
    /// There is no status line: all that was received is the body of an HTTP/0.9 response, until the
    /// connection closes. The owner logs [`ResponseParser::NO_HEADER`].
    Headless,
}

/// The form of a response's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beginning {
    /// A status line: HTTP/1.
    #[default]
    StatusLine,
    /// Header lines, of which `Status` says what the status is (CGI, RFC 3875 §6.3): FastCGI.
    Lines,
    /// Either of them: SCGI and uwsgi.
    Either,
}

/// The source of the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StatusSource {
    #[default]
    StatusLine,
    /// Header lines: the code, and where the text of `Status` stands.
    Lines(u16, Option<Span>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    StatusLine,
    Headers,
    Complete,
    Headless,
}

/// Whether the server keeps the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Persistence {
    #[default]
    Kept,
    Closed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Announced {
    #[default]
    Nothing,
    Length(u64),
    Chunked,
}

/// Parses the head of a response as it arrives. [`clear`](Self::clear) makes it ready for another one, and
/// keeps the memory: a head of up to as many lines as one before allocates nothing.
///
/// ```
/// use clearway_h1::{Asked, ResponseFraming, ResponseParser, ResponseProgress};
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
/// let mut parser = ResponseParser::default();
/// assert_eq!(parser.parse(input, 4096)?, ResponseProgress::Final);
/// assert_eq!((parser.status(), parser.reason().of(input)), (200, &b" OK"[..]));
/// assert_eq!(parser.framing(Asked::Whole), ResponseFraming::Length(2));
/// assert_eq!(&input[parser.len()..], b"hi");
/// # Ok::<(), clearway_h1::ResponseFault>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    beginning: Beginning,
    status_line: StatusLine,
    status_source: StatusSource,
    line: HeaderLine,
    phase: Phase,
    pos: usize,
    lines: Vec<Header>,
    /// The known headers that are there: a set of [`Known::bit`].
    seen: u64,
    announced: Announced,
    persistence: Persistence,
    interim_heads: u32,
    /// Lines that were dropped, each with the earlier one of its name.
    dropped: SmallVec<[(Header, Header); 0]>,
    /// The line before a refused duplicate.
    previous: Option<Header>,
}

impl ResponseParser {
    /// The line of the error log for a response without a status line, in nginx's words.
    pub const NO_HEADER: &'static str = "upstream sent no valid HTTP/1.0 header";

    /// A parser of responses that begin like this.
    pub fn new(beginning: Beginning) -> Self {
        Self { beginning, ..Self::default() }
    }

    /// Forgets the response.
    pub fn clear(&mut self) {
        self.interim_heads = 0;
        self.begin();
    }

    /// Goes on behind an interim response: how many bytes the owner has to drop from the front of the buffer
    /// before it parses again.
    pub fn next_head(&mut self) -> usize {
        debug_assert_eq!(self.phase, Phase::Complete, "an interim response is complete");
        let len = self.pos;
        self.begin();
        len
    }

    fn begin(&mut self) {
        let (lines, interim_heads) = (std::mem::take(&mut self.lines), self.interim_heads);
        *self = Self { lines, interim_heads, ..Self::new(self.beginning) };
        self.lines.clear();
    }

    /// Goes on parsing. `buf` begins where it began at the first call and has at least the bytes it had; the
    /// head has to be complete within `max_bytes` (`proxy_buffer_size`).
    ///
    /// # Errors
    /// The response is refused; its connection is to be closed.
    pub fn parse(&mut self, buf: &[u8], max_bytes: usize) -> Result<ResponseProgress, ResponseFault> {
        let max_bytes = max_bytes.min(HEAD_MAX_BYTES);
        let window = &buf[..buf.len().min(max_bytes)];
        let progress = self.parse_window(window)?;
        if progress == ResponseProgress::Incomplete && window.len() == max_bytes {
            return Err(ResponseFault::TooBigHeader);
        }
        Ok(progress)
    }

    fn parse_window(&mut self, buf: &[u8]) -> Result<ResponseProgress, ResponseFault> {
        if self.phase == Phase::StatusLine {
            let progress = match self.beginning {
                Beginning::Lines => StatusProgress::Invalid,
                _ => self.status_line.parse(buf, &mut self.pos),
            };
            match progress {
                StatusProgress::Incomplete => return Ok(ResponseProgress::Incomplete),
                StatusProgress::Complete => self.take_status_line()?,
                StatusProgress::Invalid => self.begin_without_status_line(),
            }
        }
        while self.phase == Phase::Headers {
            let usual = self.line.take_usual(buf, &mut self.pos);
            let parse = || self.line.parse(buf, &mut self.pos, Sender::Server);
            match usual.map_or_else(parse, Ok).map_err(|_| ResponseFault::InvalidHeader)? {
                Line::Incomplete => return Ok(ResponseProgress::Incomplete),
                Line::Header => self.take_header(buf)?,
                Line::End => self.take_end(buf)?,
            }
        }
        Ok(match self.phase {
            Phase::Headless => ResponseProgress::Headless,
            _ if self.is_interim() => ResponseProgress::Interim,
            _ => ResponseProgress::Final,
        })
    }

    fn take_status_line(&mut self) -> Result<(), ResponseFault> {
        self.phase = Phase::Headers;
        if self.status_line.version() < Version::HTTP_11 {
            if self.status() == EARLY_HINTS {
                return Err(ResponseFault::EarlyHintsInHttp10);
            }
            self.persistence = Persistence::Closed;
        }
        if self.is_interim() {
            self.interim_heads += 1;
            if self.interim_heads > INTERIM_HEADS_MAX {
                return Err(ResponseFault::TooManyInterim);
            }
        }
        Ok(())
    }

    #[cold]
    fn begin_without_status_line(&mut self) {
        self.status_line = StatusLine::default();
        self.pos = 0;
        if self.beginning == Beginning::StatusLine {
            self.phase = Phase::Headless;
        } else {
            self.status_source = StatusSource::Lines(0, None);
            self.phase = Phase::Headers;
        }
    }

    /// The empty line has come. In CGI style the status is what `Status` says, else 302 where there is a
    /// `Location`, else 200.
    fn take_end(&mut self, buf: &[u8]) -> Result<(), ResponseFault> {
        if self.status_source != StatusSource::StatusLine {
            self.status_source = match self.first(Known::Status).map(|line| line.value) {
                Some(value) => {
                    let digits = value.of(buf).get(..STATUS_DIGITS).ok_or(ResponseFault::InvalidStatus)?;
                    let code = decimal(digits).ok_or(ResponseFault::InvalidStatus)?;
                    let reason = Span::new(value.start() + STATUS_DIGITS, value.end());
                    StatusSource::Lines(code as u16, Some(reason).filter(|reason| !reason.is_empty()))
                }
                None if self.has(Known::Location) => StatusSource::Lines(302, None),
                None => StatusSource::Lines(200, None),
            };
        }
        self.phase = Phase::Complete;
        Ok(())
    }

    fn take_header(&mut self, buf: &[u8]) -> Result<(), ResponseFault> {
        let (name, value) = (self.line.name(), self.line.value());
        let hash = name_hash(name.of(buf));
        let known = Known::find_hashed(name.of(buf), hash);
        let header = Header { name, value, hash, known };
        // An interim response says nothing of a body or of the connection.
        if known != Known::Other && !self.is_interim() && !self.keeps(header, buf)? {
            return Ok(());
        }
        self.seen |= known.bit();
        if self.lines.is_empty() {
            self.lines.reserve(LINES_FIRST);
        }
        self.lines.push(header);
        Ok(())
    }

    /// Acts on a known header; whether the line is kept.
    fn keeps(&mut self, header: Header, buf: &[u8]) -> Result<bool, ResponseFault> {
        let value = header.value.of(buf);
        let is_second = self.seen & header.known.bit() != 0;
        match header.known {
            Known::ContentLength | Known::TransferEncoding if is_second => {
                self.previous = self.first(header.known);
                return Err(ResponseFault::DuplicateHeader);
            }
            Known::ContentLength | Known::TransferEncoding if self.announced != Announced::Nothing => {
                return Err(ResponseFault::ContentLengthAndTransferEncoding);
            }
            Known::ContentLength => {
                let length = decimal(value).ok_or(ResponseFault::InvalidContentLength)?;
                self.announced = Announced::Length(length);
            }
            Known::TransferEncoding if value.eq_ignore_ascii_case(b"chunked") => {
                self.announced = Announced::Chunked;
            }
            Known::TransferEncoding => return Err(ResponseFault::UnknownTransferEncoding),
            Known::Connection if contains_ignoring_case(value, b"close") => {
                self.persistence = Persistence::Closed;
            }
            known if is_second && SINGLE & known.bit() != 0 => {
                self.drop_line(header);
                return Ok(false);
            }
            _ => {}
        }
        Ok(true)
    }

    #[cold]
    fn drop_line(&mut self, header: Header) {
        if self.dropped.len() < DROPPED_KEPT_MAX
            && let Some(first) = self.first(header.known)
        {
            self.dropped.push((header, first));
        }
    }

    fn first(&self, known: Known) -> Option<Header> {
        self.lines.iter().find(|line| line.known == known).copied()
    }
}

/// Digits of a status.
const STATUS_DIGITS: usize = 3;

/// 103 (RFC 8297).
const EARLY_HINTS: u16 = 103;

/// 101: the connection is another protocol's from here on.
const SWITCHING_PROTOCOLS: u16 = 101;

/// Headers of which nginx takes the first line and drops the others.
const SINGLE: u64 = Known::Status.bit()
    | Known::ContentType.bit()
    | Known::Date.bit()
    | Known::LastModified.bit()
    | Known::ETag.bit()
    | Known::Server.bit()
    | Known::Location.bit()
    | Known::Refresh.bit()
    | Known::Expires.bit()
    | Known::XAccelExpires.bit()
    | Known::XAccelRedirect.bit()
    | Known::XAccelLimitRate.bit();

/// The parsed head.
impl ResponseParser {
    /// The status code, 0 to 999; 200 where there is no head.
    pub fn status(&self) -> u16 {
        match self.status_source {
            _ if self.phase == Phase::Headless => 200,
            StatusSource::StatusLine => self.status_line.code,
            StatusSource::Lines(code, _) => code,
        }
    }

    /// The text behind the status code, unchanged: ` OK`, or nothing, or `.1 Forbidden`. The three digits of
    /// the code are in front of it if there is a status line, or a `Status` with a text; otherwise it is
    /// empty and at the beginning.
    pub fn reason(&self) -> Span {
        match self.status_source {
            StatusSource::StatusLine => self.status_line.text(),
            StatusSource::Lines(_, reason) => reason.unwrap_or_default(),
        }
    }

    /// The version of the protocol; HTTP/1.1 where nothing says it.
    pub fn version(&self) -> Version {
        match self.status_source {
            _ if self.phase == Phase::Headless => Version::HTTP_09,
            StatusSource::StatusLine => self.status_line.version(),
            StatusSource::Lines(..) => Version::HTTP_11,
        }
    }

    /// Whether it is an interim response (1xx but 101).
    pub fn is_interim(&self) -> bool {
        matches!(self.status_line.code, 100..=199) && !self.switches_protocols()
    }

    /// Whether the server has changed to another protocol (101), if it was asked to.
    pub fn switches_protocols(&self) -> bool {
        self.status() == SWITCHING_PROTOCOLS
    }

    /// The header lines in their order, as spans of what was parsed.
    pub fn lines(&self) -> &[Header] {
        &self.lines
    }

    /// Takes the header lines out of the head; from here on it has none.
    pub fn take_lines(&mut self) -> Vec<Header> {
        std::mem::take(&mut self.lines)
    }

    /// Whether there is a line with a known header.
    pub fn has(&self, known: Known) -> bool {
        self.seen & known.bit() != 0
    }

    /// The value of the first line with a known header.
    pub fn find<'a>(&self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        if !self.has(known) {
            return None;
        }
        self.first(known).map(|line| line.value.of(buf))
    }

    /// `Content-Length`, also where there is no body (`HEAD`, 304).
    pub fn content_length(&self) -> Option<u64> {
        match self.announced {
            Announced::Length(bytes) => Some(bytes),
            Announced::Nothing | Announced::Chunked => None,
        }
    }

    /// How the body is framed.
    pub fn framing(&self, asked: Asked) -> ResponseFraming {
        if self.phase == Phase::Headless {
            return ResponseFraming::UntilClose;
        }
        if asked == Asked::Head || matches!(self.status(), 204 | 304) {
            return ResponseFraming::Empty;
        }
        match self.announced {
            // nginx looks for chunks in HTTP alone.
            Announced::Chunked if self.beginning == Beginning::StatusLine => ResponseFraming::Chunked,
            Announced::Chunked => ResponseFraming::UntilClose,
            Announced::Length(0) => ResponseFraming::Empty,
            Announced::Length(bytes) => ResponseFraming::Length(bytes),
            Announced::Nothing => ResponseFraming::UntilClose,
        }
    }

    /// Whether the server keeps the connection when the body has come to its end.
    pub fn keeps_alive(&self) -> bool {
        self.phase == Phase::Complete && self.persistence == Persistence::Kept && !self.switches_protocols()
    }

    /// Number of bytes parsed so far: where the body begins once the head is complete.
    pub fn len(&self) -> usize {
        self.pos
    }

    /// Whether no byte was parsed.
    pub fn is_empty(&self) -> bool {
        self.pos == 0
    }

    /// Warnings for the error log, in nginx's words: second lines of headers that may be there once, which
    /// are not among [`lines`](Self::lines). The first sixteen.
    pub fn warnings<'a>(&'a self, buf: &'a [u8]) -> impl Iterator<Item = impl fmt::Display + 'a> + 'a {
        self.dropped.iter().map(move |&(line, first)| Duplicate { line, first, buf, end: ", ignored" })
    }

    /// The message for the error log about a fault of this head, in nginx's words.
    pub fn describe<'a>(&'a self, fault: ResponseFault, buf: &'a [u8]) -> impl fmt::Display + 'a {
        Description { parser: self, fault, buf }
    }
}

/// "upstream sent duplicate header line: …".
struct Duplicate<'a> {
    line: Header,
    first: Header,
    buf: &'a [u8],
    end: &'static str,
}

impl fmt::Display for Duplicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |span: Span| Verbatim(span.of(self.buf));
        let message = ResponseFault::DuplicateHeader.message();
        let (line, first) = (self.line, self.first);
        write!(f, "{message}: \"{}: {}\"", text(line.name), text(line.value))?;
        write!(f, ", previous value: \"{}: {}\"{}", text(first.name), text(first.value), self.end)
    }
}

struct Description<'a> {
    parser: &'a ResponseParser,
    fault: ResponseFault,
    buf: &'a [u8],
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, line, buf) = (self.fault.message(), &self.parser.line, self.buf);
        let text = |span: Span| Verbatim(span.of(buf));
        match (self.fault, self.parser.previous) {
            (ResponseFault::InvalidHeader, _) => write_invalid(f, message, line.received(), buf),
            (ResponseFault::DuplicateHeader, Some(first)) => {
                let (name, value) = (line.name(), line.value());
                let line = Header { name, value, hash: 0, known: Known::Other };
                write!(f, "{}", Duplicate { line, first, buf, end: "" })
            }
            (ResponseFault::InvalidStatus, _) => {
                let value = self.parser.find(buf, Known::Status).unwrap_or_default();
                write!(f, "{message} \"{}\"", Verbatim(value))
            }
            (ResponseFault::InvalidContentLength, _) => {
                write!(f, "{message}: \"{}: {}\"", text(line.name()), text(line.value()))
            }
            (ResponseFault::UnknownTransferEncoding, _) => {
                write!(f, "{message}: \"{}\"", text(line.value()))
            }
            _ => f.write_str(message),
        }
    }
}

/// The beginning of a line up to the byte that is wrong, and that byte.
pub(super) fn write_invalid(
    f: &mut fmt::Formatter<'_>,
    message: &str,
    received: Span,
    buf: &[u8],
) -> fmt::Result {
    let wrong = buf.get(received.end()).copied().unwrap_or_default();
    write!(f, "{message}: \"{}\\x{wrong:02x}...\"", Verbatim(received.of(buf)))
}
