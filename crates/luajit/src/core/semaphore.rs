//! The C functions behind `ngx.semaphore` of lua-resty-core. Lua holds a semaphore by its address (`held`).
//! Run on the loop whose VM calls them.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::any::Any;
use std::ffi::{c_int, c_uchar, c_void};

use super::asking::{ERROR, OK, ask, ask_of, copy_error, exported, put};
use super::held::{free, held, hold};
use crate::reply::Reply;

/// Numbers of the operations that the host is asked for.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod semaphores {
    pub const NEW: u8 = 0;
    pub const POST: u8 = 1;
    pub const COUNT: u8 = 2;
    pub const WAIT: u8 = 3;
    /// Lua has dropped the semaphore at this address.
    pub const FREED: u8 = 4;
}

/// # Safety
/// As of [`held`].
unsafe fn say<R>(
    what: u8,
    semaphore: *const c_void,
    number: c_int,
    then: impl FnOnce(i32, &mut Reply) -> R,
) -> R {
    // SAFETY: by the contract.
    let objects: Vec<&(dyn Any + Send)> = unsafe { held(semaphore) }.into_iter().collect();
    ask_of(&objects, |core| core.semaphore, &[], &[f64::from(what), f64::from(number)], then)
}

exported! {
    /// Makes a semaphore with `left` resources.
    fn ngx_http_lua_ffi_sema_new(semaphore: *mut *mut c_void, left: c_int, error: *mut *const u8) -> c_int {
        let made = ask(
            |core| core.semaphore,
            &[],
            &[f64::from(semaphores::NEW), f64::from(left)],
            |_, reply| hold(reply.object.take()),
        );
        if made.is_null() {
            put(error, c"no memory".as_ptr().cast());
            return ERROR;
        }
        put(semaphore, made);
        OK
    }

    /// Adds `count` resources.
    fn ngx_http_lua_ffi_sema_post(semaphore: *mut c_void, count: c_int) -> c_int {
        say(semaphores::POST, semaphore, count, |code, _| code)
    }

    /// The number of free resources minus the number of waiters.
    fn ngx_http_lua_ffi_sema_count(semaphore: *mut c_void) -> c_int {
        say(semaphores::COUNT, semaphore, 0, |code, _| code)
    }

    /// Takes a resource. Returns 0 if there is one, -5 if there is none and no time to wait, -1 with an error
    /// text, or -2: then the Lua thread yields until there is one.
    fn ngx_http_lua_ffi_sema_wait(
        request: *const c_void,
        semaphore: *mut c_void,
        limit_ms: c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        say(semaphores::WAIT, semaphore, limit_ms, |code, reply| {
            if code == ERROR {
                copy_error(reply, error, error_len);
            }
            code
        })
    }

    /// Frees a semaphore that Lua has dropped.
    fn ngx_http_lua_ffi_sema_gc(semaphore: *mut c_void) {
        let numbers = [f64::from(semaphores::FREED), semaphore.addr() as f64];
        ask(|core| core.semaphore, &[], &numbers, |_, _| ());
        free(semaphore);
    }
}
