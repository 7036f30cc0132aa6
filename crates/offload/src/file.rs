//! File calls that may block, for pool threads: each takes a [`Blocking`]. Nothing is remembered here.
//!
//! An open never waits: with O_NONBLOCK a FIFO without a writer or a device cannot hold a pool
//! thread, and regular files do not care about the flag.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clearway_os::open::Links;
use clearway_os::stat::{self, Stat};
use rustix::fs::{Mode, OFlags, RawDir, Timespec, Timestamps};

use crate::Blocking;

/// What is read of a directory at once, bytes: some hundred names.
const DIRECTORY_BUFFER_BYTES: usize = 32 << 10;

/// What a path turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, a socket or a device, which a server of files does not read.
    Other,
}

impl Kind {
    /// The kind in `st_mode`.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => Self::Regular,
            rustix::fs::FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }

    /// The kind in what stat(2) says.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self::from(metadata.file_type())
    }
}

impl From<rustix::fs::FileType> for EntryKind {
    fn from(kind: rustix::fs::FileType) -> Self {
        match kind {
            rustix::fs::FileType::RegularFile => Self::Known(Kind::Regular),
            rustix::fs::FileType::Directory => Self::Known(Kind::Directory),
            rustix::fs::FileType::Symlink => Self::Link,
            rustix::fs::FileType::Unknown => Self::Unknown,
            _ => Self::Known(Kind::Other),
        }
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            kind if kind.is_file() => Self::Regular,
            kind if kind.is_dir() => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// An open file and what it is.
#[derive(Debug)]
pub struct Opened {
    /// Open for reading. Not to be read from if `kind` is not `Regular`.
    pub file: File,
    /// From fstat(2) of the open file, so that there is no race with the name.
    pub metadata: Metadata,
    /// What `metadata` says.
    pub kind: Kind,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Without the directory; any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// As far as the directory itself says.
    pub kind: EntryKind,
}

/// What a directory says of a name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// What it is.
    Known(Kind),
    /// A symbolic link.
    Link,
    /// Not every file system tells: stat(2) does.
    Unknown,
}

/// Opens for reading and says what it is, following symbolic links.
///
/// # Errors
/// As open(2) and fstat(2); EINVAL for a path with a NUL.
pub fn open(_: &Blocking, path: &Path) -> io::Result<Opened> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    Ok(Opened { kind: Kind::of(&metadata), file, metadata })
}

/// What is behind a path, following symbolic links.
///
/// # Errors
/// As stat(2).
pub fn metadata(_: &Blocking, path: &Path) -> io::Result<Metadata> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::metadata(path)
}

/// Reads up to `count` bytes from `offset`: fewer only at the end of the file.
///
/// # Errors
/// As pread(2), except EINTR.
pub fn read(_: &Blocking, file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut data = Vec::with_capacity(count);
    while data.len() < count {
        let at = offset.saturating_add(data.len() as u64);
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut data), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The vector may have had more room than was asked for.
    data.truncate(count);
    Ok(data)
}

/// The names in an open directory without `.` and `..`, in the file system's order, `limit` at most. From
/// where the descriptor stands, which is the beginning after it was opened.
///
/// # Errors
/// As getdents(2).
pub fn read_dir(_: &Blocking, directory: BorrowedFd<'_>, limit: usize) -> io::Result<Vec<Entry>> {
    let mut buf = Vec::with_capacity(DIRECTORY_BUFFER_BYTES);
    let mut names = RawDir::new(directory, buf.spare_capacity_mut());
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(entry) = names.next()
    {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(Entry { name: name.to_vec(), kind: entry.file_type().into() });
        }
    }
    Ok(entries)
}

/// What is behind a name in an open directory.
///
/// # Errors
/// As statx(2).
pub fn stat_at(_: &Blocking, directory: BorrowedFd<'_>, name: &Path, links: Links) -> io::Result<Stat> {
    stat::of_path(Some(directory), name, links)
}

/// The absolute path without symbolic links.
///
/// # Errors
/// As realpath(3).
pub fn realpath(_: &Blocking, path: &Path) -> io::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::canonicalize(path)
}

/// Creates or truncates a regular file for writing; new ones get `mode` less the umask.
///
/// # Errors
/// As open(2); ENXIO for a FIFO that nobody reads.
pub fn create(_: &Blocking, path: &Path, mode: u32) -> io::Result<File> {
    open_to_write(path, OFlags::TRUNC, mode)
}

/// Opens a file to append to, and creates it with `mode` less the umask.
///
/// # Errors
/// As open(2); ENXIO for a FIFO that nobody reads.
pub fn open_append(_: &Blocking, path: &Path, mode: u32) -> io::Result<File> {
    open_to_write(path, OFlags::APPEND, mode)
}

/// Writes all of `data` where the file stands, or at its end if it was opened to append.
///
/// # Errors
/// As write(2), except EINTR; some of the data may have been written.
pub fn write(_: &Blocking, mut file: &File, data: &[u8]) -> io::Result<()> {
    file.write_all(data)
}

/// Writes all of `data` at `offset`, wherever the file stands.
///
/// # Errors
/// As pwrite(2), except EINTR; some of the data may have been written.
pub fn write_at(_: &Blocking, file: &File, data: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(data, offset)
}

/// Makes a directory, with `mode` less the umask.
///
/// # Errors
/// As mkdir(2).
pub fn make_dir(_: &Blocking, path: &Path, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(mode))?)
}

/// Removes an empty directory.
///
/// # Errors
/// As rmdir(2).
pub fn remove_dir(_: &Blocking, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::rmdir(path)?)
}

/// Gives an open file its access rights, whatever the umask.
///
/// # Errors
/// As fchmod(2).
pub fn set_mode(_: &Blocking, file: &File, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

/// Sets when an open file was changed, and read, to full seconds since the epoch.
///
/// # Errors
/// As futimens(3).
pub fn set_modified(_: &Blocking, file: &File, seconds: i64) -> io::Result<()> {
    let at = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: at, last_modification: at })?)
}

/// Renames within a file system, replacing what is there.
///
/// # Errors
/// As rename(2).
pub fn rename(_: &Blocking, from: &Path, to: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::rename(from, to)
}

/// Removes a name that is not a directory's.
///
/// # Errors
/// As unlink(2).
pub fn unlink(_: &Blocking, path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::remove_file(path)
}

fn open_to_write(path: &Path, how: OFlags, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | how;
    Ok(File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?))
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A directory of the test's own, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("clearway-offload-{name}-{}", std::process::id()));
            #[expect(clippy::disallowed_methods, reason = "a test")]
            fs::create_dir_all(&path).expect("writable");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn opened_to_write(path: &Path) -> File {
        open_to_write(path, OFlags::empty(), 0).unwrap()
    }

    #[test]
    fn a_file_goes_through_its_life() {
        let (scratch, b) = (Scratch::new("life"), &Blocking::on_this_thread());
        let (first, second) = (scratch.0.join("first"), scratch.0.join("second"));
        write(b, &create(b, &first, 0o644).unwrap(), b"hello").unwrap();
        write(b, &open_append(b, &first, 0o644).unwrap(), b", world").unwrap();
        rename(b, &first, &second).unwrap();
        let opened = open(b, &second).unwrap();
        assert_eq!((opened.kind, opened.metadata.len()), (Kind::Regular, 12));
        assert_eq!(read(b, &opened.file, 0, 1 << 16).unwrap(), b"hello, world");
        assert_eq!(read(b, &opened.file, 7, 3).unwrap(), b"wor");
        assert_eq!(read(b, &opened.file, 12, 3).unwrap(), b"");
        assert_eq!(read(b, &opened.file, 0, 0).unwrap(), b"");
        write_at(b, &opened_to_write(&second), b"J", 0).unwrap();
        assert_eq!(read(b, &opened.file, 0, 2).unwrap(), b"Je");
        unlink(b, &second).unwrap();
        assert_eq!(open(b, &second).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(open(b, &scratch.0).unwrap().kind, Kind::Directory);
    }

    #[test]
    fn links_are_followed_and_resolved() {
        let (scratch, b) = (Scratch::new("links"), &Blocking::on_this_thread());
        let (file, link) = (scratch.0.join("file"), scratch.0.join("link"));
        create(b, &file, 0o600).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(open(b, &link).unwrap().kind, Kind::Regular);
        assert_eq!(realpath(b, &link).unwrap(), realpath(b, &file).unwrap());
    }

    #[test]
    fn a_directory_says_what_is_in_it() {
        let (scratch, b) = (Scratch::new("list"), &Blocking::on_this_thread());
        create(b, &scratch.0.join("file"), 0o600).unwrap();
        make_dir(b, &scratch.0.join("dir"), 0o700).unwrap();
        std::os::unix::fs::symlink("file", scratch.0.join("link")).unwrap();
        let list = |limit| {
            let mut list = read_dir(b, open(b, &scratch.0).unwrap().file.as_fd(), limit).unwrap();
            list.sort_by(|one, other| one.name.cmp(&other.name));
            list
        };
        let known = [EntryKind::Known(Kind::Directory), EntryKind::Known(Kind::Regular), EntryKind::Link];
        for (entry, (name, kind)) in
            list(10).iter().zip([&b"dir"[..], b"file", b"link"].into_iter().zip(known))
        {
            assert_eq!(entry.name, name);
            assert!(entry.kind == kind || entry.kind == EntryKind::Unknown, "{entry:?}");
        }
        assert_eq!([list(10).len(), list(2).len(), list(0).len()], [3, 2, 0]);
        let directory = open(b, &scratch.0).unwrap().file;
        let stat = |links| stat_at(b, directory.as_fd(), Path::new("link"), links).unwrap();
        assert_eq!(Kind::of_mode(stat(Links::Follow).mode), Kind::Regular);
        assert_eq!(Kind::of_mode(stat(Links::NotLast).mode), Kind::Other);
        let error = remove_dir(b, &scratch.0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        remove_dir(b, &scratch.0.join("dir")).unwrap();
        assert!(read_dir(b, open(b, &scratch.0.join("file")).unwrap().file.as_fd(), 1).is_err());
    }

    #[test]
    fn a_long_directory_is_read_to_its_end() {
        let (scratch, b) = (Scratch::new("long"), &Blocking::on_this_thread());
        for n in 0..1500 {
            create(b, &scratch.0.join(format!("{n:060}")), 0o600).unwrap();
        }
        let list = read_dir(b, open(b, &scratch.0).unwrap().file.as_fd(), usize::MAX).unwrap();
        let names: std::collections::BTreeSet<_> = list.into_iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), 1500);
    }

    #[test]
    fn rights_and_times_are_set() {
        let (scratch, b) = (Scratch::new("set"), &Blocking::on_this_thread());
        let path = scratch.0.join("file");
        let file = create(b, &path, 0o600).unwrap();
        set_mode(b, &file, 0o666).unwrap();
        set_modified(b, &file, 1_000_000_000).unwrap();
        let stat =
            stat_at(b, open(b, &scratch.0).unwrap().file.as_fd(), Path::new("file"), Links::Follow).unwrap();
        assert_eq!((stat.mode & 0o777, stat.modified.seconds), (0o666, 1_000_000_000));
    }

    #[test]
    fn a_fifo_holds_nobody() {
        let (scratch, b) = (Scratch::new("fifo"), &Blocking::on_this_thread());
        let fifo = scratch.0.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(open(b, &fifo).unwrap().kind, Kind::Other);
        assert_eq!(metadata(b, &fifo).map(|m| Kind::of(&m)).unwrap(), Kind::Other);
        assert_eq!(create(b, &fifo, 0o600).unwrap_err().raw_os_error(), Some(6), "ENXIO");
    }

    #[test]
    fn a_path_with_a_nul_is_an_error() {
        let b = &Blocking::on_this_thread();
        assert_eq!(open(b, Path::new("/tmp/a\0b")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
