//! The sink that every layer logs through. The implementation decides where lines go; a sink never blocks its
//! caller, so it may be called from a loop, a pool thread or at boot alike.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Severity of an error log line, in nginx's order: a lower value is more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Written whatever level is configured; nginx has no word for it in its lines.
    Stderr = 0,
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
            Self::Stderr => "",
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

/// Bytes in a message, whatever they are: a sink writes them as they came.
///
/// A message is text on its way to the sink. Bytes that are no UTF-8 are in it as characters from
/// [`FIRST_BYTE_CHAR`] on, which have no meaning of their own; [`for_each_part`] takes them out again. The
/// bytes of such a character that came from outside are written in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Verbatim<'a>(pub &'a [u8]);

/// Stands for the byte 0x80, the characters behind it for those behind that. They are in the last private
/// use area of Unicode.
pub const FIRST_BYTE_CHAR: char = '\u{10ff80}';

/// Stands for the byte 0, the characters behind it for the controls behind that: those that are to be written
/// as they are, and not escaped ([`Lines`]).
const FIRST_CONTROL_CHAR: char = '\u{10ff00}';

/// With what the UTF-8 of these characters begins.
const BYTE_CHAR_START: u8 = 0xf4;

impl<'a> Verbatim<'a> {
    /// The name of a file.
    #[must_use]
    pub fn path(path: &'a Path) -> Self {
        Self(path.as_os_str().as_bytes())
    }
}

/// A text of several lines in a message, which the log shows as such: a traceback. Nothing of it may come
/// from outside, which could write lines of its own then.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a>(pub &'a [u8]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        self.0.split_inclusive(|&byte| matches!(byte, b'\n' | b'\t')).try_for_each(|piece| {
            let (last, before) = piece.split_last().expect("a piece has a byte");
            if !matches!(last, b'\n' | b'\t') {
                return write!(f, "{}", Verbatim(piece));
            }
            write!(f, "{}", Verbatim(before))?;
            let number = u32::from(FIRST_CONTROL_CHAR) + u32::from(*last);
            f.write_char(char::from_u32(number).expect("a character of the last private use area"))
        })
    }
}

impl fmt::Display for Verbatim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            put_text(chunk.valid(), f)?;
            put_bytes(chunk.invalid(), f)
        })
    }
}

fn put_text(mut text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if text.as_bytes().contains(&BYTE_CHAR_START) {
        while let Some(at) = text.find(|char| char >= FIRST_CONTROL_CHAR) {
            let (before, rest) = text.split_at(at);
            let (char, behind) = rest.split_at(FIRST_BYTE_CHAR.len_utf8());
            f.write_str(before)?;
            put_bytes(char.as_bytes(), f)?;
            text = behind;
        }
    }
    f.write_str(text)
}

/// Writes bytes of which none is ASCII.
fn put_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write;
    bytes.iter().try_for_each(|&byte| {
        let number = u32::from(FIRST_BYTE_CHAR) + u32::from(byte) - 0x80;
        f.write_char(char::from_u32(number).expect("the last of them is U+10FFFF"))
    })
}

/// The bytes of a part of a message, piece by piece: text as it is, and what [`Verbatim`] has made of other
/// bytes as it was.
pub fn for_each_part(text: &str, mut put: impl FnMut(&[u8])) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == BYTE_CHAR_START) {
        put(&rest[..at]);
        let (char, behind) = rest[at..].split_at(FIRST_BYTE_CHAR.len_utf8());
        match char {
            &[_, 0x8f, third @ (0xbe | 0xbf), last] => put(&[0x80 | (third & 1) << 6 | (last & 0x3f)]),
            &[_, 0x8f, 0xbc, last @ (0x89 | 0x8a)] => put(&[last & 0x3f]),
            other => put(other),
        }
        rest = behind;
    }
    put(rest);
}

/// The bytes of a message, as a log writes them.
#[must_use]
pub fn bytes_of(message: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len());
    for_each_part(message, |part| bytes.extend_from_slice(part));
    bytes
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

    fn through(bytes: &[u8]) -> Vec<u8> {
        let (message, mut out) = (Verbatim(bytes).to_string(), Vec::new());
        for_each_part(&message, |part| out.extend_from_slice(part));
        out
    }

    #[test]
    fn bytes_come_through_as_they_are() {
        let all: Vec<u8> = (0..=255).collect();
        let texts: [&[u8]; 6] = [
            b"",
            b"text",
            "\u{e9}\u{10ff7f}\u{10ff80}x\u{10ffff}".as_bytes(),
            b"a\xffb\xfe",
            b"\xf4\x8f\xbf",
            &all,
        ];
        for text in texts {
            assert_eq!(through(text), text);
        }
        // Every character of three and four bytes, next to bytes that are none.
        for number in (0x800..=0x10_ffff).step_by(7).filter_map(char::from_u32) {
            let text = [&b"\xf4"[..], number.to_string().as_bytes(), b"\x80"].concat();
            assert_eq!(through(&text), text);
        }
        assert_eq!(Verbatim("caf\u{e9}".as_bytes()).to_string(), "caf\u{e9}");
    }

    #[test]
    fn names_go_both_ways_and_severity_is_ordered() {
        assert_eq!(Level::from_name(b"crit"), Some(Level::Crit));
        assert_eq!(Level::from_name(b"CRIT"), None);
        assert!(Level::Emerg < Level::Debug);
    }

    #[test]
    fn lines_of_ours_are_lines_and_those_of_others_are_not() {
        let message = format!("{}|{}", Lines(b"a\n\tb"), Verbatim("\u{10ff0a}x\n".as_bytes()));
        assert_eq!(bytes_of(&message), "a\n\tb|\u{10ff0a}x\n".as_bytes());
        assert_eq!(message.matches('\n').count(), 1, "only what came from outside is a control character");
    }
}
