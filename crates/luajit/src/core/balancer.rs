//! Functions with which code sets the server of an attempt.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::ptr;

use super::asking::{OK, ask, bytes, copy_error, exported, put, show_error};

/// A request. Its content is never read (rule 2 of `core.rs`).
type Request = *const c_void;

/// Numbers of settings, for the server.
const PEER: f64 = 0.0;
const KEEPALIVE: f64 = 1.0;
const TRIES: f64 = 2.0;
const LAST: f64 = 3.0;
const TIMEOUTS: f64 = 4.0;
const ANEW: f64 = 5.0;
const TLS: f64 = 6.0;
const LOCAL: f64 = 7.0;

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn say(texts: &[&[u8]], numbers: &[f64], error: *mut *const u8) -> c_int {
    ask(
        |core| core.balance,
        texts,
        numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                match reply.text.is_empty() {
                    true => put(error, ptr::null()),
                    false => show_error(reply, error),
                }
            }
            code
        },
    )
}

exported! {
    /// Sets the server that is asked.
    fn ngx_http_lua_ffi_balancer_set_current_peer(
        request: Request,
        address: *const c_uchar,
        len: usize,
        port: c_int,
        host: *const c_uchar,
        host_len: isize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let host = bytes(host, usize::try_from(host_len).unwrap_or(0));
        say(&[bytes(address, len), host], &[PEER, f64::from(port)], error)
    }

    /// Sets how long the connection is kept, and for how many requests.
    fn ngx_http_lua_ffi_balancer_enable_keepalive(
        request: Request,
        timeout_ms: c_ulong,
        requests_max: c_uint,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(&[], &[KEEPALIVE, timeout_ms as f64, f64::from(requests_max)], error)
    }

    /// Sets how many attempts may follow this one. Returns 0, with a message where fewer are allowed than
    /// were asked for.
    fn ngx_http_lua_ffi_balancer_set_more_tries(
        request: Request,
        count: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(&[], &[TRIES, f64::from(count)], error)
    }

    /// How the attempt before has ended: 0 if there was none, 2 if another server is tried, 4 for a failure.
    fn ngx_http_lua_ffi_balancer_get_last_failure(
        request: Request,
        status: *mut c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        ask(|core| core.balance, &[], &[LAST], |code, reply| {
            if code < OK {
                show_error(reply, error);
            } else {
                put(status, reply.number as c_int);
            }
            code
        })
    }

    /// Milliseconds to connect, to send and to receive; 0 leaves one as it is.
    fn ngx_http_lua_ffi_balancer_set_timeouts(
        request: Request,
        connect_ms: c_long,
        send_ms: c_long,
        receive_ms: c_long,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(&[], &[TIMEOUTS, connect_ms as f64, send_ms as f64, receive_ms as f64], error)
    }

    /// Has the request made anew for this attempt.
    fn ngx_http_lua_ffi_balancer_recreate_request(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(&[], &[ANEW], error)
    }

    /// Sets whether the server is spoken with over TLS.
    fn ngx_http_lua_ffi_balancer_set_upstream_tls(
        request: Request,
        on: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(&[], &[TLS, f64::from(on)], error)
    }

    /// Sets the local address of the connection.
    fn ngx_http_lua_ffi_balancer_bind_to_local_addr(
        request: Request,
        address: *const c_uchar,
        len: usize,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        ask(|core| core.balance, &[bytes(address, len)], &[LOCAL], |code, reply| {
            copy_error(reply, error, error_len);
            code
        })
    }
}
