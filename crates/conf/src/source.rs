//! Where the text of a configuration comes from.
//!
//! Everything that loading reads goes through [`Source`], so that a process which may read the
//! files (the master) can hand on what it read to one which may not. Called at boot and at reload,
//! off the loops: [`Disk`] blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::glob::{self, Directory};

/// Where files are read and masks are expanded.
pub trait Source {
    /// The content of a file.
    ///
    /// # Errors
    ///
    /// The system's error with its number, which goes into nginx's message.
    fn read(&self, path: &Path) -> io::Result<Bytes>;

    /// The files that a mask of the shell's kind matches (`*`, `?`, `[…]`), sorted by their bytes;
    /// none is no error.
    ///
    /// # Errors
    ///
    /// The system's error with its number.
    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Source for Disk {
    #[expect(clippy::disallowed_methods, reason = "configurations are read off the loops")]
    fn read(&self, path: &Path) -> io::Result<Bytes> {
        let file = std::fs::File::open(path)?;
        // No more bytes than the file had when it was opened, so that a device or a growing file has an end
        // too.
        let length_bytes = file.metadata()?.len();
        let mut text = Vec::new();
        file.take(length_bytes).read_to_end(&mut text)?;
        Ok(text.into())
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(paths(glob::expand(pattern, self)))
    }
}

impl Directory for Disk {
    #[expect(clippy::disallowed_methods, reason = "configurations are read off the loops")]
    fn names(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        // As glob(3) does without GLOB_ERR: a directory that cannot be listed has no names.
        let Ok(entries) = std::fs::read_dir(path_of(directory)) else {
            return Vec::new();
        };
        // `.*` matches these two as well, and then fails as in nginx: a directory cannot be read.
        let dots = [b".".to_vec(), b"..".to_vec()];
        entries.flatten().map(|entry| entry.file_name().into_vec()).chain(dots).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "configurations are read off the loops")]
    fn exists(&self, path: &[u8]) -> bool {
        std::fs::symlink_metadata(path_of(path)).is_ok()
    }
}

/// The files that directives name and that are read when they are executed: certificates, keys. Each is read
/// once; a worker, which may lack the right to read them, is handed what its master has read.
#[derive(Default)]
pub struct KeptFiles {
    files: Mutex<BTreeMap<PathBuf, KeptFile>>,
    /// Files of the previous configuration.
    earlier: BTreeMap<PathBuf, KeptFile>,
}

#[derive(Clone)]
struct KeptFile {
    content: Bytes,
    /// The identity of the file when it was read, if it is known.
    stamp: Option<Stamp>,
}

/// Number of a file in its file system, and when it was written last, in seconds. By these nginx decides
/// whether a file is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, i64);

impl KeptFiles {
    /// Files that were read before, by the master.
    #[must_use]
    pub fn handed(files: Vec<(PathBuf, Bytes)>) -> Self {
        let kept = |(path, content)| (path, KeptFile { content, stamp: None });
        Self { files: Mutex::new(files.into_iter().map(kept).collect()), earlier: BTreeMap::new() }
    }

    /// None yet, but [objects](Self::read_object) of the configuration before stay as they are while their
    /// files are the same (`ssl_object_cache_inheritable`).
    #[must_use]
    pub fn following(earlier: &Self) -> Self {
        Self { files: Mutex::default(), earlier: earlier.files().clone() }
    }

    /// All that were read.
    #[must_use]
    pub fn list(&self) -> Vec<(PathBuf, Bytes)> {
        self.files().iter().map(|(path, file)| (path.clone(), file.content.clone())).collect()
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: &Path) -> io::Result<Bytes> {
        if let Some(known) = self.files().get(path) {
            return Ok(known.content.clone());
        }
        let content = read_whole(path)?;
        self.keep(path, &content, None);
        Ok(content)
    }

    /// The content of a file with certificates, keys or lists of revoked certificates.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read_object(&self, path: &Path) -> io::Result<Bytes> {
        if let Some(known) = self.files().get(path) {
            return Ok(known.content.clone());
        }
        let stamp = stamp_of(path);
        let earlier = self.earlier.get(path).filter(|earlier| stamp.is_some() && earlier.stamp == stamp);
        let content = match earlier {
            Some(earlier) => earlier.content.clone(),
            None => read_whole(path)?,
        };
        self.keep(path, &content, stamp);
        Ok(content)
    }

    fn keep(&self, path: &Path, content: &Bytes, stamp: Option<Stamp>) {
        self.files().insert(path.to_owned(), KeptFile { content: content.clone(), stamp });
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, KeptFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "configurations are read off the loops")]
fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp(found.ino(), found.mtime()))
}

/// Largest content of a pipe or device, such as a pipe with passwords, bytes.
const PIPE_MAX_BYTES: u64 = 1 << 20;

/// A file without a length, such as a pipe, is read to its end.
#[expect(clippy::disallowed_methods, reason = "configurations are read off the loops")]
fn read_whole(path: &Path) -> io::Result<Bytes> {
    let file = std::fs::File::open(path)?;
    let found = file.metadata()?;
    let length_bytes = if found.is_file() { found.len() } else { PIPE_MAX_BYTES };
    let mut content = Vec::new();
    file.take(length_bytes).read_to_end(&mut content)?;
    Ok(content.into())
}

impl fmt::Debug for KeptFiles {
    /// Prints no contents, as they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files().keys()).finish()
    }
}

/// Files in memory, by their full path: built-in configurations, tests, and files that another process has
/// read.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    files: BTreeMap<PathBuf, Bytes>,
}

impl Memory {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, or replaces it.
    #[must_use]
    pub fn with(mut self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), Bytes::from(text.into()));
        self
    }
}

impl<P: Into<PathBuf>, T: Into<Bytes>> FromIterator<(P, T)> for Memory {
    fn from_iter<I: IntoIterator<Item = (P, T)>>(files: I) -> Self {
        Self { files: files.into_iter().map(|(path, text)| (path.into(), text.into())).collect() }
    }
}

impl Source for Memory {
    fn read(&self, path: &Path) -> io::Result<Bytes> {
        const ENOENT: i32 = 2;
        self.files.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(paths(glob::expand(pattern, self)))
    }
}

impl Directory for Memory {
    fn names(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let directory = path_of(directory);
        let names: BTreeSet<&[u8]> = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(directory).ok()?.iter().next())
            .map(|name| name.as_bytes())
            .collect();
        names.into_iter().map(<[u8]>::to_vec).collect()
    }

    fn exists(&self, path: &[u8]) -> bool {
        let path = path_of(path);
        self.files.keys().any(|file| file.starts_with(path))
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn paths(names: Vec<Vec<u8>>) -> Vec<PathBuf> {
    names.into_iter().map(|name| PathBuf::from(std::ffi::OsString::from_vec(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_globs_as_a_file_system_would() {
        let source: Memory = ["/c/b.conf", "/c/a.conf", "/c/.h.conf", "/c/d/x.conf", "/c/e/x.conf", "/c/d/y"]
            .into_iter()
            .map(|p| (p, ""))
            .collect();
        let glob = |pattern: &str| {
            let found = source.glob(pattern.as_bytes()).expect("memory does not fail");
            found.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(glob("/c/*.conf"), "/c/a.conf /c/b.conf");
        assert_eq!(glob("/c/*/x.conf"), "/c/d/x.conf /c/e/x.conf");
        assert_eq!(glob("/c/*/[xy]*"), "/c/d/x.conf /c/d/y /c/e/x.conf");
        assert_eq!(glob("/c/.*.conf"), "/c/.h.conf");
        assert_eq!(glob("/c/*.none"), "");
        assert_eq!(glob("/none/*"), "");
    }

    #[test]
    fn disk_reads_and_globs() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = Disk.read(&here.join("Cargo.toml")).expect("the manifest is there");
        assert!(text.starts_with(b"[package]"));
        assert_eq!(Disk.read(&here.join("none")).expect_err("it is not there").raw_os_error(), Some(2));
        let pattern = here.join("src/[ls]*?rce.rs").into_os_string().into_vec();
        assert_eq!(Disk.glob(&pattern).expect("it lists"), [here.join("src/source.rs")]);
    }

    #[test]
    fn what_was_handed_is_not_read_again() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let handed = KeptFiles::handed(vec![(path.clone(), Bytes::from_static(b"secret"))]);
        assert_eq!(handed.read(&path).expect("it was handed"), "secret");
        assert!(!format!("{handed:?}").contains("secret"));
        let read = KeptFiles::default();
        let content = read.read(&path).expect("the manifest is there");
        assert_eq!(read.list(), [(path.clone(), content)]);
        assert_eq!(read.read(&path.join("none")).expect_err("a file has no files").raw_os_error(), Some(20));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter sets no times of files")]
    #[expect(clippy::disallowed_methods, reason = "tests make their own files")]
    fn objects_of_files_that_are_the_same_stay() {
        let path = std::env::temp_dir().join(format!("clearway-kept-{}", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let first = KeptFiles::default();
        assert_eq!(first.read_object(&path).unwrap(), "one");
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "two").unwrap();
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(written).unwrap();
        assert_eq!(KeptFiles::following(&first).read_object(&path).unwrap(), "one");
        assert_eq!(KeptFiles::following(&first).read(&path).unwrap(), "two");
        assert_eq!(KeptFiles::default().read_object(&path).unwrap(), "two");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "three").unwrap();
        let later = written + std::time::Duration::from_secs(5);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(KeptFiles::following(&first).read_object(&path).unwrap(), "three");
        std::fs::remove_file(&path).unwrap();
    }
}
