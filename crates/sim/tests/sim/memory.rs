//! An allocator that counts what is allocated, so that a run can be asked what it has left behind.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

struct Counting;

/// Allocated and not freed, bytes.
static LIVE: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
}

/// Sizes are those of layouts, which are below what an i64 has.
fn size(layout: Layout) -> i64 {
    layout.size().cast_signed() as i64
}

// SAFETY: `System` does it all, and is asked for exactly what was asked of this; counting neither allocates
// nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller's promise about `layout` is the one that `System` wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.cast_signed() as i64 - size(layout));
        // SAFETY: `ptr` is from `System`, as all of this allocator is; the rest is the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: as for `realloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are allocated now.
pub(crate) fn live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}
