//! An open file: what it is, on what it lies, what is remembered of it. Any thread; what takes a
//! [`Blocking`] is for pool threads. How loops ask is in `warmth`, what pool threads do for them in `fetch`.

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

/// Removed files of this size take long to go when the last descriptor is closed, bytes.
const DEAR_TO_CLOSE_BYTES: u64 = 1 << 20;

/// An open file or directory.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    pub(super) stat: Stat,
    pub(super) files: Files,
    pub(super) mount: &'static Mount,
    /// When a pool thread had to wait for its disk last; 0: never.
    pub(super) cold_ms: AtomicU32,
}

impl Opened {
    pub(super) fn new(files: Files, fd: OwnedFd, stat: Stat) -> Self {
        Self { mount: files.policy.mounts.find(&stat), fd, stat, files, cold_ms: AtomicU32::new(0) }
    }

    /// What it was when it was opened.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// What [`Opened::stat`] says.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of_mode(self.stat.mode)
    }

    /// Whether it lies where others are asked for every call: nothing of it stays in memory for sure, so
    /// it is read by pool threads into buffers and never sent by a loop itself.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.class() == Class::Remote && self.files.mode == Mode::Offload
    }

    /// Whether dropping it may take long: the close(2) that a remote file waits for, or that frees the
    /// blocks of a large file which was removed meanwhile. Such a one is for a pool to drop.
    #[must_use]
    pub fn is_dear_to_close(&self) -> bool {
        if self.files.mode == Mode::Inline {
            return false;
        }
        let is_removed = || stat::of(self.as_fd()).is_ok_and(|stat| stat.links == 0);
        self.is_remote() || (self.stat.size >= DEAR_TO_CLOSE_BYTES && is_removed())
    }

    /// What it is now: fstat(2), which does not wait where the file is not remote.
    ///
    /// # Errors
    /// As fstat(2).
    #[inline]
    pub fn stat_again(&self) -> io::Result<Stat> {
        // The cheaper call does not tell the mount, which is the same as long as the file is open.
        Ok(Stat { mount: self.stat.mount, ..stat::of_open(self.as_fd())? })
    }

    /// Whether what stat(2) says of it is the truth and its contents stay in memory: no file of a network
    /// or of another process, as far as is known.
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

    /// Has it read past the page cache from here on (`O_DIRECT`): by [`Opened::read_direct`] only.
    ///
    /// # Errors
    /// As fcntl(2): EINVAL where the file system cannot do that.
    pub fn set_direct(&self) -> io::Result<()> {
        page_cache::bypass(self.as_fd())
    }

    /// Tells the kernel that it will be read from its beginning to its end.
    ///
    /// # Errors
    /// As posix_fadvise(2).
    pub fn expect_sequential(&self) -> io::Result<()> {
        page_cache::expect_sequential(self.as_fd())
    }

    /// Reads up to `count` bytes from `offset` past the page cache, in places and sizes that are multiples
    /// of `alignment`, a power of two: fewer only at the end of the file. **Blocks.**
    ///
    /// # Errors
    /// As pread(2).
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

    /// Asks what file system this is, unless that is known. **Blocks.**
    pub(super) fn learn_class(&mut self, _: &Blocking) -> io::Result<()> {
        if self.class() == Class::Unknown {
            self.mount.set_class(Class::of_magic(stat::filesystem_magic(self.as_fd())?));
        }
        Ok(())
    }

    /// Tells open files apart.
    pub(super) fn identity(&self) -> u64 {
        self.stat.mount ^ self.stat.device.rotate_left(32) ^ self.stat.inode.rotate_left(17)
    }
}

/// What is remembered.
impl Opened {
    /// Whether starting to read it might wait for readers that are at it already.
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

    /// Of blocks that are not covered to their end, or the file's, nothing is known.
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

    /// The part of `count` bytes from `offset` that the file has.
    pub(super) fn within(&self, offset: u64, count: u64) -> Range<u64> {
        offset..offset.saturating_add(count).min(self.stat.size).max(offset)
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
