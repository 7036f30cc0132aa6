//! A file of a cache is opened, and compared with what it should hold. Pool threads.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use clearway_offload::files::{Attempt, Files, Mode, Opened};
use clearway_offload::{Blocking, Pool, Task};
use clearway_os::open::{How, Links};
use clearway_os::stat::Stat;

use super::cache::{Cache, Whereabouts};
use super::disk::{DiskError, Root};
use super::metrics::{BROKEN, CHECKED};
use super::object::{Found, Handle, Identity, Miss, Wanted, file_of};
use super::stamp;
use crate::header::StoredHeader;
use crate::index::Stored;
use crate::key::Digest;
use crate::seal::{self, Soundness};

/// Files up to this size are read as wholes, bytes: bodies of 64 KiB behind heads of the usual size.
const WHOLE_MAX_BYTES: u64 = (64 + 8) * 1024;
/// A body up to this size that is in doubt is compared with its checksum while its request waits, bytes;
/// requests for larger ones do without them meanwhile.
const CHECK_MAX_BYTES: u64 = 256 << 20;
/// Bytes that are compared at a time.
const PART_BYTES: usize = 256 * 1024;

/// Whether a file is known to be as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Sure,
    /// The file has to be compared with its checksum.
    Doubtful,
}

impl Cache {
    /// Opens an object's file, reads what stands before its body (of a small file all) and compares it with
    /// the key. What there is a copy of in memory, or what the kernel has in memory, is there at once; else
    /// it is one job in the disk's pool, or in `pool` (`aio threads=NAME`).
    pub fn open(self: &Arc<Self>, wanted: Wanted, pool: Option<&Arc<Pool>>) -> Task<Result<Found, Miss>> {
        match self.whereabouts(wanted.digest) {
            Whereabouts::Disk(number) | Whereabouts::Perhaps(number) => self.open_on(number, wanted, pool),
            Whereabouts::Nowhere(_) => Task::ready(Err(Miss::Absent)),
            Whereabouts::Out => Task::ready(Err(Miss::Out)),
        }
    }

    /// As [`open`](Self::open), for an object that is on this disk according to the index.
    pub fn open_on(
        self: &Arc<Self>,
        number: u8,
        wanted: Wanted,
        pool: Option<&Arc<Pool>>,
    ) -> Task<Result<Found, Miss>> {
        let Some(disk) = self.disk(number) else { return Task::ready(Err(Miss::Absent)) };
        let copied = self.kept.copies.find(self.kept.number, &wanted);
        let at_once = || self.try_read(&*disk.root_if_open()?, number, &wanted);
        if let Some(found) = copied.or_else(at_once) {
            return Task::ready(Ok(found));
        }
        let (cache, via) = (Arc::clone(self), pool.cloned());
        let read = move |blocking: &_, root: &_| {
            let found = cache.read(blocking, root, number, &wanted);
            if matches!(found, Ok(Err(Miss::Doubtful))) {
                cache.begin_check(number, wanted, via.as_ref());
            }
            found
        };
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
        stamp::learn(blocking);
        let stat = *opened.stat();
        let trust = if self.is_sure(disk, &stat, wanted.digest) { Trust::Sure } else { Trust::Doubtful };
        let data = opened
            .read(blocking, 0, self.count_of(&opened, wanted))
            .map_err(|error| DiskError::new("read()", self.path_of(disk, wanted.digest), error))?;
        let compared = self.compare(opened, data.into(), disk, wanted);
        let mut found = match compared {
            Ok(doubtful) if trust == Trust::Doubtful => self.settle(blocking, doubtful, CHECK_MAX_BYTES)?,
            compared => compared,
        };
        match &mut found {
            Ok(found) => {
                if trust == Trust::Doubtful {
                    let header = found.header(&wanted.key);
                    self.publish(wanted.digest, file_of(&found.identity, &header, &stat, stamp::of(&stat)));
                }
                self.kept.copies.keep((self.kept.number, &self.kept.disks), &wanted.key, found);
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
        // That costs little, and a file may be changed between two calls.
        let is_checked = data.len() as u64 == identity.length;
        let is_broken = match soundness {
            Soundness::Broken => true,
            Soundness::Sealed(seal) => is_checked && crc32fast::hash(&data[body_start..]) != seal.body_crc,
            Soundness::Unsealed => false,
        };
        if is_broken {
            return Err(Miss::Broken { path });
        }
        let head_start = StoredHeader::head_start(&wanted.key);
        assert!(head_start <= body_start && body_start <= data.len(), "the head stands in what was read");
        let head = Bytes::from(seal::without(beginning, head_start));
        let (path, opened) = (path.into(), Some(Handle::Own(opened)));
        Ok(Found { identity, path, opened, data, head, body_start, soundness, made: None })
    }

    /// Opens a file on a loop without waiting. `None`: a part of it is not in memory, or something is wrong;
    /// a job has to open it.
    pub(crate) fn try_read(&self, root: &Root, disk: u8, wanted: &Wanted) -> Option<Found> {
        let name = self.conf.levels.relative(wanted.digest);
        let how = How { links: Links::NotLast, ..How::default() };
        let Attempt::Done(Ok(opened)) = Files::new(Mode::Offload).open_at(&root.opened, &name, how) else {
            return None;
        };
        // A file that is in doubt, or not in the index, is for the job.
        if !self.is_sure(disk, opened.stat(), wanted.digest) {
            return None;
        }
        let (count, mut data) = (self.count_of(&opened, wanted), Vec::new());
        let Attempt::Done(Ok(_)) = opened.read_now(&mut data, 0, count) else { return None };
        let mut found = self.compare(opened, data.into(), disk, wanted).ok()?;
        self.kept.copies.keep((self.kept.number, &self.kept.disks), &wanted.key, &mut found);
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

    /// Whether the index knows this file as it is: written, or compared with its checksum, by a process that
    /// uses the same index or has written it down.
    pub(crate) fn is_sure(&self, disk: u8, stat: &Stat, digest: Digest) -> bool {
        let known = self.index().get(digest).map(|object| object.stored);
        let Some(Stored::File(file)) = known else { return false };
        file.disk == disk && Some(file.stamp) == stamp::of(stat)
    }

    /// Compares a file that is in doubt with its checksum, if there is more of it than was read, up to so
    /// many bytes.
    fn settle(
        &self,
        blocking: &Blocking,
        found: Found,
        bytes_max: u64,
    ) -> Result<Result<Found, Miss>, DiskError> {
        let Soundness::Sealed(seal) = found.soundness else { return Ok(Ok(found)) };
        CHECKED.increment();
        if found.data.len() as u64 == found.identity.length {
            return Ok(Ok(found));
        }
        if found.body_bytes() > bytes_max {
            return Ok(Err(Miss::Doubtful));
        }
        let Some(opened) = found.file() else { return Ok(Ok(found)) };
        let (mut crc, mut at) = (crc32fast::Hasher::new(), found.body_start());
        while at < found.identity.length {
            let count = usize::try_from(found.identity.length - at).unwrap_or(usize::MAX);
            let part = opened
                .read(blocking, at, count.min(PART_BYTES))
                .map_err(|error| DiskError::new("read()", found.path.to_path_buf(), error))?;
            if part.is_empty() {
                break;
            }
            crc.update(&part);
            at += part.len() as u64;
        }
        let is_sound = at == found.identity.length && crc.finalize() == seal.body_crc;
        Ok(if is_sound { Ok(found) } else { Err(Miss::Broken { path: found.path.to_path_buf() }) })
    }

    /// Has a large file compared with its checksum while requests do without it; one of a disk at a time.
    fn begin_check(self: &Arc<Self>, number: u8, wanted: Wanted, via: Option<&Arc<Pool>>) {
        let Some(disk) = self.disk(number).filter(|disk| disk.begin_check()).cloned() else { return };
        let (cache, of) = (Arc::clone(self), Arc::clone(&disk));
        let check = move |blocking: &Blocking, root: &Root| cache.check(blocking, root, number, &wanted);
        let end = move |done: Result<(), DiskError>| {
            // A request that finds the same says so.
            drop(done);
            of.end_check();
        };
        disk.submit_anyway(via, check, end).detach();
    }

    fn check(&self, blocking: &Blocking, root: &Root, disk: u8, wanted: &Wanted) -> Result<(), DiskError> {
        let name = self.conf.levels.relative(wanted.digest);
        let failed = |call| move |error| DiskError::new(call, self.path_of(disk, wanted.digest), error);
        let how = How { links: Links::NotLast, ..How::default() };
        let opened = Files::new(Mode::Offload)
            .open_at_blocking(blocking, &root.opened, &name, how)
            .map_err(failed("open()"))?;
        let stat = *opened.stat();
        let data = opened.read(blocking, 0, self.count_of(&opened, wanted)).map_err(failed("read()"))?;
        let Ok(found) = self.compare(opened, data.into(), disk, wanted) else {
            return Ok(());
        };
        match self.settle(blocking, found, u64::MAX)? {
            Ok(found) => {
                let header = found.header(&wanted.key);
                self.publish(wanted.digest, file_of(&found.identity, &header, &stat, stamp::of(&stat)));
                Ok(())
            }
            Err(_) => {
                BROKEN.increment();
                self.remove_broken(blocking, root, disk, wanted.digest)
            }
        }
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
                self.note_left_behind();
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
