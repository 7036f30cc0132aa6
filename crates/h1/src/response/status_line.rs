//! The status line of a response as nginx takes it: major versions from 1, any number of spaces before the
//! code (nginx: also within), a dot behind it (`403.1`), a bare LF at its end. What is none is no fault: the
//! owner takes it for the body of an HTTP/0.9 response.
//!
//! A resumable machine that can stop after any byte and looks at none twice. Before it, a short way for lines
//! that are complete and of the usual form.

use clearway_message::{Span, Version, offset};

use crate::scan;

/// Digits of the status code.
const CODE_DIGITS: u8 = 3;

/// Above this a version gets no further digit, as in nginx.
const VERSION_NUMBER_MAX: u16 = 99;

const PROTOCOL: &[u8] = b"HTTP/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusLineState {
    /// So many bytes of `HTTP/` were seen.
    Protocol(u8),
    FirstMajor,
    Major,
    FirstMinor,
    Minor,
    /// So many digits of the code were seen.
    Code(u8),
    BehindCode,
    Text,
    LineFeed,
}

/// The result of a step of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusProgress {
    Incomplete,
    Complete,
    /// The line is no status line.
    Invalid,
}

/// A status line, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct StatusLine {
    state: StatusLineState,
    major: u16,
    minor: u16,
    pub(crate) code: u16,
    text_start: u32,
    text_end: u32,
}

impl Default for StatusLine {
    fn default() -> Self {
        Self { state: StatusLineState::Protocol(0), major: 0, minor: 0, code: 0, text_start: 0, text_end: 0 }
    }
}

impl StatusLine {
    pub(crate) fn version(&self) -> Version {
        Version(self.major.saturating_mul(1000).saturating_add(self.minor))
    }

    /// The text between the code and the end of the line, with the space.
    pub(crate) fn text(&self) -> Span {
        Span::new(self.text_start as usize, self.text_end as usize)
    }

    /// Advances `pos` over `buf`, at most past the end of the line.
    pub(crate) fn parse(&mut self, buf: &[u8], pos: &mut usize) -> StatusProgress {
        if self.state == StatusLineState::Protocol(0) && self.take_usual(buf, pos) {
            return StatusProgress::Complete;
        }
        while let Some(&byte) = buf.get(*pos) {
            if self.state == StatusLineState::Text && !matches!(byte, b'\r' | b'\n') {
                *pos = scan::skip_while(buf, *pos, |byte| !matches!(byte, b'\r' | b'\n'));
                continue;
            }
            match self.step(byte, *pos) {
                StatusProgress::Incomplete => *pos += 1,
                StatusProgress::Complete => {
                    *pos += 1;
                    return StatusProgress::Complete;
                }
                StatusProgress::Invalid => return StatusProgress::Invalid,
            }
        }
        StatusProgress::Incomplete
    }

    /// Takes a line at once that is there as a whole and as nearly all are.
    #[inline]
    fn take_usual(&mut self, buf: &[u8], pos: &mut usize) -> bool {
        let line = buf.get(*pos..).unwrap_or_default();
        let &[
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            minor @ (b'0' | b'1'),
            b' ',
            a,
            b,
            c,
            b' ',
            ref text @ ..,
        ] = line
        else {
            return false;
        };
        let len = scan::value_len(text);
        if ![a, b, c].iter().all(u8::is_ascii_digit) || text.get(len..len + 2) != Some(b"\r\n") {
            return false;
        }
        let text_start = *pos + line.len() - text.len() - 1;
        (self.major, self.minor) = (1, u16::from(minor - b'0'));
        self.code = [a, b, c].iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
        (self.text_start, self.text_end) = (offset(text_start), offset(text_start + 1 + len));
        *pos = text_start + 1 + len + 2;
        true
    }

    fn step(&mut self, byte: u8, at: usize) -> StatusProgress {
        let digit = byte.is_ascii_digit().then(|| u16::from(byte.wrapping_sub(b'0')));
        self.state = match (self.state, byte, digit) {
            (StatusLineState::Protocol(seen), _, _) if byte == PROTOCOL[usize::from(seen)] => {
                let seen = seen + 1;
                if usize::from(seen) == PROTOCOL.len() {
                    StatusLineState::FirstMajor
                } else {
                    StatusLineState::Protocol(seen)
                }
            }
            (StatusLineState::FirstMajor, _, Some(digit)) if digit > 0 => {
                self.major = digit;
                StatusLineState::Major
            }
            (StatusLineState::Major, b'.', _) => StatusLineState::FirstMinor,
            (StatusLineState::Major, _, Some(digit)) if self.major <= VERSION_NUMBER_MAX => {
                self.major = self.major * 10 + digit;
                StatusLineState::Major
            }
            (StatusLineState::FirstMinor, _, Some(digit)) => {
                self.minor = digit;
                StatusLineState::Minor
            }
            (StatusLineState::Minor, b' ', _) => StatusLineState::Code(0),
            (StatusLineState::Minor, _, Some(digit)) if self.minor <= VERSION_NUMBER_MAX => {
                self.minor = self.minor * 10 + digit;
                StatusLineState::Minor
            }
            (StatusLineState::Code(0), b' ', _) => StatusLineState::Code(0),
            (StatusLineState::Code(seen), _, Some(digit)) => {
                self.code = self.code * 10 + digit;
                (self.text_start, self.text_end) = (offset(at + 1), offset(at + 1));
                if seen + 1 == CODE_DIGITS {
                    StatusLineState::BehindCode
                } else {
                    StatusLineState::Code(seen + 1)
                }
            }
            (StatusLineState::BehindCode, b' ' | b'.', _) => StatusLineState::Text,
            (StatusLineState::BehindCode | StatusLineState::Text, b'\r', _) => {
                self.text_end = offset(at);
                StatusLineState::LineFeed
            }
            (StatusLineState::BehindCode | StatusLineState::Text, b'\n', _) => {
                self.text_end = offset(at);
                return StatusProgress::Complete;
            }
            (StatusLineState::LineFeed, b'\n', _) => return StatusProgress::Complete,
            _ => return StatusProgress::Invalid,
        };
        StatusProgress::Incomplete
    }
}
