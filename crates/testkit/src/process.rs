//! Facts about a process from `/proc`: its children, threads, descriptors, memory, CPU time.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// A process id.
pub type Pid = u32;

/// `/proc` counts CPU time in these, whatever the kernel's own tick is.
const TICKS_PER_SECOND: u64 = 100;

/// The process and all its descendants, parents first.
pub fn family(root: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = every().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut out = vec![root];
    let mut next = 0;
    while let Some(&parent) = out.get(next) {
        out.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    out
}

/// The processes that have this parent.
pub fn children(parent: Pid) -> Vec<Pid> {
    every().filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

/// The processes that run in this directory or below it, zombies left out.
pub fn running_in(dir: &Path) -> Vec<Pid> {
    let within = |pid: &Pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    every().filter(within).collect()
}

/// Whether it is there and not a zombie.
pub fn is_running(pid: Pid) -> bool {
    stat_field(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

/// The process that started it, or the one that inherited it.
pub fn parent_of(pid: Pid) -> Option<Pid> {
    stat_field(pid, 1)?.parse().ok()
}

/// How it calls itself; empty if it is gone.
pub fn title(pid: Pid) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&words).replace('\0', " ");
    text.trim_end().to_owned()
}

/// Its effective user and group; nothing if it is gone.
pub fn user_and_group(pid: Pid) -> Option<(u32, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Real, effective, saved and file system id.
    let effective = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some((effective("Uid:")?, effective("Gid:")?))
}

/// Every process there is.
fn every() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// How many threads it has now; 0 if it is gone.
pub fn threads(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// How many descriptors it has open now; 0 if it is gone.
pub fn descriptors(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Resident memory, bytes.
pub fn rss_bytes(pid: Pid) -> u64 {
    kib_line(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The most resident memory that it has had so far, bytes.
pub fn rss_peak_bytes(pid: Pid) -> u64 {
    kib_line(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Resident memory that is pages of files, the program and its libraries among them, bytes.
pub fn rss_of_files_bytes(pid: Pid) -> u64 {
    kib_line(&format!("/proc/{pid}/status"), "RssFile:")
}

/// Its share of the memory it uses (PSS), bytes: pages that several processes map count in part.
pub fn pss_bytes(pid: Pid) -> u64 {
    kib_line(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// CPU time of all its threads so far, ended ones and the kernel's part included; in steps of 10 ms.
pub fn cpu_time(pid: Pid) -> Duration {
    // utime and stime are fields 14 and 15 of stat(5), so 11 and 12 after the name and the state.
    let ticks = |field| stat_field(pid, field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 1000 / TICKS_PER_SECOND)
}

/// CPU time of the threads that it has now, to the nanosecond; those that have ended are not in it.
pub fn cpu_time_of_threads(pid: Pid) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// The kernel's one-letter state of each of its threads (`R` runs or wants to, `S` sleeps).
pub fn thread_states(pid: Pid) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let text = fs::read_to_string(task.path().join("stat")).ok()?;
            text.rsplit_once(") ")?.1.chars().next()
        })
        .collect()
}

/// A field of `/proc/PID/stat`, counted from 0 at the state; the name before it may hold anything.
fn stat_field(pid: Pid, field: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.rsplit_once(") ")?.1;
    after_name.split_whitespace().nth(field).map(str::to_owned)
}

/// The value of a line such as `Pss:  12 kB`, in bytes.
fn kib_line(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there() {
        let me = std::process::id();
        assert_eq!(family(me).first(), Some(&me));
        assert!(threads(me) >= 1 && descriptors(me) >= 3);
        assert!(rss_bytes(me) > 100 * 1024 && pss_bytes(me) > 10 * 1024);
        assert!(thread_states(me).contains(&'R'));
        assert!(cpu_time_of_threads(me) > Duration::ZERO);
        assert!(is_running(me) && parent_of(me).is_some_and(|parent| children(parent).contains(&me)));
        assert!(title(me).contains("clearway_testkit"), "{}", title(me));
        assert!(user_and_group(me).is_some());
        assert!(running_in(&std::env::current_dir().unwrap()).contains(&me));
    }

    #[test]
    fn what_is_gone_counts_nothing() {
        let gone = Pid::MAX;
        assert_eq!((threads(gone), descriptors(gone), rss_bytes(gone)), (0, 0, 0));
        assert_eq!(cpu_time(gone), Duration::ZERO);
        assert_eq!((is_running(gone), parent_of(gone), user_and_group(gone)), (false, None, None));
        assert_eq!(title(gone), "");
    }
}
