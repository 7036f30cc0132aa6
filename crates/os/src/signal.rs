//! Signals are taken by one thread that waits for them; every other thread has them blocked. No handler is
//! installed for any of them, but where libraries of others run in the process ([`pass_on`]); beside those
//! the only one of the process is that of the profiling timer (sampling.rs).
#![expect(unsafe_code, reason = "calls that rustix does not wrap")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A set of signals, such as those that a server acts on.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

/// A signal that was taken, by its number in signal(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub i32);

impl Signal {
    /// The configuration anew.
    pub const HUP: Self = Self(libc::SIGHUP);
    /// Log files anew.
    pub const USR1: Self = Self(libc::SIGUSR1);
    /// The executable anew.
    pub const USR2: Self = Self(libc::SIGUSR2);
    /// Graceful shutdown of the workers.
    pub const WINCH: Self = Self(libc::SIGWINCH);
    /// A child has ended.
    pub const CHLD: Self = Self(libc::SIGCHLD);
    /// A timer has expired.
    pub const ALRM: Self = Self(libc::SIGALRM);
    /// The end, at once: nobody can be asked to take it.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// Fast shutdown.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// Fast shutdown, from a terminal.
    pub const INT: Self = Self(libc::SIGINT);
    /// Graceful shutdown.
    pub const QUIT: Self = Self(libc::SIGQUIT);
}

impl SignalSet {
    /// A set of these signals.
    #[must_use]
    pub fn of(signals: &[Signal]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set it is given.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: `set` is initialised; a number that is no signal is refused.
            unsafe { libc::sigaddset(&raw mut set, signal.0) };
        }
        Self(set)
    }

    /// Blocks these signals in the calling thread and in the threads that it starts from now on.
    pub fn block(&self) {
        // SAFETY: reads an initialised set, asks for no old one.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Takes the next of these signals, or `None` if none comes within `limit` (no limit: waits). They
    /// must be blocked in every thread. **Blocks.**
    ///
    /// # Errors
    /// As sigtimedwait(2), except EINTR and EAGAIN.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<Option<Signal>> {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        loop {
            // SAFETY: reads an initialised set and a timespec or null, asks for no siginfo.
            let number = unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), limit) };
            if number > 0 {
                return Ok(Some(Signal(number)));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}

impl Signal {
    /// The signal's name, such as `SIGTERM`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            libc::SIGHUP => "SIGHUP",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGKILL => "SIGKILL",
            libc::SIGUSR1 => "SIGUSR1",
            libc::SIGUSR2 => "SIGUSR2",
            libc::SIGALRM => "SIGALRM",
            libc::SIGTERM => "SIGTERM",
            libc::SIGCHLD => "SIGCHLD",
            libc::SIGWINCH => "SIGWINCH",
            _ => "signal",
        }
    }
}

/// A signal with its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal.
    pub signal: Signal,
    /// The process that sent it (of SIGCHLD: the child that it is about); 0 is the kernel, or a
    /// process that this one cannot see.
    pub sender_pid: u32,
}

/// Signals as a descriptor that is readable while one of them waits to be taken; see signalfd(2).
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// A descriptor for these signals, nonblocking and close-on-exec. They must be blocked in every
    /// thread. It is about the signals of whichever process reads it: a child makes its own.
    ///
    /// # Errors
    /// As signalfd(2): too many descriptors, no memory.
    pub fn new(signals: &SignalSet) -> io::Result<Self> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: reads an initialised set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const signals.0, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let numbers = (1..64).filter(|&number| {
            // SAFETY: reads an initialised set.
            unsafe { libc::sigismember(&raw const signals.0, number) == 1 }
        });
        TAKEN.store(numbers.fold(0, |set, number| set | 1 << number), Ordering::Relaxed);
        TAKER.store(crate::thread::current(), Ordering::Release);
        // SAFETY: a descriptor that was opened just now and belongs to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes a signal that has come, `None` if there is none. The kernel keeps no more than one of each
    /// number, and the order between numbers is by number.
    ///
    /// # Errors
    /// As read(2), except EINTR and EAGAIN.
    pub fn take(&self) -> io::Result<Option<Received>> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let size = match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut record[..])) {
            Ok(size) => size,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        assert_eq!(size, record.len(), "a signalfd gives whole records");
        let word = |at| u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let signal = Signal(word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo)).cast_signed());
        let sender_pid = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_pid));
        Ok(Some(Received { signal, sender_pid }))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which signals the process takes by a descriptor, as bits of their numbers, and the thread that does.
static TAKEN: AtomicU64 = AtomicU64::new(0);
static TAKER: AtomicU32 = AtomicU32::new(0);

/// Handlers of others by the number of their signal, as [`pass_on`] has found them.
static OTHERS: [AtomicUsize; 64] = [const { AtomicUsize::new(libc::SIG_DFL) }; 64];

/// Has signals reach the thread that takes them, where a library of others has threads that do not have them
/// blocked, has unblocked them in one of ours, or has put its own handlers there, as runtimes of languages
/// do. To be called again when such a library may have done so since. Any thread; some system calls.
pub fn pass_on() {
    let taken = TAKEN.load(Ordering::Relaxed);
    for number in (1..64).filter(|number| taken >> number & 1 == 1) {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a structure of numbers and an address that may be zero; the handler does what a handler
        // may. Runtimes want handlers that take the stack for signals where there is one.
        unsafe {
            let action = action.assume_init_mut();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigfillset(&raw mut action.sa_mask);
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(number, action, before.as_mut_ptr());
            let before = before.assume_init().sa_sigaction;
            if before != action.sa_sigaction {
                OTHERS[number as usize].store(before, Ordering::Release);
            }
        }
    }
}

/// Sends the signal on to the thread that takes it, with its sender, and has it blocked in this one from now
/// on. What a library sends to a thread of its own is that library's: its handler gets it.
extern "C" fn on_signal(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let taker = TAKER.load(Ordering::Acquire);
    // SAFETY: the kernel gives both for as long as the handler runs, and takes the mask of this thread from
    // the context afterwards. A process may send threads of its own what says that it was queued.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if (*info).si_code == libc::SI_TKILL && (*info).si_pid() == libc::getpid() {
            let other = OTHERS[number as usize].load(Ordering::Acquire);
            if other != libc::SIG_DFL && other != libc::SIG_IGN {
                let other: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(other);
                other(number, info, context);
            }
            return;
        }
        libc::sigaddset(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask, number);
        let mut info = *info;
        info.si_code = libc::SI_QUEUE;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), taker, number, &raw mut info);
        *errno = before;
    }
}

/// Ends the process at once: what libraries want to do at its end is not done, since their threads may be
/// anywhere.
pub fn leave(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Sends `signal` to one process.
///
/// # Errors
/// As kill(2): ESRCH if there is no such process, EPERM, EINVAL for a number that is no signal. ESRCH
/// as well for 0 and what exceeds every process id: kill(2) would take those for groups of processes.
pub fn kill(pid: u32, signal: Signal) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().filter(|&pid| pid > 0) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    // SAFETY: takes integers and touches no memory of ours.
    if unsafe { libc::kill(pid, signal.0) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ignores SIGPIPE for the process: a write to a closed peer is EPIPE.
pub fn ignore_sigpipe() {
    // SAFETY: SIG_IGN is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Blocks every signal in the calling thread (and in those that it starts): signals belong to the
/// thread that waits for them.
pub fn block_all() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set before it is read.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_taken_by_who_waits() {
        let set = SignalSet::of(&[Signal(libc::SIGUSR2)]);
        set.block();
        // SAFETY: sends a signal that is blocked to the calling thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert_eq!(set.wait(None).unwrap(), Some(Signal(libc::SIGUSR2)));
        assert_eq!(set.wait(Some(Duration::from_millis(1))).unwrap(), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test has no loop")]
    fn a_descriptor_tells_which_signal_came_from_whom() {
        let set = SignalSet::of(&[Signal::WINCH, Signal::ALRM]);
        set.block();
        let fd = SignalFd::new(&set).unwrap();
        assert_eq!(fd.take().unwrap(), None);
        // SAFETY: sends signals that are blocked to the calling thread: its queue is its own.
        unsafe {
            libc::pthread_kill(libc::pthread_self(), libc::SIGWINCH);
            libc::pthread_kill(libc::pthread_self(), libc::SIGALRM);
        }
        let sender_pid = std::process::id();
        assert_eq!(crate::poll::wait(&[fd.as_fd()], None).unwrap(), [true]);
        assert_eq!(fd.take().unwrap(), Some(Received { signal: Signal::ALRM, sender_pid }));
        assert_eq!(fd.take().unwrap(), Some(Received { signal: Signal::WINCH, sender_pid }));
        assert_eq!(fd.take().unwrap(), None);
        // The same from a thread that does not block them, as those of other libraries.
        let other = std::thread::spawn(move || {
            // SAFETY: unblocks signals here, and sends one to the process: this thread alone takes it.
            unsafe {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set.0, std::ptr::null_mut());
                pass_on();
                libc::kill(libc::getpid(), libc::SIGWINCH);
                libc::pthread_kill(libc::pthread_self(), libc::SIGALRM);
            }
        });
        other.join().unwrap();
        crate::poll::wait(&[fd.as_fd()], None).unwrap();
        assert_eq!(fd.take().unwrap(), Some(Received { signal: Signal::WINCH, sender_pid }));
        assert_eq!(fd.take().unwrap(), None, "what a thread sends to itself is its own");
    }

    #[test]
    fn groups_of_processes_get_no_signal() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert_eq!(kill(pid, Signal::WINCH).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
        assert_eq!(kill(std::process::id(), Signal(0)).ok(), Some(()));
        assert_eq!(kill(std::process::id(), Signal(4000)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn names_are_those_of_the_system() {
        assert_eq!((Signal::HUP.0, Signal::HUP.name()), (1, "SIGHUP"));
        assert_eq!((Signal::CHLD.0, Signal::CHLD.name()), (17, "SIGCHLD"));
        assert_eq!(Signal(64).name(), "signal");
    }
}
