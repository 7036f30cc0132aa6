//! The allocator of the whole program, and how idle threads return memory to the system.
#![expect(unsafe_code, reason = "an allocator, and functions of mimalloc's that its crate does not declare")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use clearway_base::memory;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// mimalloc. It is asked for an alignment only if that is larger than a word: its functions with an alignment
/// are slower for sizes that are not powers of two, as soon as a page has few free blocks.
struct Allocator;

/// The alignment of every block of mimalloc: sizes of blocks are multiples of a word.
const WORD_ALIGN: usize = align_of::<usize>();

// SAFETY: as mimalloc.h declares them, in the library that `mimalloc` brings; they may be called at any time.
unsafe extern "C" {
    safe fn mi_malloc(size: usize) -> *mut c_void;
    safe fn mi_zalloc(size: usize) -> *mut c_void;
    /// Frees the blocks that the calling thread caches, and returns free memory to the system.
    safe fn mi_collect(force: Force);
}

// SAFETY: blocks are those of `MiMalloc`, which frees and moves all that mimalloc has given, however it was
// asked; those of `mi_malloc` and `mi_zalloc` have the size and, up to that of a word, the alignment wanted.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= WORD_ALIGN {
            true => mi_malloc(layout.size()).cast(),
            // SAFETY: the caller's promises are those of this function.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= WORD_ALIGN {
            true => mi_zalloc(layout.size()).cast(),
            // SAFETY: as in `alloc`.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { MiMalloc.realloc(block, layout, size) }
    }
}

/// A `bool` of C's is a byte that is 0 or 1.
#[repr(u8)]
enum Force {
    Yes = 1,
}

/// Has idle threads return memory to the system.
pub(crate) fn set_up() {
    memory::register(|| mi_collect(Force::Yes));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of each size and alignment are aligned, zeroed if asked for, and keep their contents when they
    /// are moved.
    #[test]
    fn blocks_are_aligned_zeroed_and_moved() {
        for align in [1, 2, 4, 8, 16, 64, 4096] {
            for size in [1, 3, 8, 24, 40, 1000, 1040, 5000, 70_000] {
                let layout = Layout::from_size_align(size, align).expect("a valid layout");
                // SAFETY: the size is not zero, and blocks are used within it and freed once.
                unsafe {
                    let plain = ALLOCATOR.alloc(layout);
                    plain.write_bytes(7, size);
                    let zeroed = ALLOCATOR.alloc_zeroed(layout);
                    assert!((0..size).all(|at| *zeroed.add(at) == 0), "{layout:?}");
                    let moved = ALLOCATOR.realloc(plain, layout, size * 2);
                    assert!((0..size).all(|at| *moved.add(at) == 7), "{layout:?}");
                    assert!([zeroed, moved].iter().all(|block| block.addr() % align == 0), "{layout:?}");
                    let doubled = Layout::from_size_align(size * 2, align).expect("a valid layout");
                    ALLOCATOR.dealloc(moved, doubled);
                    ALLOCATOR.dealloc(zeroed, layout);
                }
            }
        }
    }
}
