//! One directory of a cache: its threads, the descriptor by which its files are found, and whether it
//! answers. A disk that fails is left out: its objects are misses, others have what is new, until it has
//! answered again.
//!
//! 1. `in_flight` counts jobs from their submission to their end, run or not. A job that was run moves
//!    `progress_ms`, as does the first of all jobs when it comes. So a disk with jobs and without progress
//!    for [`STALL_MS`] does not answer.
//! 2. [`ERRORS_MAX`] errors of the device in a row put the disk out, which only the manager's probe takes
//!    back: a file that is made and removed.
//! 3. A disk on which there was no room takes nothing new for [`FULL_MS`], or until the manager has removed
//!    something from it. What is there is used meanwhile.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use clearway_base::log::Sink;
use clearway_offload::directory::Directory;
use clearway_offload::files::{Files, Mode, Opened};
use clearway_offload::temp_file::Failure;
use clearway_offload::{At, Blocking, Pool, PoolConfig, Task};
use clearway_os::clock;
use clearway_os::open::{Access, How};
use clearway_os::stat;

use super::notes::Notes;

/// A disk on which nothing has come back for so long does not answer, ms.
const STALL_MS: u64 = 10_000;
/// A disk is left out after so many errors in a row.
const ERRORS_MAX: u32 = 3;
/// The time for which no new objects are put on a full disk, ms.
const FULL_MS: u64 = 1000;
/// Threads of a disk's pool (as in the article that thread pools began with).
const THREADS: u32 = 16;
/// Jobs that may wait for them.
const MAX_QUEUE: u32 = 8192;

/// The name of a file that is made and removed to see whether that goes.
const PROBE: &str = ".clearway/probe";

/// Why nothing came of a job for a disk. Displays nginx's text.
#[derive(Debug)]
pub enum DiskError {
    /// The disk is left out at the moment; nothing was tried. Not to be logged each time.
    Out(PathBuf),
    /// A call has failed.
    Failed(Failure),
}

impl DiskError {
    pub(crate) fn new(call: &'static str, path: PathBuf, error: io::Error) -> Self {
        Self::Failed(Failure { call, path, error })
    }

    /// The system's error, if a system call has failed.
    #[must_use]
    pub fn error(&self) -> Option<&io::Error> {
        match self {
            Self::Out(_) => None,
            Self::Failed(failure) => Some(&failure.error),
        }
    }

    /// Whether it is a name that is not there.
    pub(crate) fn is_absent(&self) -> bool {
        self.error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a file system, or a quota, has no room left.
    pub(crate) fn is_of_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        self.error().is_some_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
    }

    /// Whether it is the device that has failed, and not a name or a right.
    pub(crate) fn is_of_device(&self) -> bool {
        const OF_DEVICE: [rustix::io::Errno; 7] = [
            rustix::io::Errno::IO,
            rustix::io::Errno::NXIO,
            rustix::io::Errno::NODEV,
            rustix::io::Errno::ROFS,
            rustix::io::Errno::STALE,
            rustix::io::Errno::TIMEDOUT,
            rustix::io::Errno::NOTCONN,
        ];
        let code = self.error().and_then(io::Error::raw_os_error);
        OF_DEVICE.iter().any(|errno| Some(errno.raw_os_error()) == code)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Out(path) => write!(f, "cache directory \"{}\" is left out", path.display()),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for DiskError {}

impl From<Failure> for DiskError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The open directory.
pub(crate) struct Root {
    pub(crate) directory: Directory,
    /// The opened directory, for calls that loops try without waiting.
    pub(crate) opened: Opened,
}

/// One directory of a cache. It stays the same object from one configuration to the next.
pub(crate) struct Disk {
    path: PathBuf,
    pool: Arc<Pool>,
    root: ArcSwapOption<Root>,
    health: Health,
    notes: Notes,
}

#[derive(Default)]
struct Health {
    /// The operations under way (rule 1).
    in_flight: AtomicU32,
    progress_ms: AtomicU64,
    /// The errors in a row (rule 2).
    errors: AtomicU32,
    /// The disk counts as full until this monotonic time (rule 3).
    full_until_ms: AtomicU64,
    wants_room: AtomicBool,
    /// A large file is compared with its checksum.
    is_checking: AtomicBool,
}

/// Whether objects on a full disk are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    Stay,
    /// Some go for what comes next.
    Go,
}

/// A job on its way.
struct InFlight(Arc<Disk>);

impl Disk {
    pub(crate) fn new(path: &Path, sink: Arc<dyn Sink>) -> Self {
        let name = format!("cache {}", path.display());
        let config = PoolConfig { threads: THREADS, max_queue: MAX_QUEUE, ..PoolConfig::new(&name) };
        let pool = Pool::new(config, sink);
        Self {
            path: path.to_path_buf(),
            pool: Arc::new(pool),
            root: ArcSwapOption::empty(),
            health: Health::default(),
            notes: Notes::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The journal and snapshot of the disk.
    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The disk's own pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The open directory, if a job has opened it.
    pub(crate) fn root_if_open(&self) -> Option<Arc<Root>> {
        self.root.load_full()
    }

    /// Whether it is left out.
    pub(crate) fn is_out(&self) -> bool {
        self.health.errors.load(Ordering::Relaxed) >= ERRORS_MAX || self.is_stalled()
    }

    fn is_stalled(&self) -> bool {
        let since_ms = self.health.progress_ms.load(Ordering::Acquire);
        self.health.in_flight.load(Ordering::Relaxed) > 0 && clock::coarse_ms() > since_ms + STALL_MS
    }

    /// There was no room.
    pub(crate) fn note_full(&self, others: Others) {
        self.health.full_until_ms.store(clock::coarse_ms() + FULL_MS, Ordering::Release);
        if others == Others::Go {
            self.want_room();
        }
    }

    /// Objects are to go for others.
    pub(crate) fn want_room(&self) {
        self.health.wants_room.store(true, Ordering::Release);
    }

    /// Something was removed.
    pub(crate) fn note_room(&self) {
        self.health.full_until_ms.store(0, Ordering::Release);
    }

    /// Whether the disk counts as full (rule 3).
    pub(crate) fn is_full(&self) -> bool {
        clock::coarse_ms() < self.health.full_until_ms.load(Ordering::Acquire)
    }

    /// Whether objects are to go for others.
    pub(crate) fn wants_room(&self) -> bool {
        self.health.wants_room.load(Ordering::Acquire)
    }

    /// Takes the wish for room; called by the manager, which evicts objects.
    pub(crate) fn take_wants_room(&self) -> bool {
        self.health.wants_room.swap(false, Ordering::AcqRel)
    }

    /// Whether a large file may be compared with its checksum now: one at a time.
    pub(crate) fn begin_check(&self) -> bool {
        !self.health.is_checking.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_check(&self) {
        let was_checking = self.health.is_checking.swap(false, Ordering::AcqRel);
        debug_assert!(was_checking, "a check ends once");
    }

    /// Has the job done, in this pool or the disk's own; `finish` makes the result of what became of it.
    pub(crate) fn submit<R, T>(
        self: &Arc<Self>,
        via: Option<&Arc<Pool>>,
        job: impl FnOnce(&Blocking, &Root) -> Result<R, DiskError> + Send + 'static,
        finish: impl FnOnce(Result<R, DiskError>) -> T + Send + 'static,
    ) -> Task<T>
    where
        T: Send + 'static,
    {
        if self.is_out() {
            return Task::ready(finish(Err(DiskError::Out(self.path.clone()))));
        }
        self.submit_anyway(via, job, finish)
    }

    /// As [`submit`](Self::submit), also if the disk is left out: to find out whether it answers again.
    pub(crate) fn submit_anyway<R, T>(
        self: &Arc<Self>,
        via: Option<&Arc<Pool>>,
        job: impl FnOnce(&Blocking, &Root) -> Result<R, DiskError> + Send + 'static,
        finish: impl FnOnce(Result<R, DiskError>) -> T + Send + 'static,
    ) -> Task<T>
    where
        T: Send + 'static,
    {
        let in_flight = InFlight::begin(self);
        let run = move |blocking: &Blocking| {
            let disk = &in_flight.0;
            let done = disk.root(blocking).and_then(|root| job(blocking, &root));
            disk.note(done.as_ref().err());
            finish(done)
        };
        match via {
            // Other disks share the pool: a disk that does not answer must not hold all of its threads.
            Some(pool) => pool.submit_at(self.at(), run),
            None => self.pool.submit(run),
        }
    }

    fn at(&self) -> At {
        self.root.load().as_ref().map_or_else(|| At::path(&self.path), |root| root.opened.at())
    }

    /// Notes the outcome of an operation (rules 1 and 2).
    fn note(&self, error: Option<&DiskError>) {
        self.health.progress_ms.fetch_max(clock::coarse_ms(), Ordering::AcqRel);
        if error.is_some_and(DiskError::is_of_device) {
            self.health.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let errors = self.health.errors.load(Ordering::Relaxed);
        if (1..ERRORS_MAX).contains(&errors) {
            // Where another one was counted meanwhile that one stays.
            let _ = self.health.errors.compare_exchange(errors, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// As if the device had failed.
    #[cfg(test)]
    pub(crate) fn note_failure(&self) {
        self.note(Some(&DiskError::new("read()", self.path.clone(), rustix::io::Errno::IO.into())));
    }

    /// As if nothing had come back for long.
    #[cfg(test)]
    pub(crate) fn note_silence(&self) {
        self.health.progress_ms.store(clock::coarse_ms() - STALL_MS - 1, Ordering::Release);
    }

    fn root(&self, blocking: &Blocking) -> Result<Arc<Root>, DiskError> {
        match self.root.load_full() {
            Some(root) => Ok(root),
            None => self.reopen(blocking),
        }
    }

    /// Whether the directory has its name still; how much may be written to its file system, bytes. A disk
    /// that has failed is asked to take a file.
    pub(crate) fn look(&self, blocking: &Blocking) -> Result<u64, DiskError> {
        let root = self.reopen(blocking)?;
        let failed = |call| move |error| DiskError::new(call, self.path.clone(), error);
        if self.health.errors.load(Ordering::Relaxed) > 0 {
            let probe = Path::new(PROBE);
            let created = root.directory.create_file(blocking, probe, 0o600);
            match created {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("open()")(error));
                }
                _ => root.directory.remove_file(blocking, probe).map_err(failed("unlink()"))?,
            }
            self.health.errors.store(0, Ordering::Relaxed);
        }
        root.directory.free_bytes(blocking).map_err(failed("statvfs()"))
    }

    /// Opens the directory that the path leads to now, unless that is the one that is held.
    pub(crate) fn reopen(&self, blocking: &Blocking) -> Result<Arc<Root>, DiskError> {
        let failed = |error| DiskError::new("open()", self.path.clone(), error);
        let how = How { access: Access::Directory, ..How::default() };
        let opened = Files::new(Mode::Offload).open_blocking(blocking, &self.path, how).map_err(failed)?;
        let held = self.root.load_full();
        if let Some(held) = held.filter(|held| is_same(&held.opened, &opened)) {
            return Ok(held);
        }
        let fd = opened.as_fd().try_clone_to_owned().map_err(failed)?;
        let root = Arc::new(Root { directory: Directory::handed(fd).map_err(failed)?, opened });
        self.root.store(Some(Arc::clone(&root)));
        Ok(root)
    }
}

/// Whether the directory that is held has its name still, and it is the other's.
fn is_same(held: &Opened, other: &Opened) -> bool {
    let (one, two) = (held.stat(), other.stat());
    (one.device, one.inode) == (two.device, two.inode)
        && stat::of(held.as_fd()).is_ok_and(|stat| stat.links > 0)
}

impl InFlight {
    fn begin(disk: &Arc<Disk>) -> Self {
        let health = &disk.health;
        if health.in_flight.load(Ordering::Relaxed) == 0 {
            health.progress_ms.fetch_max(clock::coarse_ms(), Ordering::AcqRel);
        }
        health.in_flight.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(disk))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.health.in_flight.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "each job ends once");
    }
}
