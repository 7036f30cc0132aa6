//! Errors in a configuration, in nginx's words, and their positions.
//!
//! Plain data, made at load. Names and values of a configuration are bytes, so messages are too. `Display` is
//! for logs, which write bytes that are not UTF-8 unchanged ([`Verbatim`]).

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::log::{Level, Verbatim, bytes_of};

/// Longest message, in bytes; a longer one is cut off, as in nginx.
pub const MESSAGE_MAX_BYTES: usize = 1024;

/// Bytes that a long message leaves free for the text of a system error.
const REASON_BYTES: usize = 50;

/// A line of a configuration file, or the command line. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pos {
    /// The file as nginx prints it; `None` is the `-g` option.
    pub file: Option<Arc<Path>>,
    /// Counted from 1; 0 with the `-g` option.
    pub line: u32,
}

impl Pos {
    /// A line of a file.
    #[must_use]
    pub const fn in_file(file: Arc<Path>, line: u32) -> Self {
        Self { file: Some(file), line }
    }

    /// The `-g` option.
    #[must_use]
    pub const fn command_line() -> Self {
        Self { file: None, line: 0 }
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        match &self.file {
            Some(file) => {
                text.extend_from_slice(b" in ");
                text.extend_from_slice(file.as_os_str().as_bytes());
                text.extend_from_slice(format!(":{}", self.line).as_bytes());
            }
            None => text.extend_from_slice(b" in command line"),
        }
    }
}

impl fmt::Display for Pos {
    /// `FILE:LINE`, or `command line`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}", Verbatim::path(file), self.line),
            None => f.write_str("command line"),
        }
    }
}

/// The reason why a configuration is refused, or a warning about it (level `warn`).
///
/// `Display` is nginx's text behind the level: `unknown directive "x" in /p/nginx.conf:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    level: Level,
    message: Vec<u8>,
    pos: Option<Pos>,
}

impl Error {
    /// An error of level `emerg` at `pos`.
    #[must_use]
    pub fn new(message: impl Into<Vec<u8>>, pos: &Pos) -> Self {
        Self { pos: Some(pos.clone()), ..Self::unplaced(message) }
    }

    /// An error of level `emerg` that belongs to no line.
    #[must_use]
    pub fn unplaced(message: impl Into<Vec<u8>>) -> Self {
        let mut message = message.into();
        message.truncate(MESSAGE_MAX_BYTES);
        Self { level: Level::Emerg, message, pos: None }
    }

    /// As [`unplaced`](Self::unplaced), for a message with bytes that are not UTF-8, displayed by
    /// [`Verbatim`].
    #[must_use]
    pub fn said(message: &dyn fmt::Display) -> Self {
        Self::unplaced(bytes_of(&message.to_string()))
    }

    /// The same message at another level.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Its level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The message without its position.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The position, if there is one.
    #[must_use]
    pub const fn pos(&self) -> Option<&Pos> {
        self.pos.as_ref()
    }

    /// The message and its position, byte for byte as nginx logs them behind the level.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.message.clone();
        if let Some(pos) = &self.pos {
            pos.append_to(&mut text);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Verbatim(&self.text()).fmt(f)
    }
}

impl std::error::Error for Error {}

/// Joins the parts of a message, of which some are text and some are bytes of a configuration:
/// `message(&[&"unknown \"", &name, &"\" variable"])`.
#[must_use]
pub fn message(parts: &[&dyn AsRef<[u8]>]) -> Vec<u8> {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice((*part).as_ref());
    }
    text
}

/// The part of a value that nginx prints with `%s`: the bytes before the first NUL.
#[must_use]
pub fn printed(value: &[u8]) -> &[u8] {
    value.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// `CALL "PATH" failed (2: No such file or directory)`.
pub(crate) fn failed(call: &str, path: &[u8], error: &io::Error) -> Vec<u8> {
    let mut message = message(&[&call, &" \"", &path, &"\" failed"]);
    if message.len() > MESSAGE_MAX_BYTES - REASON_BYTES {
        message.truncate(MESSAGE_MAX_BYTES - REASON_BYTES);
        message.extend_from_slice(b"...");
    }
    message.extend_from_slice(format!(" {}", Errno(error)).as_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let pos = Pos::in_file(Path::new("/p/nginx.conf").into(), 3);
        let error = Error::new("unknown directive \"x\"", &pos);
        assert_eq!(error.to_string(), "unknown directive \"x\" in /p/nginx.conf:3");
        assert_eq!(Error::unplaced("no \"events\" section").to_string(), "no \"events\" section");
        assert_eq!(Error::new("m", &Pos::command_line()).to_string(), "m in command line");
        assert_eq!(pos.to_string(), "/p/nginx.conf:3");
    }

    #[test]
    fn bytes_stay_bytes() {
        let name: &[u8] = b"a\xff\0hidden";
        let error = Error::unplaced(message(&[&"unknown directive \"", &printed(name), &"\""]));
        assert_eq!(error.text(), b"unknown directive \"a\xff\"");
        assert_eq!(bytes_of(&error.to_string()), error.text());
        assert_eq!(Error::said(&error), error);
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(Error::unplaced(vec![b'x'; 5000]).message().len(), MESSAGE_MAX_BYTES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter has texts of its own")]
    fn failures_name_the_errno() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(failed("open()", b"/x", &error), b"open() \"/x\" failed (2: No such file or directory)");
        let text = failed("open()", &[b'x'; 2000], &error);
        assert!(text.ends_with(b"xxx... (2: No such file or directory)"));
        assert!(text.len() <= MESSAGE_MAX_BYTES);
    }
}
