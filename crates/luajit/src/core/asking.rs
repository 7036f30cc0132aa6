//! How functions of C's ask the server: their arguments as texts, numbers and objects, its reply as a code
//! with a text, a number, places and an object.
#![expect(unsafe_code, reason = "pointers that C gives, and the VM that is entered")]

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use crate::call::Context;
use crate::entered;
use crate::host::{Halt, Host};
use crate::reference::{Keeper, Reference};
use crate::reply::Reply;

/// `NGX_OK`, `NGX_ERROR`, `NGX_AGAIN`, `NGX_DECLINED`; upstream's codes where there is no request, or the
/// phase is another one.
pub(super) const OK: i32 = 0;
pub(super) const ERROR: i32 = -1;
pub(super) const AGAIN: i32 = -2;
pub(super) const DECLINED: i32 = -5;
pub(super) const NO_REQUEST: i32 = -100;
pub(super) const BAD_CONTEXT: i32 = -101;

/// The server's implementation of one function; C gets its code.
pub type CoreFunction = fn(&CoreCall<'_>, &mut Reply) -> i32;

/// The arguments.
pub struct CoreCall<'c> {
    texts: &'c [&'c [u8]],
    numbers: &'c [f64],
    objects: &'c [&'c (dyn Any + Send)],
    host: Option<&'c Host>,
}

impl CoreCall<'_> {
    /// A text; empty where there is none.
    #[must_use]
    pub fn text(&self, at: usize) -> &[u8] {
        self.texts.get(at).copied().unwrap_or_default()
    }

    /// The texts behind one.
    #[must_use]
    pub fn texts_behind(&self, at: usize) -> &[&[u8]] {
        self.texts.get(at + 1..).unwrap_or_default()
    }

    /// A number; 0 where there is none.
    #[must_use]
    pub fn number(&self, at: usize) -> f64 {
        self.numbers.get(at).copied().unwrap_or_default()
    }

    /// The first object of a former reply that has this type.
    #[must_use]
    pub fn object<T: 'static>(&self) -> Option<&T> {
        self.objects.iter().find_map(|object| object.downcast_ref())
    }

    /// What were replies' objects, those of this type, in their order.
    pub fn objects<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.objects.iter().filter_map(|object| object.downcast_ref())
    }

    /// The value that code has put on the VM's shelf under this number.
    #[must_use]
    pub fn shelved(&self, number: i32) -> Option<Reference> {
        let is_number = number > 0;
        self.host.filter(|_| is_number).map(|host| Reference::new(Keeper::Shelf, number, host))
    }

    /// Calls a function with the context of the run, if it is of this kind, as [`crate::Call::with_context`].
    pub fn with_context<C: Context, R>(
        &self,
        reply: &mut Reply,
        work: impl for<'a> FnOnce(&mut C::Of<'a>, &mut Reply) -> R,
    ) -> Option<R> {
        let place = self.host?.context(TypeId::of::<C>())?;
        // SAFETY: as of `Call::with_context`: `work` reaches no other call.
        let context: &mut C::Of<'_> = unsafe { &mut **place.cast::<*mut C::Of<'_>>() };
        Some(work(context, reply))
    }
}

/// The server's functions for lua-resty-core. Texts and numbers are in the order of upstream's parameters; a
/// flag is 1 or 0; a function that fails leaves its error as the reply's text.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is called as upstream's, without what they all begin with")]
pub struct CoreFunctions {
    pub clock: CoreFunction,
    pub date: CoreFunction,
    pub parse_date: CoreFunction,
    pub digest: CoreFunction,
    pub crc32: CoreFunction,
    pub escape_uri: CoreFunction,
    pub unescape_uri: CoreFunction,
    pub encode_base64: CoreFunction,
    pub decode_base64: CoreFunction,
    pub worker: CoreFunction,
    pub process: CoreFunction,
    pub raw_log: CoreFunction,
    pub regex_cache_max: CoreFunction,
    pub regex_compile: CoreFunction,
    pub regex_exec: CoreFunction,
    pub regex_template: CoreFunction,
    pub regex_expand: CoreFunction,
    pub regex_stack: CoreFunction,
    pub get_ctx: CoreFunction,
    pub set_ctx: CoreFunction,
    pub var_get: CoreFunction,
    pub var_set: CoreFunction,
    pub exit: CoreFunction,
    pub get_phase: CoreFunction,
    pub start_time: CoreFunction,
    pub req_headers: CoreFunction,
    pub uri_args: CoreFunction,
    pub query_len: CoreFunction,
    pub get_method: CoreFunction,
    pub set_method: CoreFunction,
    pub set_req_header: CoreFunction,
    pub get_resp_header: CoreFunction,
    pub set_resp_header: CoreFunction,
    pub get_status: CoreFunction,
    pub set_status: CoreFunction,
    pub set_phrased_status: CoreFunction,
    pub bypass_if_checks: CoreFunction,
    pub property: CoreFunction,
    pub balance: CoreFunction,
    pub set_by_param: CoreFunction,
    pub body_param: CoreFunction,
    pub ndk_find: CoreFunction,
    pub ndk_call: CoreFunction,
    pub shdict_get: CoreFunction,
    pub shdict_incr: CoreFunction,
    pub shdict_store: CoreFunction,
    pub shdict_flush_all: CoreFunction,
    pub shdict_ttl: CoreFunction,
    pub shdict_expire: CoreFunction,
    pub shdict_capacity: CoreFunction,
    pub shdict_free_space: CoreFunction,
    pub kept_lines: CoreFunction,
    pub handshake: CoreFunction,
    pub certificates: CoreFunction,
    pub ocsp: CoreFunction,
    pub semaphore: CoreFunction,
    pub pipe: CoreFunction,
    pub tcp: CoreFunction,
}

static FUNCTIONS: OnceLock<CoreFunctions> = OnceLock::new();

thread_local! {
    static REPLY: RefCell<Reply> = RefCell::default();
}

/// Says what the functions do. Those that come later are the same. Any thread.
pub fn provide(functions: CoreFunctions) {
    let _ = FUNCTIONS.set(functions);
}

/// Asks the server; -1 where it has panicked, or is not there.
pub(super) fn ask<R>(
    which: impl FnOnce(&CoreFunctions) -> CoreFunction,
    texts: &[&[u8]],
    numbers: &[f64],
    then: impl FnOnce(i32, &mut Reply) -> R,
) -> R {
    ask_of(&[], which, texts, numbers, then)
}

/// Asks the server about objects.
pub(super) fn ask_of<R>(
    objects: &[&(dyn Any + Send)],
    which: impl FnOnce(&CoreFunctions) -> CoreFunction,
    texts: &[&[u8]],
    numbers: &[f64],
    then: impl FnOnce(i32, &mut Reply) -> R,
) -> R {
    // SAFETY: what is entered lives until it has been left.
    let host = unsafe { entered::current().cast::<Host>().as_ref() };
    REPLY.with_borrow_mut(|reply| {
        reply.text.clear();
        reply.places.clear();
        reply.object = None;
        reply.number = 0.0;
        let call = CoreCall { texts, numbers, objects, host };
        let code = FUNCTIONS.get().map_or(ERROR, |functions| {
            let function = which(functions);
            catch_unwind(AssertUnwindSafe(|| function(&call, reply))).unwrap_or_else(|thrown| {
                // To drop what was thrown may panic as well.
                let _kept = ManuallyDrop::new(thrown);
                if let Some(host) = host {
                    // SAFETY: by the thread that holds the VM; nothing that changes hooks is under way.
                    unsafe { host.halt_for(host.main(), Halt::Poisoned) };
                }
                ERROR
            })
        });
        then(code, reply)
    })
}

/// `ngx_http_lua_ffi_str_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Str {
    pub(super) len: i32,
    pub(super) data: *const u8,
}

/// `ngx_http_lua_ffi_table_elt_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) key: Str,
    pub(super) value: Str,
}

/// # Safety
/// There are so many bytes, for as long as the call takes.
pub(super) unsafe fn bytes<'c>(at: *const u8, len: usize) -> &'c [u8] {
    // SAFETY: by the contract.
    if at.is_null() { &[] } else { unsafe { slice::from_raw_parts(at, len) } }
}

/// # Safety
/// There are so many of them, for as long as the call takes.
pub(super) unsafe fn texts<'c>(at: *const Str, count: usize) -> Vec<&'c [u8]> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: by the contract; Lua's buffer may be aligned for bytes.
    (0..count)
        .map(|index| unsafe {
            let text = at.add(index).read_unaligned();
            bytes(text.data, usize::try_from(text.len).unwrap_or(0))
        })
        .collect()
}

/// # Safety
/// `place` is null, or room for a value.
pub(super) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the contract.
        unsafe { place.write_unaligned(value) };
    }
}

/// # Safety
/// There is room for the text.
pub(super) unsafe fn copy(to: *mut u8, text: &[u8]) {
    if !to.is_null() {
        // SAFETY: by the contract; what is read is ours.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
    }
}

/// Shows C where the reply's text is.
///
/// # Safety
/// As of [`put`].
pub(super) unsafe fn show(reply: &Reply, data: *mut *const u8, len: *mut usize) {
    // SAFETY: by the contract.
    unsafe {
        put(data, reply.text.as_ptr());
        put(len, reply.text.len());
    }
}

/// Shows C the reply's text as one that ends with a zero.
///
/// # Safety
/// As of [`put`].
pub(super) unsafe fn show_error(reply: &mut Reply, error: *mut *const u8) {
    reply.text.push(0);
    // SAFETY: by the contract.
    unsafe { put(error, reply.text.as_ptr()) };
}

/// Shows C the reply's text where the code says that something has failed.
///
/// # Safety
/// As of [`put`].
pub(super) unsafe fn fail(code: c_int, reply: &mut Reply, error: *mut *const u8) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match code < OK {
            true => show_error(reply, error),
            false => put(error, ptr::null()),
        }
    }
    code
}

/// Copies the reply's text into a room that says how large it is.
///
/// # Safety
/// There are so many bytes.
pub(super) unsafe fn copy_error(reply: &Reply, room: *mut u8, len: *mut usize) {
    // SAFETY: by the contract.
    unsafe {
        let count = if len.is_null() { 0 } else { len.read_unaligned().min(reply.text.len()) };
        copy(room, &reply.text[..count]);
        put(len, count);
    }
}

/// Makes functions of C's (rule 1).
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $out:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Rule 1 of `core.rs`.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $kind),*) $(-> $out)? {
                // SAFETY: rule 1.
                #[allow(unused_unsafe, reason = "some take no pointers")]
                unsafe { $body }
            }
        )*
    };
}
pub(super) use exported;
