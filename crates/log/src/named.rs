//! Logs whose lines say which file they belong to (`access_log` with variables in its path), and
//! `open_log_file_cache`. Files are opened by name, by the writer, when a line for them comes; without
//! a cache they are closed again.
//!
//! A line carries its path: two lengths, the path, the directory that must exist, the line itself.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clearway_base::Errno;
use clearway_base::log::{Level, Verbatim};

use crate::chunk::{Chunk, Report};
use crate::files::{Disk, Opener, Trouble};
use crate::metrics::LINES_UNWRITTEN;

/// Bytes of the two lengths in front of a line.
const LENGTHS_BYTES: usize = 8;
/// Files that a cache lets go for being idle, each time it is used.
const EXPIRED_AT_ONCE_MAX: usize = 2;

/// `open_log_file_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCacheConfig {
    /// Files that are kept at most.
    pub max: usize,
    /// Seconds after which a file that is not used is closed.
    pub inactive_s: u64,
    /// Seconds after which it is checked that a name still means the same file.
    pub valid_s: u64,
    /// Uses within `inactive_s` from which on a file is kept open.
    pub min_uses: u64,
}

/// Begins a line for the file at `path`, with room for `capacity` more bytes. The line is lost unless
/// `root`, where given, is a directory.
pub(crate) fn begin_line(path: &[u8], root: Option<&[u8]>, capacity: usize) -> Vec<u8> {
    // What follows a NUL is no part of a path for the system.
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    let root = root.unwrap_or_default();
    let mut line = Vec::with_capacity(LENGTHS_BYTES + path.len() + root.len() + capacity);
    for part in [path, root] {
        let length = u32::try_from(part.len()).expect("a path comes from one request");
        line.extend_from_slice(&length.to_le_bytes());
    }
    line.extend_from_slice(path);
    line.extend_from_slice(root);
    line
}

/// The path, the directory and the line itself.
fn take_apart(line: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let (lengths, rest) = line.split_at(LENGTHS_BYTES);
    let length = |at| u32::from_le_bytes(std::array::from_fn(|n| lengths[at + n])) as usize;
    let (path, rest) = rest.split_at(length(0));
    let (root, line) = rest.split_at(length(4));
    (path, root, line)
}

/// The writer's side of such a log.
#[derive(Debug)]
pub(crate) struct NamedTarget {
    cache: Option<Cache>,
    trouble: Trouble,
    /// The second in which a file that could not be opened was reported last.
    told_s: Option<u64>,
}

/// The system call that failed, without its brackets, and why.
type Failed = (&'static str, io::Error);

/// Why a line did not get into its file.
enum Missed {
    /// There is no such directory: no host of that name, say.
    Root(io::Error),
    Open(&'static str, io::Error),
    Write(io::Error),
}

impl NamedTarget {
    pub(crate) fn new(config: Option<FileCacheConfig>) -> Self {
        Self { cache: config.map(Cache::new), trouble: Trouble::default(), told_s: None }
    }

    /// Writes each line to its file. What cannot be written is lost and counted; why is reported.
    pub(crate) fn write(&mut self, chunks: &[Chunk], now_s: u64, reports: &mut Vec<Report>) {
        let mut tested: &[u8] = b"";
        for line in chunks.iter().flat_map(Chunk::lines) {
            if self.trouble.is_full(now_s) {
                LINES_UNWRITTEN.increment();
                continue;
            }
            let (path, root, line) = take_apart(line);
            let known = root.is_empty() || root == tested;
            let outcome = if known { Ok(()) } else { test_directory(root) };
            match outcome.and_then(|()| self.write_line(path, line, now_s)) {
                Ok(()) => tested = root,
                Err(missed) => self.tell(&missed, path, root, now_s, reports),
            }
        }
    }

    fn write_line(&mut self, path: &[u8], line: &[u8], now_s: u64) -> Result<(), Missed> {
        let Some(cache) = &mut self.cache else {
            let file = Disk.open(as_path(path)).map_err(|error| Missed::Open("open", error))?;
            return (&file).write_all(line).map_err(Missed::Write);
        };
        let mut file = cache.file(path, now_s).map_err(|(call, error)| Missed::Open(call, error))?;
        let outcome = file.write_all(line).map_err(Missed::Write);
        cache.release(path, now_s);
        outcome
    }

    fn tell(&mut self, missed: &Missed, path: &[u8], root: &[u8], now_s: u64, reports: &mut Vec<Report>) {
        if !matches!(missed, Missed::Root(_)) {
            LINES_UNWRITTEN.increment();
        }
        let name = Verbatim;
        let (level, text) = match missed {
            Missed::Write(error) => return self.trouble.report(name(path), error, now_s, reports),
            Missed::Root(error) => {
                (Level::Error, format!("testing \"{}\" existence failed {}", name(root), Errno(error)))
            }
            Missed::Open(call, error) => {
                (Level::Crit, format!("{call}() \"{}\" failed {}", name(path), Errno(error)))
            }
        };
        if self.told_s.replace(now_s) != Some(now_s) {
            reports.push(Report { level, text });
        }
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn test_directory(root: &[u8]) -> Result<(), Missed> {
    #[expect(clippy::disallowed_methods, reason = "called by the writer's threads")]
    let metadata = std::fs::metadata(as_path(root)).map_err(Missed::Root)?;
    let not_one = || Missed::Root(io::Error::from_raw_os_error(NOT_A_DIRECTORY));
    metadata.is_dir().then_some(()).ok_or_else(not_one)
}

/// ENOTDIR
const NOT_A_DIRECTORY: i32 = 20;

/// Files that are kept open between lines, with nginx's rules of expiry.
#[derive(Debug)]
struct Cache {
    config: FileCacheConfig,
    files: HashMap<Box<[u8]>, Cached>,
    /// The paths in the order of their last use.
    order: BTreeMap<u64, Box<[u8]>>,
    uses: u64,
}

#[derive(Debug)]
struct Cached {
    /// None while it is not used often enough.
    file: Option<File>,
    /// Device and inode.
    identity: (u64, u64),
    uses: u64,
    /// When the name was looked at last.
    checked_s: u64,
    used_s: u64,
    /// Its key in `order`; 0 is nobody's.
    turn: u64,
}

impl Cache {
    fn new(config: FileCacheConfig) -> Self {
        Self { config, files: HashMap::new(), order: BTreeMap::new(), uses: 1 }
    }

    /// The file of a name, opened if it must be; with the call that failed otherwise.
    fn file(&mut self, path: &[u8], now_s: u64) -> Result<&File, Failed> {
        if !self.files.contains_key(path) {
            let (file, identity) = open(path)?;
            if self.files.len() >= self.config.max {
                self.expire(now_s, 1);
            }
            let cached =
                Cached { file: Some(file), identity, uses: 0, checked_s: now_s, used_s: now_s, turn: 0 };
            self.files.insert(path.into(), cached);
        } else if let Err(error) = self.check(path, now_s) {
            self.remove(path);
            return Err(error);
        }
        let turn = self.uses;
        self.uses += 1;
        let cached = self.files.get_mut(path).expect("it was there or has been inserted");
        cached.uses += 1;
        cached.used_s = now_s;
        let place = self.order.remove(&cached.turn).unwrap_or_else(|| path.into());
        cached.turn = turn;
        self.order.insert(turn, place);
        Ok(cached.file.as_ref().expect("opened above"))
    }

    /// Opens what was closed or is another file by now.
    fn check(&mut self, path: &[u8], now_s: u64) -> Result<(), Failed> {
        let Some(cached) = self.files.get_mut(path) else { return Ok(()) };
        if cached.file.is_some() {
            if now_s.saturating_sub(cached.checked_s) < self.config.valid_s {
                return Ok(());
            }
            #[expect(clippy::disallowed_methods, reason = "called by the writer's threads")]
            let metadata = std::fs::metadata(as_path(path)).map_err(|error| ("stat", error))?;
            if (metadata.dev(), metadata.ino()) == cached.identity {
                cached.checked_s = now_s;
                return Ok(());
            }
        }
        let (file, identity) = open(path)?;
        (cached.file, cached.identity, cached.checked_s) = (Some(file), identity, now_s);
        Ok(())
    }

    /// Closes what is not used often enough, and what has not been used for long.
    fn release(&mut self, path: &[u8], now_s: u64) {
        if let Some(cached) = self.files.get_mut(path).filter(|cached| cached.uses < self.config.min_uses) {
            cached.file = None;
        }
        self.expire(now_s, 0);
    }

    /// Lets go the `forced` least recently used files, and idle ones behind them.
    fn expire(&mut self, now_s: u64, forced: usize) {
        for n in 0..forced + EXPIRED_AT_ONCE_MAX {
            let Some((_, path)) = self.order.first_key_value() else { return };
            let used_s = self.files.get(path).map_or(0, |cached| cached.used_s);
            if n >= forced && now_s.saturating_sub(used_s) <= self.config.inactive_s {
                return;
            }
            let path = path.clone();
            self.remove(&path);
        }
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some(cached) = self.files.remove(path) {
            self.order.remove(&cached.turn);
        }
    }
}

fn open(path: &[u8]) -> Result<(File, (u64, u64)), Failed> {
    let file = Disk.open(as_path(path)).map_err(|error| ("open", error))?;
    let metadata = file.metadata().map_err(|error| ("fstat", error))?;
    Ok((file, (metadata.dev(), metadata.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_carries_its_path() {
        let mut line = begin_line(b"/a\0b", Some(b"/root"), 5);
        line.extend_from_slice(b"text\n");
        assert_eq!(take_apart(&line), (&b"/a"[..], &b"/root"[..], &b"text\n"[..]));
        let line = begin_line(b"/a", None, 0);
        assert_eq!(take_apart(&line), (&b"/a"[..], &b""[..], &b""[..]));
    }
}
