//! The command line, read as nginx reads its options: where the configuration is, what is put in front of it,
//! and what is to be done with it. Read once, on the main thread; handed to everything that loads a
//! configuration, the worker process included.

use std::path::{Path, PathBuf};

use crate::places::{CONF_DEFAULT, ERROR_LOG_DEFAULT, PREFIX_DEFAULT};

/// The options of one start, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-p`: where relative paths begin; absolute, ends in a slash.
    pub prefix: PathBuf,
    /// `-c`: the configuration file, absolute.
    pub conf: PathBuf,
    /// `-e`: where messages go until the error log of the configuration is open, and afterwards if the
    /// configuration names no file.
    pub error_log: DefaultErrorLog,
    /// `-g`: directives that stand before the configuration file; empty if there are none.
    pub params: Vec<u8>,
}

/// The error log that holds where the configuration does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultErrorLog {
    /// Standard error.
    Stderr,
    /// A file, absolute.
    File(PathBuf),
}

/// `-t` and its company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// `-q`: no word about success.
    pub quiet: bool,
    /// `-T`: prints the files that were read.
    pub dump: bool,
    /// How far it goes.
    pub extent: Extent,
}

/// How far a test of a configuration goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The syntax and the objects that it names: files can be opened, addresses bound.
    Everything,
    /// The syntax only.
    Syntax,
}

/// `-s`: what a running master process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End at once (TERM).
    Stop,
    /// End when connections have ended (QUIT).
    Quit,
    /// Open the log files anew (USR1).
    Reopen,
    /// Load the configuration anew (HUP).
    Reload,
}

impl Order {
    /// The order that `-s` names.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"stop" => Some(Self::Stop),
            b"quit" => Some(Self::Quit),
            b"reopen" => Some(Self::Reopen),
            b"reload" => Some(Self::Reload),
            _ => None,
        }
    }
}

/// The arguments of `-p`, `-c`, `-e` and `-g` as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `-p`
    pub prefix: Option<PathBuf>,
    /// `-c`
    pub conf: Option<PathBuf>,
    /// `-e`; `stderr` is standard error.
    pub error_log: Option<PathBuf>,
    /// `-g`
    pub params: Vec<u8>,
}

impl Options {
    /// Resolves what was given as nginx does: a relative prefix against the working directory, a
    /// relative configuration file and a relative log against the prefix.
    #[must_use]
    pub fn resolve(given: Given) -> Self {
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        // Joining an empty component gives the slash at the end.
        let prefix = directory.join(given.prefix.as_deref().unwrap_or(Path::new(PREFIX_DEFAULT))).join("");
        let conf = prefix.join(given.conf.as_deref().unwrap_or(Path::new(CONF_DEFAULT)));
        let error_log = given.error_log.as_deref().unwrap_or(Path::new(ERROR_LOG_DEFAULT));
        let error_log = match error_log.as_os_str().as_encoded_bytes() {
            b"" | b"stderr" => DefaultErrorLog::Stderr,
            _ => DefaultErrorLog::File(prefix.join(error_log)),
        };
        Self { prefix, conf, error_log, params: given.params }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(prefix: Option<&str>, conf: Option<&str>, log: Option<&str>) -> Options {
        let path = |text: Option<&str>| text.map(PathBuf::from);
        Options::resolve(Given {
            prefix: path(prefix),
            conf: path(conf),
            error_log: path(log),
            params: vec![],
        })
    }

    #[test]
    fn defaults() {
        let options = resolved(None, None, None);
        assert_eq!(options.prefix, Path::new("/usr/share/nginx/"));
        assert_eq!(options.conf, Path::new("/etc/nginx/nginx.conf"));
        assert_eq!(options.error_log, DefaultErrorLog::File("/var/log/nginx/error.log".into()));
    }

    #[test]
    fn relative_names() {
        let options = resolved(Some("/p"), Some("a/b.conf"), Some("e.log"));
        assert_eq!(options.prefix.to_str(), Some("/p/"));
        assert_eq!(options.conf, Path::new("/p/a/b.conf"));
        assert_eq!(options.error_log, DefaultErrorLog::File("/p/e.log".into()));
        assert_eq!(resolved(None, None, Some("stderr")).error_log, DefaultErrorLog::Stderr);
        let here = std::env::current_dir().unwrap().join("x").join("");
        assert_eq!(resolved(Some("x"), None, None).prefix, here);
    }
}
