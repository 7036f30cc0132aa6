//! How the process was started: what outlives the command line's own memory, which process titles
//! overwrite. Made once on the main thread, before anything else looks at arguments.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clearway_os::title::Title;

use crate::options::Options;

/// See the file's head.
pub struct Invocation {
    /// All arguments, the program's name first.
    pub args: Vec<OsString>,
    /// What they mean.
    pub options: Options,
    /// Shows what the process is; absent where nothing was captured, as in tests.
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

    /// Has process lists show a title.
    pub(crate) fn show(&self, title: &str) {
        if let Some(own) = &self.title {
            own.set(title);
        }
    }
}
