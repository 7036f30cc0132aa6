//! Writes a file of a cache. It gets its final name only when it is complete. Pool threads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clearway_offload::temp_file::{self, Naming};
use clearway_offload::{Blocking, Pool, Task, file};
use clearway_os::open::Links;
use clearway_os::stat;

use super::cache::Cache;
use super::conf::TempPlace;
use super::disk::{Disk, DiskError, Others, Root};
use super::growing::Growing;
use super::metrics::{NO_ROOM, STORED};
use super::object::{Identity, file_of};
use super::stamp;
use crate::header::{HEADER_BYTES, StoredHeader};
use crate::key::{Digest, Key};
use crate::seal;

/// Access rights of a file: only the owner reads and writes it.
const MODE: u32 = 0o600;
/// The most names that are tried for a temporary file.
const ATTEMPTS_MAX: u32 = 100;

/// A response that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Its key.
    pub key: &'a Key,
    /// The file's digest: the key's, or that of a variant.
    pub digest: Digest,
    /// The fixed header of the file; its `body_start` is computed here.
    pub header: StoredHeader<'a>,
    /// The response's head as received, with the empty line at its end.
    pub head: &'a [u8],
    /// Where the file is until it is complete.
    pub temp: &'a Arc<TempPlace>,
}

/// The largest offset of a body that nginx's format can hold.
const BODY_START_MAX: usize = u16::MAX as usize;

/// A file that is being written. It is created with the first write, and removed if this is dropped before it
/// is complete.
pub struct Filling {
    cache: Arc<Cache>,
    disk: Arc<Disk>,
    number: u8,
    via: Option<Arc<Pool>>,
    key: Key,
    digest: Digest,
    /// The bytes in front of the body.
    beginning: Vec<u8>,
    place: Arc<TempPlace>,
    made: Option<(Growing, Temp)>,
    body_crc: crc32fast::Hasher,
    written: u64,
    published: Option<Identity>,
}

/// Whether more of a body follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// More bytes of the body may follow.
    Some,
    /// The body is complete: the file gets its seal (checksum) and its name, and is entered in the index.
    Last,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filling").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// The present name of a file.
enum Temp {
    /// A temporary name in the disk's directory, relative to it.
    Beside(PathBuf),
    /// A temporary name elsewhere, absolute.
    Elsewhere(PathBuf),
    /// The file has its final name.
    Published,
}

/// The result of updating the header of a file whose response the upstream has validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The header was written.
    Written,
    /// Another file has the name by now; it was not touched.
    Changed,
    /// The file does not exist any more.
    Gone,
}

impl Cache {
    /// Begins the file of a response on the disk that it belongs on; nothing is written yet. `None` if the
    /// head is too long for the format, or no disk takes the file. Jobs run in `pool`, or else in the disk's
    /// pool.
    #[must_use]
    pub fn begin(self: &Arc<Self>, what: &NewFile<'_>, pool: Option<&Arc<Pool>>) -> Option<Filling> {
        let beginning = beginning_of(what)?;
        let number = self.disk_for_new(what.digest)?;
        Some(Filling {
            cache: Arc::clone(self),
            disk: Arc::clone(&self.kept.disks[usize::from(number)]),
            number,
            via: pool.cloned(),
            key: what.key.clone(),
            digest: what.digest,
            beginning,
            place: Arc::clone(what.temp),
            made: None,
            body_crc: crc32fast::Hasher::new(),
            written: 0,
            published: None,
        })
    }

    fn make_temp(
        &self,
        blocking: &Blocking,
        root: &Root,
        place: &TempPlace,
        (number, digest): (u8, Digest),
    ) -> Result<(File, PathBuf, Temp), DiskError> {
        if let TempPlace::Below { directory, levels } = place {
            let (file, path) = temp_file::create(blocking, directory, levels, MODE, Naming::Lasting)?;
            return Ok((file, path.clone(), Temp::Elsewhere(path)));
        }
        let (name, path) = (self.conf.levels.relative(digest), self.path_of(number, digest));
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            let suffix = format!(".{:010}", temp_file::next_number());
            let with = |path: &Path| PathBuf::from([path.as_os_str(), suffix.as_ref()].concat_os());
            attempts_left -= 1;
            match root.directory.create_file(blocking, &with(&name), MODE) {
                Ok(file) => return Ok((file, with(&path), Temp::Beside(with(&name)))),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts_left > 0 => {}
                Err(error) => return Err(DiskError::new("open()", with(&path), error)),
            }
        }
    }

    /// Writes the header of a file anew after the upstream has validated the response, if the name still
    /// belongs to that file.
    pub fn refresh(
        self: &Arc<Self>,
        identity: Identity,
        key: &Key,
        header: &StoredHeader<'_>,
        pool: Option<&Arc<Pool>>,
    ) -> Task<Result<Refreshed, DiskError>> {
        let Some(disk) = self.disk(identity.disk).cloned() else {
            return Task::ready(Ok(Refreshed::Gone));
        };
        let mut written = Vec::new();
        header.write(key, &mut written);
        let (cache, key) = (Arc::clone(self), key.clone());
        let rewrite = move |blocking: &Blocking, root: &Root| {
            cache.rewrite(blocking, root, (&identity, &key), &written)
        };
        disk.submit(pool, rewrite, |done| done)
    }

    fn rewrite(
        &self,
        blocking: &Blocking,
        root: &Root,
        (identity, key): (&Identity, &Key),
        written: &[u8],
    ) -> Result<Refreshed, DiskError> {
        let failed = |call, error| DiskError::new(call, self.path_of(identity.disk, identity.digest), error);
        let name = self.conf.levels.relative(identity.digest);
        let file = match root.directory.open_to_change(blocking, &name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Refreshed::Gone),
            Err(error) => return Err(failed("open()", error)),
        };
        let now = stat::of(file.as_fd()).map_err(|error| failed("fstat()", error))?;
        if (now.inode, now.size) != (identity.inode, identity.length) {
            return Ok(Refreshed::Changed);
        }
        let present = file::read(blocking, &file, 0, written.len()).map_err(|e| failed("read()", e))?;
        let (is, becomes) =
            (StoredHeader::read(&present, key, usize::MAX), StoredHeader::read(written, key, usize::MAX));
        let (Ok(is), Ok(becomes)) = (is, becomes) else { return Ok(Refreshed::Changed) };
        assert!(written.len() >= HEADER_BYTES, "the header is written as a whole");
        if (is.last_modified, is.body_start) != (becomes.last_modified, becomes.body_start) {
            return Ok(Refreshed::Changed);
        }
        let was_sure = self.is_sure(identity.disk, &now, identity.digest);
        file.write_all_at(&written[..HEADER_BYTES], 0).map_err(|error| failed("write()", error))?;
        let after = stat::of(file.as_fd()).map_err(|error| failed("fstat()", error))?;
        // A file that was in doubt stays so until it is compared with its checksum.
        let stamp = if was_sure { stamp::of(&after) } else { None };
        self.publish(identity.digest, file_of(identity, &becomes, &after, stamp));
        Ok(Refreshed::Written)
    }
}

/// The bytes in front of the body: fixed header, key, head with room for the seal. `None` if they are too
/// long.
fn beginning_of(what: &NewFile<'_>) -> Option<Vec<u8>> {
    let mut head = what.head.to_vec();
    seal::reserve(&mut head);
    let body_start = StoredHeader::head_start(what.key) + head.len();
    if body_start > BODY_START_MAX {
        return None;
    }
    let mut beginning = Vec::with_capacity(body_start);
    let header = StoredHeader { body_start: body_start as u16, ..what.header };
    header.write(what.key, &mut beginning);
    beginning.extend_from_slice(&head);
    assert_eq!(beginning.len(), body_start, "the header says where the body begins");
    Some(beginning)
}

impl Filling {
    /// The handle by which followers read the file while it grows; `None` before the first write.
    #[must_use]
    pub fn growing(&self) -> Option<&Growing> {
        self.made.as_ref().map(|(growing, _)| growing)
    }

    /// Length of the file so far, bytes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The identity of the file, once it has its final name.
    #[must_use]
    pub fn published(&self) -> Option<Identity> {
        self.published
    }

    /// Appends to the body, in one job, which returns this object. If it fails the file is removed.
    pub fn add(mut self, pieces: Vec<Bytes>, part: Part) -> Task<Result<Self, DiskError>> {
        debug_assert!(self.published.is_none(), "nothing is added to a file that others may have");
        let (disk, via) = (Arc::clone(&self.disk), self.via.clone());
        let add = move |blocking: &Blocking, root: &Root| match self.add_now(blocking, root, &pieces, part) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.note_failure(root, &error);
                Err(error)
            }
        };
        disk.submit(via.as_ref(), add, |done| done)
    }

    fn add_now(
        &mut self,
        blocking: &Blocking,
        root: &Root,
        pieces: &[Bytes],
        part: Part,
    ) -> Result<(), DiskError> {
        self.write(blocking, root, pieces, part)?;
        if part == Part::Last {
            // The disk's directory may have been opened anew since the job began.
            let root_now = self.disk.root_if_open();
            self.publish(blocking, root_now.as_deref().unwrap_or(root))?;
        }
        Ok(())
    }

    /// If the file system is full, no new files are begun there for a moment. If it is the disk's file
    /// system, and the object is not larger than half of the cache, other objects are evicted.
    fn note_failure(&self, root: &Root, error: &DiskError) {
        if !error.is_of_room() {
            return;
        }
        let device = root.opened.stat().device;
        let is_of_disk = match &*self.place {
            TempPlace::Beside => true,
            TempPlace::Below { directory, .. } => {
                stat::of_path(None, directory, Links::Follow).is_ok_and(|stat| stat.device == device)
            }
        };
        let is_large = self.written > self.cache.bytes() / 2;
        self.disk.note_full(if is_of_disk && !is_large { Others::Go } else { Others::Stay });
        NO_ROOM.increment();
        self.cache.kept.alarm.ring();
    }

    fn write(
        &mut self,
        blocking: &Blocking,
        root: &Root,
        pieces: &[Bytes],
        part: Part,
    ) -> Result<(), DiskError> {
        for piece in pieces {
            self.body_crc.update(piece);
        }
        let added: usize = pieces.iter().map(Bytes::len).sum();
        let start = self.beginning.len() as u64;
        let body_bytes = self.written.saturating_sub(start) + added as u64;
        let seal = match part {
            Part::Some => None,
            Part::Last => seal::close(&self.beginning, self.body_crc.clone().finalize(), body_bytes),
        };
        if let Some((text, at)) = &seal {
            assert!(at + text.len() <= self.beginning.len(), "the seal lies before the body");
            self.beginning[*at..at + text.len()].copy_from_slice(text);
        }
        let is_new = self.make(blocking, root)?;
        let begin = if is_new { &self.beginning[..] } else { &[] };
        let all: Vec<&[u8]> = std::iter::once(begin).chain(pieces.iter().map(|piece| &piece[..])).collect();
        self.write_at(blocking, self.written, &all)?;
        if let (false, Some((text, at))) = (is_new, &seal) {
            self.write_at(blocking, *at as u64, &[text])?;
        }
        let growing = self.growing().filter(|_| added > 0);
        match (part, growing) {
            (Part::Some, Some(growing)) => growing.recent.set(start + body_bytes - added as u64, pieces),
            (Part::Last, Some(growing)) => growing.recent.clear(),
            (_, None) => {}
        }
        assert!(self.written <= start + body_bytes, "a file only grows");
        self.written = start + body_bytes;
        Ok(())
    }

    /// Creates the file unless that is done. Returns whether it was created.
    fn make(&mut self, blocking: &Blocking, root: &Root) -> Result<bool, DiskError> {
        if self.made.is_some() {
            return Ok(false);
        }
        let where_to = (self.number, self.digest);
        let (file, path, temp) = match self.cache.make_temp(blocking, root, &self.place, where_to) {
            // The directory may have been replaced by another one.
            Err(error) if error.is_absent() => {
                let root = self.disk.reopen(blocking)?;
                self.cache.make_temp(blocking, &root, &self.place, where_to)?
            }
            made => made?,
        };
        let growing = Growing {
            file: Arc::new(file),
            path: path.into(),
            disk: Arc::clone(&self.disk),
            via: self.via.clone(),
            beginning: Bytes::copy_from_slice(&self.beginning),
            recent: Arc::default(),
        };
        self.made = Some((growing, temp));
        Ok(true)
    }

    fn publish(&mut self, blocking: &Blocking, root: &Root) -> Result<(), DiskError> {
        assert!(self.published.is_none(), "a file gets its name once");
        self.rename(blocking, root)?;
        let now = stat::of(self.file().as_fd()).map_err(|error| self.failed("fstat()", error))?;
        let (digest, disk) = (self.digest, self.number);
        let identity = Identity { digest, disk, inode: now.inode, length: now.size };
        let header = StoredHeader::read(&self.beginning, &self.key, usize::MAX).expect("as it was made");
        stamp::learn(blocking);
        self.cache.publish(digest, file_of(&identity, &header, &now, stamp::of(&now)));
        STORED.increment();
        debug_assert_eq!(identity.length, self.written, "the file is as long as what was written");
        self.published = Some(identity);
        Ok(())
    }

    fn rename(&mut self, blocking: &Blocking, root: &Root) -> Result<(), DiskError> {
        let name = self.cache.conf.levels.relative(self.digest);
        let renamed = match self.made.as_ref().map(|(_, temp)| temp) {
            Some(Temp::Beside(temp)) => root.directory.rename(blocking, temp, &name),
            Some(Temp::Elsewhere(path)) => root.directory.move_in(blocking, path, &name),
            Some(Temp::Published) | None => Ok(()),
        };
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.copy_in(blocking, root, &name)?
            }
            Err(error) => return Err(self.failed("rename()", error)),
            Ok(()) => {}
        }
        if let Some((_, temp)) = &mut self.made {
            *temp = Temp::Published;
        }
        Ok(())
    }

    /// Copies a temporary file from another file system into the cache's directory, and renames the copy.
    fn copy_in(&mut self, blocking: &Blocking, root: &Root, name: &Path) -> Result<(), DiskError> {
        const PART_BYTES: usize = 256 * 1024;
        let suffix = format!(".{:010}", temp_file::next_number());
        let beside = PathBuf::from([name.as_os_str(), suffix.as_ref()].concat_os());
        let path = self.disk.path().join(&beside);
        let copy = root
            .directory
            .create_file(blocking, &beside, MODE)
            .map_err(|error| DiskError::new("open()", path, error))?;
        let copied = (0..self.written).step_by(PART_BYTES).try_for_each(|offset| {
            let part = file::read(blocking, self.file(), offset, PART_BYTES)?;
            copy.write_all_at(&part, offset)
        });
        let renamed = copied.and_then(|()| root.directory.rename(blocking, &beside, name));
        if let Err(error) = renamed {
            let _ = root.directory.remove_file(blocking, &beside);
            return Err(self.failed("rename()", error));
        }
        if let Some((growing, temp)) = &mut self.made {
            if let Temp::Elsewhere(path) = temp {
                // Followers may still read the temporary file by its descriptor; only its name is removed.
                let _ = file::unlink(blocking, path);
            }
            growing.file = Arc::new(copy);
        }
        Ok(())
    }

    fn file(&self) -> &File {
        &self.made.as_ref().expect("made with the first that was written").0.file
    }

    fn write_at(&self, blocking: &Blocking, at: u64, pieces: &[&[u8]]) -> Result<(), DiskError> {
        file::write(blocking, self.file(), at, pieces).map_err(|error| self.failed("pwritev()", error))
    }

    fn failed(&self, call: &'static str, error: io::Error) -> DiskError {
        let path = self.growing().map_or_else(PathBuf::new, |growing| growing.path.to_path_buf());
        DiskError::new(call, path, error)
    }
}

impl Temp {
    fn remove(&self, blocking: &Blocking, root: &Root) -> io::Result<()> {
        match self {
            Self::Beside(name) => root.directory.remove_file(blocking, name),
            Self::Elsewhere(path) => file::unlink(blocking, path),
            Self::Published => Ok(()),
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let temp = match self.made.take() {
            None | Some((_, Temp::Published)) => return,
            Some((_, temp)) => temp,
        };
        let cache = Arc::clone(&self.cache);
        let remove = move |blocking: &Blocking, root: &Root| {
            if temp.remove(blocking, root).is_err() {
                cache.note_left_behind();
            }
            Ok(())
        };
        self.disk.submit_anyway(self.via.as_ref(), remove, |_| ()).detach();
    }
}

/// Joins names without a separator.
trait ConcatOs {
    fn concat_os(&self) -> std::ffi::OsString;
}

impl ConcatOs for [&std::ffi::OsStr; 2] {
    fn concat_os(&self) -> std::ffi::OsString {
        let mut whole = self[0].to_os_string();
        whole.push(self[1]);
        whole
    }
}
