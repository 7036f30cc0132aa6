//! How much memory the process may have: what its control groups allow, or what the machine has. On any
//! thread that may read files of the kernel's, which takes some microseconds.

use std::path::{Path, PathBuf};

/// Where systems mount control groups (hierarchy of cgroups(7)).
const MOUNT: &str = "/sys/fs/cgroup";

/// The smallest limit on memory of the process's control groups and of those around them, or the size of
/// the machine's memory, bytes. Changes of a limit show at the next call.
#[must_use]
pub fn memory_limit_bytes() -> u64 {
    let page = rustix::param::page_size() as u64;
    let machine = rustix::system::sysinfo();
    let machine_bytes = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit.max(1)));
    let groups = read("/proc/self/cgroup".as_ref()).unwrap_or_default();
    let limit = files(&groups).iter().filter_map(|file| parse(&read(file)?)).min();
    limit.unwrap_or(u64::MAX).min(machine_bytes).max(page)
}

#[expect(clippy::disallowed_methods, reason = "files of the kernel's that are always in memory")]
fn read(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

/// The files that may hold a limit, of a text as in /proc/self/cgroup: of the unified hierarchy and of the
/// old one of memory, from the process's group up to what is mounted (in a container, its own group).
fn files(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" => (MOUNT.to_owned(), "memory.max"),
            all if all.split(',').any(|one| one == "memory") => {
                (format!("{MOUNT}/memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        found.extend(group.ancestors().map(|at| Path::new(&root).join(at).join(name)));
    }
    found
}

/// `None` where there is no limit: `max`, or, in the old hierarchy, nearly all that 63 bits can say.
fn parse(limit: &str) -> Option<u64> {
    limit.trim().parse().ok().filter(|&bytes| bytes < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_group_and_of_those_around_it_are_read() {
        let names = |groups: &str| -> Vec<String> {
            files(groups).iter().map(|file| file.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            names("0::/system.slice/a.service\n"),
            [
                "/sys/fs/cgroup/system.slice/a.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            names("5:cpu,cpuacct:/a\n4:hugetlb,memory:/b\n"),
            ["/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert!(names("nonsense\n4\n").is_empty());
    }

    #[test]
    fn what_says_that_there_is_none_is_none() {
        assert_eq!(["max\n", "9223372036854771712\n", "", "-1"].map(parse), [None; 4]);
        assert_eq!(parse("134217728\n"), Some(134_217_728));
        assert!(memory_limit_bytes() >= 4096);
    }
}
