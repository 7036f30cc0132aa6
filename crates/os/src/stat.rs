//! The status of a file: statx(2), or fstat(2) where a sandbox refuses that; and its mount.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use rustix::io::Errno;

use crate::open::Links;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): the id of a mount that no later one gets again.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Since the epoch.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The fields of stat(2) that a server needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// When the contents changed.
    pub modified: Time,
    /// When the inode changed.
    pub changed: Time,
    /// The inode.
    pub inode: u64,
    /// The device, as `st_dev`.
    pub device: u64,
    /// A number for the mount; 0 where the kernel gives none.
    pub mount: u64,
    /// Kind and permissions, as `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// Names; 0 for a file that was removed.
    pub links: u32,
    /// Allocated blocks, in units of 512 bytes.
    pub blocks: u64,
}

/// statx(2) of an open file. Does not wait where the inode is on a local disk, since it is in memory.
///
/// # Errors
/// As statx(2).
#[inline]
pub fn of(file: BorrowedFd<'_>) -> io::Result<Stat> {
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, mask()) {
        Ok(found) => Ok(found.into()),
        Err(Errno::NOSYS) => Ok(rustix::fs::fstat(file)?.into()),
        Err(error) => Err(error.into()),
    }
}

/// The status as the kernel knows it, without asking a server (`AT_STATX_DONT_SYNC`): for files on a network
/// all but the kind, the mount and the device may be out of date.
///
/// # Errors
/// As statx(2).
pub fn as_known(file: BorrowedFd<'_>) -> io::Result<Stat> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(file, c"", flags, mask())?.into())
}

/// fstat(2), which takes less time than statx(2) and does not know [`Stat::mount`]. Does not wait where the
/// inode is on a local disk.
///
/// # Errors
/// As fstat(2).
#[inline]
pub fn of_open(file: BorrowedFd<'_>) -> io::Result<Stat> {
    Ok(rustix::fs::fstat(file)?.into())
}

/// statx(2) of a name, relative to the directory `at` if there is one. **Blocks** while names are read
/// from a disk. [`Links::Never`] is not for this call and counts as [`Links::NotLast`].
///
/// # Errors
/// As statx(2); EINVAL for a path with a NUL.
#[inline]
pub fn of_path(at: Option<BorrowedFd<'_>>, path: &Path, links: Links) -> io::Result<Stat> {
    let at = at.unwrap_or(CWD);
    let flags = if links == Links::Follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match rustix::fs::statx(at, path, flags, mask()) {
        Ok(found) => Ok(found.into()),
        Err(Errno::NOSYS) => Ok(rustix::fs::statat(at, path, flags)?.into()),
        Err(error) => Err(error.into()),
    }
}

/// The number that tells what kind of file system a file lies on (`f_type` of fstatfs(2)). **Blocks**
/// where that has to be asked over a network.
///
/// # Errors
/// As fstatfs(2).
pub fn filesystem_magic(file: BorrowedFd<'_>) -> io::Result<u64> {
    let magic = rustix::fs::fstatfs(file)?.f_type;
    // Signed or not, 32 or 64 bits wide: that depends on the processor. The numbers have 32 bits.
    Ok(magic as u64 & 0xffff_ffff)
}

fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID).union(MNT_ID_UNIQUE)
}

impl From<Statx> for Stat {
    fn from(found: Statx) -> Self {
        let time = |at: rustix::fs::StatxTimestamp| Time { seconds: at.tv_sec, nanoseconds: at.tv_nsec };
        let has_mount = found.stx_mask & (StatxFlags::MNT_ID | MNT_ID_UNIQUE).bits() != 0;
        Self {
            size: found.stx_size,
            modified: time(found.stx_mtime),
            changed: time(found.stx_ctime),
            inode: found.stx_ino,
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            mount: if has_mount { found.stx_mnt_id } else { 0 },
            mode: u32::from(found.stx_mode),
            uid: found.stx_uid,
            links: found.stx_nlink,
            blocks: found.stx_blocks,
        }
    }
}

impl From<rustix::fs::Stat> for Stat {
    fn from(found: rustix::fs::Stat) -> Self {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        Self {
            size: found.st_size as u64,
            modified: time(found.st_mtime, found.st_mtime_nsec as u32),
            changed: time(found.st_ctime, found.st_ctime_nsec as u32),
            inode: found.st_ino,
            device: found.st_dev,
            mount: 0,
            mode: found.st_mode,
            uid: found.st_uid,
            links: found.st_nlink as u32,
            blocks: found.st_blocks as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn both_calls_say_the_same() {
        let path = std::env::current_exe().unwrap();
        let file = rustix::fs::open(&path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let old = of_open(file.as_fd()).unwrap();
        assert!(old.size > 0 && old.modified.seconds > 0 && old.links > 0);
        for found in [of(file.as_fd()).unwrap(), of_path(None, &path, Links::Follow).unwrap()] {
            assert_eq!(Stat { mount: 0, ..found }, old);
        }
    }

    #[test]
    fn a_link_itself_is_not_what_it_points_to() {
        let link = Path::new("/proc/self/exe");
        let followed = of_path(None, link, Links::Follow).unwrap();
        let itself = of_path(None, link, Links::NotLast).unwrap();
        assert_eq!(followed.mode & 0o170_000, 0o100_000);
        assert_eq!(itself.mode & 0o170_000, 0o120_000);
    }

    #[test]
    fn proc_says_what_it_is() {
        let how = rustix::fs::OFlags::RDONLY;
        let file = rustix::fs::open("/proc/self/stat", how, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(filesystem_magic(file.as_fd()).unwrap(), 0x9fa0);
    }
}
