//! The files behind logs, owned by the writer thread: lines gather in a buffer per file and leave in
//! one write(2). A file that cannot be written loses lines; they are counted, and a full disk is
//! tried again in the next second.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_base::Errno;

use crate::writer::{LINES_UNWRITTEN, OpenError};

/// Bytes that gather for a file before they are written, unless the queue is empty before.
const BATCH_BYTES: usize = 128 << 10;
/// Access rights of a new log file, less the umask.
const MODE: u32 = 0o644;

/// Opens log files for a writer.
pub trait Opener: Send + Sync {
    /// Opens a file to append to, and creates it. May **block**.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &Path) -> io::Result<File>;
}

/// Opens files by their names.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Opener for Disk {
    #[expect(clippy::disallowed_methods, reason = "called at boot and by the writer thread")]
    fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(MODE).open(path)
    }
}

/// A file or standard error, and what waits to be written to it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: u64,
    path: Option<PathBuf>,
    file: File,
    closed: Arc<AtomicBool>,
    pending: Vec<u8>,
    /// Lines that `pending` holds.
    lines: u64,
    /// The last write ended in the middle of a line.
    torn: Torn,
    /// The second (since the epoch) in which the disk was full: not tried again before the next one.
    full_second: Option<u64>,
    /// The second in which a failure was reported last.
    told_second: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    No,
    Yes,
}

/// A write that failed and is to be reported.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) id: u64,
    name: String,
    error: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write() to \"{}\" failed {}", self.name, Errno(&self.error))
    }
}

impl Target {
    pub(crate) fn new(id: u64, path: Option<PathBuf>, file: File, closed: Arc<AtomicBool>) -> Self {
        Self {
            id,
            path,
            file,
            closed,
            pending: Vec::new(),
            lines: 0,
            torn: Torn::No,
            full_second: None,
            told_second: None,
        }
    }

    /// The file and its descriptor again, unless it is standard error or no more lines come.
    pub(crate) fn duplicate(&self) -> Option<io::Result<(PathBuf, File)>> {
        let path = self.path.as_ref().filter(|_| !self.is_closed())?;
        Some(self.file.try_clone().map(|file| (path.clone(), file)))
    }

    /// Whether no more lines come.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Adds a line to the batch; `true` when the batch should be written.
    pub(crate) fn gather(&mut self, line: &[u8]) -> bool {
        if self.torn == Torn::Yes && self.lines == 0 {
            self.pending.push(b'\n');
        }
        self.pending.extend_from_slice(line);
        self.lines += 1;
        self.pending.len() >= BATCH_BYTES
    }

    /// Writes the batch; gives back a failure at most once a second.
    pub(crate) fn write_out(&mut self, now_second: u64) -> Option<Failure> {
        if self.lines == 0 {
            return None;
        }
        let error = if self.full_second == Some(now_second) {
            LINES_UNWRITTEN.add(self.lines);
            None
        } else {
            self.write_pending().err()
        };
        self.pending.clear();
        self.pending.shrink_to(2 * BATCH_BYTES);
        self.lines = 0;
        let error = error?;
        if error.kind() == io::ErrorKind::StorageFull {
            self.full_second = Some(now_second);
        }
        if self.told_second.replace(now_second) == Some(now_second) {
            return None;
        }
        let name = self.path.as_ref().map_or_else(|| "stderr".to_owned(), |path| path.display().to_string());
        Some(Failure { id: self.id, name, error })
    }

    /// Opens the file anew and forgets its troubles; standard error stays as it is.
    ///
    /// # Errors
    /// As open(2), with nginx's message; the old file is kept.
    pub(crate) fn reopen(&mut self, opener: &dyn Opener) -> Result<(), OpenError> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = opener.open(path).map_err(|source| OpenError { path: path.clone(), source })?;
        (self.full_second, self.torn) = (None, Torn::No);
        Ok(())
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.pending.len() {
            match (&self.file).write(&self.pending[written..]) {
                Ok(0) => return Err(self.give_up(written, io::ErrorKind::WriteZero.into())),
                Ok(size) => written += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.give_up(written, error)),
            }
        }
        self.torn = Torn::No;
        Ok(())
    }

    /// Counts what was not written, and remembers whether a line was cut.
    fn give_up(&mut self, written: usize, error: io::Error) -> io::Error {
        let (done, rest) = self.pending.split_at(written);
        let missing = rest.iter().filter(|&&byte| byte == b'\n').count() as u64;
        LINES_UNWRITTEN.add(missing.min(self.lines));
        match done.last() {
            Some(b'\n') => self.torn = Torn::No,
            Some(_) => self.torn = Torn::Yes,
            None => {}
        }
        error
    }
}

/// Standard error under a descriptor of its own.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}
