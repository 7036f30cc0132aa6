//! The stacks of the calling thread: where its own one lies, and the one that handlers of signals run on.
//! The standard library gives threads one of as many bytes as the kernel needs to save registers; with
//! AVX-512 and AMX that leaves a handler little or nothing. Each thread prepares itself.
#![expect(unsafe_code, reason = "sigaltstack, the ends of a thread's stack")]

use std::cell::{Cell, OnceCell};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Bytes of the stack for a handler, beside those that the kernel saves there.
const HANDLER_BYTES: usize = 32 << 10;

/// Bytes below the stack that are never mapped, so that a handler that needs more faults.
const GUARD_BYTES: usize = 4 << 10;

/// Where getauxval(3) has the bytes that the kernel saves at a signal on this processor.
const AT_MINSIGSTKSZ: libc::c_ulong = 51;

thread_local! {
    /// The ends of the thread's own stack, once they are known. No destructor: handlers read it.
    static OWN_ENDS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static SIGNAL_STACK: OnceCell<SignalStack> = const { OnceCell::new() };
}

/// Memory that the thread's handlers run on, until the thread ends.
struct SignalStack {
    memory: *mut libc::c_void,
    bytes: usize,
}

/// Gives the calling thread a stack for handlers of signals, and finds out where its own one is; once.
///
/// # Errors
/// As mmap(2), sigaltstack(2) and pthread_getattr_np(3).
pub(crate) fn prepare() -> io::Result<()> {
    if OWN_ENDS.get() == (0, 0) {
        OWN_ENDS.set(find_own()?);
    }
    SIGNAL_STACK.with(|cell| {
        if cell.get().is_none() {
            let set = cell.set(SignalStack::install()?);
            debug_assert!(set.is_ok(), "it was empty, and is of this thread alone");
        }
        Ok(())
    })
}

/// The stack that the calling thread was started with, all of which is mapped; empty before [`prepare`].
/// Async-signal-safe.
pub(crate) fn own() -> Range<usize> {
    let (low, end) = OWN_ENDS.get();
    low..end
}

fn find_own() -> io::Result<(usize, usize)> {
    let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let mut attributes = MaybeUninit::uninit();
    let (mut low, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the first call initialises it where it succeeds, the second one reads, the third one frees it.
    unsafe {
        check(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()))?;
        let found = check(libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes));
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        found?;
    }
    Ok((low.addr(), low.addr() + bytes))
}

impl SignalStack {
    fn install() -> io::Result<Self> {
        // SAFETY: asks for a number.
        let saved = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
        let usable = (saved.max(libc::MINSIGSTKSZ) + HANDLER_BYTES).next_multiple_of(GUARD_BYTES);
        let bytes = usable + GUARD_BYTES;
        // SAFETY: a new mapping where the kernel chooses; what is made accessible of it is ours alone.
        let memory = unsafe {
            let memory =
                rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE)?;
            let low = memory.byte_add(GUARD_BYTES);
            rustix::mm::mprotect(low, usable, MprotectFlags::READ | MprotectFlags::WRITE)?;
            memory
        };
        let new = Self { memory, bytes };
        // SAFETY: within the mapping, which outlives its use (`Drop`).
        let low = unsafe { memory.byte_add(GUARD_BYTES) };
        let stack = libc::stack_t { ss_sp: low, ss_flags: 0, ss_size: usable };
        // SAFETY: reads an initialised stack_t; asks for no old one, which is ended by the code that set it
        // up.
        match unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) } {
            0 => Ok(new),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn is_in_use(&self) -> bool {
        let mut present = MaybeUninit::uninit();
        // SAFETY: writes the present one, which is read where it succeeded.
        unsafe {
            libc::sigaltstack(ptr::null(), present.as_mut_ptr()) == 0
                && present.assume_init().ss_sp == self.memory.byte_add(GUARD_BYTES)
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.is_in_use() {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: reads an initialised stack_t. This thread is in no handler, so it is not running on it.
            unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
        }
        // SAFETY: mapped by `install`, and no handler runs on it any more. A failure leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.memory, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test starts threads")]

    use super::*;
    use crate::stack_walk;

    #[test]
    fn a_thread_knows_its_stack() {
        prepare().unwrap();
        let (here, own) = (0_u8, own());
        assert!(own.contains(&(&raw const here).addr()), "{own:x?}");
        assert!(stack_walk::copy_stack(own.end - 64, own.end).is_ok_and(|words| words.len() == 8));
        assert!(stack_walk::copy_stack(own.start - 8, own.start).is_err(), "the guard is not of it");
    }

    #[test]
    fn handlers_have_room_and_it_goes_with_the_thread() {
        let check = || {
            prepare().unwrap();
            prepare().unwrap();
            SIGNAL_STACK.with(|cell| {
                let stack = cell.get().unwrap();
                assert!(stack.is_in_use() && stack.bytes >= HANDLER_BYTES + libc::MINSIGSTKSZ);
                stack.memory.addr()
            })
        };
        let memory = std::thread::spawn(check).join().unwrap();
        let is_gone = stack_walk::copy_stack(memory + GUARD_BYTES, memory + GUARD_BYTES + 8).is_err();
        assert!(is_gone || cfg!(miri), "unmapped when the thread ended");
    }
}
