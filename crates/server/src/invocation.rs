//! How the process was started: a copy of its arguments, since process titles overwrite the memory of the
//! command line. Made once on the main thread, before other code reads arguments.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clearway_os::title::Title;

use crate::options::Options;

/// The arguments of the process, parsed, and its title.
pub struct Invocation {
    /// All arguments, the program's name first.
    pub args: Vec<OsString>,
    /// The parsed options.
    pub options: Options,
    /// Sets the title of the process; `None` where its memory was not captured, as in tests.
    pub title: Option<Title>,
}

impl Invocation {
    /// The program's name, without its directory.
    pub(crate) fn name(&self) -> &OsStr {
        let path = self.args.first().map(Path::new);
        path.and_then(Path::file_name).unwrap_or(OsStr::new(env!("CARGO_PKG_NAME")))
    }

    /// The title of a master process.
    pub(crate) fn master_title(&self) -> String {
        let args: Vec<_> = self.args.iter().map(|arg| arg.to_string_lossy()).collect();
        format!("nginx: master process {}", args.join(" "))
    }

    /// Sets the title that process lists show.
    pub(crate) fn show(&self, title: &str) {
        if let Some(own) = &self.title {
            own.set(title);
        }
    }
}
