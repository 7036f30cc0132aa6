//! Names in a file system: opened for reading with or without waiting for a disk, and for appending without
//! waiting for a reader. Any thread; only [`Walk::Cached`] is for loops.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// The purpose of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reading. `O_NONBLOCK`, so that a FIFO without a writer holds nobody; regular files do not care.
    #[default]
    Read,
    /// Reading a directory (`O_DIRECTORY`): anything else is ENOTDIR.
    Directory,
    /// The place alone (`O_PATH`): the file is not opened, and needs no permission to be read.
    Path,
}

/// How symbolic links are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Links are followed.
    #[default]
    Follow,
    /// A link at the end of the path is ELOOP (`O_NOFOLLOW`), or with [`Access::Path`] the link itself is
    /// opened.
    NotLast,
    /// Any in the path is ELOOP (`RESOLVE_NO_SYMLINKS`).
    Never,
}

/// How a name is opened; the default is for reading, links followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// The purpose of the descriptor.
    pub access: Access,
    /// How symbolic links are treated.
    pub links: Links,
}

/// Whether looking up names may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Only names in the kernel's cache are found (`RESOLVE_CACHED`, Linux 5.12); EAGAIN if one is not.
    /// What is missing in the cache as well (ENOENT) is an answer. **Blocks** all the same where
    /// opening itself asks somebody else: file systems in user space or on a network.
    Cached,
    /// **Blocks**, for as long as the disks take.
    Full,
}

/// Opens what a descriptor leads to once more, to append without ever waiting (`O_NONBLOCK`): the flag of the
/// descriptor itself is shared with other processes.
///
/// # Errors
/// As open(2): ENXIO for sockets, and for a FIFO that has no reader any more.
pub fn open_to_append_at_once(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens `path`, relative to the directory `at` if there is one, otherwise to the working directory.
///
/// # Errors
/// As openat2(2), EINVAL for a path with a NUL. EAGAIN: it is not known without waiting, see
/// [`Walk::Cached`]. ENOSYS, or in a sandbox EPERM: the kernel has no openat2, which [`Walk::Cached`]
/// and [`Links::Never`] need.
#[inline]
pub fn open(at: Option<BorrowedFd<'_>>, path: &Path, how: How, walk: Walk) -> io::Result<OwnedFd> {
    let at = at.unwrap_or(CWD);
    let (flags, resolve) = flags(how, walk);
    let fd = if resolve.is_empty() {
        rustix::fs::openat(at, path, flags, Mode::empty())?
    } else {
        rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)?
    };
    Ok(fd)
}

/// Opens `path` to append to it; creates it with `mode`, less the umask. **Blocks** for as long as the disks
/// take, but not until a FIFO has a reader: without one it is ENXIO. Writing to what was opened waits.
///
/// # Errors
/// As open(2).
pub fn open_to_append(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(mode))?;
    // A writer is to wait for a slow reader: EAGAIN would lose lines.
    rustix::fs::fcntl_setfl(&fd, OFlags::APPEND)?;
    Ok(fd)
}

/// The flags of open(2), and those of openat2(2) if it is needed.
#[inline]
fn flags(how: How, walk: Walk) -> (OFlags, ResolveFlags) {
    let mut flags = OFlags::CLOEXEC;
    flags |= match how.access {
        Access::Read => OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK,
        Access::Directory => OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK,
        Access::Path => OFlags::PATH,
    };
    let mut resolve = ResolveFlags::empty();
    match how.links {
        Links::Follow => {}
        Links::NotLast => flags |= OFlags::NOFOLLOW,
        Links::Never => resolve |= ResolveFlags::NO_SYMLINKS,
    }
    if walk == Walk::Cached {
        resolve |= ResolveFlags::CACHED;
    }
    (flags, resolve)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::FileType;
    use rustix::io::Errno;

    use super::*;

    fn code(result: io::Result<OwnedFd>) -> Option<Errno> {
        result.err().and_then(|error| Errno::from_io_error(&error))
    }

    /// The result of opening a path whose names are known. There is no guarantee that they are: memory may
    /// run short, or another process may rename something meanwhile.
    fn known(dir: &OwnedFd, path: &str, how: How, walk: Walk) -> Option<Errno> {
        let ends_with = |walk| code(open(Some(dir.as_fd()), Path::new(path), how, walk));
        let mut end = ends_with(walk);
        for _ in 0..10_000 {
            if end != Some(Errno::AGAIN) {
                break;
            }
            // This makes them known.
            let _ = ends_with(Walk::Full);
            end = ends_with(walk);
        }
        end
    }

    /// A directory with a file `f`, a link `l` to it and a link `d` to the directory.
    fn scratch(name: &str) -> (std::path::PathBuf, OwnedFd) {
        let path = std::env::temp_dir().join(format!("clearway-os-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        rustix::fs::mkdir(&path, Mode::RWXU).unwrap();
        let how = How { access: Access::Directory, ..How::default() };
        let dir = open(None, &path, how, Walk::Full).unwrap();
        let create = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&dir, "f", create, Mode::RUSR).unwrap());
        rustix::fs::symlinkat("f", &dir, "l").unwrap();
        rustix::fs::symlinkat(".", &dir, "d").unwrap();
        (path, dir)
    }

    #[test]
    fn links_and_kinds_are_judged_with_and_without_waiting() {
        let (path, dir) = scratch("links");
        for walk in [Walk::Full, Walk::Cached] {
            let open = |name: &str, access, links| known(&dir, name, How { access, links }, walk);
            if open("f", Access::Read, Links::Follow) == Some(Errno::NOSYS) {
                continue;
            }
            assert_eq!(open("d/l", Access::Read, Links::Follow), None);
            assert_eq!(open("d/f", Access::Read, Links::NotLast), None);
            assert_eq!(open("l", Access::Read, Links::NotLast), Some(Errno::LOOP));
            assert_eq!(open("d/f", Access::Read, Links::Never), Some(Errno::LOOP));
            assert_eq!(open("l", Access::Path, Links::NotLast), None);
            assert_eq!(open("f", Access::Directory, Links::Follow), Some(Errno::NOTDIR));
            assert_eq!(open("d", Access::Directory, Links::Follow), None);
        }
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_fifo_is_opened_to_append_where_it_has_a_reader() {
        let (path, dir) = scratch("fifo");
        rustix::fs::mknodat(&dir, "p", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fifo = path.join("p");
        assert_eq!(code(open_to_append(&fifo, 0o600)), Some(Errno::NXIO));
        let reader = open(None, &fifo, How::default(), Walk::Full).unwrap();
        let writer = open_to_append(&fifo, 0o600).unwrap();
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        assert!(flags.contains(OFlags::APPEND) && !flags.contains(OFlags::NONBLOCK), "{flags:?}");
        rustix::io::write(&writer, b"line").unwrap();
        let mut read = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut read).unwrap(), 4);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_appended_to_grows_and_has_the_mode() {
        let (path, _dir) = scratch("append");
        for _ in 0..2 {
            rustix::io::write(open_to_append(&path.join("new"), 0o640).unwrap(), b"ab").unwrap();
        }
        let file = rustix::fs::stat(path.join("new")).unwrap();
        assert_eq!((file.st_size, file.st_mode & 0o777 & !0o640), (4, 0));
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_name_that_nobody_asked_for_is_not_known_without_waiting() {
        let (path, dir) = scratch("missing");
        let missing = || open(Some(dir.as_fd()), Path::new("missing"), How::default(), Walk::Cached);
        let first = code(missing());
        if first != Some(Errno::NOSYS) {
            assert_eq!(first, Some(Errno::AGAIN));
            let full = open(Some(dir.as_fd()), Path::new("missing"), How::default(), Walk::Full);
            assert_eq!(code(full), Some(Errno::NOENT));
            let by_now = known(&dir, "missing", How::default(), Walk::Cached);
            assert_eq!(by_now, Some(Errno::NOENT), "known by now");
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}
