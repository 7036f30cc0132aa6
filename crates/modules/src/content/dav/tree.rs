//! What is done with files and whole directories: removed, copied, moved, with nginx's messages in nginx's
//! order. Threads of the pool only. No directory stays open while those below it are worked on, so that the
//! depth of a tree costs no descriptors; the length of a path bounds it.
//!
//! Where a tree is removed links are removed themselves. nginx goes through them, and empties what they
//! point to.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_http::{Request, Verbatim};
use clearway_offload::{Blocking, temp_file};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, futimens, utimensat,
};
use rustix::io::Errno as Code;

/// Lines of one request that are kept for the log.
const LINES_MAX: usize = 1000;
/// What is copied at once, bytes.
const COPY_BYTES: usize = 64 * 1024;

/// Something was not done, and that is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// What a job has to say to the error log.
#[derive(Debug, Default)]
pub(super) struct Journal {
    lines: Vec<(LogLevel, String)>,
    left_out: u64,
}

impl Journal {
    pub(super) fn add(&mut self, level: LogLevel, line: Option<String>) {
        let Some(line) = line else { return };
        if self.lines.len() < LINES_MAX {
            self.lines.push((level, line));
        } else {
            self.left_out += 1;
        }
    }

    /// An error of the client's, which comes to a status.
    pub(super) fn say(&mut self, line: String, status: u16) -> u16 {
        self.add(LogLevel::Error, Some(line));
        status
    }

    /// A call that failed.
    pub(super) fn fail(&mut self, level: LogLevel, call: &str, path: &Path, error: Code) {
        self.add(level, Some(format!("{call} \"{}\" failed {}", shown(path), errno(error))));
    }

    /// The same, as WebDAV sees it: the status by the reason.
    pub(super) fn refuse(&mut self, call: &str, path: &Path, error: Code, not_found: u16) -> u16 {
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

    pub(super) fn could_not_be_created(&mut self, path: &Path, error: Code) {
        self.add(LogLevel::Error, Some(format!("\"{}\" could not be created {}", shown(path), errno(error))));
    }

    /// Writes all of it to the log of a request.
    pub(super) fn write(self, request: &Request<'_>) {
        for (level, line) in &self.lines {
            request.log(*level, format_args!("{line}"));
        }
        if self.left_out > 0 {
            let left_out = self.left_out;
            request.log(LogLevel::Error, format_args!("{left_out} more messages were left out"));
        }
    }
}

/// A path in a message.
pub(super) fn shown(path: &Path) -> impl fmt::Display {
    Verbatim(path.as_os_str().as_bytes())
}

/// A reason in a message.
pub(super) fn errno(error: Code) -> String {
    Errno(&error.into()).to_string()
}

/// The access rights of a directory that holds files with `access`.
pub(super) fn directory_mode(access: u32) -> u32 {
    access | (access & 0o444) >> 2
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

/// Sets the access rights of an open file; `path` is for the message.
pub(super) fn set_mode(
    _: &Blocking,
    file: &File,
    path: &Path,
    mode: u32,
    journal: &mut Journal,
) -> Result<(), Failed> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(|error| {
        journal.fail(LogLevel::Crit, "chmod()", path, error);
        Failed
    })
}

/// Sets when an open file was changed, seconds since the epoch.
pub(super) fn set_time(
    _: &Blocking,
    file: &File,
    path: &Path,
    modified: i64,
    journal: &mut Journal,
) -> Result<(), Failed> {
    futimens(file, &times(modified)).map_err(|error| {
        journal.fail(LogLevel::Crit, "utimes()", path, error);
        Failed
    })
}

fn times(modified: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
    }
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

/// What is done with a link that stands for a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entrance {
    Followed,
    /// It is none.
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

/// What is made on the way when a file gets another path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathRights {
    /// The access rights of directories that are made where there are none.
    pub(super) directories: Option<u32>,
    /// The access rights of a copy, if not those of the file.
    pub(super) file: Option<u32>,
    /// When the copy was changed, if not when the file was.
    pub(super) modified: Option<i64>,
}

/// Gives a file another path, in place of what is there; on another file system by way of a copy.
pub(super) fn rename(
    blocking: &Blocking,
    from: &Path,
    to: &Path,
    rights: &PathRights,
    journal: &mut Journal,
) -> Result<(), Failed> {
    let mut renamed = rustix::fs::rename(from, to);
    if renamed == Err(Code::NOENT)
        && let Some(mode) = rights.directories
    {
        make_path(to, mode, journal)?;
        renamed = rustix::fs::rename(from, to);
    }
    match renamed {
        Ok(()) => Ok(()),
        Err(Code::XDEV) => carry_over(blocking, from, to, rights, journal),
        Err(error) => {
            fail_rename(LogLevel::Crit, from, to, error, journal);
            Err(Failed)
        }
    }
}

fn fail_rename(level: LogLevel, from: &Path, to: &Path, error: Code, journal: &mut Journal) {
    let (from, to) = (shown(from), shown(to));
    journal.add(level, Some(format!("rename() \"{from}\" to \"{to}\" failed {}", errno(error))));
}

/// Makes the directories above a file. As in nginx one that may not be made is an error only if nothing
/// below it is there.
fn make_path(file: &Path, mode: u32, journal: &mut Journal) -> Result<(), Failed> {
    let bytes = file.as_os_str().as_bytes();
    let mut refused = None;
    for (at, _) in bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
        let directory = Path::new(std::ffi::OsStr::from_bytes(&bytes[..at]));
        match rustix::fs::mkdir(directory, Mode::from_raw_mode(mode)) {
            Ok(()) => {}
            Err(Code::EXIST) => refused = None,
            Err(Code::ACCESS) => refused = Some((file, Code::ACCESS)),
            Err(error) => {
                journal.fail(LogLevel::Crit, "mkdir()", directory, error);
                return Err(Failed);
            }
        }
    }
    let Some((path, error)) = refused else { return Ok(()) };
    journal.fail(LogLevel::Crit, "mkdir()", path, error);
    Err(Failed)
}

/// Copies a file beside its new place, moves the copy there and removes the file.
fn carry_over(
    blocking: &Blocking,
    from: &Path,
    to: &Path,
    rights: &PathRights,
    journal: &mut Journal,
) -> Result<(), Failed> {
    let mut beside = to.as_os_str().to_owned();
    beside.push(format!(".{:010}", temp_file::next_number()));
    let beside = PathBuf::from(beside);
    let copying = Copying { size: None, mode: rights.file, modified: rights.modified };
    copying.run(blocking, from, &beside, journal)?;
    if let Err(error) = rustix::fs::rename(&beside, to) {
        fail_rename(LogLevel::Crit, &beside, to, error, journal);
        if let Err(error) = rustix::fs::unlink(&beside) {
            journal.fail(LogLevel::Crit, "unlink()", &beside, error);
        }
        return Err(Failed);
    }
    rustix::fs::unlink(from).map_err(|error| {
        journal.fail(LogLevel::Crit, "unlink()", from, error);
        Failed
    })
}

/// A file that is to be copied, with what is to hold for the copy if it is not what holds for the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    /// Bytes.
    pub(super) size: Option<u64>,
    pub(super) mode: Option<u32>,
    /// Seconds since the epoch.
    pub(super) modified: Option<i64>,
}

impl Copying {
    /// All as it is with a file.
    pub(super) fn of(stat: &Stat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self { size: Some(size), mode: Some(stat.st_mode & 0o777), modified: Some(stat.st_mtime) }
    }

    pub(super) fn run(
        self,
        _: &Blocking,
        from: &Path,
        to: &Path,
        journal: &mut Journal,
    ) -> Result<(), Failed> {
        let mut fail = |level, call, path, error| {
            journal.fail(level, call, path, error);
            Failed
        };
        let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let source = rustix::fs::open(from, flags | OFlags::RDONLY, Mode::empty());
        let source = source.map_err(|error| fail(LogLevel::Crit, "open()", from, error))?;
        let stat =
            rustix::fs::fstat(&source).map_err(|error| fail(LogLevel::Alert, "fstat()", from, error))?;
        let known = Self::of(&stat);
        let mode = Mode::from_raw_mode(self.mode.or(known.mode).unwrap_or_default());
        let create = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let target = rustix::fs::open(to, create, mode);
        let target = target.map_err(|error| fail(LogLevel::Crit, "open()", to, error))?;
        let (source, target) = (File::from(source), File::from(target));
        let size = self.size.or(known.size).unwrap_or_default();
        copy_bytes((&source, from), (&target, to), size, journal)?;
        let modified = times(self.modified.or(known.modified).unwrap_or_default());
        futimens(target.as_fd(), &modified).map_err(|error| {
            journal.fail(LogLevel::Alert, "utimes()", to, error);
            Failed
        })
    }
}

/// Copies so many bytes from the beginning of a file.
fn copy_bytes(
    (source, from): (&File, &Path),
    (target, to): (&File, &Path),
    size: u64,
    journal: &mut Journal,
) -> Result<(), Failed> {
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(COPY_BYTES).min(COPY_BYTES)];
    let mut at = 0;
    while at < size {
        let wanted = usize::try_from(size - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let read = read_fully(source, &mut buffer[..wanted], at).map_err(|error| {
            journal.fail(LogLevel::Alert, "read()", from, error);
            Failed
        })?;
        if read < wanted {
            let (left, from) = (size - at, shown(from));
            let message = format!("read() has read only {read} of {left} from {from}");
            journal.add(LogLevel::Alert, Some(message));
            return Err(Failed);
        }
        target.write_all_at(&buffer[..wanted], at).map_err(|error| {
            journal.fail(LogLevel::Alert, "write()", to, code(&error));
            Failed
        })?;
        at += wanted as u64;
    }
    Ok(())
}

fn read_fully(file: &File, buffer: &mut [u8], at: u64) -> Result<usize, Code> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(code(&error)),
        }
    }
    Ok(read)
}

fn code(error: &io::Error) -> Code {
    Code::from_io_error(error).unwrap_or(Code::IO)
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
