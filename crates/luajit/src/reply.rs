//! Results of functions that compiled code calls (`fast.rs`), and values that it sees without a call. Touched
//! by the holder of the VM.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::ptr;

/// Results beside the answer; empty at the beginning of each call.
#[derive(Debug, Default)]
pub struct Reply {
    /// A text.
    pub text: Vec<u8>,
    /// A number.
    pub number: f64,
    /// Places in a text.
    pub places: Vec<i32>,
    /// An object that C keeps for later calls.
    pub object: Option<Box<dyn Any + Send>>,
}

/// As `clearway_reply`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shown {
    text: *const u8,
    len: usize,
    number: f64,
    places: *const i32,
}

impl Shown {
    pub(crate) fn of(reply: &Reply) -> Self {
        Self {
            text: reply.text.as_ptr(),
            len: reply.text.len(),
            number: reply.number,
            places: reply.places.as_ptr(),
        }
    }
}

/// The replies of a VM.
pub(crate) struct Replies {
    reply: UnsafeCell<Reply>,
    shown: UnsafeCell<Shown>,
    /// The numbers of two values on the shelf, or 0: that which is shown, and room for one.
    values: Cell<[c_int; 2]>,
}

impl Default for Replies {
    fn default() -> Self {
        let shown = Shown { text: ptr::null(), len: 0, number: 0.0, places: ptr::null() };
        Self { reply: UnsafeCell::default(), shown: UnsafeCell::new(shown), values: Cell::new([0; 2]) }
    }
}

impl Replies {
    /// Where Lua reads it.
    pub(crate) fn shown(&self) -> *mut Shown {
        self.shown.get()
    }

    /// The reply that the next call fills; it stays until the call after that.
    pub(crate) fn reply(&self) -> *mut Reply {
        self.reply.get()
    }

    /// Where Lua reads the number of the value that is shown, and that of the room for one.
    pub(crate) fn values(&self) -> *const [c_int; 2] {
        self.values.as_ptr()
    }

    /// Shows the value with this number; 0: none.
    pub(crate) fn show_value(&self, key: c_int) {
        self.values.set([key, self.values.get()[1]]);
    }

    /// Shows that there is room for a value under this number; 0: none.
    pub(crate) fn show_room(&self, key: c_int) {
        self.values.set([self.values.get()[0], key]);
    }
}
