//! Signals are taken by one thread that waits for them; every other thread has them blocked.
#![expect(unsafe_code, reason = "calls that rustix does not wrap")]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A set of signals, such as those that a server acts on.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

/// A signal that was taken, by its number in signal(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub i32);

impl Signal {
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
            libc::SIGTERM => "SIGTERM",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            _ => "signal",
        }
    }
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
}
