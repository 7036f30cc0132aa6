//! The side of the log writer that loops and boot see: opening logs, handing over lines, asking for
//! reopening and flushing. A line costs its producer a few atomic operations, and one futex call if
//! the writer has nothing to do and sleeps; while many lines come it naps instead and needs none.
//!
//! What does not fit is lost and counted, and the error log says how much: lines beyond what the queue
//! holds, and lines for a destination that hangs beyond what may wait for it (`desk`).

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use clearway_base::log::Level;
use clearway_offload::{Bell, Receipt, Receipts, Ring};

use crate::desk::{Buffering, Desk, End, Slot, Target};
use crate::error_log::ErrorLog;
use crate::files::{self, LogTarget, OpenError, Opener};
use crate::local_time::UtcOffset;
use crate::metrics::LINES_LOST;
use crate::named::{self, FileCacheConfig, NamedTarget};
use crate::progress::{self, Progress};
use crate::syslog::{self, Peer};
use crate::thread;

/// Lines that may wait for the writer, all logs together. Each place that has been needed takes 48 bytes.
pub const QUEUE_LINES: usize = 32_768;
/// Lines that wait where a loop writes 140,000 a second and its thread has one processor with the writer's.
const QUEUE_OFTEN_LINES: usize = 4096;
/// Bytes of lines that may wait for the writer, all logs together.
pub const QUEUE_BYTES: usize = 16 << 20;

/// The log writer: what is logged to and, once it is started, threads that write. Dropping it stops the
/// threads when what is queued is written.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    started: Mutex<bool>,
}

/// Where lines go: a log file or standard error. Clones are the same file, which is closed some time
/// after the last one is gone.
#[derive(Clone, Debug)]
pub struct LogFile(Arc<Handle>);

/// A log whose lines say which file they go to.
#[derive(Clone, Debug)]
pub struct NamedLog(Arc<Handle>);

/// A log that goes to a syslog server.
#[derive(Clone, Debug)]
pub struct Syslog {
    handle: Arc<Handle>,
    config: Arc<syslog::Config>,
}

/// Lines that may wait where they are written at once.
const DIRECT_LINES: usize = 64;

impl Writer {
    /// A writer without threads: logs can be opened and lines queued, and `flush` writes them on its
    /// caller's thread. Reads the time zone: **blocks** for a moment.
    #[must_use]
    pub fn new(opener: Box<dyn Opener>) -> Self {
        Self::with_queue(opener, QUEUE_LINES, QUEUE_BYTES)
    }

    /// As [`new`](Self::new), with room for a few lines only, for a caller that writes each of them at once
    /// with `flush`.
    #[must_use]
    pub fn direct(opener: Box<dyn Opener>) -> Self {
        Self::with_queue(opener, DIRECT_LINES, QUEUE_BYTES)
    }

    pub(crate) fn with_queue(opener: Box<dyn Opener>, queue_lines: usize, queue_bytes: usize) -> Self {
        let shared = Arc::new(Shared::new(opener, queue_lines, queue_bytes));
        shared.utc_offset.refresh(thread::now_s().cast_signed());
        Self { shared, started: Mutex::new(false) }
    }

    /// Starts the threads, unless they run already.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(&self) -> io::Result<()> {
        let mut started = lock(&self.started);
        if !*started {
            thread::start(&self.shared)?;
            *started = true;
        }
        Ok(())
    }

    /// Opens (and creates) a file to append to; the same path gives the same file, and `/dev/stderr`
    /// is [`Writer::stderr`]. At boot or where a configuration is built: **blocks**.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: &Path) -> Result<LogFile, OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        if path == Path::new("/dev/stderr") {
            // Opened by its name it would be a file of its own, with a position of its own; and a
            // socket, as service managers give, cannot be opened by name at all.
            return self.stderr().map_err(failed);
        }
        if let Some(file) = lock(&self.shared.registry).find(Some(path)) {
            return Ok(file);
        }
        // Outside of the lock, which the writer takes too.
        let file = self.shared.opener.open(path).map_err(failed)?;
        Ok(self.add_file(Some(path), file))
    }

    /// Standard error as a log.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated.
    pub fn stderr(&self) -> io::Result<LogFile> {
        if let Some(file) = lock(&self.shared.registry).find(None) {
            return Ok(file);
        }
        let file = files::stderr()?;
        Ok(self.add_file(None, file))
    }

    fn add_file(&self, path: Option<&Path>, file: File) -> LogFile {
        let mut registry = lock(&self.shared.registry);
        // Another thread may have been faster.
        if let Some(file) = registry.find(path) {
            return file;
        }
        let target = Target::File(LogTarget::new(path.map(Path::to_owned), file));
        let handle = registry.add(&self.shared, path, None, |id, closed| Slot::of_target(id, target, closed));
        registry.open.push(Arc::downgrade(&handle));
        LogFile(handle)
    }

    /// A buffer in front of a file. Lines given to the file itself do not wait in it. What it holds is
    /// written when its last handle is gone, before the file is opened anew, and at the end.
    #[must_use]
    pub fn buffer(&self, file: &LogFile, config: Buffering) -> LogFile {
        let behind = &file.0;
        let slot = |_, closed| Slot::of_buffer(behind.id, config, closed);
        let parent = Some(Arc::clone(behind));
        LogFile(lock(&self.shared.registry).add(&self.shared, file.path(), parent, slot))
    }

    /// A log whose files are named by its lines; they are kept open as `cache` says, if it does.
    #[must_use]
    pub fn named(&self, cache: Option<FileCacheConfig>) -> NamedLog {
        let target = Target::Named(NamedTarget::new(cache));
        let slot = |id, closed| Slot::of_target(id, target, closed);
        NamedLog(lock(&self.shared.registry).add(&self.shared, None, None, slot))
    }

    /// A log that goes to a syslog server. The socket is made when the first line comes.
    #[must_use]
    pub fn syslog(&self, config: syslog::Config) -> Syslog {
        let target = Target::Syslog(Peer::new(&config));
        let slot = |id, closed| Slot::of_target(id, target, closed);
        let handle = lock(&self.shared.registry).add(&self.shared, None, None, slot);
        Syslog { handle, config: Arc::new(config) }
    }

    /// Where the writer reports its own trouble (lost lines, failed writes) from now on.
    pub fn report_to(&self, log: &Arc<ErrorLog>) {
        *lock(&self.shared.report) = Arc::downgrade(log);
    }

    /// Every file that somebody has a handle of, with a duplicate of its present descriptor: what a
    /// master hands to its worker. Standard error and files that lines name are not among them.
    /// **Blocks** for a moment.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn files(&self) -> io::Result<Vec<(PathBuf, File)>> {
        let mut desk = lock(&self.shared.desk);
        self.shared.adopt(&mut desk);
        desk.files()
    }

    /// Opens all files anew once what is queued is written (signal USR1 after a rotation, and the
    /// commit of a reload). A file that cannot be opened is reported and the old one kept. Does not wait
    /// for the threads; without them the caller does it, and **blocks**.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
        if self.is_running() {
            self.shared.do_chores();
        } else {
            thread::pass_alone(&self.shared);
        }
    }

    /// Waits until what was handed over before is written, but for what buffers hold: `limit` at most;
    /// `false` if it is not. Without threads the caller writes it. **Blocks**: for the main thread.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        let asked = self.shared.ask_to_flush();
        let end = Instant::now() + limit;
        while self.is_running() {
            let left = end.saturating_duration_since(Instant::now());
            if self.shared.receipts.is_done(asked) {
                break;
            } else if left.is_zero() {
                return false;
            }
            self.shared.receipts.sleep(asked, left);
        }
        // Where the threads have ended meanwhile, they may have done so before the last lines came.
        if !self.is_running() {
            thread::pass_alone(&self.shared);
        }
        true
    }

    /// Writes what is queued and what buffers hold, and ends the threads; waits for it, `limit` at most,
    /// and says whether all is written. Lines that come later wait for a `flush`. **Blocks**: for the
    /// main thread at exit.
    #[must_use]
    pub fn shutdown(&self, limit: Duration) -> bool {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.flush(limit)
    }

    /// The offset of local time from UTC, kept up to date by the writer.
    #[must_use]
    pub fn utc_offset(&self) -> UtcOffset {
        self.shared.utc_offset.clone()
    }

    /// How far it is, for tasks.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress::new(&self.shared)
    }

    /// Whether lines are left that a `flush` without threads could not write without waiting, such as into a
    /// pipe that is full. The next one tries again.
    #[must_use]
    pub fn has_held_lines(&self) -> bool {
        lock(&self.shared.desk).has_held()
    }

    /// Has the held lines of another writer, before those of its own.
    pub fn take_held_lines(&self, other: &Self) {
        let held = lock(&other.shared.desk).take_held();
        let mut desk = lock(&self.shared.desk);
        self.shared.adopt(&mut desk);
        held.into_iter().for_each(|(path, chunks)| desk.adopt_held(&path, chunks));
    }

    fn is_running(&self) -> bool {
        *lock(&self.started) && lock(&self.shared.desk).roles.end == End::NotYet
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.shared.ask_to_flush();
    }
}

impl LogFile {
    /// Hands over one line with its line feed. Never waits: if the queue is full the line is lost,
    /// which is counted and reported.
    pub fn write(&self, line: Vec<u8>) {
        self.0.write(line);
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

impl NamedLog {
    /// Begins a line for the file at `path`, with room for `capacity` bytes to be appended, the line
    /// feed among them. Where `root` is given, the line gets lost unless that is a directory.
    #[must_use]
    pub fn begin(&self, path: &[u8], root: Option<&[u8]>, capacity: usize) -> Vec<u8> {
        named::begin_line(path, root, capacity)
    }

    /// Hands over a line that was begun here; as [`LogFile::write`].
    pub fn write(&self, line: Vec<u8>) {
        self.0.write(line);
    }
}

impl Syslog {
    /// Begins a message, with room for `capacity` bytes to be appended. Without a level its severity is
    /// the one of the configuration. `offset_minutes` is how far local time is ahead of UTC.
    #[must_use]
    pub fn begin(
        &self,
        level: Option<Level>,
        unix_seconds: i64,
        offset_minutes: i32,
        capacity: usize,
    ) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.config.header_bytes_max() + capacity);
        self.config.put_header(level, unix_seconds, offset_minutes, &mut message);
        message
    }

    /// Hands over a message that was begun here, which has no line feed; as [`LogFile::write`].
    pub fn write(&self, message: Vec<u8>) {
        self.handle.write(message);
    }

    pub(crate) fn id(&self) -> u64 {
        self.handle.id
    }
}

/// A line on its way.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) to: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The state that producers, boot and the writer's threads share.
pub(crate) struct Shared {
    pub(crate) opener: Box<dyn Opener>,
    pub(crate) queue: Ring<Line>,
    pub(crate) bell: Arc<Bell>,
    /// The bytes of the lines in the queue. Added before a push and subtracted after the pop.
    pub(crate) queued_bytes: AtomicUsize,
    queue_bytes: usize,
    /// Lines that the queue did not take, not reported yet.
    pub(crate) lost: AtomicU64,
    /// The second in which losses were reported last.
    pub(crate) losses_told_s: AtomicU64,
    pub(crate) utc_offset: UtcOffset,
    /// Minutes since the epoch when the time zone was read.
    pub(crate) zone_minute: AtomicU64,
    pub(crate) reopen: AtomicBool,
    /// There is something to do besides lines.
    pub(crate) chores: AtomicBool,
    pub(crate) ending: AtomicBool,
    /// Tells connections and `flush` when their lines are written.
    pub(crate) receipts: Receipts,
    /// Never locked by a loop: logs are opened at boot, and handles go without it.
    registry: Mutex<Registry>,
    report: Mutex<Weak<ErrorLog>>,
    pub(crate) desk: Mutex<Desk>,
    /// Held by the thread that stands by.
    pub(crate) seat: Mutex<()>,
    /// 0 while the thread that stands by sleeps because nothing is written; a futex.
    pub(crate) watching: AtomicU32,
}

impl Shared {
    fn new(opener: Box<dyn Opener>, queue_lines: usize, queue_bytes: usize) -> Self {
        Self {
            opener,
            queue: Ring::with_short(queue_lines, QUEUE_OFTEN_LINES),
            bell: Arc::new(Bell::new()),
            queued_bytes: AtomicUsize::new(0),
            queue_bytes,
            lost: AtomicU64::new(0),
            losses_told_s: AtomicU64::new(0),
            utc_offset: UtcOffset::default(),
            zone_minute: AtomicU64::new(thread::now_s() / 60),
            reopen: AtomicBool::new(false),
            chores: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            receipts: Receipts::new(progress::WAITING_MAX),
            registry: Mutex::default(),
            report: Mutex::default(),
            desk: Mutex::default(),
            seat: Mutex::default(),
            watching: AtomicU32::new(1),
        }
    }

    pub(crate) fn ask_to_flush(&self) -> Receipt {
        let receipt = self.receipts.ask();
        self.bell.ring();
        receipt
    }

    /// Has the one on duty look for more than lines.
    pub(crate) fn do_chores(&self) {
        self.chores.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Wakes the thread that stands by.
    pub(crate) fn wake_watch(&self) {
        self.watching.store(2, Ordering::SeqCst);
        clearway_os::futex::wake(&self.watching, 1);
    }

    /// Takes over what was opened lately.
    pub(crate) fn adopt(&self, desk: &mut Desk) {
        let added = std::mem::take(&mut lock(&self.registry).added);
        added.into_iter().for_each(|(id, slot)| desk.add(id, slot));
    }

    /// Logs something about the writer itself, but not to the destination that it is about.
    pub(crate) fn report(&self, about: Option<u64>, level: Level, message: fmt::Arguments<'_>) {
        let log = lock(&self.report).upgrade();
        if let Some(log) = log {
            log.report(about, level, message);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Files that are open, and destinations that the desk does not know yet.
#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    open: Vec<Weak<Handle>>,
    added: Vec<(u64, Slot)>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    id: u64,
    path: Option<PathBuf>,
    /// Tells the desk that no more lines come.
    closed: Arc<AtomicBool>,
    /// The file behind a buffer.
    _behind: Option<Arc<Handle>>,
}

impl Handle {
    fn write(&self, line: Vec<u8>) {
        let shared = &*self.shared;
        let size = line.len();
        let before = shared.queued_bytes.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) > shared.queue_bytes
            || shared.queue.push(Line { to: self.id, bytes: line }).is_err()
        {
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            shared.lost.fetch_add(1, Ordering::Relaxed);
            LINES_LOST.increment();
        } else {
            shared.bell.ring();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        self.shared.do_chores();
    }
}

impl Registry {
    fn find(&mut self, path: Option<&Path>) -> Option<LogFile> {
        self.open.retain(|handle| handle.strong_count() > 0);
        self.open.iter().filter_map(Weak::upgrade).find(|handle| handle.path.as_deref() == path).map(LogFile)
    }

    fn add(
        &mut self,
        shared: &Arc<Shared>,
        path: Option<&Path>,
        behind: Option<Arc<Handle>>,
        slot: impl FnOnce(u64, Arc<AtomicBool>) -> Slot,
    ) -> Arc<Handle> {
        let id = self.next_id;
        self.next_id += 1;
        let closed = Arc::new(AtomicBool::new(false));
        self.added.push((id, slot(id, Arc::clone(&closed))));
        let path = path.map(Path::to_owned);
        Arc::new(Handle { shared: Arc::clone(shared), id, path, closed, _behind: behind })
    }
}

/// Locks where no loop comes. What is behind these locks stays valid when a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
