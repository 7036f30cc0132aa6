//! The side of the log writer that loops and boot see: opening files, handing over lines, asking for
//! reopening and flushing. A line costs its producer a few atomic operations, and one futex call if
//! the writer has nothing to do and sleeps; while lines keep coming it naps instead and needs none.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use clearway_base::Errno;
use clearway_metrics::Counter;
use clearway_offload::{Bell, Ring, Service};

use crate::error_log::ErrorLog;
use crate::files::{self, Opener, Target};
use crate::local_time::UtcOffset;
use crate::thread::{self, Desk};

/// Lines that may wait for the writer, all logs together. Each place takes 48 bytes.
pub const QUEUE_LINES: usize = 32_768;
/// Bytes of lines that may wait for the writer, all logs together.
pub const QUEUE_BYTES: usize = 16 << 20;

/// Lines that the queue did not take.
pub static LINES_LOST: Counter = Counter::new(
    "log_lines_lost_total",
    "lines",
    "Log lines that were lost because the queue to the log writer was full: the disk of the logs is \
     slower than what is logged.",
);
/// Lines that the writer could not write.
pub static LINES_UNWRITTEN: Counter = Counter::new(
    "log_lines_unwritten_total",
    "lines",
    "Log lines that were lost because writing failed, such as on a full disk; the error log says why.",
);

/// The log writer: files and, once it is started, a thread that writes them. Dropping it stops the
/// thread when what is queued is written.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    service: Mutex<Option<Service>>,
}

/// Where lines go: a log file or standard error. Clones are the same file, which is closed some time
/// after the last one is gone.
#[derive(Clone, Debug)]
pub struct LogFile(Arc<Handle>);

/// A log file that cannot be opened. Reads as nginx's message.
#[derive(Debug)]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl Writer {
    /// A writer without a thread: files can be opened and lines queued, and `flush` writes them on its
    /// caller's thread. Reads the time zone: **blocks** for a moment.
    #[must_use]
    pub fn new(opener: Box<dyn Opener>) -> Self {
        Self::with_queue(opener, QUEUE_LINES, QUEUE_BYTES)
    }

    pub(crate) fn with_queue(opener: Box<dyn Opener>, queue_lines: usize, queue_bytes: usize) -> Self {
        let shared = Arc::new(Shared {
            opener,
            queue: Ring::new(queue_lines),
            bell: Arc::new(Bell::new()),
            queued_bytes: AtomicUsize::new(0),
            queue_bytes,
            lost: AtomicU64::new(0),
            utc_offset: UtcOffset::default(),
            reopen: AtomicBool::new(false),
            flush_asked: AtomicU32::new(0),
            flush_done: AtomicU32::new(0),
            registry: Mutex::default(),
            report: Mutex::default(),
            desk: Mutex::default(),
        });
        shared.utc_offset.refresh((clearway_os::clock::unix_ms() / 1000).cast_signed());
        Self { shared, service: Mutex::new(None) }
    }

    /// Starts the thread, unless it runs already.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        let mut service = lock(&self.service);
        if service.is_none() {
            let shared = Arc::clone(&self.shared);
            *service =
                Some(Service::start("log writer", Arc::clone(&self.shared.bell), move |blocking, stop| {
                    thread::run(&shared, blocking, stop);
                })?);
        }
        Ok(())
    }

    /// Opens (and creates) a file to append to; the same path gives the same file, and `/dev/stderr`
    /// is [`Writer::stderr`]. At boot or where
    /// a configuration is built: **blocks**.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &Path) -> Result<LogFile, OpenError> {
        if path == Path::new("/dev/stderr") {
            // Opened by its name it would be a file of its own, with a position of its own; and a
            // socket, as service managers give, cannot be opened by name at all.
            return self.stderr().map_err(|source| OpenError { path: path.to_owned(), source });
        }
        let mut registry = lock(&self.shared.registry);
        if let Some(file) = registry.find(Some(path)) {
            return Ok(file);
        }
        let file = self.shared.opener.open(path);
        let file = file.map_err(|source| OpenError { path: path.to_owned(), source })?;
        Ok(registry.add(&self.shared, Some(path), file))
    }

    /// Standard error as a log.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated.
    pub fn stderr(&self) -> io::Result<LogFile> {
        let mut registry = lock(&self.shared.registry);
        if let Some(file) = registry.find(None) {
            return Ok(file);
        }
        let file = files::stderr()?;
        Ok(registry.add(&self.shared, None, file))
    }

    /// Where the writer reports its own trouble (lost lines, failed writes) from now on.
    pub fn report_to(&self, log: &Arc<ErrorLog>) {
        *lock(&self.shared.report) = Arc::downgrade(log);
    }

    /// Every file that somebody has a handle of, with a duplicate of its present descriptor: what a
    /// master hands to its worker. Standard error is not among them. **Blocks** for a moment.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn files(&self) -> io::Result<Vec<(PathBuf, File)>> {
        let mut desk = lock(&self.shared.desk);
        desk.adopt(&self.shared);
        desk.files()
    }

    /// Opens all files anew once what is queued is written (signal USR1 after a rotation, and the
    /// commit of a reload). A file that cannot be opened is reported and the old one kept. Does not wait
    /// for the thread; without one the caller does it, and **blocks**.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        if lock(&self.service).is_some() {
            self.shared.bell.ring();
        } else {
            thread::pass(&self.shared);
        }
    }

    /// Waits until what was handed over before is written, `limit` at most; `false` if it is not.
    /// Without a thread the caller writes it. **Blocks**: for the main thread.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        if lock(&self.service).is_none() {
            thread::pass(&self.shared);
            return true;
        }
        let asked = self.shared.flush_asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        self.shared.bell.ring();
        let end = Instant::now() + limit;
        loop {
            let done = self.shared.flush_done.load(Ordering::Acquire);
            let left = end.saturating_duration_since(Instant::now());
            if done.wrapping_sub(asked).cast_signed() >= 0 {
                return true;
            } else if left.is_zero() {
                return false;
            }
            clearway_os::futex::wait(&self.shared.flush_done, done, Some(left));
        }
    }

    /// Writes what is queued and ends the thread; waits for it, `limit` at most, and says whether it
    /// has ended. Lines that come later are lost. **Blocks**: for the main thread at exit.
    #[must_use]
    pub fn shutdown(&self, limit: Duration) -> bool {
        match &*lock(&self.service) {
            Some(service) => service.stop_and_wait(limit),
            None => {
                thread::pass(&self.shared);
                true
            }
        }
    }

    /// The offset of local time from UTC, kept up to date by the writer thread.
    #[must_use]
    pub fn utc_offset(&self) -> UtcOffset {
        self.shared.utc_offset.clone()
    }
}

impl LogFile {
    /// Hands over one line with its line feed. Never waits: if the queue is full the line is lost,
    /// which is counted and reported.
    pub fn write(&self, line: Vec<u8>) {
        let shared = &*self.0.shared;
        let size = line.len();
        let before = shared.queued_bytes.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) > shared.queue_bytes
            || shared.queue.push(Line { file: self.0.id, bytes: line }).is_err()
        {
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            shared.lost.fetch_add(1, Ordering::Relaxed);
            LINES_LOST.increment();
        } else {
            shared.bell.ring();
        }
    }

    /// Where lines go; `None` is standard error.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open() \"{}\" failed {}", self.path.display(), Errno(&self.source))
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A line on its way.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) file: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What producers, boot and the writer thread share.
pub(crate) struct Shared {
    pub(crate) opener: Box<dyn Opener>,
    pub(crate) queue: Ring<Line>,
    pub(crate) bell: Arc<Bell>,
    /// Of the lines in the queue. Added before a push and taken back after the pop.
    pub(crate) queued_bytes: AtomicUsize,
    queue_bytes: usize,
    /// Lines lost and not reported yet.
    pub(crate) lost: AtomicU64,
    pub(crate) utc_offset: UtcOffset,
    pub(crate) reopen: AtomicBool,
    pub(crate) flush_asked: AtomicU32,
    /// The last number of `flush_asked` that has been done; a futex.
    pub(crate) flush_done: AtomicU32,
    /// Never locked by a loop: files are opened at boot, and handles go without it.
    pub(crate) registry: Mutex<Registry>,
    pub(crate) report: Mutex<Weak<ErrorLog>>,
    /// Held by who writes: the thread, or without one who flushes.
    pub(crate) desk: Mutex<Desk>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Files that are open, and those that the writer thread does not know yet.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next_id: u64,
    open: Vec<Weak<Handle>>,
    pub(crate) added: Vec<Target>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    id: u64,
    path: Option<PathBuf>,
    /// Tells the writer thread that no more lines come.
    closed: Arc<AtomicBool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Registry {
    fn find(&mut self, path: Option<&Path>) -> Option<LogFile> {
        self.open.retain(|handle| handle.strong_count() > 0);
        self.open.iter().filter_map(Weak::upgrade).find(|handle| handle.path.as_deref() == path).map(LogFile)
    }

    fn add(&mut self, shared: &Arc<Shared>, path: Option<&Path>, file: File) -> LogFile {
        let id = self.next_id;
        self.next_id += 1;
        let closed = Arc::new(AtomicBool::new(false));
        let path = path.map(Path::to_owned);
        let handle =
            Handle { shared: Arc::clone(shared), id, path: path.clone(), closed: Arc::clone(&closed) };
        let handle = Arc::new(handle);
        self.open.push(Arc::downgrade(&handle));
        self.added.push(Target::new(id, path, file, closed));
        LogFile(handle)
    }
}

/// Locks where no loop comes. What is behind these locks stays valid when a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
