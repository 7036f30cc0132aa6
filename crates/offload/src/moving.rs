//! Files that get another path: access rights, times, the directories above, a copy where the new path is on
//! another file system; with nginx's messages in nginx's order. Threads of a pool only.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clearway_base::Errno;
use clearway_base::log::{Level as LogLevel, Verbatim};
use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, futimens};
use rustix::io::Errno as Code;

use crate::{Blocking, temp_file};

/// Lines of one request that are kept for the log.
const LINES_MAX: usize = 1000;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 64 * 1024;

/// Something was not done, and that is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// The messages of a job for the error log.
#[derive(Debug, Default)]
pub struct Journal {
    lines: Vec<(LogLevel, String)>,
    left_out: u64,
}

impl Journal {
    /// Adds a line, if there is one.
    pub fn add(&mut self, level: LogLevel, line: Option<String>) {
        let Some(line) = line else { return };
        if self.lines.len() < LINES_MAX {
            self.lines.push((level, line));
        } else {
            self.left_out += 1;
        }
    }

    /// A call that failed.
    pub fn fail(&mut self, level: LogLevel, call: &str, path: &Path, error: Code) {
        self.add(level, Some(format!("{call} \"{}\" failed {}", shown(path), errno(error))));
    }

    /// Hands every line to `log`, and says at the end how many there was no room for.
    pub fn tell(&self, mut log: impl FnMut(LogLevel, fmt::Arguments<'_>)) {
        for (level, line) in &self.lines {
            log(*level, format_args!("{line}"));
        }
        if self.left_out > 0 {
            log(LogLevel::Error, format_args!("{} more messages were left out", self.left_out));
        }
    }
}

/// A file that was written under another name.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The file, open.
    pub file: &'a File,
    /// The name that it has.
    pub path: &'a Path,
}

impl Written<'_> {
    /// Gives the file its access rights, the time when it was changed, and its path, in place of what is
    /// there.
    ///
    /// # Errors
    /// It has its old path, and what failed is in the journal.
    pub fn place(
        self,
        blocking: &Blocking,
        to: &Path,
        rights: &PathRights,
        journal: &mut Journal,
    ) -> Result<(), Failed> {
        if let Some(mode) = rights.file {
            set_mode(self.file, self.path, mode, journal)?;
        }
        if let Some(modified) = rights.modified {
            set_time(self.file, self.path, modified, journal)?;
        }
        rename(blocking, self.path, to, rights, journal)
    }
}

/// A path in a message.
pub fn shown(path: &Path) -> impl fmt::Display {
    Verbatim(path.as_os_str().as_bytes())
}

/// A reason in a message.
#[must_use]
pub fn errno(error: Code) -> String {
    Errno(&error.into()).to_string()
}

/// The access rights of a directory that holds files with `access`.
#[must_use]
pub fn directory_mode(access: u32) -> u32 {
    access | (access & 0o444) >> 2
}

/// Sets the access rights of an open file; `path` is for the message.
fn set_mode(file: &File, path: &Path, mode: u32, journal: &mut Journal) -> Result<(), Failed> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(|error| {
        journal.fail(LogLevel::Crit, "chmod()", path, error);
        Failed
    })
}

/// Sets when an open file was changed, seconds since the epoch.
fn set_time(file: &File, path: &Path, modified: i64, journal: &mut Journal) -> Result<(), Failed> {
    futimens(file, &times(modified)).map_err(|error| {
        journal.fail(LogLevel::Crit, "utimes()", path, error);
        Failed
    })
}

/// Changed then, used now.
#[must_use]
pub fn times(modified: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
    }
}

/// Access rights of the directories that are made when a file is moved.
#[derive(Clone, Copy, Debug)]
pub struct PathRights {
    /// The access rights of directories that are made where there are none.
    pub directories: Option<u32>,
    /// The access rights of the file, if they are to be others.
    pub file: Option<u32>,
    /// When the file was changed, if that is to be said, seconds since the epoch.
    pub modified: Option<i64>,
}

/// Gives a file another path, in place of what is there; on another file system by way of a copy.
///
/// # Errors
/// It has its old path, and what failed is in the journal.
pub fn rename(
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
pub struct Copying {
    /// Bytes.
    pub size: Option<u64>,
    /// Access rights.
    pub mode: Option<u32>,
    /// Seconds since the epoch.
    pub modified: Option<i64>,
}

impl Copying {
    /// All as it is with a file.
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self { size: Some(size), mode: Some(stat.st_mode & 0o777), modified: Some(stat.st_mtime) }
    }

    /// Copies the file.
    ///
    /// # Errors
    /// What failed is in the journal.
    pub fn run(self, _: &Blocking, from: &Path, to: &Path, journal: &mut Journal) -> Result<(), Failed> {
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
