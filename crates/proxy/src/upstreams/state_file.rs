//! `state`: a file with the servers of a group, in the words of the configuration. It is read when a
//! configuration is loaded, and replaced by a pool when servers were changed while serving.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clearway_offload::{Blocking, replacing};

/// The file of one `state` directive, the same object for all configurations that name it.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// One pool thread at a time writes it, so that the newest content is what stays.
    writing: Mutex<()>,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, writing: Mutex::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces it by what is the newest content when it is this thread's turn.
    ///
    /// # Errors
    /// As those of the system calls that it takes.
    pub(crate) fn write(&self, blocking: &Blocking, newest: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        replacing::replace(blocking, &self.path, &newest())
    }
}
