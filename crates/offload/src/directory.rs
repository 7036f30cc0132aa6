//! A directory that is held open: files below it are found, made, renamed and removed by names that are
//! looked up from there. That is a shorter walk for the kernel, and goes on to mean the same directory when
//! something else is mounted, or put, where its path leads. Methods that change it are for pool threads.
//!
//! Names are relative and lead down: one with `..`, or an absolute one, is EXDEV, whatever it leads to.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use clearway_os::open::{Access, How, Links, Walk};
use clearway_os::stat::Stat;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno as Code;

use crate::Blocking;
use crate::faults::{self, Call};

/// Access rights of directories that are made on the way: the owner alone.
const DIRECTORY_MODE: u32 = 0o700;

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// As open(2): ENOTDIR where it is something else.
    pub fn open(_: &Blocking, path: &Path) -> io::Result<Self> {
        let how = How { access: Access::Directory, ..How::default() };
        clearway_os::open::open(None, path, how, Walk::Full).map(Self)
    }

    /// A directory that another process has opened.
    ///
    /// # Errors
    /// ENOTDIR where it is no directory, or as fstat(2).
    pub fn handed(fd: OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        let is_directory =
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        if is_directory { Ok(Self(fd)) } else { Err(Code::NOTDIR.into()) }
    }

    /// Opens a file below it to be read, if all names on the way are in the kernel's cache: for loops.
    ///
    /// # Errors
    /// As openat2(2): EAGAIN where it would have to wait.
    pub fn try_open_file(&self, name: &Path) -> io::Result<File> {
        faults::ask(Call::Attempt)?;
        self.open_to_read(name, Walk::Cached)
    }

    /// Opens a file below it to be read.
    ///
    /// # Errors
    /// As openat(2).
    pub fn open_file(&self, _: &Blocking, name: &Path) -> io::Result<File> {
        faults::ask(Call::Open)?;
        self.open_to_read(name, Walk::Full)
    }

    /// Opens a file below it to be read and changed in place.
    ///
    /// # Errors
    /// As openat(2): ELOOP where the name is a symbolic link.
    pub fn open_to_change(&self, _: &Blocking, name: &Path) -> io::Result<File> {
        faults::ask(Call::Open)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.0, below(name)?, flags, Mode::empty())?))
    }

    fn open_to_read(&self, name: &Path, walk: Walk) -> io::Result<File> {
        clearway_os::open::open(Some(self.0.as_fd()), below(name)?, How::default(), walk).map(File::from)
    }

    /// Makes a file below it that was not there, to be read and written, with the access rights `mode` less
    /// the umask, and the directories on the way that are missing.
    ///
    /// # Errors
    /// As openat(2) and mkdirat(2): EEXIST where there is something of that name.
    pub fn create_file(&self, blocking: &Blocking, name: &Path, mode: u32) -> io::Result<File> {
        faults::ask(Call::Create)?;
        let name = below(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(mode));
        let made = match create() {
            Err(Code::NOENT) => {
                self.make_parents(blocking, name)?;
                create()
            }
            made => made,
        };
        Ok(File::from(made?))
    }

    /// Gives a file below it another name, in one step; a file that had that name is replaced. Missing
    /// directories on the way are made.
    ///
    /// # Errors
    /// As renameat(2) and mkdirat(2).
    pub fn rename(&self, blocking: &Blocking, from: &Path, to: &Path) -> io::Result<()> {
        faults::ask(Call::Rename)?;
        let (from, to) = (below(from)?, below(to)?);
        let rename = || rustix::fs::renameat(&self.0, from, &self.0, to);
        match rename() {
            Err(Code::NOENT) => {
                self.make_parents(blocking, to)?;
                Ok(rename()?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Gives a file that lies elsewhere on the same file system a name below it, in one step; a file that had
    /// that name is replaced. Missing directories on the way are made.
    ///
    /// # Errors
    /// As renameat(2) and mkdirat(2): EXDEV where the file lies on another file system.
    pub fn move_in(&self, blocking: &Blocking, from: &Path, to: &Path) -> io::Result<()> {
        faults::ask(Call::Rename)?;
        let to = below(to)?;
        let rename = || rustix::fs::renameat(rustix::fs::CWD, from, &self.0, to);
        match rename() {
            Err(Code::NOENT) => {
                self.make_parents(blocking, to)?;
                Ok(rename()?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// The names in it, or in a directory below it, without `.` and `..`.
    ///
    /// # Errors
    /// As openat(2).
    pub fn entries(&self, _: &Blocking, name: Option<&Path>) -> io::Result<Entries> {
        let name = name.map_or(Ok(Path::new(".")), below)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        Ok(Entries(rustix::fs::Dir::new(fd)?))
    }

    /// The metadata of the file with a name below it; a symbolic link is not followed.
    ///
    /// # Errors
    /// As statx(2).
    pub fn stat(&self, _: &Blocking, name: &Path) -> io::Result<Stat> {
        clearway_os::stat::of_path(Some(self.0.as_fd()), below(name)?, Links::NotLast)
    }

    /// How much more may be written to its file system by processes that are not root's, bytes.
    ///
    /// # Errors
    /// As fstatvfs(2).
    pub fn free_bytes(&self, _: &Blocking) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.0)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Removes the name of a file below it.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn remove_file(&self, _: &Blocking, name: &Path) -> io::Result<()> {
        faults::ask(Call::Remove)?;
        Ok(rustix::fs::unlinkat(&self.0, below(name)?, AtFlags::empty())?)
    }

    fn make_parents(&self, _: &Blocking, name: &Path) -> io::Result<()> {
        let mut parents: Vec<&Path> = name.ancestors().skip(1).collect();
        parents.retain(|parent| !parent.as_os_str().is_empty());
        for parent in parents.into_iter().rev() {
            match rustix::fs::mkdirat(&self.0, parent, Mode::from_raw_mode(DIRECTORY_MODE)) {
                Ok(()) | Err(Code::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Names in a directory, for pool threads: reading on may wait for the disk.
#[derive(Debug)]
pub struct Entries(rustix::fs::Dir);

impl Entries {
    /// The next one, in no order. `None`: there are no more.
    ///
    /// # Errors
    /// As getdents(2); nothing is read behind that.
    pub fn next(&mut self, _: &Blocking) -> Option<io::Result<OsString>> {
        loop {
            match self.0.next()? {
                Ok(entry) => {
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        return Some(Ok(OsString::from_vec(name.to_vec())));
                    }
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The name, if it is relative and has no `..`.
fn below(name: &Path) -> io::Result<&Path> {
    let leads_down = name.components().all(|part| matches!(part, Component::Normal(_)));
    if leads_down && name.components().next().is_some() { Ok(name) } else { Err(Code::XDEV.into()) }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Removed in the end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("clearway-directory-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn text(mut file: File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn files_are_made_published_read_and_removed_below_a_directory() {
        let (scratch, blocking) = (Scratch::new("published"), Blocking::on_this_thread());
        let path = scratch.path().join("cache");
        std::fs::create_dir(&path).unwrap();
        let directory = Directory::open(&blocking, &path).unwrap();
        let (temporary, name) = (Path::new("a/bc/key.0000000001"), Path::new("d/ef/key"));
        let mut file = directory.create_file(&blocking, temporary, 0o600).unwrap();
        file.write_all(b"body").unwrap();
        let again = directory.create_file(&blocking, temporary, 0o600);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        directory.rename(&blocking, temporary, name).unwrap();
        assert_eq!(std::fs::metadata(path.join("d/ef")).unwrap().mode() & 0o777, 0o700);
        // Another directory in its place changes nothing for its holders.
        std::fs::rename(&path, scratch.path().join("elsewhere")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(text(directory.open_file(&blocking, name).unwrap()), "body");
        assert_eq!(text(directory.try_open_file(name).unwrap()), "body");
        let handed = Directory::handed(directory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        handed.remove_file(&blocking, name).unwrap();
        assert_eq!(directory.open_file(&blocking, name).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn files_are_listed_changed_and_moved_in() {
        let (scratch, blocking) = (Scratch::new("listed"), Blocking::on_this_thread());
        let inside = scratch.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(scratch.path().join("file"), "old").unwrap();
        let directory = Directory::open(&blocking, &inside).unwrap();
        directory.move_in(&blocking, &scratch.path().join("file"), Path::new("a/b")).unwrap();
        assert!(directory.free_bytes(&blocking).unwrap() > 0);
        assert_eq!(directory.stat(&blocking, Path::new("a/b")).unwrap().size, 3);
        directory.open_to_change(&blocking, Path::new("a/b")).unwrap().write_all(b"new").unwrap();
        assert_eq!(text(directory.open_file(&blocking, Path::new("a/b")).unwrap()), "new");
        std::os::unix::fs::symlink("a/b", inside.join("link")).unwrap();
        assert!(directory.open_to_change(&blocking, Path::new("link")).is_err());
        let list = |name| {
            let mut entries = directory.entries(&blocking, name).unwrap();
            let mut names: Vec<_> =
                std::iter::from_fn(|| entries.next(&blocking)).map(Result::unwrap).collect();
            names.sort();
            names
        };
        assert_eq!(
            (list(None), list(Some(Path::new("a")))),
            (vec!["a".into(), "link".into()], vec!["b".into()])
        );
        assert!(directory.entries(&blocking, Some(Path::new("link"))).is_err());
    }

    #[test]
    fn no_name_leads_out_of_it_and_files_are_no_directories() {
        let (scratch, blocking) = (Scratch::new("down"), Blocking::on_this_thread());
        std::fs::write(scratch.path().join("file"), "").unwrap();
        let directory = Directory::open(&blocking, scratch.path()).unwrap();
        for name in ["", ".", "..", "../x", "a/../../x", "/etc/passwd"] {
            let code = |result: io::Result<File>| result.unwrap_err().raw_os_error();
            let expected = Some(Code::XDEV.raw_os_error());
            assert_eq!(code(directory.open_file(&blocking, Path::new(name))), expected, "{name}");
            assert_eq!(code(directory.create_file(&blocking, Path::new(name), 0o600)), expected, "{name}");
        }
        let file = File::open(scratch.path().join("file")).unwrap();
        assert!(Directory::handed(file.into()).is_err());
        assert!(Directory::open(&blocking, &scratch.path().join("file")).is_err());
    }
}
