//! Dictionaries: a zone is one plus its number among those of the VM.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{c_int, c_long, c_uchar, c_void};

use super::asking::{ERROR, OK, ask, bytes, copy, exported, put, show_error};

/// `LUA_TSTRING`.
const STRING: i32 = 4;

unsafe extern "C" {
    /// The system's, whose `free` Lua calls.
    fn malloc(bytes: usize) -> *mut c_void;
}

fn number_of(zone: *const c_void) -> f64 {
    zone.addr() as f64 - 1.0
}

/// Arguments of a function that is called by the address of them, on another system.
#[repr(C)]
struct GetParams {
    zone: *mut c_void,
    key: *const c_uchar,
    key_len: usize,
    value_type: *mut c_int,
    text: *mut *mut c_uchar,
    text_len: *mut usize,
    number: *mut f64,
    flags: *mut c_int,
    get_stale: c_int,
    is_stale: *mut c_int,
    error: *mut *const u8,
}

/// As above.
#[repr(C)]
struct StoreParams {
    zone: *mut c_void,
    op: c_int,
    key: *const c_uchar,
    key_len: usize,
    value_type: c_int,
    text: *const c_uchar,
    text_len: usize,
    number: f64,
    ttl_ms: c_long,
    flags: c_int,
    error: *mut *const u8,
    forcible: *mut c_int,
}

/// As above.
#[repr(C)]
struct IncrParams {
    zone: *mut c_void,
    key: *const c_uchar,
    key_len: usize,
    number: *mut f64,
    error: *mut *const u8,
    has_init: c_int,
    init: f64,
    init_ttl_ms: c_long,
    forcible: *mut c_int,
}

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn get(p: &GetParams) -> c_int {
    // SAFETY: by the contract.
    let key = unsafe { bytes(p.key, p.key_len) };
    let numbers = [number_of(p.zone), f64::from(p.get_stale)];
    ask(
        |core| core.shdict_get,
        &[key],
        &numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                if code < 0 {
                    show_error(reply, p.error);
                    return ERROR;
                }
                put(p.error, std::ptr::null());
                put(p.value_type, code);
                put(p.flags, reply.places.first().copied().unwrap_or(0));
                put(p.is_stale, reply.places.get(1).copied().unwrap_or(0));
                if code != STRING {
                    put(p.number, reply.number);
                    if code == 1 {
                        // A boolean is one byte.
                        p.text.read_unaligned().write(u8::from(reply.number != 0.0));
                        put(p.text_len, 1);
                    }
                    return OK;
                }
                let len = reply.text.len();
                if p.text_len.read_unaligned() >= len {
                    copy(p.text.read_unaligned(), &reply.text);
                } else {
                    // Lua frees what does not fit its room.
                    let made = malloc(len).cast::<u8>();
                    if made.is_null() {
                        return ERROR;
                    }
                    copy(made, &reply.text);
                    put(p.text, made);
                }
                put(p.text_len, len);
            }
            OK
        },
    )
}

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn store(p: &StoreParams) -> c_int {
    // SAFETY: by the contract.
    let (key, text) = unsafe { (bytes(p.key, p.key_len), bytes(p.text, p.text_len)) };
    let numbers = [
        number_of(p.zone),
        f64::from(p.op),
        f64::from(p.value_type),
        p.number,
        p.ttl_ms as f64,
        f64::from(p.flags.cast_unsigned()),
    ];
    ask(
        |core| core.shdict_store,
        &[key, text],
        &numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                put(p.forcible, reply.places.first().copied().unwrap_or(0));
                if code != OK {
                    show_error(reply, p.error);
                }
            }
            code
        },
    )
}

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn incr(p: &IncrParams) -> c_int {
    // SAFETY: by the contract.
    let (key, amount) = unsafe { (bytes(p.key, p.key_len), p.number.read_unaligned()) };
    let numbers = [number_of(p.zone), amount, f64::from(p.has_init), p.init, p.init_ttl_ms as f64];
    ask(
        |core| core.shdict_incr,
        &[key],
        &numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                put(p.forcible, reply.places.first().copied().unwrap_or(0));
                if code == OK {
                    put(p.number, reply.number);
                } else {
                    show_error(reply, p.error);
                }
            }
            code
        },
    )
}

exported! {
    /// The zone of what `ngx.shared.NAME` has, which is a number in a room of its own.
    fn ngx_http_lua_ffi_shdict_udata_to_zone(userdata: *mut c_void) -> *mut c_void {
        let number = userdata.cast::<usize>().as_ref().copied().unwrap_or(0);
        std::ptr::without_provenance_mut(number)
    }

    /// The value of a key: 0 with its type (0 for none), -1 with an error text.
    fn ngx_http_lua_ffi_shdict_get(
        zone: *mut c_void,
        key: *const c_uchar,
        key_len: usize,
        value_type: *mut c_int,
        text: *mut *mut c_uchar,
        text_len: *mut usize,
        number: *mut f64,
        flags: *mut c_int,
        get_stale: c_int,
        is_stale: *mut c_int,
        error: *mut *const u8,
    ) -> c_int {
        get(&GetParams {
            zone, key, key_len, value_type, text, text_len, number, flags, get_stale, is_stale, error,
        })
    }

    /// As the function without this ending.
    fn ngx_http_lua_ffi_shdict_get_macos(params: *const GetParams) -> c_int {
        get(&*params)
    }

    /// Stores a value: 0, -5 or -1 with words.
    fn ngx_http_lua_ffi_shdict_store(
        zone: *mut c_void,
        op: c_int,
        key: *const c_uchar,
        key_len: usize,
        value_type: c_int,
        text: *const c_uchar,
        text_len: usize,
        number: f64,
        ttl_ms: c_long,
        flags: c_int,
        error: *mut *const u8,
        forcible: *mut c_int,
    ) -> c_int {
        store(&StoreParams {
            zone, op, key, key_len, value_type, text, text_len, number, ttl_ms, flags, error, forcible,
        })
    }

    /// As the function without this ending.
    fn ngx_http_lua_ffi_shdict_store_macos(params: *const StoreParams) -> c_int {
        store(&*params)
    }

    /// Adds to a number: 0 and the sum, -5 or -1 with words.
    fn ngx_http_lua_ffi_shdict_incr(
        zone: *mut c_void,
        key: *const c_uchar,
        key_len: usize,
        number: *mut f64,
        error: *mut *const u8,
        has_init: c_int,
        init: f64,
        init_ttl_ms: c_long,
        forcible: *mut c_int,
    ) -> c_int {
        incr(&IncrParams { zone, key, key_len, number, error, has_init, init, init_ttl_ms, forcible })
    }

    /// As the function without this ending.
    fn ngx_http_lua_ffi_shdict_incr_macos(params: *const IncrParams) -> c_int {
        incr(&*params)
    }

    /// All values are over.
    fn ngx_http_lua_ffi_shdict_flush_all(zone: *mut c_void) -> c_int {
        ask(|core| core.shdict_flush_all, &[], &[number_of(zone)], |code, _| code)
    }

    /// Milliseconds that a value has; 0 for ever, -5 for none.
    fn ngx_http_lua_ffi_shdict_get_ttl(zone: *mut c_void, key: *const c_uchar, key_len: usize) -> c_long {
        ask(|core| core.shdict_ttl, &[bytes(key, key_len)], &[number_of(zone)], |code, reply| {
            if code == OK { reply.number as c_long } else { c_long::from(code) }
        })
    }

    /// Milliseconds that a value is to have: 0, -5 for none.
    fn ngx_http_lua_ffi_shdict_set_expire(
        zone: *mut c_void,
        key: *const c_uchar,
        key_len: usize,
        ttl_ms: c_long,
    ) -> c_int {
        let numbers = [number_of(zone), ttl_ms as f64];
        ask(|core| core.shdict_expire, &[bytes(key, key_len)], &numbers, |code, _| code)
    }

    /// Bytes that the dictionary has.
    fn ngx_http_lua_ffi_shdict_capacity(zone: *mut c_void) -> usize {
        ask(|core| core.shdict_capacity, &[], &[number_of(zone)], |_, reply| reply.number as usize)
    }

    /// Bytes that are free.
    fn ngx_http_lua_ffi_shdict_free_space(zone: *mut c_void) -> usize {
        ask(|core| core.shdict_free_space, &[], &[number_of(zone)], |_, reply| reply.number as usize)
    }
}
