//! An open file: its status, its file system, and which parts of it are believed to be in the page cache. Any
//! thread; functions that take a [`Blocking`] are for pool threads. `warmth` has the side of loops, `fetch`
//! that of pool threads.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use clearway_os::page_cache::{self, Wait};
use clearway_os::stat::{self, Stat};

use super::mounts::{Class, Mount};
use super::recent::{BLOCK_BYTES, Evidence, Trust};
use super::{Files, Mode};
use crate::Blocking;
use crate::file::Kind;

/// A removed file of at least this size takes long to free when its last descriptor is closed, bytes.
const DEAR_TO_CLOSE_BYTES: u64 = 1 << 20;

/// An open file or directory.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    pub(super) stat: Stat,
    pub(super) files: Files,
    pub(super) mount: &'static Mount,
    /// The last time that a pool thread had to wait for the disk, ms; 0: never.
    pub(super) cold_ms: AtomicU32,
}

impl Opened {
    pub(super) fn new(files: Files, fd: OwnedFd, stat: Stat) -> Self {
        Self { mount: files.policy.mounts.find(&stat), fd, stat, files, cold_ms: AtomicU32::new(0) }
    }

    /// The file's status when it was opened.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The kind of file, from [`Opened::stat`].
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of_mode(self.stat.mode)
    }

    /// Whether the file is on a network or on a file system in user space, where any call may wait for
    /// another machine or process. Pool threads read such a file into buffers; a loop never sends from it.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.class() == Class::Remote && self.files.mode == Mode::Offload
    }

    /// Whether closing it may take long: close(2) may wait for a remote file system, or free the blocks of a
    /// large file that was removed meanwhile. A pool has to drop such a file.
    #[must_use]
    pub fn is_dear_to_close(&self) -> bool {
        if self.files.mode == Mode::Inline {
            return false;
        }
        let is_removed = || stat::of(self.as_fd()).is_ok_and(|stat| stat.links == 0);
        self.is_remote() || (self.stat.size >= DEAR_TO_CLOSE_BYTES && is_removed())
    }

    /// The file's status now, by fstat(2), which does not wait unless the file is remote.
    ///
    /// # Errors
    /// Those of fstat(2).
    #[inline]
    pub fn stat_again(&self) -> io::Result<Stat> {
        // The cheaper call does not tell the mount. That does not change while the file is open.
        Ok(Stat { mount: self.stat.mount, ..stat::of_open(self.as_fd())? })
    }

    /// Whether the file is on a local file system, as far as is known: stat(2) is up to date, and its
    /// contents may stay in the page cache.
    #[must_use]
    pub fn is_local(&self) -> bool {
        if self.class() == Class::Unknown
            && self.files.mode == Mode::Inline
            && let Ok(magic) = stat::filesystem_magic(self.as_fd())
        {
            self.mount.set_class(Class::of_magic(magic));
        }
        matches!(self.class(), Class::Memory | Class::Telling | Class::Mute)
    }

    /// Has the file read past the page cache from now on (`O_DIRECT`); then only [`Opened::read_direct`] may
    /// read it.
    ///
    /// # Errors
    /// Those of fcntl(2): EINVAL if the file system cannot do that.
    pub fn set_direct(&self) -> io::Result<()> {
        page_cache::bypass(self.as_fd())
    }

    /// Tells the kernel that the file will be read from its beginning to its end.
    ///
    /// # Errors
    /// Those of posix_fadvise(2).
    pub fn expect_sequential(&self) -> io::Result<()> {
        page_cache::expect_sequential(self.as_fd())
    }

    /// Reads `count` bytes from `offset` past the page cache, fewer only at the end of the file. Reads are
    /// aligned to `alignment`, a power of two. **Blocks.**
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read_direct(
        &self,
        _: &Blocking,
        offset: u64,
        count: usize,
        alignment: u32,
    ) -> io::Result<Vec<u8>> {
        let _reading = self.mount.reading();
        page_cache::read_direct(self.as_fd(), offset, count, alignment)
    }

    pub(super) fn class(&self) -> Class {
        self.mount.class()
    }

    /// Finds out the kind of file system, unless it is known. **Blocks.**
    pub(super) fn learn_class(&mut self, _: &Blocking) -> io::Result<()> {
        if self.class() == Class::Unknown {
            self.mount.set_class(Class::of_magic(stat::filesystem_magic(self.as_fd())?));
        }
        Ok(())
    }

    /// A number that tells open files apart.
    pub(super) fn identity(&self) -> u64 {
        self.stat.mount ^ self.stat.device.rotate_left(32) ^ self.stat.inode.rotate_left(17)
    }
}

/// The parts of the file that are believed to be in the page cache.
impl Opened {
    /// Whether a read from this disk might have to wait for others that are under way.
    pub(super) fn is_busy(&self, now_ms: u32) -> bool {
        self.files.policy.is_busy(self.mount, now_ms)
    }

    /// Reads until `count` bytes are there or the file ends.
    #[inline]
    pub(super) fn read_fully(&self, buf: &mut Vec<u8>, offset: u64, count: usize) -> io::Result<usize> {
        let mut read = 0;
        while read < count {
            let at = offset.saturating_add(read as u64);
            match page_cache::read_into(self.as_fd(), buf, at, count - read, Wait::Disk) {
                Ok(0) => break,
                Ok(size) => read += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Remembers evidence about a range. Blocks that it covers in part only are left out, except the last one
    /// of the file.
    pub(super) fn remember(&self, range: &Range<u64>, evidence: Evidence, now_ms: u32) {
        let start = range.start.next_multiple_of(BLOCK_BYTES);
        let end = if range.end >= self.stat.size { range.end } else { range.end / BLOCK_BYTES * BLOCK_BYTES };
        if start < end {
            self.files.policy.ranges.note(self.key(), start..end, evidence, now_ms);
        }
    }

    pub(super) fn is_trusted(&self, range: &Range<u64>, trust: Trust, now_ms: u32) -> bool {
        self.files.policy.ranges.is_trusted(self.key(), range.clone(), trust, now_ms)
    }

    fn key(&self) -> impl Fn(u64) -> u64 {
        let (hash, identity) = (&self.files.policy.hash, self.identity());
        move |block| hash.of_place(identity, block)
    }

    /// The range of `count` bytes from `offset`, cut off at the end of the file.
    pub(super) fn within(&self, offset: u64, count: u64) -> Range<u64> {
        offset..offset.saturating_add(count).min(self.stat.size).max(offset)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
