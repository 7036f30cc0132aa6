//! The process: its limits, its table of descriptors, the system's users. Boot only.
#![expect(unsafe_code, reason = "the user database is libc's, and prctl has no wrapper")]

use std::ffi::CString;
use std::os::fd::AsFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether the process runs with super-user rights.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How many processors the process may run on.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine's name.
#[must_use]
pub fn hostname() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// Whether the user database has this user. **Blocks** (files, perhaps a directory service).
#[must_use]
pub fn user_exists(name: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a valid string; the answer is compared with null only. Boot runs on one thread.
    !unsafe { libc::getpwnam(name.as_ptr()) }.is_null()
}

/// Whether the user database has this group. **Blocks** as [`user_exists`] does.
#[must_use]
pub fn group_exists(name: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: as above.
    !unsafe { libc::getgrnam(name.as_ptr()) }.is_null()
}

/// Descriptors that the process may open; `None` is no limit.
#[must_use]
pub fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit of descriptors to `wanted`, as far as the process is allowed to. Returns the
/// limit that is in force then.
pub fn raise_descriptors(wanted: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return current;
    }
    let higher = maximum.map(|maximum| maximum.max(wanted));
    let attempts = [(Some(wanted), higher), (maximum.map(|maximum| maximum.min(wanted)), maximum)];
    for (current, maximum) in attempts {
        if setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
            break;
        }
    }
    descriptors_max()
}

/// Has the kernel make room for `count` descriptors now: growing the table that threads share makes
/// one of them wait for tens of milliseconds, so it is done before there are any.
pub fn grow_descriptor_table(count: u64) {
    let Some(highest) = i32::try_from(count).ok().and_then(|count| count.checked_sub(1)) else { return };
    if let Ok(spare) = rustix::io::fcntl_dupfd_cloexec(std::io::stderr().as_fd(), highest) {
        drop(spare);
    }
}

/// Has the kernel give this process small pages only (PR_SET_THP_DISABLE): the first touch of a huge
/// one zeroes two megabytes on whichever thread it happens, and memory comes in steps of as much.
pub fn refuse_huge_pages() {
    // SAFETY: takes integers and touches no memory of ours. An old kernel that says EINVAL has none.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1_u64, 0_u64, 0_u64, 0_u64) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_users_of_every_system() {
        assert!(user_exists(b"root") && !user_exists(b"no such user") && !user_exists(b"a\0b"));
        assert!(!group_exists(b"no such group"));
    }

    #[test]
    fn a_limit_that_suffices_stays() {
        let before = descriptors_max();
        assert_eq!(raise_descriptors(1), before);
        grow_descriptor_table(before.unwrap_or(1024).min(4096));
    }
}
