//! The directory is read: files that the index does not know are added. It is the truth behind what was
//! written down, takes as long as `loader_files`, `loader_threshold` and `loader_sleep` say, and stops
//! nobody.
//!
//! Files with another name than that of an object in its place are left alone, with two exceptions: what is
//! shorter than a header, as in nginx, and temporary files beside that nothing was written to for
//! [`TEMP_IDLE_S`], which a process has left that was killed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clearway_base::log::Level;
use clearway_offload::Blocking;
use clearway_offload::directory::Entries;
use clearway_offload::file::Kind;
use clearway_os::clock;
use clearway_os::stat::Stat;
use rustix::io::Errno;

use super::cache::{Cache, now_s};
use super::disk::{DiskError, Root};
use super::metrics::LOADED;
use crate::header::{HEADER_BYTES, Unusable};
use crate::index::{BLOCK_BYTES, File, Stored};
use crate::key::Digest;

/// A temporary file that was not written to for so long belongs to nobody, seconds.
const TEMP_IDLE_S: u64 = 600;
/// Length of the suffix of a temporary file's name: a point and ten digits.
const TEMP_SUFFIX: usize = 11;

/// How far the directory of a disk was read.
#[derive(Default)]
pub(crate) struct Walk {
    /// Directories that are being read, the outermost first.
    open: Vec<(PathBuf, Entries)>,
    has_begun: bool,
}

/// The result of a part of the walk.
pub(crate) enum Walked {
    /// There is more.
    Further(Walk),
    /// That was all.
    Whole,
}

impl Cache {
    /// Reads on, for as long as `loader_files` and `loader_threshold` say.
    pub(crate) fn walk(
        &self,
        blocking: &Blocking,
        root: &Root,
        disk: u8,
        mut walk: Walk,
    ) -> Result<Walked, DiskError> {
        let failed = |name: &Path, error| {
            let path = self.conf.disks[usize::from(disk)].path.join(name);
            DiskError::new("opendir()", path, error)
        };
        if !walk.has_begun {
            let entries = root.directory.entries(blocking, None);
            walk.open.push((PathBuf::new(), entries.map_err(|error| failed(Path::new(""), error))?));
            walk.has_begun = true;
        }
        let (pace, begin_ms) = (self.conf.loader, clock::coarse_ms());
        let mut files = 0;
        while let Some((parent, entries)) = walk.open.last_mut() {
            let name = match entries.next(blocking) {
                Some(Ok(name)) => parent.join(name),
                // A directory that cannot be read on is left as it is, as in nginx.
                Some(Err(_)) | None => {
                    walk.open.pop();
                    continue;
                }
            };
            if let Some(characters) = self.conf.levels.characters().nth(walk.open.len() - 1) {
                if is_folder(&name, characters) {
                    match root.directory.entries(blocking, Some(&name)) {
                        Ok(entries) => walk.open.push((name, entries)),
                        Err(error) if is_no_directory(&error) => {}
                        Err(error) => self.say(Level::Crit, &failed(&name, error).to_string()),
                    }
                }
                continue;
            }
            self.look_at(blocking, root, disk, &name)?;
            files += 1;
            if files >= pace.files || clock::coarse_ms() >= begin_ms + pace.threshold_ms {
                return Ok(Walked::Further(walk));
            }
        }
        Ok(Walked::Whole)
    }

    /// A file in the place where objects are.
    fn look_at(&self, blocking: &Blocking, root: &Root, disk: u8, name: &Path) -> Result<(), DiskError> {
        if let Some(digest) = self.conf.levels.digest_of(name) {
            return self.look_at_object(blocking, root, disk, (digest, name));
        }
        let Some(bytes) = name.as_os_str().as_bytes().len().checked_sub(TEMP_SUFFIX) else { return Ok(()) };
        let (object, suffix) = name.as_os_str().as_bytes().split_at(bytes);
        let is_temp = suffix[0] == b'.' && suffix[1..].iter().all(u8::is_ascii_digit);
        if !is_temp || self.conf.levels.digest_of(Path::new(OsStr::from_bytes(object))).is_none() {
            return Ok(());
        }
        let Ok(stat) = root.directory.stat(blocking, name) else { return Ok(()) };
        let idle_s = now_s().saturating_sub(u64::try_from(stat.modified.seconds).unwrap_or(0));
        if idle_s >= TEMP_IDLE_S {
            // If the file is gone by now, another server has removed it.
            let _ = root.directory.remove_file(blocking, name);
        }
        Ok(())
    }

    fn look_at_object(
        &self,
        blocking: &Blocking,
        root: &Root,
        disk: u8,
        (digest, name): (Digest, &Path),
    ) -> Result<(), DiskError> {
        let stat = match root.directory.stat(blocking, name) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(DiskError::new("stat()", self.path_of(disk, digest), error)),
        };
        if Kind::of_mode(stat.mode) != Kind::Regular {
            return Ok(());
        }
        if stat.size < HEADER_BYTES as u64 {
            let (path, why) = (self.path_of(disk, digest), Unusable::TooSmall);
            self.say(why.level(), &format!("cache file \"{}\" {why}", path.display()));
            return self.remove_broken(blocking, root, disk, digest);
        }
        self.add(disk, digest, &stat);
        Ok(())
    }

    /// A file that the index does not know counts as used now, as in nginx.
    fn add(&self, disk: u8, digest: Digest, stat: &Stat) {
        let known = self.index().get(digest);
        if known.is_some_and(|object| matches!(object.stored, Stored::File(_))) {
            return;
        }
        let blocks = (stat.blocks * 512).div_ceil(BLOCK_BYTES);
        let file = File {
            disk,
            valid_s: 0,
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            body_start: 0,
            inode: stat.inode,
            stored_s: u64::try_from(stat.modified.seconds).unwrap_or(0),
            stamp: 0,
        };
        LOADED.increment();
        self.publish(digest, file);
    }
}

/// Whether it may be the folder of a level.
fn is_folder(name: &Path, characters: usize) -> bool {
    let name = name.file_name().map_or(&b""[..], OsStr::as_bytes);
    name.len() == characters && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_no_directory(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
