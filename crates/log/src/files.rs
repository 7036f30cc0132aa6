//! The files behind logs, as the writer sees them: chunks leave in one write(2) each. A file that cannot be
//! written loses lines; they are counted, and a full disk is tried again in the next second. Runs where
//! blocking is allowed.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::log::{Level, Verbatim};
use clearway_os::open::{open_to_append, open_to_append_at_once};

use crate::chunk::{Chunk, Report, Torn};
use crate::metrics::LINES_UNWRITTEN;

/// Access rights of a new log file, less the umask.
const MODE: u32 = 0o644;
/// After a failed write was reported, others of the same log are not for this long, as in nginx.
const REPORT_INTERVAL_S: u64 = 60;

/// Opens log files for a writer.
pub trait Opener: Send + Sync {
    /// Opens a file to append to, and creates it. May **block**.
    ///
    /// # Errors
    /// As open(2).
    fn open(&self, path: &Path) -> io::Result<File>;
}

/// A log file that cannot be opened. Reads as nginx's message.
#[derive(Debug)]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open() \"{}\" failed {}", Verbatim::path(&self.path), Errno(&self.source))
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Opens files by their names. A FIFO without a reader is an error: a process that waited for one would
/// answer no signal.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Opener for Disk {
    fn open(&self, path: &Path) -> io::Result<File> {
        Ok(open_to_append(path, MODE)?.into())
    }
}

/// Standard error under a descriptor of its own.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// The number of the device of a regular file; what else there is may be stuck for itself.
pub(crate) fn device(file: &File) -> Option<u64> {
    file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.dev())
}

/// A file of its own name or standard error.
#[derive(Debug)]
pub(crate) struct LogTarget {
    path: Option<PathBuf>,
    file: Arc<File>,
    torn: Torn,
    trouble: Trouble,
    /// The same file once more, to be written without waiting; none if it was not wanted yet.
    at_once: Option<AtOnce>,
}

/// How something that may hold its writer is written by a thread that must not wait.
#[derive(Debug)]
enum AtOnce {
    /// Through a descriptor of its own.
    Through(File),
    /// The file is regular, or cannot be opened twice.
    AsEver,
}

impl LogTarget {
    /// `path` is none for standard error.
    pub(crate) fn new(path: Option<PathBuf>, file: File) -> Self {
        Self { path, file: Arc::new(file), torn: Torn::No, trouble: Trouble::default(), at_once: None }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Writes chunks in their order. What cannot be written is lost and counted; why is reported.
    pub(crate) fn write(&mut self, chunks: &[Chunk], now_s: u64, reports: &mut Vec<Report>) {
        if self.trouble.is_full(now_s) {
            return LINES_UNWRITTEN.add(chunks.iter().map(Chunk::count).sum());
        }
        for (index, chunk) in chunks.iter().enumerate() {
            let payload = chunk.payload();
            let (written, outcome) = write_all(&self.file, &payload, self.torn);
            if written > 0 {
                self.torn = Torn::No;
            }
            let Err(error) = outcome else { continue };
            let cut = chunk.cut(written);
            if written > 0 {
                self.torn = cut.torn;
            }
            let others = chunks[index + 1..].iter().map(Chunk::count).sum::<u64>();
            LINES_UNWRITTEN.add(cut.missing + others);
            let name = self.path.as_deref().map_or(Verbatim(b"stderr"), Verbatim::path);
            return self.trouble.report(name, &error, now_s, reports);
        }
    }

    /// As `write`, but of what would have to wait (a pipe that is full) the rest stays in `chunks`.
    pub(crate) fn write_at_once(&mut self, chunks: &mut Vec<Chunk>, now_s: u64, reports: &mut Vec<Report>) {
        let file = &self.file;
        let at_once = self.at_once.get_or_insert_with(|| match device(file) {
            Some(_) => AtOnce::AsEver,
            None => {
                open_to_append_at_once(file.as_fd()).map_or(AtOnce::AsEver, |fd| AtOnce::Through(fd.into()))
            }
        });
        let AtOnce::Through(file) = at_once else {
            self.write(chunks, now_s, reports);
            return chunks.clear();
        };
        while let Some(chunk) = chunks.first_mut() {
            match write_what_fits(file, chunk) {
                Ok(()) => drop(chunks.remove(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    LINES_UNWRITTEN.add(chunks.iter().map(Chunk::count).sum());
                    chunks.clear();
                    let name = self.path.as_deref().map_or(Verbatim(b"stderr"), Verbatim::path);
                    return self.trouble.report(name, &error, now_s, reports);
                }
            }
        }
    }

    /// Opens the file anew and forgets its troubles; standard error stays as it is.
    ///
    /// # Errors
    /// As open(2), with nginx's message; the old file is kept.
    pub(crate) fn reopen(&mut self, opener: &dyn Opener) -> Result<(), OpenError> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = opener.open(path).map_err(|source| OpenError { path: path.clone(), source })?;
        self.file = Arc::new(file);
        (self.torn, self.trouble, self.at_once) = (Torn::No, Trouble::default(), None);
        Ok(())
    }
}

/// Writes line by line, since a pipe takes a short one as a whole or not at all, and takes what was written
/// off the chunk.
fn write_what_fits(mut file: &File, chunk: &mut Chunk) -> io::Result<()> {
    loop {
        let Some(line) = chunk.lines().next() else { return Ok(()) };
        match file.write(line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(size) => chunk.advance(size),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes until all is written or an error comes; how much of the payload was.
fn write_all(mut file: &File, payload: &[u8], torn: Torn) -> (usize, io::Result<()>) {
    let mut written = 0;
    if torn == Torn::Yes
        && let Err(error) = file.write(b"\n")
    {
        return (0, Err(error));
    }
    while written < payload.len() {
        match file.write(&payload[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(size) => written += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Recent failures to write a log.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// The second (since the epoch) in which the disk was full: not tried again before the next one.
    full_s: Option<u64>,
    /// The second in which a failure was reported last.
    told_s: Option<u64>,
}

impl Trouble {
    /// Whether the disk was full in this very second.
    pub(crate) fn is_full(&self, now_s: u64) -> bool {
        self.full_s == Some(now_s)
    }

    /// Keeps a failed write in mind and reports it, unless one was lately.
    pub(crate) fn report(
        &mut self,
        name: Verbatim<'_>,
        error: &io::Error,
        now_s: u64,
        reports: &mut Vec<Report>,
    ) {
        if error.kind() == io::ErrorKind::StorageFull {
            self.full_s = Some(now_s);
        }
        if self.told_s.is_none_or(|told_s| now_s.abs_diff(told_s) >= REPORT_INTERVAL_S) {
            self.told_s = Some(now_s);
            let text = format!("write() to \"{name}\" failed {}", Errno(error));
            reports.push(Report { level: Level::Alert, text });
        }
    }
}
