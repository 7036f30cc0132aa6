//! Reserves a range of addresses without memory: numbers that foreign code takes for pointers and never
//! follows. Any thread.
#![expect(unsafe_code, reason = "a mapping that is for its addresses alone")]

use std::io;

use rustix::mm::{MapFlags, ProtFlags};

/// Reserves `bytes` addresses for as long as the process lives, and returns the first one. There is never
/// memory behind them: code that reads through one ends the process. The range costs no memory.
///
/// # Errors
/// Those of mmap(2): the process may not have so many addresses.
pub fn reserve(bytes: usize) -> io::Result<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses; it covers no memory in use.
    let address =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
    Ok(address.addr())
}
