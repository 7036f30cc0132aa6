//! Another user's identity, and the limits and priorities that belong to it. What may be done is asked by
//! capability; without them only the refusals can be seen.

use std::io::ErrorKind::PermissionDenied;
use std::sync::mpsc;

use clearway_os::process::{self, Limit};
use clearway_os::thread::{self, Policy};
use clearway_os::users::{self, Refused, User};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use super::Case;

pub(crate) const CASES: &[Case] = &[
    ("every_thread_takes_the_identity_on", every_thread_takes_the_identity_on),
    ("of_all_capabilities_one_is_kept", of_all_capabilities_one_is_kept),
    ("there_is_no_way_back", there_is_no_way_back),
    ("a_demoted_thread_is_restored_without_rights", a_demoted_thread_is_restored_without_rights),
    ("a_change_of_user_hides_the_process", a_change_of_user_hides_the_process),
    ("new_privileges_are_refused_for_good", new_privileges_are_refused_for_good),
    ("limits_are_set_both", limits_are_set_both),
    ("priorities_are_inherited", priorities_are_inherited),
    ("what_needs_rights_is_refused", what_needs_rights_is_refused),
];

/// Somebody without rights, with groups that differ from root's.
fn nobody() -> User {
    let user = users::find_user(b"nobody").unwrap().expect("every system has nobody");
    assert!(user.uid != 0 && user.gid != 0);
    user
}

fn become_nobody() {
    users::become_user(&nobody(), |refused| panic!("{refused}: {}", refused.error())).unwrap();
}

/// Capabilities by their numbers, see capabilities(7). In a container root often lacks some of them.
const SETGID: u32 = 6;
const SETUID: u32 = 7;
const NET_RAW: u32 = 13;
const SYS_NICE: u32 = 23;
const SYS_RESOURCE: u32 = 24;

/// Whether this process has it; what it has in a user namespace only does not count.
fn holds(capability: u32) -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    if users.split_whitespace().ne(["0", "0", "4294967295"]) {
        return false;
    }
    let held = u64::from_str_radix(&status(thread::current(), "CapEff:"), 16).unwrap();
    held >> capability & 1 == 1
}

fn may_become_somebody() -> bool {
    process::is_root() && holds(SETGID) && holds(SETUID)
}

/// Gives up all rights; `false` if this process is root and may not.
fn without_rights() -> bool {
    if may_become_somebody() {
        become_nobody();
    }
    !process::is_root()
}

/// What /proc says of thread `tid` after `key`.
fn status(tid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn every_thread_takes_the_identity_on() {
    if !may_become_somebody() {
        return;
    }
    let user = nobody();
    let (say, hear) = mpsc::channel();
    let (end, wait) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        say.send(thread::current()).unwrap();
        wait.recv().unwrap_err();
    });
    let tids = [thread::current(), hear.recv().unwrap()];
    become_nobody();
    let (uid, gid) = (user.uid, user.gid);
    for tid in tids {
        assert_eq!(status(tid, "Uid:"), format!("{uid} {uid} {uid} {uid}"));
        assert_eq!(status(tid, "Gid:"), format!("{gid} {gid} {gid} {gid}"));
        let groups = status(tid, "Groups:");
        assert!(groups.split(' ').any(|group| group == gid.to_string()), "{groups}");
        assert!(groups.split(' ').all(|group| group != "0"), "{groups}");
        assert_eq!(status(tid, "CapEff:"), "0000000000000000");
    }
    assert!(!process::is_root());
    drop(end);
    other.join().unwrap();
}

fn of_all_capabilities_one_is_kept() {
    if !may_become_somebody() || !holds(NET_RAW) {
        return;
    }
    process::keep_capabilities().unwrap();
    become_nobody();
    process::keep_raw_sockets().unwrap();
    let only = format!("{:016x}", 1u64 << NET_RAW);
    let sets = || ["CapEff:", "CapPrm:"].map(|key| status(thread::current(), key));
    assert_eq!(sets(), [only.clone(), only.clone()]);
    assert_eq!(std::thread::spawn(sets).join().unwrap(), [only.clone(), only]);
    assert!(!process::hands_capabilities_on().unwrap());
    let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    clearway_os::tcp::set_transparent(&fd, &"192.0.2.1:0".parse().unwrap()).unwrap();
    let root = users::find_user(b"root").unwrap().unwrap();
    let refused = users::become_user(&root, |_| panic!("setgid comes first")).unwrap_err();
    assert!(matches!(refused, Refused::SetGid(0, _)), "{refused}");
}

fn there_is_no_way_back() {
    if !without_rights() {
        return;
    }
    let root = users::find_user(b"root").unwrap().unwrap();
    let refused = users::become_user(&root, |_| panic!("setgid comes first")).unwrap_err();
    assert!(matches!(refused, Refused::SetGid(0, _)), "{refused}");
    assert_eq!(refused.error().kind(), PermissionDenied);
    // One's own group may be set; it is the other groups that nobody without rights may choose. nginx
    // goes on then, and so does this.
    let own = User { gid: rustix::process::getgid().as_raw(), ..root };
    let mut told = Vec::new();
    let refused = users::become_user(&own, |refused| told.push(refused.to_string())).unwrap_err();
    assert_eq!(told, [format!("initgroups(root, {}) failed", own.gid)]);
    assert!(matches!(refused, Refused::SetUid(0, _)), "{refused}");
}

fn a_demoted_thread_is_restored_without_rights() {
    if !holds(SYS_RESOURCE) {
        assert_eq!(process::allow_nice().unwrap_err().kind(), PermissionDenied);
        return;
    }
    process::allow_nice().unwrap();
    without_rights();
    let tid = thread::current();
    let before = thread::nice(tid).unwrap();
    thread::schedule(tid, Policy::Normal, 19, 0).unwrap();
    assert_eq!(thread::nice(tid).unwrap(), 19);
    thread::schedule(tid, Policy::Normal, before, 0).unwrap();
    assert_eq!(thread::nice(tid).unwrap(), before);
}

fn a_change_of_user_hides_the_process() {
    let dumpable = || rustix::process::dumpable_behavior().unwrap() == DumpableBehavior::Dumpable;
    // Where the system lets such processes be dumped (fs.suid_dumpable), there is nothing to restore.
    if may_become_somebody() && without_rights() && !dumpable() {
        assert_eq!(std::fs::read("/proc/self/environ").unwrap_err().kind(), PermissionDenied);
    }
    process::set_dumpable().unwrap();
    assert!(dumpable());
    std::fs::read("/proc/self/environ").unwrap();
    let tid = thread::current();
    std::fs::read(format!("/proc/self/task/{tid}/syscall")).unwrap();
}

fn new_privileges_are_refused_for_good() {
    if process::is_root() {
        let permitted = status(thread::current(), "CapPrm:");
        assert_eq!(process::hands_capabilities_on().unwrap(), permitted.contains(|c| c != '0'));
    }
    if may_become_somebody() {
        become_nobody();
        assert!(!process::hands_capabilities_on().unwrap());
    }
    process::refuse_new_privileges().unwrap();
    let refuses = || status(thread::current(), "NoNewPrivs:");
    assert_eq!((refuses(), std::thread::spawn(refuses).join().unwrap()), ("1".to_owned(), "1".to_owned()));
}

fn limits_are_set_both() {
    for (limit, resource) in [(Limit::Files, Resource::Nofile), (Limit::Core, Resource::Core)] {
        process::set_limit(limit, 100).unwrap();
        let both = rustix::process::getrlimit(resource);
        assert_eq!(both, Rlimit { current: Some(100), maximum: Some(100) });
    }
    assert_eq!(process::descriptors_max(), Some(100));
    if holds(SYS_RESOURCE) {
        process::set_limit(Limit::Files, 200).unwrap();
    }
    if !without_rights() && holds(SYS_RESOURCE) {
        return;
    }
    let before = process::descriptors_max();
    assert_eq!(process::set_limit(Limit::Files, 300).unwrap_err().kind(), PermissionDenied);
    assert_eq!(process::descriptors_max(), before);
    assert_eq!(process::raise_descriptors(300), before);
}

fn priorities_are_inherited() {
    process::set_priority(5).unwrap();
    let nice = || thread::nice(thread::current()).unwrap();
    assert_eq!(std::thread::spawn(nice).join().unwrap(), 5);
    process::set_priority(1000).unwrap();
    assert_eq!(nice(), 19);
    if holds(SYS_NICE) {
        process::set_priority(-3).unwrap();
        assert_eq!(nice(), -3);
    }
}

fn what_needs_rights_is_refused() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Nice, none).unwrap();
    if !without_rights() {
        return;
    }
    assert_eq!(process::allow_nice().unwrap_err().kind(), PermissionDenied);
    // The highest priority of all cannot be raised, which is no error.
    let nice = thread::nice(thread::current()).unwrap();
    assert!(nice == -20 || process::set_priority(nice - 1).unwrap_err().kind() == PermissionDenied);
}
