//! Names of system calls for reports, and the subject of each. Only calls that can take long have a name;
//! others are shown by their number.

use std::ffi::c_long;

use crate::stack_walk;

/// Which argument says what a call is about.
#[derive(Clone, Copy)]
enum Subject {
    Nothing,
    /// The first one is a descriptor.
    Descriptor,
    /// The second one is a descriptor.
    Source,
    /// The argument of this index is a path.
    Path(usize),
}

use Subject::{Descriptor, Nothing, Path, Source};

#[rustfmt::skip]
const CALLS: &[(c_long, &str, Subject)] = &[
    (libc::SYS_accept4, "accept4", Descriptor),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", Nothing),
    (libc::SYS_close, "close", Descriptor),
    (libc::SYS_connect, "connect", Descriptor),
    (libc::SYS_copy_file_range, "copy_file_range", Descriptor),
    (libc::SYS_epoll_pwait, "epoll_pwait", Descriptor),
    (libc::SYS_faccessat, "faccessat", Path(1)),
    (libc::SYS_fallocate, "fallocate", Descriptor),
    (libc::SYS_fcntl, "fcntl", Descriptor),
    (libc::SYS_fdatasync, "fdatasync", Descriptor),
    (libc::SYS_flock, "flock", Descriptor),
    (libc::SYS_fstat, "fstat", Descriptor),
    (libc::SYS_fsync, "fsync", Descriptor),
    (libc::SYS_ftruncate, "ftruncate", Descriptor),
    (libc::SYS_futex, "futex", Nothing),
    (libc::SYS_getdents64, "getdents64", Descriptor),
    (libc::SYS_getrandom, "getrandom", Nothing),
    (libc::SYS_io_uring_enter, "io_uring_enter", Descriptor),
    (libc::SYS_ioctl, "ioctl", Descriptor),
    (libc::SYS_linkat, "linkat", Path(1)),
    (libc::SYS_madvise, "madvise", Nothing),
    (libc::SYS_mkdirat, "mkdirat", Path(1)),
    (libc::SYS_mmap, "mmap", Nothing),
    (libc::SYS_mprotect, "mprotect", Nothing),
    (libc::SYS_munmap, "munmap", Nothing),
    (libc::SYS_nanosleep, "nanosleep", Nothing),
    (libc::SYS_newfstatat, "newfstatat", Path(1)),
    (libc::SYS_openat, "openat", Path(1)),
    (libc::SYS_openat2, "openat2", Path(1)),
    (libc::SYS_ppoll, "ppoll", Nothing),
    (libc::SYS_pread64, "pread64", Descriptor),
    (libc::SYS_preadv, "preadv", Descriptor),
    (libc::SYS_preadv2, "preadv2", Descriptor),
    (libc::SYS_pselect6, "pselect6", Nothing),
    (libc::SYS_pwrite64, "pwrite64", Descriptor),
    (libc::SYS_pwritev, "pwritev", Descriptor),
    (libc::SYS_read, "read", Descriptor),
    (libc::SYS_readahead, "readahead", Descriptor),
    (libc::SYS_readlinkat, "readlinkat", Path(1)),
    (libc::SYS_readv, "readv", Descriptor),
    (libc::SYS_recvfrom, "recvfrom", Descriptor),
    (libc::SYS_recvmsg, "recvmsg", Descriptor),
    (libc::SYS_renameat2, "renameat2", Path(1)),
    (libc::SYS_sendfile, "sendfile", Source),
    (libc::SYS_sendmsg, "sendmsg", Descriptor),
    (libc::SYS_sendto, "sendto", Descriptor),
    (libc::SYS_splice, "splice", Descriptor),
    (libc::SYS_statfs, "statfs", Path(0)),
    (libc::SYS_statx, "statx", Path(1)),
    (libc::SYS_sync_file_range, "sync_file_range", Descriptor),
    (libc::SYS_unlinkat, "unlinkat", Path(1)),
    (libc::SYS_wait4, "wait4", Nothing),
    (libc::SYS_waitid, "waitid", Nothing),
    (libc::SYS_write, "write", Descriptor),
    (libc::SYS_writev, "writev", Descriptor),
];

/// System calls that newer processors have under another name only.
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[(c_long, &str, Subject)] = &[
    (libc::SYS_access, "access", Path(0)),
    (libc::SYS_epoll_wait, "epoll_wait", Descriptor),
    (libc::SYS_lstat, "lstat", Path(0)),
    (libc::SYS_mkdir, "mkdir", Path(0)),
    (libc::SYS_open, "open", Path(0)),
    (libc::SYS_poll, "poll", Nothing),
    (libc::SYS_readlink, "readlink", Path(0)),
    (libc::SYS_rename, "rename", Path(0)),
    (libc::SYS_rmdir, "rmdir", Path(0)),
    (libc::SYS_select, "select", Nothing),
    (libc::SYS_stat, "stat", Path(0)),
    (libc::SYS_unlink, "unlink", Path(0)),
];

/// System calls that newer processors have under another name only.
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(c_long, &str, Subject)] = &[];

/// A path in a report is cut to this, bytes.
const PATH_BYTES_MAX: usize = 256;

fn find(number: c_long) -> Option<(&'static str, Subject)> {
    let calls = CALLS.iter().chain(OLD_CALLS);
    calls.copied().find(|(known, ..)| *known == number).map(|(_, name, subject)| (name, subject))
}

/// The name of a system call.
#[must_use]
pub fn name(number: i64) -> String {
    find(number).map_or_else(|| format!("system call {number}"), |(name, _)| name.to_owned())
}

/// The file or path that a call under way in this process is about, if that is known: what its descriptor
/// stands for, or its path argument. What the call does meanwhile may make either wrong.
#[must_use]
pub fn subject(number: i64, args: &[usize; 6]) -> Option<Vec<u8>> {
    let descriptor = |arg: usize| {
        let path = format!("/proc/self/fd/{}", arg as i32);
        let target = rustix::fs::readlink(path, Vec::new()).ok()?;
        Some(target.into_bytes())
    };
    match find(number)?.1 {
        Nothing => None,
        Descriptor => descriptor(args[0]),
        Source => descriptor(args[1]),
        Path(index) => {
            stack_walk::copy_text(args[index], PATH_BYTES_MAX).ok().filter(|path| !path.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_subjects() {
        assert_eq!((name(libc::SYS_pread64), name(99_999)), ("pread64".into(), "system call 99999".into()));
        let path = c"/a/b";
        let args = [0, path.as_ptr().expose_provenance(), 0, 0, 0, 0];
        assert_eq!(subject(libc::SYS_openat, &args).as_deref(), Some(&b"/a/b"[..]));
        assert_eq!(subject(libc::SYS_openat, &[0; 6]), None);
        assert_eq!(subject(libc::SYS_read, &[usize::MAX; 6]), None);
        let null =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let number = rustix::fd::AsRawFd::as_raw_fd(&null) as usize;
        assert_eq!(subject(libc::SYS_sendfile, &[0, number, 0, 0, 0, 0]).as_deref(), Some(&b"/dev/null"[..]));
        assert_eq!(subject(libc::SYS_futex, &args), None);
    }

    #[test]
    fn every_number_stands_once() {
        let mut numbers: Vec<_> = CALLS.iter().chain(OLD_CALLS).map(|call| call.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len() + OLD_CALLS.len());
    }
}
