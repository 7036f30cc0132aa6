//! The state of one thread of this process in `/proc/self/task/TID`, to be read again and again: the files
//! stay open. If they are refused (some sandboxes) there is no state. Reading them does not disturb the
//! thread. Not for loops: procfs may take locks.

use std::io;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

use crate::thread::StateFile;

/// The state of a thread at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The thread uses a processor, or waits for one.
    Running,
    /// The thread sleeps in a system call.
    Call {
        /// Its number.
        number: i64,
        /// Its arguments.
        args: [usize; 6],
        /// Top of its stack.
        sp: usize,
        /// The address at which the thread will go on.
        pc: usize,
    },
    /// The thread sleeps in the kernel for another reason: it touched memory that is being read from a disk.
    Fault {
        /// Top of its stack.
        sp: usize,
        /// The instruction.
        pc: usize,
    },
    /// The thread sleeps; no more can be seen.
    Asleep,
}

/// The open files of one thread in `/proc/self/task/TID`.
#[derive(Debug)]
pub struct ThreadFiles {
    syscall: io::Result<OwnedFd>,
    schedstat: Option<OwnedFd>,
    wchan: Option<OwnedFd>,
    state: Option<StateFile>,
}

impl ThreadFiles {
    /// Opens those of thread `tid`. What cannot be opened is not asked.
    #[must_use]
    pub fn open(tid: u32) -> Self {
        let open = |name: &str| -> io::Result<OwnedFd> {
            let path = format!("/proc/self/task/{tid}/{name}");
            Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        };
        Self {
            syscall: open("syscall"),
            schedstat: open("schedstat").ok(),
            wchan: open("wchan").ok(),
            state: StateFile::open(tid).ok(),
        }
    }

    /// Why system calls cannot be told apart, if they cannot.
    #[must_use]
    pub fn refusal(&self) -> Option<&io::Error> {
        self.syscall.as_ref().err()
    }

    /// The state of the thread; `None` if it is unknown.
    #[must_use]
    pub fn doing(&self) -> Option<Doing> {
        if let Ok(file) = &self.syscall
            && let Some(doing) = read(file, parse_syscall)
        {
            return Some(doing);
        }
        self.state
            .as_ref()?
            .letter()
            .map(|letter| if letter == b'R' { Doing::Running } else { Doing::Asleep })
    }

    /// How long the thread has waited for a processor since it began, nanoseconds.
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        read(self.schedstat.as_ref()?, |text| text.split(' ').nth(1)?.parse().ok())
    }

    /// The function of the kernel that it sleeps in, where the kernel tells.
    #[must_use]
    pub fn wchan(&self) -> Option<String> {
        read(self.wchan.as_ref()?, |text| {
            Some(text.to_owned()).filter(|name| !name.is_empty() && name != "0")
        })
    }
}

fn read<T>(file: &OwnedFd, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0_u8; 256];
    let size = rustix::io::pread(file, &mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..size]).ok()?.trim_end())
}

/// `running`, or a number, six arguments unless it is -1, stack pointer and program counter.
fn parse_syscall(text: &str) -> Option<Doing> {
    if text == "running" {
        return Some(Doing::Running);
    }
    let mut words = text.split(' ');
    let number: i64 = words.next()?.parse().ok()?;
    let mut values = words.map(|word| usize::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let mut next = || values.next().flatten();
    if number < 0 {
        return Some(Doing::Fault { sp: next()?, pc: next()? });
    }
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = next()?;
    }
    Some(Doing::Call { number, args, sp: next()?, pc: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn lines_of_the_kernel() {
        assert_eq!(parse_syscall("running"), Some(Doing::Running));
        assert_eq!(parse_syscall("-1 0x10 0x20"), Some(Doing::Fault { sp: 16, pc: 32 }));
        let call = Doing::Call { number: 7, args: [1, 2, 3, 4, 5, 6], sp: 7, pc: 255 };
        assert_eq!(parse_syscall("7 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0xff"), Some(call));
        assert_eq!(parse_syscall("7 0x1 0x2"), None);
        assert_eq!(parse_syscall(""), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test has no loop to block")]
    fn a_sleeper_is_seen_in_its_call() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            sender.send(thread::current()).unwrap();
            let _ = ended.recv();
        });
        let files = ThreadFiles::open(receiver.recv().unwrap());
        let begun = std::time::Instant::now();
        let is_asleep = || match (files.refusal(), files.doing()) {
            (None, Some(Doing::Call { number, .. })) => number == libc::SYS_futex,
            (Some(_), Some(Doing::Asleep)) => true,
            _ => false,
        };
        let wait_until = |holds: &dyn Fn() -> bool| {
            while !holds() {
                assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", files.doing());
                std::thread::yield_now();
            }
        };
        wait_until(&is_asleep);
        drop(end);
        sleeper.join().unwrap();
        // The joining thread may be ahead of the kernel, which takes the thread apart.
        wait_until(&|| files.doing().is_none());
    }
}
