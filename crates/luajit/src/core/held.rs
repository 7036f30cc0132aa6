//! Objects of the server's that Lua holds for C (certificates, keys, sessions, semaphores): it has the
//! address of a [`Held`], which it frees with its collector.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr;

/// No other object of C's begins so by accident.
const HELD: u64 = 0x6b3f_90d1_c1ea_72a5;

/// An object of the server that Lua holds for C.
#[repr(C)]
struct Held {
    tag: u64,
    object: Box<dyn Any + Send>,
}

/// An object for Lua, which frees it with [`free`].
pub(super) fn hold(object: Option<Box<dyn Any + Send>>) -> *mut c_void {
    object.map_or(ptr::null_mut(), |object| Box::into_raw(Box::new(Held { tag: HELD, object })).cast())
}

/// An object that Lua holds; `None` where it is something else.
///
/// # Safety
/// Rule 1 of `core.rs`: null, an address that [`hold`] gave and [`free`] has not got, or another object of so
/// many bytes.
pub(super) unsafe fn held<'c>(at: *const c_void) -> Option<&'c (dyn Any + Send)> {
    let held = at.cast::<Held>();
    // SAFETY: by the contract; the tag tells a thing of ours from another one.
    unsafe {
        if held.is_null() || held.cast::<u64>().read_unaligned() != HELD {
            return None;
        }
        Some(&*(*held).object)
    }
}

/// # Safety
/// As of [`held`]; nothing uses it any more.
pub(super) unsafe fn free(at: *mut c_void) {
    // SAFETY: by the contract.
    if unsafe { held(at) }.is_some() {
        // SAFETY: it was a box of ours.
        drop(unsafe { Box::from_raw(at.cast::<Held>()) });
    }
}
