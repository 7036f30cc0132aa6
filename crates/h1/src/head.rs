//! The parser of request heads: its state while a head arrives, which it writes into the head of `message`.
//! One value per request, owned by the request; it runs in the poll of the connection's task.
//!
//! Invariant: the same bytes give the same result however they were split.

use std::fmt;

use clearway_base::log::Verbatim;
use clearway_message::{
    BodyLength, HEAD_MAX_BYTES, Header, Known, LatestHost, Method, RequestHead, Span, TargetForm, Version,
    name_hash, validate_host,
};
use smallvec::SmallVec;

use crate::fault::Fault;
use crate::header_line::{HeaderLine, Line, Sender};
use crate::options::{InvalidHeaders, Options};
use crate::request_line::{LineParser, Progress};
use crate::scan;

/// How many skipped header lines are remembered for the log.
const IGNORED_KEPT_MAX: usize = 16;

/// The longest header line in a log message, in bytes.
const LOGGED_LINE_MAX_BYTES: usize = 1748;

/// Whether the head is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadProgress {
    /// More bytes are needed.
    Incomplete,
    /// All of the head was parsed.
    Complete,
}

/// The client's wish for the connection (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionOption {
    /// Nothing: it depends on the version.
    #[default]
    Unspecified,
    /// `Connection: close`.
    Close,
    /// `Connection: keep-alive`.
    KeepAlive,
}

/// Parses a request head as it arrives, into the head that is handed to it each time. `clear` makes it ready
/// for the next request.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    request_line: LineParser,
    line: HeaderLine,
    phase: Phase,
    pos: usize,
    /// Up to where the current buffer of nginx would reach, which begins with the request; 0 before the
    /// first call.
    window_end: usize,
    large_buffers_used: usize,
    latest_host: LatestHost,
    connection: ConnectionOption,
    ignored: SmallVec<[Span; 0]>,
    /// Index of the earlier header of a duplicate.
    previous: usize,
    /// Length of a head that came in another form, bytes; 0 for those that are parsed here.
    carried_bytes: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    RequestLine,
    Headers,
    Complete,
}

impl HeadParser {
    /// At the beginning of a head.
    pub fn new() -> HeadParser {
        HeadParser::default()
    }

    /// Forgets the request, but not what is known of its host.
    pub fn clear(&mut self) {
        self.request_line = LineParser::default();
        self.line = HeaderLine::default();
        self.phase = Phase::RequestLine;
        self.pos = 0;
        self.window_end = 0;
        self.large_buffers_used = 0;
        self.connection = ConnectionOption::Unspecified;
        self.ignored.clear();
        self.previous = 0;
        self.carried_bytes = 0;
    }

    /// The head is `len` bytes long and was made of what came in another form, as which it had
    /// `carried_bytes`.
    pub fn complete(&mut self, len: usize, carried_bytes: usize) {
        (self.pos, self.window_end, self.phase) = (len, len, Phase::Complete);
        self.carried_bytes = u32::try_from(carried_bytes).unwrap_or(u32::MAX);
    }

    /// Goes on parsing. `buf` begins where it began at the first call and has at least the bytes it had.
    ///
    /// # Errors
    /// The request is to be refused as the fault says; the connection is closed after the answer.
    pub fn parse(
        &mut self,
        head: &mut RequestHead,
        buf: &[u8],
        options: &Options,
    ) -> Result<HeadProgress, Fault> {
        if !self.is_started() {
            self.pos = scan::skip_while(buf, self.pos, |byte| matches!(byte, b'\r' | b'\n'));
            self.window_end = self.pos + options.client_header_buffer_size.max(1);
        }
        loop {
            let end = buf.len().min(self.window_end).min(HEAD_MAX_BYTES);
            if self.parse_window(head, &buf[..end], options)? == HeadProgress::Complete {
                return Ok(HeadProgress::Complete);
            }
            if end < self.window_end {
                return Ok(HeadProgress::Incomplete);
            }
            self.open_next_window(options)?;
        }
    }

    /// How many bytes of the head may be read behind the `have` bytes that were received: as many as
    /// nginx's current buffer would take, so that a peer cannot make its owner hold more than
    /// `Options::head_max_bytes`.
    pub fn wanted(&self, have: usize, options: &Options) -> usize {
        let end =
            if self.window_end == 0 { options.client_header_buffer_size.max(1) } else { self.window_end };
        end.saturating_sub(have)
    }

    /// Whether a byte of the request itself was seen; empty lines before it do not count.
    pub fn is_started(&self) -> bool {
        self.request_line.is_started()
    }

    /// The empty lines before the request, which need not be kept: as many bytes as the owner has to drop
    /// from the front of the buffer. Returns 0 once the request has begun.
    pub fn drop_empty_lines(&mut self) -> usize {
        if self.is_started() {
            return 0;
        }
        self.window_end = 0;
        std::mem::take(&mut self.pos)
    }

    fn parse_window(
        &mut self,
        head: &mut RequestHead,
        buf: &[u8],
        options: &Options,
    ) -> Result<HeadProgress, Fault> {
        if self.phase == Phase::RequestLine {
            let usual = self.request_line.take_usual(&mut head.line, buf, &mut self.pos);
            match usual.map_or_else(|| self.request_line.parse(&mut head.line, buf, &mut self.pos), Ok)? {
                Progress::Incomplete => return Ok(HeadProgress::Incomplete),
                Progress::Complete => self.take_request_line(head, buf)?,
            }
        }
        while self.phase == Phase::Headers {
            let usual = self.line.take_usual(buf, &mut self.pos);
            let parse = || self.line.parse(buf, &mut self.pos, Sender::Client(options.underscores));
            match usual.map_or_else(parse, Ok)? {
                Line::Incomplete => return Ok(HeadProgress::Incomplete),
                Line::Header => self.take_header(head, buf, options)?,
                Line::End => self.finish(head, buf)?,
            }
        }
        Ok(HeadProgress::Complete)
    }

    /// The current buffer is full. Decides as nginx does whether there is another one: a line that is
    /// begun moves there as a whole.
    #[cold]
    fn open_next_window(&mut self, options: &Options) -> Result<(), Fault> {
        let at = self.window_end;
        let size = options.large_client_header_buffer_size;
        let (line_start, fault) = match self.phase {
            Phase::RequestLine => (self.request_line.start as usize, Fault::UriTooLong),
            _ => (self.line.unfinished().unwrap_or(at), Fault::HeaderLineTooLong),
        };
        if at - line_start >= size || self.large_buffers_used >= options.large_client_header_buffers {
            return Err(fault);
        }
        self.large_buffers_used += 1;
        self.window_end = line_start + size;
        Ok(())
    }

    fn take_request_line(&mut self, head: &mut RequestHead, buf: &[u8]) -> Result<(), Fault> {
        if head.line.form != TargetForm::Origin {
            let authority = head.line.authority;
            let host = validate_host(authority.of(buf), authority.start());
            head.host = Some(host.ok_or(Fault::InvalidHostInRequestLine)?);
        }
        self.phase = match head.line.version {
            Version::HTTP_09 => Phase::Complete,
            _ => Phase::Headers,
        };
        Ok(())
    }

    fn take_header(&mut self, head: &mut RequestHead, buf: &[u8], options: &Options) -> Result<(), Fault> {
        if !self.line.is_valid && options.invalid_headers == InvalidHeaders::Ignore {
            self.ignore_line();
            return Ok(());
        }
        if head.headers.len() >= options.max_headers {
            return Err(Fault::TooManyHeaders);
        }
        let (name, value) = (self.line.name(), self.line.value());
        let bytes = name.of(buf);
        let hash = name_hash(bytes);
        let known = Known::find_hashed(bytes, hash);
        if known.is_unique() && head.headers.has(known) {
            return Err(self.duplicate(head, buf, known));
        }
        head.headers.receive(Header { name, value, hash, known });
        match known {
            Known::Host => self.take_host(head, buf, value),
            Known::Connection => {
                self.take_connection(value.of(buf));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn ignore_line(&mut self) {
        if self.ignored.len() < IGNORED_KEPT_MAX {
            self.ignored.push(self.line.received());
        }
    }

    #[cold]
    fn duplicate(&mut self, head: &mut RequestHead, buf: &[u8], known: Known) -> Fault {
        self.previous = head.headers.iter(buf).position(|line| line.known == known).unwrap_or_default();
        if known == Known::Host { Fault::DuplicateHost } else { Fault::DuplicateHeader }
    }

    /// The host of an absolute target goes before `Host`, which must be valid all the same.
    fn take_host(&mut self, head: &mut RequestHead, buf: &[u8], value: Span) -> Result<(), Fault> {
        let host = self.latest_host.validate(value.of(buf), value.start()).ok_or(Fault::InvalidHost)?;
        if head.host.is_none() {
            head.host = Some(host);
        }
        Ok(())
    }

    /// nginx looks for the words anywhere in the value; of several lines the last one that has one counts.
    fn take_connection(&mut self, value: &[u8]) {
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.connection = ConnectionOption::KeepAlive;
        } else if contains_ignoring_case(value, b"close") {
            self.connection = ConnectionOption::Close;
        } else if contains_ignoring_case(value, b"keep-alive") {
            self.connection = ConnectionOption::KeepAlive;
        }
    }

    /// Checks that need all headers, in nginx's order.
    fn finish(&mut self, head: &mut RequestHead, buf: &[u8]) -> Result<(), Fault> {
        let version = head.line.version;
        if !head.has(Known::Host) && version > Version::HTTP_10 {
            return Err(Fault::NoHost);
        }
        if let Some(value) = head.find(buf, Known::ContentLength) {
            let length = decimal(value).ok_or(Fault::InvalidContentLength)?;
            head.body = BodyLength::Length(length);
        }
        if let Some(value) = head.find(buf, Known::TransferEncoding) {
            if version < Version::HTTP_11 {
                return Err(Fault::TransferEncodingInHttp10);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::UnknownTransferEncoding);
            }
            if head.has(Known::ContentLength) {
                return Err(Fault::ContentLengthAndTransferEncoding);
            }
            head.body = BodyLength::Chunked;
        }
        if head.method() == Method::Trace {
            return Err(Fault::Trace);
        }
        self.phase = Phase::Complete;
        Ok(())
    }
}

/// Facts that belong to HTTP/1 alone.
impl HeadParser {
    /// The client's wish for the connection.
    pub fn connection(&self) -> ConnectionOption {
        self.connection
    }

    /// Whether the client wants to use the connection again.
    pub fn wants_keep_alive(&self, head: &RequestHead) -> bool {
        match self.connection {
            ConnectionOption::Unspecified => head.version() > Version::HTTP_10,
            ConnectionOption::Close => false,
            ConnectionOption::KeepAlive => true,
        }
    }

    /// Number of bytes parsed so far: where the body begins once the head is complete.
    pub fn len(&self) -> usize {
        self.pos
    }

    /// Whether no byte was parsed.
    pub fn is_empty(&self) -> bool {
        self.pos == 0
    }

    /// The received part of the request line, without empty lines in front, as far as nginx would have read:
    /// no more than its current buffer holds.
    pub fn received_line<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let start = self.start();
        let end = scan::skip_while(buf, start, |byte| !matches!(byte, b'\r' | b'\n'));
        &buf[start..end.min(self.window_end).max(start)]
    }

    fn start(&self) -> usize {
        self.request_line.start as usize
    }

    /// Number of bytes of the head as `$request_length` counts them: of complete lines, without empty ones
    /// before the request.
    pub fn size(&self, head: &RequestHead) -> usize {
        if self.carried_bytes > 0 {
            return self.carried_bytes as usize;
        }
        if head.line.line.is_empty() {
            return 0;
        }
        self.line.unfinished().unwrap_or(self.pos) - self.start()
    }

    /// Forgets the header lines: whose target is refused has sent nothing behind it, as it were. `len` is
    /// what it was.
    pub fn forget_headers(&mut self, head: &mut RequestHead, buf: &[u8]) {
        let line_end = scan::skip_while(buf, head.line.line.end(), |byte| byte != b'\n') + 1;
        self.line = HeaderLine::unfinished_at(line_end.min(self.pos));
        head.host = None;
        head.headers.clear();
        self.ignored.clear();
    }

    /// The first sixteen lines that `ignore_invalid_headers` skipped, for the log.
    pub fn ignored(&self) -> &[Span] {
        &self.ignored
    }

    /// The message for the error log about a fault of this head, in nginx's wording.
    pub fn describe<'a>(
        &'a self,
        head: &'a RequestHead,
        fault: Fault,
        buf: &'a [u8],
    ) -> impl fmt::Display + 'a {
        Description { parser: self, head, fault, buf }
    }
}

struct Description<'a> {
    parser: &'a HeadParser,
    head: &'a RequestHead,
    fault: Fault,
    buf: &'a [u8],
}

impl Description<'_> {
    fn text(&self, span: Span) -> Verbatim<'_> {
        Verbatim(span.of(self.buf))
    }
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, line) = (self.fault.message(), &self.parser.line);
        match self.fault {
            Fault::InvalidHeaderLine => {
                let received = line.received();
                let wrong = self.buf.get(received.end()).copied().unwrap_or_default();
                write!(f, "{message}: \"{}\\x{wrong:02x}...\"", self.text(received))
            }
            Fault::HeaderLineTooLong => {
                let start = line.unfinished().unwrap_or(self.parser.pos);
                let end = self.parser.pos.min(start + LOGGED_LINE_MAX_BYTES);
                write!(f, "{message}: \"{}...\"", self.text(Span::new(start, end)))
            }
            Fault::DuplicateHeader | Fault::DuplicateHost => {
                let (name, value) = (self.text(line.name()), self.text(line.value()));
                write!(f, "{message}: \"{name}: {value}\"")?;
                let Some(previous) = self.head.headers.iter(self.buf).nth(self.parser.previous) else {
                    return Ok(());
                };
                let (name, value) = (Verbatim(previous.name), Verbatim(previous.value));
                write!(f, ", previous value: \"{name}: {value}\"")
            }
            Fault::UnknownTransferEncoding => {
                let value = self.head.find(self.buf, Known::TransferEncoding);
                write!(f, "{message}: \"{}\"", Verbatim(value.unwrap_or_default()))
            }
            Fault::BodyTooLarge => match self.head.body {
                BodyLength::Length(bytes) => write!(f, "{message}: {bytes} bytes"),
                _ => f.write_str(message),
            },
            _ => f.write_str(message),
        }
    }
}

pub(crate) fn contains_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// A decimal number below 2^63, digits only.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits
        .iter()
        .try_fold(0i64, |number, &digit| {
            digit.is_ascii_digit().then_some(())?;
            number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
        })
        .map(i64::unsigned_abs)
}
