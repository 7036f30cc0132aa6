//! On which file system a name lies, as a pool thread finds out without asking that file system: from what
//! the kernel has in its caches, the name itself or the nearest directory above it that is known. Symbolic
//! links on the way count.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr;

use clearway_os::open::{self, Access, How, Links, Walk};
use clearway_os::stat;
use rustix::fs::FileType;

use super::mounts::{Class, Mount};
use super::{Files, Mode, Opened};
use crate::Blocking;
use crate::places::{FileSystemPlace, PlaceKind};

/// Symbolic links that are followed, as many as Linux does.
const LINKS_MAX: u32 = 40;

/// Where a job is going: what of the system may not answer it.
#[derive(Clone, Debug, Default)]
pub enum At {
    /// Nothing, or nobody knows.
    #[default]
    Anywhere,
    /// The file system of an open file.
    Mount(MountRef),
    /// The objects at these absolute names; one on a file system that may not answer counts, if there is one.
    Paths(Box<[PathBuf]>),
}

/// A file system that was met.
#[derive(Clone, Copy, Debug)]
pub struct MountRef(&'static Mount);

impl At {
    /// The object at an absolute name.
    #[must_use]
    pub fn path(path: &Path) -> Self {
        Self::any_of([path.to_path_buf()])
    }

    /// The objects at several absolute names.
    #[must_use]
    pub fn any_of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::Paths(paths.into_iter().collect())
    }
}

impl Opened {
    /// Its file system, for jobs that read it or close it.
    #[must_use]
    pub fn at(&self) -> At {
        At::Mount(MountRef(self.mount))
    }
}

impl MountRef {
    pub(crate) fn place(self) -> FileSystemPlace {
        let kind = match self.0.class() {
            Class::Memory | Class::Telling | Class::Mute => PlaceKind::Local,
            Class::Remote | Class::Unknown => PlaceKind::Strange,
        };
        FileSystemPlace { key: ptr::from_ref(self.0).addr() as u64, kind }
    }
}

/// Finds the place that names lead to: a strange one if there is one.
pub(crate) fn find_place_of(blocking: &Blocking, paths: &[PathBuf]) -> Option<FileSystemPlace> {
    let mut found = None;
    for path in paths {
        match find_place(blocking, path) {
            Some(place) if place.kind == PlaceKind::Strange => return Some(place),
            place => found = found.or(place),
        }
    }
    found
}

/// Finds the place that a name leads to; `None` where that cannot be found out. May wait, but not for the
/// place itself, as a rule: some network file systems are asked whether their root is what it was.
fn find_place(_: &Blocking, path: &Path) -> Option<FileSystemPlace> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let (known, at) = nearest_known(&path)?;
        let found = stat::as_known(known.as_fd()).ok()?;
        if FileType::from_raw_mode(found.mode) != FileType::Symlink {
            let files = Files::new(Mode::Offload);
            return Some(MountRef(files.policy.mounts.find(&found)).place());
        }
        let target = rustix::fs::readlinkat(&known, c"", Vec::new()).ok()?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let rest = path.strip_prefix(&at).ok()?.to_path_buf();
        path = at.parent()?.join(target).join(rest);
    }
    None
}

/// The name itself, or the nearest one above it that the kernel knows, opened without following a link at its
/// end.
fn nearest_known(path: &Path) -> Option<(OwnedFd, PathBuf)> {
    let how = How { access: Access::Path, links: Links::NotLast };
    let names = path.ancestors().filter(|name| name.is_absolute());
    names
        .map(|name| (open::open(None, name, how, Walk::Cached), name))
        .find_map(|(found, name)| found.ok().map(|fd| (fd, name.to_path_buf())))
}

#[cfg(not(loom))]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_that_are_not_there_and_links_lead_somewhere() {
        let blocking = &Blocking::on_this_thread();
        let dir = std::env::temp_dir().join(format!("clearway-whereabouts-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("/proc/self", dir.join("away")).unwrap();
        std::os::unix::fs::symlink("away/../self", dir.join("twice")).unwrap();
        std::os::unix::fs::symlink("circle", dir.join("circle")).unwrap();
        let place = |name: &str| find_place(blocking, &dir.join(name));
        let here = place("none/at/all").expect("the directory is known");
        assert_eq!(place(""), Some(here));
        let there = find_place(blocking, Path::new("/proc/none/at/all")).expect("/proc is known");
        assert_ne!(there, here);
        for name in ["away", "away/none", "twice/none/x"] {
            assert_eq!(place(name), Some(there), "{name}");
        }
        assert_eq!(place("circle/x"), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
