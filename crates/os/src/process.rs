//! The process: its limits, its table of descriptors, where it runs. Boot only.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The nice value of the highest priority as RLIMIT_NICE counts it, see getrlimit(2).
const NICE_LIMIT_MAX: u64 = 40;

/// What [`set_limit`] limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open descriptors (RLIMIT_NOFILE).
    Files,
    /// The size of a core, in bytes (RLIMIT_CORE).
    Core,
}

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

/// The system's name and release, such as `Linux 6.1.0`.
#[must_use]
pub fn system() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())
}

/// Descriptors that the process may open: the soft and the hard limit; `None` if one of them is none.
#[must_use]
pub fn descriptor_limits() -> Option<(u64, u64)> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current.zip(maximum)
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
    // A kernel that refuses has none.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Sets a limit, the soft and the hard one.
///
/// # Errors
/// As setrlimit(2): EPERM to raise the hard limit without the right to.
pub fn set_limit(limit: Limit, value: u64) -> io::Result<()> {
    let resource = match limit {
        Limit::Files => Resource::Nofile,
        Limit::Core => Resource::Core,
    };
    Ok(setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
}

/// Allows the process to raise the priority of its threads, also when it has no rights any more: what was
/// demoted can be restored then.
///
/// # Errors
/// As setrlimit(2): EPERM without the right to.
pub fn allow_nice() -> io::Result<()> {
    let limit = Some(NICE_LIMIT_MAX);
    Ok(setrlimit(Resource::Nice, Rlimit { current: limit, maximum: limit })?)
}

/// Sets the nice value, from -20 to 19 (beyond, the nearest), of the calling thread and of those that
/// it starts.
///
/// # Errors
/// As setpriority(2): EACCES to raise the priority without the right to.
pub fn set_priority(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// Lets the process dump a core, and read its own files in /proc, again: a change of user takes both.
///
/// # Errors
/// As prctl(2), PR_SET_DUMPABLE.
pub fn set_dumpable() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Whether a program that this thread executes may have capabilities of the thread: all of root's, and those
/// of other users that can be inherited (ambient ones). What the program's file brings along does not count.
///
/// # Errors
/// As capget(2).
pub fn hands_capabilities_on() -> io::Result<bool> {
    let CapabilitySets { permitted, inheritable, .. } = rustix::thread::capabilities(None)?;
    let handed_on = if is_root() { permitted } else { permitted & inheritable };
    Ok(!handed_on.is_empty())
}

/// Has a change of user leave this thread its capabilities as ones that it may take (PR_SET_KEEPCAPS), until
/// [`keep_raw_sockets`] says which it keeps.
///
/// # Errors
/// As prctl(2).
pub fn keep_capabilities() -> io::Result<()> {
    Ok(rustix::thread::set_keep_capabilities(true)?)
}

/// Gives up all capabilities of this thread, and of those that it starts, but CAP_NET_RAW, with which
/// sockets may have addresses of other machines (IP_TRANSPARENT). Programs that it executes do not have it.
///
/// # Errors
/// As capset(2): EPERM if the thread did not have that one.
pub fn keep_raw_sockets() -> io::Result<()> {
    let raw = CapabilitySet::NET_RAW;
    let sets = CapabilitySets { effective: raw, permitted: raw, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Lets this thread, and those that it starts, gain no rights by executing a program (PR_SET_NO_NEW_PRIVS).
/// There is no way back.
///
/// # Errors
/// As prctl(2).
pub fn refuse_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Changes the directory in which relative names begin, for the whole process. **Blocks** (a disk).
///
/// # Errors
/// As chdir(2).
pub fn change_directory(path: &Path) -> io::Result<()> {
    Ok(rustix::process::chdir(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_system() {
        let version = rustix::system::uname().release().to_str().unwrap().to_owned();
        assert_eq!(system(), format!("Linux {version}"));
    }

    #[test]
    fn a_soft_limit_is_no_more_than_the_hard_one() {
        if let Some((soft, hard)) = descriptor_limits() {
            assert!(0 < soft && soft <= hard);
            assert_eq!(descriptors_max(), Some(soft));
        }
    }

    #[test]
    fn a_limit_that_suffices_stays() {
        let before = descriptors_max();
        assert_eq!(raise_descriptors(1), before);
        grow_descriptor_table(before.unwrap_or(1024).min(4096));
    }

    #[test]
    fn a_lower_priority_is_everybody_s_right() {
        set_priority(19).unwrap();
        assert_eq!(crate::thread::nice(crate::thread::current()).unwrap(), 19);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = change_directory(Path::new("/proc/self/no such directory")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
