//! Addresses at which nothing is: numbers that other code takes for pointers, and that are none. Any thread.
#![expect(unsafe_code, reason = "a mapping that is for its addresses alone")]

use std::io;

use rustix::mm::{MapFlags, ProtFlags};

/// Keeps `bytes` addresses free for as long as the process lives, and says which the first one is: no memory
/// is ever there, and what reads through one ends the process. Costs no memory.
///
/// # Errors
/// As mmap(2): the process may not have so many addresses.
pub fn reserve(bytes: usize) -> io::Result<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses; it covers no memory in use.
    let address =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
    Ok(address.addr())
}
