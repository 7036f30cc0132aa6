//! `error_log`, at the top and in `http`: where to, and from which level on.

use std::path::{Path, PathBuf};

use clearway_base::log::Level;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_log::syslog;

use super::paths::bytes_path;

/// Words for parts of what nginx says when it debugs; alone they stand for everything.
const DEBUG_LEVELS: [&[u8]; 7] = [
    b"debug_core",
    b"debug_alloc",
    b"debug_mutex",
    b"debug_event",
    b"debug_http",
    b"debug_mail",
    b"debug_stream",
];

/// One `error_log`, not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLogSpec {
    /// Where to.
    pub target: ErrorLogTarget,
    /// Lines of this level and more severe ones.
    pub level: Level,
}

/// Where an `error_log` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorLogTarget {
    /// Standard error.
    Stderr,
    /// A file, absolute.
    File(PathBuf),
    /// A syslog server.
    Syslog(syslog::Config),
}

impl ErrorLogSpec {
    /// The file, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.target {
            ErrorLogTarget::File(path) => Some(path),
            ErrorLogTarget::Stderr | ErrorLogTarget::Syslog(_) => None,
        }
    }
}

/// Reads the arguments of an `error_log`.
///
/// # Errors
/// What nginx says of a wrong one.
pub(crate) fn error_log(prefix: &Path, directive: &Directive) -> Result<ErrorLogSpec, Error> {
    let target = directive.value(0)?;
    if target.starts_with(b"memory:") {
        return Err(directive.error("nginx was built without debug support"));
    }
    // nginx opens no file without a name.
    let target = if matches!(&target[..], b"stderr" | b"") {
        ErrorLogTarget::Stderr
    } else if target.starts_with(b"syslog:") {
        ErrorLogTarget::Syslog(syslog::Config::parse(&target).map_err(|text| directive.error(text))?)
    } else {
        ErrorLogTarget::File(prefix.join(bytes_path(&target)))
    };
    Ok(ErrorLogSpec { target, level: level(directive)? })
}

/// The level in the arguments behind the first; `error` if there are none.
fn level(directive: &Directive) -> Result<Level, Error> {
    let mut level = None;
    for word in &directive.args[1..] {
        let refused = |what: &str| directive.error(message(&[&what, &" log level \"", word, &"\""]));
        if let Some(found) = Level::from_name(word) {
            if level.replace(found).is_some() {
                return Err(refused("duplicate"));
            }
        } else if !DEBUG_LEVELS.contains(&&word[..]) || level.is_some_and(|level| level != Level::Debug) {
            return Err(refused("invalid"));
        } else {
            level = Some(Level::Debug);
        }
    }
    Ok(level.unwrap_or(Level::Error))
}
