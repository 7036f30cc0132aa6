//! The entries of a directory, sorted as nginx shows them: directories first, then by the bytes of their
//! names. Read on a thread of the pool; afterwards plain data, in two blocks of memory whatever their number.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::path::Path;

use clearway_offload::Blocking;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno as Code;

/// Entries that could not be looked at are remembered for the log up to this number.
const PROBLEMS_MAX: usize = 100;

/// The kind of an entry, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Other,
}

/// An entry as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: Kind,
    /// Seconds since the epoch.
    pub(super) modified: i64,
    /// Bytes.
    pub(super) size: u64,
}

/// The failure of a listing.
#[derive(Debug)]
pub(super) enum Problem {
    Open(io::Error),
    Read(io::Error),
    /// An entry could not be looked at.
    Stat {
        call: &'static str,
        name: Vec<u8>,
        error: io::Error,
    },
}

/// The entries of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// All names, one behind the other.
    names: Vec<u8>,
    records: Vec<Record>,
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Record {
    name_start: usize,
    name_len: u16,
    kind: Kind,
    modified: i64,
    size: u64,
}

impl Record {
    fn name(&self) -> Range<usize> {
        self.name_start..self.name_start + usize::from(self.name_len)
    }
}

impl Listing {
    /// Whether the directory can be read, and nothing of what is in it.
    ///
    /// # Errors
    /// [`Problem::Open`].
    pub(super) fn probe(_: &Blocking, path: &Path) -> Result<Self, Problem> {
        open(path).map(|_| Self::default())
    }

    /// All entries but those whose names begin with a dot.
    ///
    /// # Errors
    /// The list would not be complete. Entries that are gone by now, or that we may not look at, are left
    /// out without that.
    pub(super) fn read(_: &Blocking, path: &Path) -> Result<Self, Problem> {
        let mut directory = open(path)?;
        let mut listing = Self::default();
        while let Some(entry) = directory.read() {
            let entry = entry.map_err(|error| Problem::Read(error.into()))?;
            if !entry.file_name().to_bytes().starts_with(b".") {
                listing.add(&directory, entry.file_name())?;
            }
        }
        let Self { names, records, .. } = &mut listing;
        records.sort_unstable_by_key(|record| (record.kind != Kind::Directory, &names[record.name()]));
        Ok(listing)
    }

    fn add(&mut self, directory: &Dir, name: &CStr) -> Result<(), Problem> {
        let bytes = name.to_bytes();
        match look(directory, name) {
            Ok(stat) => {
                let name_start = self.names.len();
                self.names.extend_from_slice(bytes);
                self.records.push(Record {
                    name_start,
                    name_len: u16::try_from(bytes.len()).expect("a name has 255 bytes at most"),
                    kind: kind(&stat),
                    modified: stat.st_mtime,
                    size: u64::try_from(stat.st_size).unwrap_or(0),
                });
            }
            // nginx gives the whole list up for an entry that has just been removed.
            Err((call, error @ (Code::ACCESS | Code::NOENT))) => {
                if self.problems.len() < PROBLEMS_MAX {
                    self.problems.push(Problem::Stat { call, name: bytes.into(), error: error.into() });
                }
            }
            Err((call, error)) => {
                return Err(Problem::Stat { call, name: bytes.into(), error: error.into() });
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn entry(&self, index: usize) -> Entry<'_> {
        let record = &self.records[index];
        Entry {
            name: &self.names[record.name()],
            kind: record.kind,
            modified: record.modified,
            size: record.size,
        }
    }
}

fn open(path: &Path) -> Result<Dir, Problem> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new);
    opened.map_err(|error| Problem::Open(error.into()))
}

/// The status of an entry; for a link that leads nowhere, that of the link.
fn look(directory: &Dir, name: &CStr) -> Result<Stat, (&'static str, Code)> {
    let fd = directory.fd().map_err(|error| ("stat()", error))?;
    match rustix::fs::statat(fd, name, AtFlags::empty()) {
        Err(Code::NOENT | Code::LOOP) => {
            rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| ("lstat()", error))
        }
        looked => looked.map_err(|error| ("stat()", error)),
    }
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        _ => Kind::Other,
    }
}

#[cfg(test)]
impl Listing {
    /// A list of what a test says.
    pub(super) fn of(entries: &[(&[u8], Kind, i64, u64)]) -> Self {
        let mut listing = Self::default();
        for &(name, kind, modified, size) in entries {
            let (name_start, name_len) = (listing.names.len(), name.len() as u16);
            listing.names.extend_from_slice(name);
            listing.records.push(Record { name_start, name_len, kind, modified, size });
        }
        listing
    }
}
