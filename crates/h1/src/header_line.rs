//! Header lines (RFC 9112 §5) as nginx takes them: a bare LF ends a line, a line may lack its colon, no
//! folding, no space before the colon, nothing but spaces is trimmed from a value.
//!
//! A resumable machine: it can stop after any byte and never looks at a byte twice, except for the spaces
//! behind a value. Before it, a short way for lines that are complete and of the usual form.

use clearway_message::{Span, offset};

use crate::fault::Fault;
use crate::options::Underscores;
use crate::scan::{self, NAME, name};

/// The sender of header lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A client's; the value says what its names may have.
    Client(Underscores),
    /// A server's, of which a second status line between the others is skipped: IIS may send one.
    Server,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeaderLineState {
    #[default]
    Start,
    /// Inside a line that is skipped.
    Skipped,
    Name,
    BeforeValue,
    Value,
    LineFeed,
    LastLineFeed,
}

/// The result of a step of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Incomplete,
    /// A header line: see `name`, `value` and `is_valid`.
    Header,
    /// The empty line behind the last header.
    End,
}

/// Marks of the line that is being parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderLine {
    state: HeaderLineState,
    /// Whether the name has valid bytes only.
    pub(crate) is_valid: bool,
    start: u32,
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

impl HeaderLine {
    pub(crate) fn name(&self) -> Span {
        Span::new(self.start as usize, self.name_end as usize)
    }

    pub(crate) fn value(&self) -> Span {
        Span::new(self.value_start as usize, self.value_end as usize)
    }

    /// From the line's beginning to the end of its value, or to the byte that is wrong.
    pub(crate) fn received(&self) -> Span {
        Span::new(self.start as usize, self.value_end as usize)
    }

    /// A line of which nothing is known but where it begins.
    pub(crate) fn unfinished_at(start: usize) -> Self {
        Self { state: HeaderLineState::Name, start: offset(start), ..Self::default() }
    }

    /// Where the unfinished line began, if there is one.
    pub(crate) fn unfinished(&self) -> Option<usize> {
        (self.state != HeaderLineState::Start).then_some(self.start as usize)
    }

    /// Takes a line at once that is there as a whole and as nearly all are: a valid name, a colon and a
    /// space, a value, CR LF; or the empty one. Everything else is left to [`parse`](Self::parse).
    // Otherwise it is no part of any caller since it has several, which costs a client's head of three lines
    // 160 instructions (callgrind).
    #[inline(always)]
    pub(crate) fn take_usual(&mut self, buf: &[u8], pos: &mut usize) -> Option<Line> {
        if self.state != HeaderLineState::Start {
            return None;
        }
        let start = *pos;
        let line = buf.get(start..)?;
        if line.starts_with(b"\r\n") {
            *pos = start + 2;
            return Some(Line::End);
        }
        let name_len = scan::name_len(line);
        let [b':', b' ', rest @ ..] = line.get(name_len..)? else { return None };
        let value_len = scan::value_len(rest);
        let [b'\r', b'\n', ..] = rest.get(value_len..)? else { return None };
        let value = &rest[..value_len];
        if name_len == 0 || value.first() == Some(&b' ') || value.last() == Some(&b' ') {
            return None;
        }
        let (name_end, value_start) = (start + name_len, start + name_len + 2);
        let end = value_start + value_len;
        self.is_valid = true;
        (self.start, self.name_end) = (offset(start), offset(name_end));
        (self.value_start, self.value_end) = (offset(value_start), offset(end));
        *pos = end + 2;
        Some(Line::Header)
    }

    /// Advances `pos` over `buf`, at most past the end of one line that is not skipped.
    #[inline(never)]
    pub(crate) fn parse(&mut self, buf: &[u8], pos: &mut usize, sender: Sender) -> Result<Line, Fault> {
        loop {
            if self.state == HeaderLineState::Skipped {
                *pos = scan::skip_while(buf, *pos, |byte| byte != b'\n');
                if *pos == buf.len() {
                    return Ok(Line::Incomplete);
                }
                *pos += 1;
                self.state = HeaderLineState::Start;
            }
            let line = self.parse_line(buf, pos, sender)?;
            if self.state != HeaderLineState::Skipped {
                return Ok(line);
            }
        }
    }

    fn parse_line(&mut self, buf: &[u8], pos: &mut usize, sender: Sender) -> Result<Line, Fault> {
        if self.state == HeaderLineState::Start {
            match buf.get(*pos) {
                None => return Ok(Line::Incomplete),
                Some(&byte) => {
                    if self.begin(byte, pos)? == Line::End {
                        return Ok(Line::End);
                    }
                }
            }
        }
        if self.state == HeaderLineState::Name && self.parse_name(buf, pos, sender)? == Line::Header {
            return Ok(Line::Header);
        }
        if self.state == HeaderLineState::Skipped {
            return Ok(Line::Incomplete);
        }
        if self.state == HeaderLineState::BeforeValue {
            *pos = scan::skip_while(buf, *pos, |byte| byte == b' ');
            if *pos < buf.len() {
                self.value_start = offset(*pos);
                self.state = HeaderLineState::Value;
            }
        }
        if self.state == HeaderLineState::Value && self.parse_value(buf, pos)? == Line::Header {
            return Ok(Line::Header);
        }
        self.parse_line_feed(buf, pos)
    }

    fn begin(&mut self, byte: u8, pos: &mut usize) -> Result<Line, Fault> {
        self.start = offset(*pos);
        self.value_end = self.start;
        self.is_valid = true;
        match byte {
            b'\r' => self.state = HeaderLineState::LastLineFeed,
            b'\n' => {
                *pos += 1;
                return Ok(Line::End);
            }
            b':' => return Err(Fault::InvalidHeaderLine),
            _ => {
                self.state = HeaderLineState::Name;
                return Ok(Line::Incomplete);
            }
        }
        *pos += 1;
        Ok(Line::Incomplete)
    }

    #[inline]
    fn parse_name(&mut self, buf: &[u8], pos: &mut usize, sender: Sender) -> Result<Line, Fault> {
        loop {
            *pos += scan::name_len(&buf[*pos..]);
            let Some(&byte) = buf.get(*pos) else {
                return Ok(Line::Incomplete);
            };
            let at = offset(*pos);
            *pos += 1;
            match NAME[usize::from(byte)] {
                name::COLON => {
                    self.name_end = at;
                    self.state = HeaderLineState::BeforeValue;
                    return Ok(Line::Incomplete);
                }
                class @ (name::CR | name::LF) => {
                    (self.name_end, self.value_start, self.value_end) = (at, at, at);
                    self.state =
                        if class == name::CR { HeaderLineState::LineFeed } else { HeaderLineState::Start };
                    return Ok(if class == name::CR { Line::Incomplete } else { Line::Header });
                }
                name::UNDERSCORE if sender != Sender::Client(Underscores::Invalid) => {}
                name::INVALID if sender == Sender::Server && &buf[self.start as usize..*pos] == b"HTTP/" => {
                    self.state = HeaderLineState::Skipped;
                    return Ok(Line::Incomplete);
                }
                name::UNDERSCORE | name::INVALID => self.is_valid = false,
                _ => {
                    self.value_end = at;
                    return Err(Fault::InvalidHeaderLine);
                }
            }
        }
    }

    #[inline]
    fn parse_value(&mut self, buf: &[u8], pos: &mut usize) -> Result<Line, Fault> {
        *pos += scan::value_len(&buf[*pos..]);
        let Some(&byte) = buf.get(*pos) else {
            return Ok(Line::Incomplete);
        };
        if byte == 0 {
            self.value_end = offset(*pos);
            return Err(Fault::InvalidHeaderLine);
        }
        let start = self.value_start as usize;
        let spaces = buf[start..*pos].iter().rev().take_while(|&&byte| byte == b' ').count();
        self.value_end = offset(*pos - spaces);
        *pos += 1;
        if byte == b'\n' {
            self.state = HeaderLineState::Start;
            return Ok(Line::Header);
        }
        self.state = HeaderLineState::LineFeed;
        Ok(Line::Incomplete)
    }

    /// Behind a CR. Header lines may end with several, the head may not.
    fn parse_line_feed(&mut self, buf: &[u8], pos: &mut usize) -> Result<Line, Fault> {
        while let Some(&byte) = buf.get(*pos) {
            *pos += 1;
            match (self.state, byte) {
                (HeaderLineState::LineFeed, b'\r') => {}
                (HeaderLineState::LineFeed, b'\n') => {
                    self.state = HeaderLineState::Start;
                    return Ok(Line::Header);
                }
                (HeaderLineState::LastLineFeed, b'\n') => {
                    self.state = HeaderLineState::Start;
                    return Ok(Line::End);
                }
                _ => return Err(Fault::InvalidHeaderLine),
            }
        }
        Ok(Line::Incomplete)
    }
}
