//! Properties of the process: limits, table of descriptors, capabilities, working directory. Boot only.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The nice value of the highest priority as RLIMIT_NICE counts it, see getrlimit(2).
const NICE_LIMIT_MAX: u64 = 40;

/// The resource of a limit that [`set_limit`] sets.
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

/// The number of processors that the process may run on.
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

/// The soft and the hard limit of open descriptors; `None` if one of them is unlimited.
#[must_use]
pub fn descriptor_limits() -> Option<(u64, u64)> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    current.zip(maximum)
}

/// The limit of open descriptors that is in force; `None` is unlimited.
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

/// Has the kernel make the table of descriptors large enough for `count` now. To grow a table that threads
/// share takes tens of milliseconds, so it is done before there are threads.
pub fn grow_descriptor_table(count: u64) {
    let Some(highest) = i32::try_from(count).ok().and_then(|count| count.checked_sub(1)) else { return };
    if let Ok(spare) = rustix::io::fcntl_dupfd_cloexec(std::io::stderr().as_fd(), highest) {
        drop(spare);
    }
}

/// Has the kernel give this process small pages only (PR_SET_THP_DISABLE). With huge pages, the first access
/// to one makes a thread wait until two megabytes are zeroed, and memory grows in steps of that size.
pub fn refuse_huge_pages() {
    // A kernel that refuses has no huge pages.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Sets a limit, the soft and the hard one.
///
/// # Errors
/// Those of setrlimit(2): EPERM if the process may not raise the hard limit.
pub fn set_limit(limit: Limit, value: u64) -> io::Result<()> {
    let resource = match limit {
        Limit::Files => Resource::Nofile,
        Limit::Core => Resource::Core,
    };
    Ok(setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
}

/// Allows the process to raise the priority of its threads even after it has given up root, so that the
/// priority of a demoted thread can be restored.
///
/// # Errors
/// Those of setrlimit(2): EPERM if the process may not.
pub fn allow_nice() -> io::Result<()> {
    let limit = Some(NICE_LIMIT_MAX);
    Ok(setrlimit(Resource::Nice, Rlimit { current: limit, maximum: limit })?)
}

/// Sets the nice value of the calling thread and of threads that it starts, from -20 to 19. Values beyond
/// count as the nearest of these.
///
/// # Errors
/// Those of setpriority(2): EACCES if the process may not raise the priority.
pub fn set_priority(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// Allows the process again to dump core, and to read its own files in /proc: after a change of user it may
/// do neither.
///
/// # Errors
/// Those of prctl(2), PR_SET_DUMPABLE.
pub fn set_dumpable() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Whether a program that this thread executes gets capabilities of the thread: as root all of them, as
/// another user the inheritable ones. Capabilities of the program's file do not count.
///
/// # Errors
/// Those of capget(2).
pub fn hands_capabilities_on() -> io::Result<bool> {
    let CapabilitySets { permitted, inheritable, .. } = rustix::thread::capabilities(None)?;
    let handed_on = if is_root() { permitted } else { permitted & inheritable };
    Ok(!handed_on.is_empty())
}

/// Has this thread keep its permitted capabilities over a change of user (PR_SET_KEEPCAPS), until
/// [`keep_raw_sockets`] drops all but one.
///
/// # Errors
/// Those of prctl(2).
pub fn keep_capabilities() -> io::Result<()> {
    Ok(rustix::thread::set_keep_capabilities(true)?)
}

/// Gives up all capabilities of this thread, and of threads that it starts, except CAP_NET_RAW, which allows
/// sockets to use addresses of other machines (IP_TRANSPARENT). Programs that the thread executes do not get
/// it.
///
/// # Errors
/// Those of capset(2): EPERM if the thread did not have CAP_NET_RAW.
pub fn keep_raw_sockets() -> io::Result<()> {
    let raw = CapabilitySet::NET_RAW;
    let sets = CapabilitySets { effective: raw, permitted: raw, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Has programs that this thread, or a thread that it starts, executes gain no privileges
/// (PR_SET_NO_NEW_PRIVS). This cannot be undone.
///
/// # Errors
/// Those of prctl(2).
pub fn refuse_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Changes the working directory of the whole process. **Blocks** (a disk).
///
/// # Errors
/// Those of chdir(2).
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
