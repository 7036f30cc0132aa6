//! Samples of what a thread does while it uses the processor: a timer on its CPU clock sends it a signal,
//! whose handler walks the frames of its stack. Any thread may ask for it; the handler runs on the sampled
//! one, and takes no lock, allocates nothing and changes nothing but its own buffer.
#![expect(unsafe_code, reason = "signal masks, timers, a signal handler")]

use std::mem::MaybeUninit;

/// The signal that takes samples: a real-time one that nothing else is known to use.
fn signal_number() -> libc::c_int {
    libc::SIGRTMAX() - 3
}

/// Lets the calling thread be sampled, whatever other signals it has blocked.
pub fn allow() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is used; the number is that of a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal_number());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
