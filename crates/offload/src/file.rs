//! Calls on files that always block, for pool threads: each takes a [`Blocking`]. Nothing is remembered
//! here; what a loop may try first is in [`crate::files`], but for [`read_cached`].

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clearway_os::page_cache::{self, Wait};
use rustix::fs::FileType;

use crate::Blocking;
use crate::faults::{self, Call};

/// The kind of object with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed, a FIFO, a socket or a device: what a server of files does
    /// not read.
    Other,
}

impl Kind {
    /// The kind in `st_mode`.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// Reads up to `count` bytes from `offset`: fewer only at the end of the file.
///
/// # Errors
/// As pread(2), except EINTR.
pub fn read(_: &Blocking, file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    faults::ask(Call::Read)?;
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

/// Reads up to `count` bytes from `offset` that are in memory, for a loop: what was written just now. `None`
/// where there are none, or the file system cannot tell: that is for a pool thread.
#[must_use]
pub fn read_cached(file: &File, offset: u64, count: usize) -> Option<Vec<u8>> {
    faults::ask(Call::Attempt).ok()?;
    let mut data = Vec::new();
    let read = page_cache::read_into(file.as_fd(), &mut data, offset, count, Wait::Never);
    read.is_ok_and(|size| size > 0).then_some(data)
}

/// Writes all of these pieces, one behind the other, from `offset` on: with one call where there are few.
///
/// # Errors
/// As pwritev(2), except EINTR; part of it may be written then.
pub fn write(_: &Blocking, file: &File, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
    /// Pieces of one call; the system takes 1,024.
    const PIECES_MAX: usize = 64;
    faults::ask(Call::Write)?;
    let mut at = offset;
    for group in pieces.chunks(PIECES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens a regular file for reading; its length, bytes.
///
/// # Errors
/// As open(2) and fstat(2); `InvalidInput` for what is no regular file.
pub fn open_regular(_: &Blocking, path: &Path) -> io::Result<(File, u64)> {
    use rustix::fs::{Mode, OFlags};
    // Opening a file without reader or writer, such as a FIFO, does not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((file, metadata.len()))
}

/// The absolute path without symbolic links.
///
/// # Errors
/// As realpath(3).
pub fn realpath(_: &Blocking, path: &Path) -> io::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::canonicalize(path)
}

/// Removes a name that is not a directory's.
///
/// # Errors
/// As unlink(2).
pub fn unlink(_: &Blocking, path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool thread")]
    fs::remove_file(path)
}

#[cfg(not(loom))]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use super::*;

    /// A directory of the test's own, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("clearway-offload-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("writable");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_part_of_a_file_is_read_as_far_as_it_goes() {
        let (scratch, b) = (Scratch::new("read"), &Blocking::on_this_thread());
        let path = scratch.0.join("file");
        fs::write(&path, b"hello, world").unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(read(b, &file, 0, 1 << 16).unwrap(), b"hello, world");
        assert_eq!(read(b, &file, 7, 3).unwrap(), b"wor");
        assert_eq!([read(b, &file, 12, 3).unwrap(), read(b, &file, 0, 0).unwrap()], [b"", b""]);
        unlink(b, &path).unwrap();
        assert_eq!(unlink(b, &path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(b, &file, 0, 5).unwrap(), b"hello", "the name is gone, the file is not");
    }

    #[test]
    fn links_are_resolved() {
        let (scratch, b) = (Scratch::new("links"), &Blocking::on_this_thread());
        let (file, link) = (scratch.0.join("file"), scratch.0.join("link"));
        fs::write(&file, b"").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(realpath(b, &link).unwrap(), realpath(b, &file).unwrap());
        assert!(realpath(b, Path::new("/tmp/a\0b")).is_err());
    }

    #[test]
    fn kinds_are_in_the_mode() {
        let kinds = [0o100_644, 0o040_755, 0o120_777, 0o010_600].map(Kind::of_mode);
        assert_eq!(kinds, [Kind::Regular, Kind::Directory, Kind::Other, Kind::Other]);
    }
}
