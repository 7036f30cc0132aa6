//! `state`: a file with the servers of a group, in the words of the configuration. It is read when a
//! configuration is loaded, and replaced by a pool when servers were changed while serving.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clearway_base::Errno;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Loader, Memory, Scope};
use clearway_http::Load;
use clearway_offload::{Blocking, replacing};

use crate::upstreams::server;

/// Largest file, bytes.
const STATE_MAX_BYTES: usize = 1 << 20;

/// See the file's head. The same for all configurations that name it.
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

/// Reads the servers of the block that is being read. A file that is not there has none.
pub(crate) fn read(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    file: &StateFile,
) -> Result<(), Error> {
    let path = file.path();
    let shown = path.as_os_str().as_encoded_bytes();
    let text = match scope.conf.kept_files().read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let why = Errno(&error).to_string();
            return Err(directive.error(message(&[&"open() \"", &printed(shown), &"\" failed ", &why])));
        }
    };
    if text.len() > STATE_MAX_BYTES {
        return Err(directive.error(message(&[&"too large state file \"", &printed(shown), &"\""])));
    }
    let source = Memory::new().with(path, text.to_vec());
    let block = Loader::new(&source, path).file(path);
    block.entries(&mut |line| match (&line.name[..], line.args.is_empty()) {
        (b"server", false) => server::read_server(scope, line),
        _ => Err(line.error(message(&[&"unexpected \"", &printed(&line.name), &"\" in a state file"]))),
    })
}
