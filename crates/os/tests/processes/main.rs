//! What needs a process of its own: fork, signals between processes, another user's identity, limits,
//! titles. Every case runs in a child of this program, which has one thread and no harness; where it
//! runs as root the privileged paths are tested, and the refusals as `nobody`. The argument is a part
//! of a case's name, as in other tests.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests: no loop is near")]
#![expect(clippy::unwrap_used, reason = "tests, which without a harness are not known as such")]

mod children;
mod identity;
mod titles;

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clearway_os::child::{self, Exit, Forked};
use clearway_os::poll;
use clearway_os::signal::{self, Signal, SignalFd, SignalSet};
use clearway_os::title::Title;

/// After this time a case hangs.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// A name, and what panics if something is wrong.
type Case = (&'static str, fn());

fn main() -> ExitCode {
    let title = Title::capture();
    if std::env::var_os(titles::ROLE).is_some() {
        titles::play(title);
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| {
        let mut words = title.args()[1..].iter().filter_map(|arg| arg.to_str());
        words.find(|word| !word.starts_with('-')).is_none_or(|word| name.contains(word))
    };
    if title.args().iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    SignalSet::of(&[Signal::CHLD]).block();
    let mut failed = 0;
    for case in [children::CASES, identity::CASES, titles::CASES].concat() {
        if !wanted(case.0) {
            continue;
        }
        let exit = run(case);
        let verdict = if exit == Exit::Code(0) { "ok".to_owned() } else { format!("FAILED: {exit:?}") };
        println!("case {} ... {verdict}", case.0);
        failed += u32::from(exit != Exit::Code(0));
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(case: Case) -> Exit {
    let (pid, end) = (start(case.1), Instant::now() + CASE_LIMIT);
    ended(pid, end)
}

/// Runs `body` in a child: its exit code is 0 unless it panics.
fn start(body: impl FnOnce()) -> u32 {
    match child::fork().unwrap() {
        Forked::Parent(pid) => pid,
        Forked::Child => {
            let result = catch_unwind(AssertUnwindSafe(body));
            std::process::exit(i32::from(result.is_err()));
        }
    }
}

/// Waits until child `pid` has ended; it is killed at `limit`. SIGCHLD must be blocked.
fn ended(pid: u32, limit: Instant) -> Exit {
    let signals = SignalFd::new(&SignalSet::of(&[Signal::CHLD])).unwrap();
    loop {
        while let Some((ended, exit)) = child::reap().unwrap() {
            if ended == pid {
                return exit;
            }
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            signal::kill(pid, Signal::KILL).unwrap();
            // It ends now: what is waited for is its SIGCHLD.
            poll::wait(&[signals.as_fd()], None).unwrap();
        } else {
            poll::wait(&[signals.as_fd()], Some(left)).unwrap();
        }
        while signals.take().unwrap().is_some() {}
    }
}

/// Waits for a child that is to end soon.
fn wait_for(pid: u32) -> Exit {
    ended(pid, Instant::now() + CASE_LIMIT / 2)
}
