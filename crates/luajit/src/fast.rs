//! Functions of ours that compiled code of Lua calls by itself, through LuaJIT's FFI: a call of a function
//! of C's kind (`call.rs`) ends a trace, one of these is a part of it. In return they see no value of Lua's:
//! two texts and two numbers go in, a text, a number, places and a whole number come back. What raises
//! errors, yields or makes tables stays with `call.rs`.
//!
//! 1. Lua is given the address of each, and that of its VM ([`Stack::push_fast`], [`Stack::push_host`]), as
//!    addresses without a type; our own Lua keeps both to itself. Code that forges FFI calls can do anything
//!    anyway.
//! 2. A call runs in mode Lua, and touches nothing of LuaJIT: texts are borrowed from strings that the caller
//!    has on its stack, where no collector runs meanwhile and nothing is moved.
//! 3. What comes back stays where it is until the next call in the same VM; Lua copies it at once. A function
//!    of this kind reaches no VM, so there is no call inside another.
//! 4. A value that a run has at hand all the time is shown by its number on the shelf, without a call
//!    ([`Stack::show`]): what shows it keeps a reference to it until it shows something else. Code that makes
//!    such a value itself asks for the reference ([`FastCall::take_room`]), then stores it under that number.
#![expect(unsafe_code, reason = "functions that compiled code calls")]

use std::any::TypeId;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::slice;

use crate::call::Context;
use crate::host::{Halt, Host};
use crate::reference::Reference;
use crate::reply::{Reply, Shown};
use crate::stack::Stack;
use crate::value::Address;

/// The answer of a call that has panicked; the VM is poisoned then.
const PANICKED: i32 = i32::MIN;

/// The declarations that `ffi.cdef` is to know, of the reply and of functions.
pub const DECLARATIONS: &str = "
    typedef struct { const char *text; size_t len; double number; const int32_t *places; } clearway_reply;
    typedef int32_t (*clearway_fast)(void *vm, const char *first, size_t first_len,
        const char *second, size_t second_len, double which, double number);";

/// A function of ours that compiled code calls: a function item or a closure that captures nothing.
pub trait FastFunction: Fn(&FastCall<'_>, &mut Reply) -> i32 + Copy + 'static {}

impl<F: Fn(&FastCall<'_>, &mut Reply) -> i32 + Copy + 'static> FastFunction for F {}

/// The arguments.
pub struct FastCall<'c> {
    /// A text.
    pub first: &'c [u8],
    /// The second text.
    pub second: &'c [u8],
    /// A number, mostly which of several things it is about.
    pub which: f64,
    /// A further number.
    pub number: f64,
    host: &'c Host,
}

impl FastCall<'_> {
    /// Calls a function with the context of the run, if it is of this kind, as [`crate::Call::with_context`].
    pub fn with_context<C: Context, R>(
        &self,
        reply: &mut Reply,
        work: impl for<'a> FnOnce(&mut C::Of<'a>, &mut Reply) -> R,
    ) -> Option<R> {
        let place = self.host.context(TypeId::of::<C>())?;
        // SAFETY: as of `Call::with_context`: `work` reaches no other call.
        let context: &mut C::Of<'_> = unsafe { &mut **place.cast::<*mut C::Of<'_>>() };
        Some(work(context, reply))
    }
}

impl FastCall<'_> {
    /// A reference to what the code that calls makes and stores next, which is shown from now on; `None`
    /// where there is no room for it.
    #[must_use]
    pub fn take_room(&self) -> Option<Reference> {
        self.host.take_spare()
    }
}

impl Stack<'_> {
    /// Pushes the address of a function (`clearway_fast`).
    pub fn push_fast<F: FastFunction>(&mut self, _: F) {
        const { assert!(size_of::<F>() == 0, "a function of ours captures nothing") };
        self.push(Address((enter::<F> as Entry as *const c_void).expose_provenance()));
    }

    /// Pushes the VM's own address, which each call is to be given, that of its replies, and that of two
    /// numbers of the shelf (`int32_t`, 0: none): of the value that is shown, and of the room for one.
    pub fn push_host(&mut self) {
        let host = self.host();
        let (vm, reply, value) = (ptr::from_ref(host), host.replies().shown(), host.replies().values());
        self.push(Address(vm.expose_provenance()));
        self.push(Address(reply.expose_provenance()));
        self.push(Address(value.expose_provenance()));
    }

    /// Shows this value from now on, or none (rule 4).
    ///
    /// # Panics
    /// If it is another VM's.
    pub fn show(&mut self, value: Option<&Reference>) {
        self.host().want_spare();
        self.host().show(value);
    }
}

type Entry = unsafe extern "C" fn(*const c_void, *const u8, usize, *const u8, usize, f64, f64) -> i32;

/// The entry for compiled code.
///
/// # Safety
/// Rule 1: `vm` is what `push_host` has pushed in the VM that calls, and the texts are as long as they say.
unsafe extern "C" fn enter<F: FastFunction>(
    vm: *const c_void,
    first: *const u8,
    first_len: usize,
    second: *const u8,
    second_len: usize,
    which: f64,
    number: f64,
) -> i32 {
    // SAFETY: it lives as long as its VM, whose code calls.
    let host = unsafe { &*vm.cast::<Host>() };
    // SAFETY: by the contract; rule 2.
    let (first, second) = unsafe { (text(first, first_len), text(second, second_len)) };
    // SAFETY: `push_fast` was given a value of this type, which has no bytes and is `Copy`.
    let function = unsafe { NonNull::<F>::dangling().read() };
    let replies = host.replies();
    // SAFETY: rule 3.
    let reply = unsafe { &mut *replies.reply() };
    reply.text.clear();
    reply.places.clear();
    let call = FastCall { first, second, which, number, host };
    let answer = catch_unwind(AssertUnwindSafe(|| function(&call, reply)));
    let shown = Shown::of(reply);
    // SAFETY: Lua reads it between calls, on this thread.
    unsafe { replies.shown().write(shown) };
    answer.unwrap_or_else(|thrown| {
        // To drop what was thrown may panic as well.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
            let _kept = ManuallyDrop::new(again);
        }
        // SAFETY: by the thread that holds the VM; nothing that changes hooks is under way in this call.
        unsafe { host.halt_for(host.main(), Halt::Poisoned) };
        PANICKED
    })
}

/// # Safety
/// There are so many bytes, for as long as the call takes.
unsafe fn text<'c>(at: *const u8, len: usize) -> &'c [u8] {
    // SAFETY: by the contract.
    if at.is_null() { &[] } else { unsafe { slice::from_raw_parts(at, len) } }
}
