//! The interface that a plugin is given (plugins/clearway_plugin.h): functions with which it asks for work,
//! reads it and answers, from any thread of its own. Which calls those are is checked by the board, so a
//! number that was made up, or used twice, does no harm; pointers are the plugin's word.
#![expect(unsafe_code, reason = "functions that C calls, and one of C's that is called")]

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use clearway_os::library::{Library, Visibility};

use crate::board::{Board, CallId, Found, Refused};

/// The version of this interface.
const VERSION: u32 = 1;

/// The result of `next` when there are no more calls.
const CLOSED: u64 = u64::MAX;

/// The results of `answer`.
const TAKEN: c_int = 0;
const UNKNOWN: c_int = -1;
const TOO_LARGE: c_int = -2;

/// `struct clearway_plugin`
#[repr(C)]
struct Host {
    version: u32,
    message_max: u32,
    name: *const c_char,
    config: *const c_char,
    next: unsafe extern "C" fn(*const Self, u32, *mut u32) -> u64,
    read: unsafe extern "C" fn(*const Self, u64, u32, *mut u8, u32) -> u32,
    answer: unsafe extern "C" fn(*const Self, u64, *const u8, u32) -> c_int,
    seat: Box<dyn Seat>,
}

// SAFETY: what the pointers name is never freed or changed, and the functions may be called by any thread.
unsafe impl Sync for Host {}

/// Where a plugin sits: at the desk itself, or in another process.
pub(crate) trait Seat: Send + Sync {
    /// Its board.
    fn board(&self) -> &Board;
    /// The answer to the call in this slot has come.
    fn answered(&self, slot: u32);
}

impl<S: Seat> Seat for Arc<S> {
    fn board(&self) -> &Board {
        (**self).board()
    }

    fn answered(&self, slot: u32) {
        (**self).answered(slot);
    }
}

/// Loads a library and has it start, with its threads; what it is given stays for the life of the process, as
/// its threads may. **Blocks** for as long as that takes.
///
/// # Errors
/// Why it is not there.
pub(crate) fn start(
    library: &CString,
    name: &CString,
    config: &CString,
    seat: Box<dyn Seat>,
) -> Result<(), String> {
    let symbol = Library::open(library, Visibility::Local)?.find(c"clearway_plugin_start")?;
    // SAFETY: the header says that a library's function of this name is of this type.
    let begin: unsafe extern "C" fn(*const Host) -> c_int = unsafe { std::mem::transmute(symbol.as_ptr()) };
    let host: &'static Host = Box::leak(Box::new(Host {
        version: VERSION,
        message_max: seat.board().slot_bytes(),
        name: name.clone().into_raw(),
        config: config.clone().into_raw(),
        next,
        read,
        answer,
        seat,
    }));
    // SAFETY: as the header says; the argument lives for ever.
    match unsafe { begin(host) } {
        0 => Ok(()),
        code => Err(format!("clearway_plugin_start() returned {code}")),
    }
}

/// `next`: a call, or 0 where none came in so many milliseconds, or that there will be none.
unsafe extern "C" fn next(host: *const Host, timeout_ms: u32, length: *mut u32) -> u64 {
    // SAFETY: the header wants what the plugin was given, which lives for ever.
    let board = unsafe { &*host }.seat.board();
    match board.next(Duration::from_millis(timeout_ms.into())) {
        Found::Call(id, bytes) => {
            if !length.is_null() {
                // SAFETY: the header wants room for a number, or a null pointer.
                unsafe { length.write(bytes) };
            }
            id.bits()
        }
        Found::Nothing => 0,
        Found::Closed => CLOSED,
    }
}

/// `read`: copies so much of a question, from a byte on; how much there was.
unsafe extern "C" fn read(host: *const Host, call: u64, from: u32, to: *mut u8, count: u32) -> u32 {
    // SAFETY: as in `next`.
    let board = unsafe { &*host }.seat.board();
    if to.is_null() || count == 0 {
        return 0;
    }
    // SAFETY: the header wants room for so many bytes, which nobody else uses meanwhile.
    let to = unsafe {
        to.write_bytes(0, count as usize);
        std::slice::from_raw_parts_mut(to, count as usize)
    };
    u32::try_from(board.read(CallId::from_bits(call), from, to)).unwrap_or(0)
}

/// `answer`
unsafe extern "C" fn answer(host: *const Host, call: u64, bytes: *const u8, count: u32) -> c_int {
    // SAFETY: as in `next`.
    let seat = &unsafe { &*host }.seat;
    let bytes = if bytes.is_null() || count == 0 {
        &[]
    } else {
        // SAFETY: the header wants so many bytes, which nobody changes meanwhile.
        unsafe { std::slice::from_raw_parts(bytes, count as usize) }
    };
    match seat.board().answer(CallId::from_bits(call), bytes) {
        Ok(slot) => {
            seat.answered(slot);
            TAKEN
        }
        Err(Refused::Unknown) => UNKNOWN,
        Err(Refused::TooLarge) => TOO_LARGE,
    }
}
