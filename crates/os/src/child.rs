//! Child processes: making them, hearing of their end, and what a process does to itself on the way to
//! becoming a daemon. Boot and the master, which has one thread; never a loop.
#![expect(unsafe_code, reason = "rustix has no fork, and adopts no descriptors")]

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::{Pid, WaitOptions};

/// The bit of a wait status that says that a core was dumped, see wait(2).
const DUMPED: i32 = 0x80;

/// Which of the two processes it is that comes back from [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The process that called; the new one has this id.
    Parent(u32),
    /// The new process.
    Child,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process ended by exit(3), with this code from 0 to 255.
    Code(i32),
    /// The process ended by a signal.
    Signal {
        /// Its number, see signal(7).
        number: i32,
        /// Whether a core was dumped.
        dumped: bool,
    },
}

/// One of the three descriptors that every program expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// 0
    Input,
    /// 1
    Output,
    /// 2
    Error,
}

/// Whether a descriptor goes to a program that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExec {
    /// The descriptor is closed: the default for all descriptors of this crate.
    Close,
    /// The descriptor stays open under its number.
    Keep,
}

/// Makes a process that is a copy of this one. What is blocked, ignored, open and mapped stays so; the
/// copy has a single thread.
///
/// # Errors
/// As fork(2). `Unsupported` if this process has more than one thread: the others would be missing in
/// the copy, with what they had locked. As opendir(3) if procfs does not tell the number.
pub fn fork() -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "fork() with more than one thread"));
    }
    // SAFETY: this process has one thread, which is here, so that no lock is held in the copy by a thread
    // that it does not have, and no other thread can appear meanwhile.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.unsigned_abs())),
    }
}

/// A program to be started, whose signals are as a shell would leave them: none is blocked, SIGPIPE ends it.
/// Threads that run loops or jobs block every signal, and a program inherits what the thread that starts it
/// has blocked: nobody could ask it to end.
///
/// To start it **blocks**, for the time of a fork.
#[must_use]
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    // SAFETY: between fork and execve this calls sigemptyset and pthread_sigmask, which may be called there;
    // it allocates nothing and takes no lock.
    unsafe { command.pre_exec(unblock_signals) };
    command
}

fn unblock_signals() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is read; asks for no old one.
    let code = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// How many threads this process has. **Blocks** (procfs).
///
/// # Errors
/// As opendir(3), where there is no procfs.
pub fn threads() -> io::Result<usize> {
    #[expect(clippy::disallowed_methods, reason = "procfs, and no loop: see the head of this file")]
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let mut count = 0;
    for task in tasks {
        task?;
        count += 1;
    }
    Ok(count)
}

/// Takes a child that has ended; `None` if none has, or there are no children. To be asked until it says
/// `None`: the kernel makes one SIGCHLD of several.
///
/// # Errors
/// As waitpid(2), except EINTR and ECHILD.
pub fn reap() -> io::Result<Option<(u32, Exit)>> {
    let (pid, status) = match rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::NOHANG)) {
        Ok(Some(ended)) => ended,
        Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((number(pid), exit_of(status))))
}

/// Waits for the end of one child, which is about to come. **Blocks** until then.
///
/// # Errors
/// As waitpid(2), except EINTR: it is no child, or was taken by [`reap`].
pub fn wait_for(pid: u32) -> io::Result<Exit> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let ended = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()))?;
    let (_, status) = ended.ok_or(io::ErrorKind::NotFound)?;
    Ok(exit_of(status))
}

fn exit_of(status: rustix::process::WaitStatus) -> Exit {
    match status.terminating_signal() {
        Some(number) => Exit::Signal { number, dumped: status.as_raw() & DUMPED != 0 },
        None => {
            Exit::Code(status.exit_status().expect("without WUNTRACED a child ended in one way or the other"))
        }
    }
}

/// The process that made this one, or that adopted it; 0 if it is not visible from here.
#[must_use]
pub fn parent_id() -> u32 {
    rustix::process::getppid().map_or(0, number)
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Leaves the terminal and the group of processes: this process leads a new session.
///
/// # Errors
/// As setsid(2): EPERM for a process that leads a group.
pub fn set_sid() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// The permissions that new files do not get, such as `0o022`; returns what it was.
pub fn set_umask(mask: u32) -> u32 {
    rustix::process::umask(Mode::from_raw_mode(mask)).as_raw_mode()
}

/// The device that holds nothing and forgets everything, close-on-exec.
///
/// # Errors
/// As open(2).
pub fn null_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes one of the three standard descriptors another name of `from`, such as /dev/null or a log; it
/// goes to programs that are executed.
///
/// # Errors
/// As dup2(2).
pub fn redirect(from: BorrowedFd<'_>, onto: Standard) -> io::Result<()> {
    let number = match onto {
        Standard::Input => 0,
        Standard::Output => 1,
        Standard::Error => 2,
    };
    if from.as_raw_fd() == number {
        // Opened in the place of one that was closed: it is there, but would not survive exec.
        return set_close_on_exec(from, OnExec::Keep);
    }
    Ok(match onto {
        Standard::Input => rustix::stdio::dup2_stdin(from),
        Standard::Output => rustix::stdio::dup2_stdout(from),
        Standard::Error => rustix::stdio::dup2_stderr(from),
    }?)
}

/// Takes over a descriptor that the program was started with, by its number; it is closed at the next
/// execve(2) from now on.
///
/// A descriptor that came through an execve(2) does not have the close-on-exec flag, and whatever this
/// process opens has it, as does what was taken over: nothing that has an owner is given away again. To
/// be called before anything is told to [`OnExec::Keep`].
///
/// # Errors
/// EBADF if no such descriptor is open, if it is not one of those, or one of the three standard ones.
pub fn adopt(number: i32) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(rustix::io::Errno::BADF.into());
    }
    // SAFETY: asks about a number; nothing is read or written through it if it is not open.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        -1 => return Err(io::Error::last_os_error()),
        flags if flags & libc::FD_CLOEXEC != 0 => return Err(rustix::io::Errno::BADF.into()),
        _ => {}
    }
    // SAFETY: the descriptor is open, and nobody in this process owns it, by the flag that was checked.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    set_close_on_exec(&fd, OnExec::Close)?;
    Ok(fd)
}

/// Says whether `fd` goes to a program that is executed.
///
/// # Errors
/// As fcntl(2).
pub fn set_close_on_exec(fd: impl AsFd, on_exec: OnExec) -> io::Result<()> {
    let mut flags = rustix::io::fcntl_getfd(&fd)?;
    flags.set(FdFlags::CLOEXEC, on_exec == OnExec::Close);
    Ok(rustix::io::fcntl_setfd(&fd, flags)?)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts threads and programs")]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn no_fork_with_threads() {
        // The harness has a thread besides this one.
        assert!(threads().unwrap() >= 2);
        assert_eq!(fork().unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_program_can_be_asked_to_end_whoever_starts_it() {
        let signals = |mut command: Command| {
            let blocked = std::thread::spawn(move || {
                crate::signal::block_all();
                command.args(["-E", "^Sig(Blk|Ign):", "/proc/self/status"]).output().unwrap().stdout
            });
            String::from_utf8(blocked.join().unwrap()).unwrap()
        };
        assert!(
            !signals(Command::new("grep")).contains("SigBlk:\t0000000000000000"),
            "else this proves nothing"
        );
        crate::signal::ignore_sigpipe();
        let status = signals(program("grep"));
        assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
        let ignored = status.split_once("SigIgn:\t").unwrap().1.trim_end();
        let pipe = 1 << (libc::SIGPIPE - 1);
        assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & pipe, 0, "{status}");
    }

    #[test]
    fn only_what_has_no_owner_is_adopted() {
        let (fd, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let owned = fd.as_raw_fd();
        for number in [-1, 0, 2, owned, 1 << 20] {
            assert_eq!(adopt(number).unwrap_err().raw_os_error(), Some(libc::EBADF), "{number}");
        }
        // What a program was started with looks like this: open, without the flag, in nobody's hands.
        let inherited = rustix::io::dup(&fd).unwrap().into_raw_fd();
        let adopted = adopt(inherited).unwrap();
        assert_eq!(adopted.as_raw_fd(), inherited);
        assert!(adopt(inherited).is_err());
    }

    #[test]
    fn on_exec_can_be_said_and_taken_back() {
        let (fd, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for on_exec in [OnExec::Keep, OnExec::Close] {
            set_close_on_exec(&fd, on_exec).unwrap();
            let close = rustix::io::fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC);
            assert_eq!(close, on_exec == OnExec::Close);
        }
    }
}
