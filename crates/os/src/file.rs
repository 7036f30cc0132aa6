//! Owners and access rights of files. Boot and the master, never a loop.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, Uid};

/// The rights that the owner of a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerRights {
    /// The rights of a file: read and write.
    ReadWrite,
    /// The rights of a directory: read, write and search.
    ReadWriteSearch,
}

/// The step of [`give_to`] that failed.
#[derive(Debug)]
pub enum GiveError {
    /// fstat(2)
    Stat(io::Error),
    /// fchown(2)
    Chown(io::Error),
    /// fchmod(2)
    Chmod(io::Error),
}

impl GiveError {
    /// The reason, from errno.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        match self {
            Self::Stat(error) | Self::Chown(error) | Self::Chmod(error) => error,
        }
    }
}

impl fmt::Display for GiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stat(_) => "fstat() failed",
            Self::Chown(_) => "fchown() failed",
            Self::Chmod(_) => "fchmod() failed",
        })
    }
}

impl std::error::Error for GiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

/// Makes `uid` the owner of an open file or directory, with at least `rights`: what nginx does to its
/// logs and directories, so that a worker can open them. What is so already is left alone; the group
/// stays. **Blocks** (a disk).
///
/// By descriptor, so that nobody can put another file in the place of the name meanwhile.
///
/// # Errors
/// The step that failed; those before it were done.
pub fn give_to(file: BorrowedFd<'_>, uid: u32, rights: OwnerRights) -> Result<(), GiveError> {
    let stat = rustix::fs::fstat(file).map_err(|error| GiveError::Stat(error.into()))?;
    if stat.st_uid != uid {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), None)
            .map_err(|error| GiveError::Chown(error.into()))?;
    }
    let wanted = match rights {
        OwnerRights::ReadWrite => Mode::RUSR | Mode::WUSR,
        OwnerRights::ReadWriteSearch => Mode::RUSR | Mode::WUSR | Mode::XUSR,
    };
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(wanted) {
        rustix::fs::fchmod(file, mode | wanted).map_err(|error| GiveError::Chmod(error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_owner_gets_what_is_missing_and_nothing_else_changes() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mode = || rustix::fs::fstat(&file).unwrap().st_mode & 0o7777;
        let me = rustix::process::geteuid().as_raw();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o044)).unwrap();
        give_to(file.as_fd(), me, OwnerRights::ReadWrite).unwrap();
        assert_eq!(mode(), 0o644);
        give_to(file.as_fd(), me, OwnerRights::ReadWriteSearch).unwrap();
        assert_eq!(mode(), 0o744);
        give_to(file.as_fd(), me, OwnerRights::ReadWrite).unwrap();
        assert_eq!(mode(), 0o744);
    }

    #[test]
    fn another_owner_is_a_privilege() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (before, nobody) = (rustix::fs::fstat(&file).unwrap(), 65_534);
        match give_to(file.as_fd(), nobody, OwnerRights::ReadWrite) {
            Ok(()) => assert_eq!(rustix::fs::fstat(&file).unwrap().st_uid, nobody),
            Err(GiveError::Chown(error)) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            Err(other) => panic!("{other}: {}", other.error()),
        }
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_gid, before.st_gid);
    }
}
