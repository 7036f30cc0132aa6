//! Children, what they share with their parent, and what goes between them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use clearway_os::child::{self, Exit, OnExec, Standard};
use clearway_os::process::{self, Limit};
use clearway_os::shared_memory::SharedMemory;
use clearway_os::signal::{self, Received, Signal, SignalFd, SignalSet};
use clearway_os::{channel, poll};

use super::{Case, start, wait_for};

pub(crate) const CASES: &[Case] = &[
    ("exits_are_told", exits_are_told),
    ("a_child_is_reaped_once", a_child_is_reaped_once),
    ("signals_name_their_sender", signals_name_their_sender),
    ("memory_outlives_who_wrote_it", memory_outlives_who_wrote_it),
    ("a_worker_maps_what_it_was_handed", a_worker_maps_what_it_was_handed),
    ("lost_descriptors_are_an_error", lost_descriptors_are_an_error),
    ("a_daemon_leaves_everything", a_daemon_leaves_everything),
    ("programs_inherit_what_is_kept", programs_inherit_what_is_kept),
];

/// SIGABRT.
const ABORT: Signal = Signal(6);

fn exits_are_told() {
    for code in [0, 2, 255] {
        let pid = start(|| std::process::exit(code));
        assert_eq!(wait_for(pid), Exit::Code(code));
    }
    process::set_limit(Limit::Core, 0).unwrap();
    // Others, such as QUIT, may be ignored where the tests run.
    for signal in [Signal::KILL, Signal::TERM, ABORT] {
        let pid = start(|| {
            poll::wait(&[], None).unwrap();
        });
        signal::kill(pid, signal).unwrap();
        assert_eq!(wait_for(pid), Exit::Signal { number: signal.0, dumped: false });
    }
}

fn a_child_is_reaped_once() {
    assert_eq!(child::reap().unwrap(), None, "there are no children");
    let parent = std::process::id();
    let (here, there) = channel::pair().unwrap();
    let pid = start(|| {
        assert_eq!(child::parent_id(), parent);
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        channel::receive(there.as_fd(), &mut bytes, &mut fds).unwrap();
    });
    assert_eq!(child::reap().unwrap(), None, "it runs");
    channel::send(here.as_fd(), b"end", &[]).unwrap();
    assert_eq!(wait_for(pid), Exit::Code(0));
    assert_eq!(child::reap().unwrap(), None);
    let gone = signal::kill(pid, Signal::TERM).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(rustix::io::Errno::SRCH.raw_os_error()));
}

fn signals_name_their_sender() {
    let set = SignalSet::of(&[Signal::HUP, Signal::USR1, Signal::CHLD]);
    set.block();
    let signals = SignalFd::new(&set).unwrap();
    let parent = std::process::id();
    let pid = start(|| {
        signal::kill(parent, Signal::USR1).unwrap();
        signal::kill(parent, Signal::HUP).unwrap();
    });
    let mut seen = Vec::new();
    while seen.len() < 3 {
        assert_eq!(poll::wait(&[signals.as_fd()], None).unwrap(), [true]);
        seen.extend(signals.take().unwrap());
    }
    seen.sort_by_key(|received| received.signal.0);
    let from_child = [Signal::HUP, Signal::USR1, Signal::CHLD];
    assert_eq!(seen, from_child.map(|signal| Received { signal, sender_pid: pid }));
    assert_eq!(child::reap().unwrap(), Some((pid, Exit::Code(0))));
}

fn memory_outlives_who_wrote_it() {
    let (memory, _fd) = SharedMemory::create("zone", 1 << 16).unwrap();
    let pid = start(|| {
        for n in 1.. {
            memory.words()[8000].store(n, Release);
        }
    });
    while memory.words()[8000].load(Acquire) < 1000 {
        std::thread::yield_now();
    }
    signal::kill(pid, Signal::KILL).unwrap();
    assert_eq!(wait_for(pid), Exit::Signal { number: Signal::KILL.0, dumped: false });
    let last = memory.words()[8000].load(Acquire);
    assert!(last >= 1000);
    // The next one goes on where the last one was killed.
    let pid = start(|| {
        memory.words()[8000].fetch_add(1, Relaxed);
    });
    assert_eq!(wait_for(pid), Exit::Code(0));
    assert_eq!(memory.words()[8000].load(Acquire), last + 1);
}

fn a_worker_maps_what_it_was_handed() {
    let (here, there) = channel::pair().unwrap();
    // Started before there is any memory: it has nothing but the channel.
    let pid = start(|| {
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        channel::receive(there.as_fd(), &mut bytes, &mut fds).unwrap();
        let memory = SharedMemory::map(fds[0].as_fd(), 4096).unwrap();
        memory.words()[1].store(memory.words()[0].load(Acquire) + 1, Release);
    });
    let (memory, fd) = SharedMemory::create("zone", 4096).unwrap();
    memory.words()[0].store(41, Release);
    channel::send(here.as_fd(), b"zone", &[fd.as_fd()]).unwrap();
    assert_eq!(wait_for(pid), Exit::Code(0));
    assert_eq!(memory.words()[1].load(Acquire), 42);
}

fn lost_descriptors_are_an_error() {
    let (here, there) = channel::pair().unwrap();
    let list = vec![here.as_fd(); 100];
    channel::send(here.as_fd(), b"many", &list).unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    process::set_limit(Limit::Files, before as u64 + 40).unwrap();
    let (mut bytes, mut fds): (_, Vec<OwnedFd>) = (b"old".to_vec(), Vec::new());
    let error = channel::receive(there.as_fd(), &mut bytes, &mut fds).unwrap_err();
    assert!(error.to_string().contains("too many open files"), "{error}");
    assert_eq!((bytes.as_slice(), fds.len(), open()), (&b"old"[..], 0, before));
}

fn a_daemon_leaves_everything() {
    // A forked process leads no group, so that it may lead a session.
    child::set_sid().unwrap();
    assert_eq!(rustix::process::getsid(None).unwrap(), rustix::process::getpid());
    assert!(child::set_sid().is_err(), "it leads a group now");

    let null = child::null_device().unwrap();
    for (number, onto) in [(0, Standard::Input), (1, Standard::Output), (2, Standard::Error)] {
        let saved = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        let old = rustix::io::fcntl_dupfd_cloexec(stdio(number), 3).unwrap();
        child::redirect(null.as_fd(), onto).unwrap();
        let link = || std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(link().to_str(), Some("/dev/null"));
        assert!(!flags_of(number).contains(rustix::io::FdFlags::CLOEXEC));
        child::redirect(old.as_fd(), onto).unwrap();
        assert_eq!(link(), saved);
    }
    // Onto itself: what is missing is that it survives exec.
    child::set_close_on_exec(stdio(0), OnExec::Close).unwrap();
    child::redirect(stdio(0).as_fd(), Standard::Input).unwrap();
    assert!(!flags_of(0).contains(rustix::io::FdFlags::CLOEXEC));

    process::change_directory(std::path::Path::new("/")).unwrap();
    assert_eq!(std::env::current_dir().unwrap().to_str(), Some("/"));
    child::set_umask(0o027);
    assert_eq!(child::set_umask(0), 0o027);
    assert_eq!(child::set_umask(0o022), 0);
}

fn stdio(number: i32) -> Box<dyn AsFd> {
    match number {
        0 => Box::new(std::io::stdin()),
        1 => Box::new(std::io::stdout()),
        _ => Box::new(std::io::stderr()),
    }
}

fn flags_of(number: i32) -> rustix::io::FdFlags {
    rustix::io::fcntl_getfd(stdio(number)).unwrap()
}

fn programs_inherit_what_is_kept() {
    let ((kept, _a), (closed, _b)) = (channel::pair().unwrap(), channel::pair().unwrap());
    child::set_close_on_exec(&kept, OnExec::Keep).unwrap();
    let is_open = |fd: &OwnedFd| {
        let test = format!("test -e /proc/self/fd/{}", fd.as_raw_fd());
        std::process::Command::new("/bin/sh").args(["-c", &test]).status().unwrap().success()
    };
    assert!(is_open(&kept) && !is_open(&closed));
}
