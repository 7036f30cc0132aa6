//! A file of a cache is opened, and compared with what it should hold. Pool threads.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use clearway_offload::files::{Attempt, Files, Mode, Opened};
use clearway_offload::{Blocking, Pool, Task};
use clearway_os::open::{How, Links};

use super::cache::{Cache, Whereabouts};
use super::disk::{DiskError, Root};
use super::metrics::BROKEN;
use super::object::{Found, Identity, Miss, Wanted, file_of};
use crate::header::StoredHeader;
use crate::index::Stored;
use crate::key::Digest;
use crate::seal::{self, Soundness};

/// Files up to this size are read as wholes, bytes: bodies of 64 KiB behind heads of the usual size.
const WHOLE_MAX_BYTES: u64 = (64 + 8) * 1024;

impl Cache {
    /// Opens an object's file, reads what stands before its body (of a small file all) and compares it with
    /// the key. What there is a copy of in memory, or what the kernel has in memory, is there at once; else
    /// it is one job in the disk's pool, or in `pool` (`aio threads=NAME`).
    pub fn open(self: &Arc<Self>, wanted: Wanted, pool: Option<&Arc<Pool>>) -> Task<Result<Found, Miss>> {
        let number = match self.whereabouts(wanted.digest) {
            Whereabouts::Disk(number) | Whereabouts::Perhaps(number) => number,
            Whereabouts::Nowhere(_) => return Task::ready(Err(Miss::Absent)),
            Whereabouts::Out => return Task::ready(Err(Miss::Out)),
        };
        let disk = Arc::clone(&self.kept.disks[usize::from(number)]);
        let copied = self.kept.copies.find(self.kept.number, &wanted);
        let at_once = || self.try_read(&*disk.root_if_open()?, number, &wanted);
        if let Some(found) = copied.or_else(at_once) {
            return Task::ready(Ok(found));
        }
        let cache = Arc::clone(self);
        let read = move |blocking: &_, root: &_| cache.read(blocking, root, number, &wanted);
        disk.submit(pool, read, |done| match done {
            Ok(found) => found,
            Err(DiskError::Out(_)) => Err(Miss::Out),
            Err(failed) => Err(Miss::Failed(failed)),
        })
    }

    /// The job of [`Cache::open`].
    pub(crate) fn read(
        &self,
        blocking: &Blocking,
        root: &Root,
        disk: u8,
        wanted: &Wanted,
    ) -> Result<Result<Found, Miss>, DiskError> {
        let name = self.conf.levels.relative(wanted.digest);
        let how = How { links: Links::NotLast, ..How::default() };
        let files = Files::new(Mode::Offload);
        let opened = match files.open_at_blocking(blocking, &root.opened, &name, how) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget_file(wanted.digest, disk);
                return Ok(Err(Miss::Absent));
            }
            Err(error) => {
                return Err(DiskError::new("open()", self.path_of(disk, wanted.digest), error));
            }
        };
        let data = opened
            .read(blocking, 0, self.count_of(&opened, wanted))
            .map_err(|error| DiskError::new("read()", self.path_of(disk, wanted.digest), error))?;
        let allocated_bytes = opened.stat().blocks * 512;
        let mut found = self.compare(opened, data.into(), disk, wanted);
        match &mut found {
            Ok(found) => {
                if !self.knows(found) {
                    let header = found.header(&wanted.key);
                    self.publish(wanted.digest, file_of(&found.identity, &header, allocated_bytes));
                }
                self.kept.copies.keep(self.kept.number, &wanted.key, found);
            }
            Err(Miss::Broken { .. }) => {
                BROKEN.increment();
                self.remove_broken(blocking, root, disk, wanted.digest)?;
            }
            Err(_) => {}
        }
        Ok(found)
    }

    /// Whether the file holds what it should.
    fn compare(&self, opened: Opened, data: Bytes, disk: u8, wanted: &Wanted) -> Result<Found, Miss> {
        let (digest, path) = (wanted.digest, self.path_of(disk, wanted.digest));
        let identity = Identity { digest, disk, inode: opened.stat().inode, length: opened.stat().size };
        let header = match StoredHeader::read(&data, &wanted.key, self.head_max_bytes(wanted)) {
            Ok(header) => header,
            Err(why) => return Err(Miss::Unusable { path, why }),
        };
        let body_start = usize::from(header.body_start);
        let Some(body_bytes) = identity.length.checked_sub(u64::from(header.body_start)) else {
            return Err(Miss::Broken { path });
        };
        let Some(beginning) = data.get(..body_start) else { return Err(Miss::Broken { path }) };
        let soundness = seal::check(beginning, body_bytes);
        let is_whole = data.len() as u64 == identity.length;
        let is_broken = match soundness {
            Soundness::Broken => true,
            Soundness::Sealed(seal) => is_whole && crc32fast::hash(&data[body_start..]) != seal.body_crc,
            Soundness::Unsealed => false,
        };
        if is_broken {
            return Err(Miss::Broken { path });
        }
        let head_start = StoredHeader::head_start(&wanted.key);
        let (path, opened) = (path.into(), Some(opened));
        Ok(Found { identity, path, opened, data, head_start, body_start, soundness })
    }

    /// The same without waiting, on a loop: what is not in memory, or not in order, is for the job.
    pub(crate) fn try_read(&self, root: &Root, disk: u8, wanted: &Wanted) -> Option<Found> {
        let name = self.conf.levels.relative(wanted.digest);
        let how = How { links: Links::NotLast, ..How::default() };
        let Attempt::Done(Ok(opened)) = Files::new(Mode::Offload).open_at(&root.opened, &name, how) else {
            return None;
        };
        let (count, mut data) = (self.count_of(&opened, wanted), Vec::new());
        let Attempt::Done(Ok(_)) = opened.read_now(&mut data, 0, count) else { return None };
        let mut found = self.compare(opened, data.into(), disk, wanted).ok()?;
        // What the index does not know yet it is told by the job.
        if !self.knows(&found) {
            return None;
        }
        self.kept.copies.keep(self.kept.number, &wanted.key, &mut found);
        Some(found)
    }

    /// How much is read of a file at once, bytes.
    fn count_of(&self, opened: &Opened, wanted: &Wanted) -> usize {
        let length = opened.stat().size;
        let count = if length <= WHOLE_MAX_BYTES { length } else { self.head_max_bytes(wanted) as u64 };
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Room for everything up to the body: what the index says of it, else what the request has and the line
    /// that was added to the head.
    fn head_max_bytes(&self, wanted: &Wanted) -> usize {
        let known = self.index().get(wanted.digest).map(|object| object.stored);
        match known {
            Some(Stored::File(file)) if file.body_start > 0 => usize::from(file.body_start),
            _ => wanted.head_max_bytes.saturating_add(seal::LINE_BYTES),
        }
    }

    /// Whether the index knows this file.
    fn knows(&self, found: &Found) -> bool {
        let Identity { digest, disk, inode, .. } = found.identity;
        let known = self.index().get(digest).map(|object| object.stored);
        matches!(known, Some(Stored::File(file)) if (file.disk, file.inode) == (disk, inode))
    }

    /// Removes a file that is of no use, and forgets it.
    pub(crate) fn remove_broken(
        &self,
        blocking: &Blocking,
        root: &Root,
        disk: u8,
        digest: Digest,
    ) -> Result<(), DiskError> {
        let name = self.conf.levels.relative(digest);
        self.forget_file(digest, disk);
        match root.directory.remove_file(blocking, &name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DiskError::new("unlink()", self.path_of(disk, digest), error))
            }
            _ => Ok(()),
        }
    }

    /// The job of [`Cache::remove`].
    pub(crate) fn remove_now(
        &self,
        blocking: &Blocking,
        root: &Root,
        identity: &Identity,
    ) -> Result<(), DiskError> {
        let name = self.conf.levels.relative(identity.digest);
        match root.directory.stat(blocking, &name) {
            Ok(stat) if stat.inode == identity.inode => {
                self.remove_broken(blocking, root, identity.disk, identity.digest)
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget_file(identity.digest, identity.disk);
                Ok(())
            }
            Err(error) => Err(DiskError::new("stat()", self.path_of(identity.disk, identity.digest), error)),
        }
    }
}
