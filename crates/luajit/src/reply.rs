//! What comes back from functions that compiled code calls (`fast.rs`). Touched by the one that has the VM.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// What comes back beside the answer; empty at the beginning of each call.
#[derive(Debug, Default)]
pub struct Reply {
    /// A text.
    pub text: Vec<u8>,
    /// A number.
    pub number: f64,
    /// Places in a text.
    pub places: Vec<i32>,
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

/// What a VM has for its calls.
pub(crate) struct Replies {
    reply: Cell<Reply>,
    shown: UnsafeCell<Shown>,
}

impl Default for Replies {
    fn default() -> Self {
        let shown = Shown { text: ptr::null(), len: 0, number: 0.0, places: ptr::null() };
        Self { reply: Cell::default(), shown: UnsafeCell::new(shown) }
    }
}

impl Replies {
    /// Where Lua reads it.
    pub(crate) fn shown(&self) -> *mut Shown {
        self.shown.get()
    }

    /// An empty one.
    pub(crate) fn take(&self) -> Reply {
        let mut reply = self.reply.take();
        reply.text.clear();
        reply.places.clear();
        reply
    }

    /// It stays until the next call.
    pub(crate) fn put_back(&self, reply: Reply) {
        self.reply.set(reply);
    }
}
