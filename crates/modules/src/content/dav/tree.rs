//! Operations on files and whole directories: remove, copy, move, with nginx's messages in nginx's order.
//! Threads of the pool only. No directory stays open while those below it are worked on, so that the depth of
//! a tree costs no descriptors; the length of a path bounds it.
//!
//! Where a tree is removed links are removed themselves. nginx goes through them, and empties what they
//! point to.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clearway_base::log::Level as LogLevel;
use clearway_offload::Blocking;
use clearway_offload::moving::{Copying, Failed, Journal, directory_mode, errno, shown, times};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, utimensat};
use rustix::io::Errno as Code;

/// Failures in WebDAV's terms: a line and a status.
pub(super) trait Refusals {
    /// An error of the client's, which comes to a status.
    fn say(&mut self, line: String, status: u16) -> u16;

    /// A call that failed, and the status by the reason.
    fn refuse(&mut self, call: &str, path: &Path, error: Code, not_found: u16) -> u16;

    fn could_not_be_created(&mut self, path: &Path, error: Code);
}

impl Refusals for Journal {
    fn say(&mut self, line: String, status: u16) -> u16 {
        self.add(LogLevel::Error, Some(line));
        status
    }

    fn refuse(&mut self, call: &str, path: &Path, error: Code, not_found: u16) -> u16 {
        let (level, status) = match error {
            Code::NOENT | Code::NOTDIR | Code::NAMETOOLONG => (LogLevel::Error, not_found),
            Code::ACCESS | Code::PERM => (LogLevel::Error, 403),
            Code::EXIST => (LogLevel::Error, 405),
            Code::NOSPC => (LogLevel::Crit, 507),
            _ => (LogLevel::Crit, 500),
        };
        self.fail(level, call, path, error);
        status
    }

    fn could_not_be_created(&mut self, path: &Path, error: Code) {
        self.add(LogLevel::Error, Some(format!("\"{}\" could not be created {}", shown(path), errno(error))));
    }
}

/// lstat(2).
pub(super) fn look(_: &Blocking, path: &Path) -> Result<Stat, Code> {
    rustix::fs::lstat(path)
}

pub(super) fn is_of(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Whether a directory is behind a path, links followed; `None` where nothing is found.
pub(super) fn is_directory(_: &Blocking, path: &Path) -> Option<bool> {
    rustix::fs::stat(path).ok().map(|stat| is_of(&stat, FileType::Directory))
}

/// mkdir(2).
pub(super) fn make_directory(_: &Blocking, path: &Path, mode: u32) -> Result<(), Code> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(mode))
}

/// Removes a file or a link; the error is a status.
pub(super) fn remove_file(_: &Blocking, path: &Path, journal: &mut Journal) -> Result<(), u16> {
    rustix::fs::unlink(path).map_err(|error| journal.refuse("unlink()", path, error, 404))
}

/// Removes a directory with everything in it; the error is a status. What cannot be removed stays, with all
/// that it is in.
pub(super) fn remove_directory(blocking: &Blocking, path: &Path, journal: &mut Journal) -> Result<(), u16> {
    empty(blocking, path, Entrance::Followed, journal).map_err(|Failed| 500_u16)?;
    rustix::fs::rmdir(path).map_err(|error| journal.refuse("rmdir()", path, error, 404))
}

/// Removes what is in a directory. The error is that there was no looking into it.
fn empty(blocking: &Blocking, path: &Path, entrance: Entrance, journal: &mut Journal) -> Result<(), Failed> {
    for (name, kind) in names(blocking, path, entrance, journal)? {
        let path = path.join(name);
        if kind == FileType::Directory {
            // It is removed even so, if it is empty.
            let _ = empty(blocking, &path, Entrance::Itself, journal);
            if let Err(error) = rustix::fs::rmdir(&path) {
                journal.refuse("rmdir()", &path, error, 0);
            }
        } else if let Err(error) = rustix::fs::unlink(&path) {
            journal.refuse("unlink()", &path, error, 0);
        }
    }
    Ok(())
}

/// The treatment of a link that stands for a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entrance {
    Followed,
    /// The path is no link.
    Itself,
}

/// The names in a directory and what they are, links not followed.
fn names(
    _: &Blocking,
    path: &Path,
    entrance: Entrance,
    journal: &mut Journal,
) -> Result<Vec<(PathBuf, FileType)>, Failed> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if entrance == Entrance::Itself {
        flags |= OFlags::NOFOLLOW;
    }
    let mut fail = |call, error| {
        journal.fail(LogLevel::Crit, call, path, error);
        Failed
    };
    let opened = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new);
    let mut directory = opened.map_err(|error| fail("opendir()", error))?;
    let mut names = Vec::new();
    while let Some(entry) = directory.read() {
        let entry = entry.map_err(|error| fail("readdir()", error))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let fd = directory.fd().map_err(|error| fail("readdir()", error))?;
                let stat = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW);
                stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
            }
            kind => kind,
        };
        names.push((PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())), kind));
    }
    Ok(names)
}

/// Copies what is in a directory into another one, links followed, as far as that goes: what fails is left
/// out. The error is that there was no looking into it.
pub(super) fn copy_tree(
    blocking: &Blocking,
    from: &Path,
    to: &Path,
    journal: &mut Journal,
) -> Result<(), Failed> {
    for (name, _) in names(blocking, from, Entrance::Followed, journal)? {
        let (from, to) = (from.join(&name), to.join(&name));
        let stat = match rustix::fs::stat(&from) {
            Ok(stat) => stat,
            Err(error) => {
                journal.fail(LogLevel::Crit, "stat()", &from, error);
                continue;
            }
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let _ = Copying::of(&stat).run(blocking, &from, &to, journal);
            }
            FileType::Directory => {
                if let Err(error) = make_directory(blocking, &to, directory_mode(stat.st_mode & 0o777)) {
                    journal.refuse("mkdir()", &to, error, 0);
                }
                let _ = copy_tree(blocking, &from, &to, journal);
                if let Err(error) = utimensat(CWD, &to, &times(stat.st_mtime), AtFlags::empty()) {
                    journal.fail(LogLevel::Alert, "utimes()", &to, error);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
