//! The request line (RFC 9112 §3), with the latitude that nginx gives: a bare LF at its end, runs of spaces
//! between its parts, no version at all (HTTP/0.9). Empty lines before it are the head's matter.
//!
//! A resumable machine: it can stop after any byte and never looks at a byte twice. Each group of states
//! is one function that runs to the group's end or to the end of input.

use clearway_message::{Method, RequestLine, Span, TargetForm, Version, offset};

use crate::fault::Fault;
use crate::scan::{self, TARGET, target};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestLineState {
    #[default]
    Start,
    Method,
    BeforeTarget,
    Scheme,
    SchemeSlash,
    SchemeSlashSlash,
    BeforeAuthority,
    HostStart,
    Host,
    IpLiteral,
    HostEnd,
    PortStart,
    Port,
    Path,
    Args,
    Fragment,
    AfterTarget,
    Protocol,
    MajorFirst,
    Major,
    MinorFirst,
    Minor,
    AfterVersion,
    LineFeed,
}

/// How far the machine got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Incomplete,
    Complete,
}

/// The machine: what it knows beside the parts of the line, which it writes where they are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineParser {
    state: RequestLineState,
    /// 0 until it was reached.
    major: u16,
    /// Where the part that is being parsed began.
    mark: u32,
    /// Where the raw target began.
    raw_start: u32,
    /// Where the line began.
    pub(crate) start: u32,
}

impl LineParser {
    /// Whether a byte of the line was seen.
    pub(crate) fn is_started(&self) -> bool {
        self.state != RequestLineState::Start
    }

    /// Takes a line at once that is there as a whole and as nearly all are: GET of a path without escapes,
    /// HTTP/1.1, CR LF. Everything else is left to [`parse`](Self::parse).
    #[inline]
    pub(crate) fn take_usual(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Option<Progress> {
        const BEGIN: &[u8; 5] = b"GET /";
        const END: &[u8; 11] = b" HTTP/1.1\r\n";
        if self.state != RequestLineState::Start {
            return None;
        }
        let start = *pos;
        let rest = buf.get(start..)?.strip_prefix(BEGIN)?;
        let (path_len, is_plain) = scan::path_len(rest)?;
        let raw_start = start + BEGIN.len() - 1;
        let path_end = raw_start + 1 + path_len;
        let mut at = path_end;
        let mut args = Span::default();
        if rest[path_len] == b'?' {
            at = scan::skip_args(buf, path_end + 1);
            args = Span::new(path_end + 1, at);
        }
        if buf.get(at..)?.first_chunk()? != END {
            return None;
        }
        let line_end = at + END.len() - 2;
        self.state = RequestLineState::LineFeed;
        out.method = Method::Get;
        out.version = Version::HTTP_11;
        self.major = 1;
        out.path_is_plain = is_plain;
        self.start = offset(start);
        out.line = Span::new(start, line_end);
        out.method_name = Span::new(start, start + 3);
        out.raw = Span::new(raw_start, at);
        out.path = Span::new(raw_start, path_end);
        out.args = args;
        out.protocol = Span::new(at + 1, line_end);
        *pos = line_end + 2;
        Some(Progress::Complete)
    }

    /// Advances `pos` over `buf`; after `Complete` it is past the line's LF.
    #[inline(never)]
    pub(crate) fn parse(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        while *pos < buf.len() {
            let progress = match self.state {
                RequestLineState::Start | RequestLineState::Method | RequestLineState::BeforeTarget => {
                    self.parse_method(out, buf, pos)?
                }
                RequestLineState::Path | RequestLineState::Args | RequestLineState::Fragment => {
                    self.parse_target(out, buf, pos)?
                }
                RequestLineState::AfterTarget | RequestLineState::Protocol => {
                    self.parse_protocol(out, buf, pos)?
                }
                RequestLineState::MajorFirst
                | RequestLineState::Major
                | RequestLineState::MinorFirst
                | RequestLineState::Minor
                | RequestLineState::AfterVersion
                | RequestLineState::LineFeed => self.parse_version(out, buf, pos)?,
                _ => self.parse_authority(out, buf, pos)?,
            };
            if progress == Progress::Complete {
                return Ok(progress);
            }
        }
        Ok(Progress::Incomplete)
    }

    fn parse_method(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        if self.state == RequestLineState::Start {
            self.start = offset(*pos);
            self.state = RequestLineState::Method;
        }
        if self.state == RequestLineState::Method {
            *pos = scan::skip_while(buf, *pos, is_method_byte);
            let start = self.start as usize;
            match buf.get(*pos) {
                None => return Ok(Progress::Incomplete),
                Some(b' ') if *pos > start => {}
                Some(_) => return Err(Fault::InvalidMethod),
            }
            out.method_name = Span::new(start, *pos);
            out.method = Method::find(&buf[start..*pos]);
            self.state = match out.method {
                Method::Connect => RequestLineState::BeforeAuthority,
                _ => RequestLineState::BeforeTarget,
            };
            *pos += 1;
        }
        if self.state == RequestLineState::BeforeTarget {
            *pos = scan::skip_while(buf, *pos, |byte| byte == b' ');
            match buf.get(*pos) {
                None => return Ok(Progress::Incomplete),
                Some(b'/') => self.begin_path(*pos),
                Some(byte) if byte.is_ascii_alphabetic() => {
                    self.mark = offset(*pos);
                    out.form = TargetForm::Absolute;
                    self.state = RequestLineState::Scheme;
                }
                Some(_) => return Err(Fault::InvalidRequest),
            }
            *pos += 1;
        }
        Ok(Progress::Incomplete)
    }

    fn begin_path(&mut self, slash: usize) {
        self.raw_start = offset(slash);
        self.mark = offset(slash);
        self.state = RequestLineState::Path;
    }

    fn parse_authority(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        while let Some(&byte) = buf.get(*pos) {
            match self.state {
                RequestLineState::Scheme => match byte {
                    b':' => {
                        out.scheme = Span::new(self.mark as usize, *pos);
                        self.state = RequestLineState::SchemeSlash;
                    }
                    b'+' | b'-' | b'.' => {}
                    _ if byte.is_ascii_alphanumeric() => {}
                    _ => return Err(Fault::InvalidRequest),
                },
                RequestLineState::SchemeSlash if byte == b'/' => {
                    self.state = RequestLineState::SchemeSlashSlash
                }
                RequestLineState::SchemeSlashSlash if byte == b'/' => {
                    self.state = RequestLineState::HostStart
                }
                RequestLineState::SchemeSlash | RequestLineState::SchemeSlashSlash => {
                    return Err(Fault::InvalidRequest);
                }
                RequestLineState::BeforeAuthority if byte == b' ' => {}
                RequestLineState::BeforeAuthority | RequestLineState::HostStart => {
                    self.mark = offset(*pos);
                    self.state = match byte {
                        b'[' => RequestLineState::IpLiteral,
                        _ => RequestLineState::Host,
                    };
                    // The first byte of a name is looked at again as part of it.
                    if self.state == RequestLineState::Host {
                        continue;
                    }
                }
                RequestLineState::IpLiteral => match byte {
                    b']' => self.state = RequestLineState::HostEnd,
                    _ if is_literal_byte(byte) => {}
                    _ => return Err(Fault::InvalidRequest),
                },
                RequestLineState::Host if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') => {}
                RequestLineState::Host | RequestLineState::HostEnd if byte == b':' => {
                    self.state = RequestLineState::PortStart
                }
                RequestLineState::PortStart | RequestLineState::Port if byte.is_ascii_digit() => {
                    self.state = RequestLineState::Port
                }
                _ => {
                    self.end_authority(out, byte, *pos)?;
                    *pos += 1;
                    return Ok(Progress::Incomplete);
                }
            }
            *pos += 1;
        }
        Ok(Progress::Incomplete)
    }

    /// Takes the byte behind host and port, at `at`.
    fn end_authority(&mut self, out: &mut RequestLine, byte: u8, at: usize) -> Result<(), Fault> {
        out.authority = Span::new(self.mark as usize, at);
        if out.method == Method::Connect {
            // The port is required here, and nothing but a space may follow.
            if self.state != RequestLineState::Port || byte != b' ' {
                return Err(Fault::InvalidRequest);
            }
            out.form = TargetForm::Authority;
            self.state = RequestLineState::AfterTarget;
            return Ok(());
        }
        // An absolute target without a path has the path "/": the first slash behind the scheme is one.
        let slash = Span::new(out.scheme.end() + 1, out.scheme.end() + 2);
        match byte {
            b'/' => self.begin_path(at),
            b'?' => {
                self.raw_start = offset(at);
                out.path = slash;
                self.mark = offset(at + 1);
                self.state = RequestLineState::Args;
            }
            b' ' => {
                out.raw = slash;
                out.path = slash;
                self.state = RequestLineState::AfterTarget;
            }
            _ => return Err(Fault::InvalidRequest),
        }
        Ok(())
    }

    fn parse_target(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        loop {
            *pos = match self.state {
                RequestLineState::Args => scan::skip_args(buf, *pos),
                RequestLineState::Fragment => scan::skip_fragment(buf, *pos),
                _ => scan::skip_plain(buf, *pos),
            };
            let Some(&byte) = buf.get(*pos) else {
                return Ok(Progress::Incomplete);
            };
            let class = TARGET[usize::from(byte)];
            if class >= target::SPACE {
                return self.end_target(out, class, pos);
            }
            match self.state {
                RequestLineState::Path => self.step_in_path(out, class, buf, *pos),
                // Args end at a fragment only: nothing else stops the scan below a space.
                RequestLineState::Args => {
                    out.args = Span::new(self.mark as usize, *pos);
                    self.state = RequestLineState::Fragment;
                }
                _ => {}
            }
            *pos += 1;
        }
    }

    #[inline]
    fn step_in_path(&mut self, out: &mut RequestLine, class: u8, buf: &[u8], at: usize) {
        // The path begins with a slash, so there is a byte before this one.
        let after_slash = buf[at - 1] == b'/';
        match class {
            target::SLASH | target::DOT => out.path_is_plain &= !after_slash,
            target::PERCENT => out.path_is_plain = false,
            target::QUESTION => {
                out.path = Span::new(self.mark as usize, at);
                self.mark = offset(at + 1);
                self.state = RequestLineState::Args;
            }
            _ => {
                out.path = Span::new(self.mark as usize, at);
                self.state = RequestLineState::Fragment;
            }
        }
    }

    /// Takes the space, CR, LF or bad byte behind the target.
    fn end_target(&mut self, out: &mut RequestLine, class: u8, pos: &mut usize) -> Result<Progress, Fault> {
        let at = *pos;
        if class == target::BAD {
            return Err(Fault::InvalidRequest);
        }
        match self.state {
            RequestLineState::Args => out.args = Span::new(self.mark as usize, at),
            RequestLineState::Fragment => {}
            _ => out.path = Span::new(self.mark as usize, at),
        }
        out.raw = Span::new(self.raw_start as usize, at);
        *pos = at + 1;
        match class {
            target::SPACE => self.state = RequestLineState::AfterTarget,
            target::CR => self.state = RequestLineState::LineFeed,
            _ => return self.end_line(out, at),
        }
        Ok(Progress::Incomplete)
    }

    fn parse_protocol(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        const NAME: &[u8] = b"HTTP/";
        while let Some(&byte) = buf.get(*pos) {
            *pos += 1;
            if self.state == RequestLineState::Protocol {
                let matched = *pos - 1 - self.mark as usize;
                if NAME[matched] != byte {
                    return Err(Fault::InvalidRequest);
                }
                if matched + 1 == NAME.len() {
                    self.state = RequestLineState::MajorFirst;
                    self.end_protocol_name(out, *pos - 1);
                    return Ok(Progress::Incomplete);
                }
                continue;
            }
            match byte {
                b' ' => {}
                b'H' => {
                    self.mark = offset(*pos - 1);
                    self.state = RequestLineState::Protocol;
                }
                b'\r' => {
                    self.state = RequestLineState::LineFeed;
                    return Ok(Progress::Incomplete);
                }
                b'\n' => return self.end_line(out, *pos - 1),
                _ => return Err(Fault::InvalidRequest),
            }
        }
        Ok(Progress::Incomplete)
    }

    /// CONNECT has no path: the slash of "HTTP/" serves for one.
    fn end_protocol_name(&mut self, out: &mut RequestLine, slash: usize) {
        if out.form == TargetForm::Authority {
            out.raw = Span::new(slash, slash + 1);
            out.path = out.raw;
        }
    }

    fn parse_version(
        &mut self,
        out: &mut RequestLine,
        buf: &[u8],
        pos: &mut usize,
    ) -> Result<Progress, Fault> {
        while let Some(&byte) = buf.get(*pos) {
            *pos += 1;
            let digit = u16::from(byte.wrapping_sub(b'0'));
            match (self.state, byte) {
                (RequestLineState::MajorFirst, b'1'..=b'9') => {
                    self.major = digit;
                    self.state = RequestLineState::Major;
                }
                (RequestLineState::Major, b'.') => self.state = RequestLineState::MinorFirst,
                (RequestLineState::Major, b'0'..=b'9') => self.major = self.major * 10 + digit,
                (RequestLineState::MinorFirst, b'0'..=b'9') => {
                    out.version = Version(self.major * 1000 + digit);
                    self.state = RequestLineState::Minor;
                }
                (RequestLineState::Minor, b'0'..=b'9') => self.add_minor_digit(out, digit)?,
                (RequestLineState::Minor | RequestLineState::AfterVersion, b' ') => {
                    self.state = RequestLineState::AfterVersion
                }
                (RequestLineState::Minor | RequestLineState::AfterVersion, b'\r') => {
                    self.state = RequestLineState::LineFeed
                }
                (RequestLineState::Minor | RequestLineState::AfterVersion, b'\n') => {
                    return self.end_line(out, *pos - 1);
                }
                (RequestLineState::LineFeed, b'\n') => return self.end_line(out, *pos - 2),
                _ => return Err(Fault::InvalidRequest),
            }
            if self.major > 1 {
                return Err(Fault::InvalidVersion);
            }
        }
        Ok(Progress::Incomplete)
    }

    /// A minor version has at most three digits, the leading zeros aside.
    fn add_minor_digit(&mut self, out: &mut RequestLine, digit: u16) -> Result<(), Fault> {
        let minor = out.version.0 - self.major * 1000;
        if minor > 99 {
            return Err(Fault::InvalidRequest);
        }
        out.version = Version(self.major * 1000 + minor * 10 + digit);
        Ok(())
    }

    fn end_line(&mut self, out: &mut RequestLine, end: usize) -> Result<Progress, Fault> {
        if self.major == 0 {
            out.version = Version::HTTP_09;
            if out.method != Method::Get {
                return Err(Fault::InvalidMethodInHttp09);
            }
        } else if out.protocol.is_empty() {
            out.protocol = Span::new(self.mark as usize, end);
        }
        out.line = Span::new(self.start as usize, end);
        Ok(Progress::Complete)
    }
}

fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, b'_' | b'-')
}

/// Bytes between the brackets of an address: hexadecimal digits and colons, and what RFC 3986 allows for
/// later versions of the protocol.
fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":-._~!$&'()*+,;=".contains(&byte)
}
