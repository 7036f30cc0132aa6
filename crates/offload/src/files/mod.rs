//! Files of a server as its loops see them: what cannot block is done at once, the rest is `Cold` and
//! for a pool. Any thread; what takes a [`Blocking`] is for pool threads.
//!
//! What can be known depends on where a file lies ([`mounts`]) and on what happened lately ([`recent`]).
//! All of it is a guess about the kernel's caches: a wrong one costs time and nothing else, is counted
//! ([`tally`]), and the hand-over of the loop bounds what others pay for it.
//!
//! The knowledge is of the process, without locks, and of fixed size. It outlives configurations.

mod fetch;
mod mounts;
mod opened;
mod recent;
mod tally;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
mod warmth;
mod whereabouts;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use clearway_os::clock;
use clearway_os::open::{self, Access, How, Links, Walk};
use clearway_os::stat::{self, Stat};
use rustix::io::Errno;

use crate::Blocking;
use crate::faults::{self, Call};
use fetch::Holding;
use mounts::{BUSY_READS, Class, InFlight, Mount, Mounts};
use recent::{Hasher, Names, Ranges};

pub use fetch::{COPIES_CUT, Fetched, Held, Warmed, give_back};
pub use opened::Opened;
use tally::{FileOutcome, tell};
pub use tally::{Guess, OPERATIONS_TOTAL, Operation, WRONG_GUESSES_TOTAL};
pub use tally::{put_operations, put_wrong_guesses};
pub use warmth::Learned;
pub(crate) use whereabouts::find_place_of;
pub use whereabouts::{At, MountRef};

/// A name that was found this lately is found again without a disk, ms.
const NAME_FRESH_MS: u32 = 1000;
/// A directory that was seen on a slow file system is taken to be there for a day, ms.
const REMOTE_FRESH_MS: u32 = 24 * 3600 * 1000;

/// The result of a loop's question about a file.
#[derive(Debug)]
#[must_use = "what is cold is for a pool"]
pub enum Attempt<T> {
    /// The operation was done without waiting.
    Done(T),
    /// The operation would have to wait, or might: a pool thread has to do it.
    Cold,
}

/// The treatment of work that may block (`aio`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Operations that may block are for a pool; others are done at once.
    #[default]
    Offload,
    /// Everything is done at once (`aio off`): nothing is ever [`Attempt::Cold`].
    Inline,
}

/// The process's knowledge of file systems, and the treatment of work that may block. Nothing is open.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    policy: &'static Policy,
    mode: Mode,
}

impl Files {
    /// The files of this process. Loops only: after the process has taken its user.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { policy: &POLICY, mode }
    }

    /// Files of a process that knows nothing yet.
    #[cfg(all(test, not(loom)))]
    fn apart(mode: Mode) -> Self {
        Self { policy: Box::leak(Box::new(Policy::new())), mode }
    }

    /// The treatment of work that may block.
    #[must_use]
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// Opens what `path` names, for a loop.
    ///
    /// # Errors
    /// As openat2(2) and statx(2), EINVAL for a path with a NUL.
    #[inline]
    pub fn open(self, path: &Path, how: How) -> Attempt<io::Result<Opened>> {
        self.attempt(None, path, how)
    }

    /// As [`open`](Self::open), relative to an open directory.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_at(self, directory: &Opened, path: &Path, how: How) -> Attempt<io::Result<Opened>> {
        self.attempt(Some(directory), path, how)
    }

    /// Opens what `path` names, however long that takes. **Blocks.**
    ///
    /// # Errors
    /// As openat2(2) and statx(2), EINVAL for a path with a NUL.
    pub fn open_blocking(self, blocking: &Blocking, path: &Path, how: How) -> io::Result<Opened> {
        self.wait_for(blocking, None, path, how)
    }

    /// As [`open_blocking`](Self::open_blocking), relative to an open directory. **Blocks.**
    ///
    /// # Errors
    /// As [`Files::open_blocking`].
    pub fn open_at_blocking(
        self,
        blocking: &Blocking,
        directory: &Opened,
        path: &Path,
        how: How,
    ) -> io::Result<Opened> {
        self.wait_for(blocking, Some(directory), path, how)
    }

    /// The status of the file at `path`, for a loop. Cheapest for names that are asked for all the time.
    ///
    /// # Errors
    /// As statx(2), EINVAL for a path with a NUL.
    #[inline]
    pub fn stat(self, path: &Path, links: Links) -> Attempt<io::Result<Stat>> {
        if self.mode == Mode::Inline {
            tell(Operation::Stat, FileOutcome::Inline);
            return Attempt::Done(stat::of_path(None, path, links));
        }
        let since_ms = clock::coarse_ms();
        let now_ms = since_ms as u32;
        let key = self.policy.hash.of_bytes(path.as_os_str().as_bytes(), links as u64);
        if self.policy.names.is_fresh(key, now_ms, NAME_FRESH_MS) {
            let _guess = Guess::since(Operation::Stat, since_ms);
            self.policy.names.note(key, now_ms);
            tell(Operation::Stat, FileOutcome::Inline);
            return Attempt::Done(stat::of_path(None, path, links));
        }
        let found = match self.attempt(None, path, How { access: Access::Path, links }) {
            Attempt::Cold => return Attempt::Cold,
            Attempt::Done(found) => found,
        };
        let is_local = match &found {
            Ok(opened) => !opened.is_remote(),
            Err(_) => !self.policy.has_remote.load(Ordering::Relaxed),
        };
        if is_local {
            self.policy.names.note(key, now_ms);
        }
        Attempt::Done(found.map(|opened| *opened.stat()))
    }

    /// The status of the file at `path`, however long that takes. **Blocks.**
    ///
    /// # Errors
    /// As statx(2), EINVAL for a path with a NUL.
    pub fn stat_blocking(self, blocking: &Blocking, path: &Path, links: Links) -> io::Result<Stat> {
        let found = stat::of_path(None, path, links)?;
        if self.mode == Mode::Offload && self.policy.mounts.find(&found).class() == Class::Unknown {
            // Finds out the class of the mount, so that a loop may ask the next time.
            self.wait_for(blocking, None, path, How { access: Access::Path, links })?;
        }
        Ok(found)
    }

    #[inline]
    fn attempt(self, at: Option<&Opened>, path: &Path, how: How) -> Attempt<io::Result<Opened>> {
        if self.mode == Mode::Offload && faults::ask(Call::Attempt).is_err() {
            return Attempt::Cold;
        }
        let operation = if how.access == Access::Path { Operation::Stat } else { Operation::Open };
        let walk = match self.mode {
            Mode::Inline => Walk::Full,
            Mode::Offload if self.policy.may_try(at, path) => Walk::Cached,
            Mode::Offload => {
                tell(operation, FileOutcome::Offloaded);
                return Attempt::Cold;
            }
        };
        let found = open::open(at.map(AsFd::as_fd), path, how, walk);
        if walk == Walk::Cached
            && let Err(error) = &found
            && self.policy.is_no_answer(error)
        {
            tell(operation, FileOutcome::Cold);
            return Attempt::Cold;
        }
        let opened = found.and_then(|fd| self.look(fd));
        if let (Mode::Offload, Ok(opened)) = (self.mode, &opened) {
            match opened.class() {
                Class::Unknown => {
                    tell(operation, FileOutcome::Offloaded);
                    return Attempt::Cold;
                }
                Class::Remote => {
                    tell(operation, FileOutcome::WrongGuess);
                    self.policy.note_remote(at, path);
                }
                _ => {}
            }
        }
        tell(operation, FileOutcome::Inline);
        Attempt::Done(opened)
    }

    fn wait_for(self, blocking: &Blocking, at: Option<&Opened>, path: &Path, how: How) -> io::Result<Opened> {
        faults::ask(Call::Open)?;
        let fd = {
            let _opening = InFlight::new(&self.policy.opens);
            open::open(at.map(AsFd::as_fd), path, how, Walk::Full)?
        };
        let mut opened = self.look(fd)?;
        opened.learn_class(blocking)?;
        if opened.class() == Class::Remote {
            self.policy.note_remote(at, path);
        }
        Ok(opened)
    }

    #[inline]
    fn look(self, fd: OwnedFd) -> io::Result<Opened> {
        let stat = stat::of(fd.as_fd())?;
        Ok(Opened::new(self, fd, stat))
    }
}

/// The policy that all files share, unless they are apart.
static POLICY: Policy = Policy::new();

/// The state that all files of the process share.
#[derive(Debug)]
struct Policy {
    hash: Hasher,
    mounts: Mounts,
    /// Names that were found without a disk, or not found.
    names: Names<4096>,
    /// Directories on slow file systems.
    remote: Names<1024>,
    /// Parts of files that are in memory.
    ranges: Ranges,
    /// Whether `remote` has ever had an entry.
    has_remote: AtomicBool,
    /// The kernel, or a sandbox, has no openat2.
    no_cached_walk: AtomicBool,
    /// Pool threads that look up names, on whatever mount.
    opens: AtomicU32,
    /// Bytes that pool threads read for responses, and copies that these have.
    held: Holding,
    /// Effective user as far as it was asked for.
    euid: AtomicU32,
}

/// No user has this id.
const NOBODY_YET: u32 = u32::MAX;

impl Policy {
    const fn new() -> Self {
        Self {
            hash: Hasher::new(),
            mounts: Mounts::new(),
            names: Names::new(),
            remote: Names::new(),
            ranges: Ranges::new(),
            has_remote: AtomicBool::new(false),
            no_cached_walk: AtomicBool::new(false),
            opens: AtomicU32::new(0),
            held: Holding::new(),
            euid: AtomicU32::new(NOBODY_YET),
        }
    }

    /// Whether opening `path` may be tried on a loop.
    fn may_try(&self, at: Option<&Opened>, path: &Path) -> bool {
        if self.no_cached_walk.load(Ordering::Relaxed) || at.is_some_and(Opened::is_remote) {
            return false;
        }
        if !self.has_remote.load(Ordering::Relaxed) {
            return true;
        }
        !self.remote.is_fresh(self.directory_key(at, path), now_ms(), REMOTE_FRESH_MS)
    }

    fn note_remote(&self, at: Option<&Opened>, path: &Path) {
        self.remote.note(self.directory_key(at, path), now_ms());
        self.has_remote.store(true, Ordering::Relaxed);
    }

    /// The key of the directory of `path`, by its spelling.
    fn directory_key(&self, at: Option<&Opened>, path: &Path) -> u64 {
        let path = path.as_os_str().as_bytes();
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.hash.of_bytes(&path[..end], at.map_or(0, Opened::identity))
    }

    /// Whether an error of a cached walk says nothing about the file.
    fn is_no_answer(&self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN) => true,
            Some(Errno::NOSYS) => {
                self.no_cached_walk.store(true, Ordering::Relaxed);
                true
            }
            // A file system may say so, or a sandbox that does not know the call.
            Some(Errno::PERM) => {
                let how = How { access: Access::Path, ..How::default() };
                let root = open::open(None, Path::new("/"), how, Walk::Cached);
                let refused = root.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::PERM));
                self.no_cached_walk.fetch_or(refused, Ordering::Relaxed);
                refused
            }
            _ => false,
        }
    }

    /// Whether starting to read from a mount might wait for readers that are at it already.
    fn is_busy(&self, mount: &Mount, now_ms: u32) -> bool {
        self.opens.load(Ordering::Relaxed) >= BUSY_READS || mount.is_busy(now_ms)
    }

    /// Whether the process may ask for the cached pages of a file of `uid`.
    fn owns(&self, uid: u32) -> bool {
        let euid = match self.euid.load(Ordering::Relaxed) {
            NOBODY_YET => self.ask_euid(),
            known => known,
        };
        euid == 0 || euid == uid
    }

    fn ask_euid(&self) -> u32 {
        let euid = rustix::process::geteuid().as_raw();
        self.euid.store(euid, Ordering::Relaxed);
        euid
    }
}

/// Milliseconds for [`recent`]; they wrap around.
fn now_ms() -> u32 {
    clock::coarse_ms() as u32
}
