//! The allocator of the whole program, and how a thread has it give memory back.
#![expect(unsafe_code, reason = "a function of mimalloc's that its crate does not declare")]

use clearway_base::memory;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

// SAFETY: as mimalloc.h declares it, in the library that `mimalloc` brings; it may be called at any time.
unsafe extern "C" {
    /// Frees what the calling thread keeps for itself, and gives the system what is free.
    safe fn mi_collect(force: Force);
}

/// A `bool` of C's is a byte that is 0 or 1.
#[repr(u8)]
enum Force {
    Yes = 1,
}

/// Has idle threads give memory back.
pub(crate) fn set_up() {
    memory::register(|| mi_collect(Force::Yes));
}
