//! Functions of requests: variables, heads, arguments, the phase, ends.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{c_char, c_int, c_uchar, c_void};

use super::asking::{
    AGAIN, ERROR, NO_REQUEST, OK, Pair, Str, ask, bytes, copy, copy_error, exported, put, show, show_error,
    texts,
};
use crate::reply::Reply;

/// A request, which is not looked at (rule 2 of `core.rs`).
type Request = *const c_void;

/// Arguments of a function that is called by the address of them, on another system.
#[repr(C)]
struct HeaderParams {
    request: Request,
    key: *const c_uchar,
    key_len: usize,
    is_nil: c_int,
    value: *const c_uchar,
    value_len: usize,
    values: *const Str,
    values_len: usize,
    replaces: c_int,
    error: *mut *const u8,
}

/// The values that a line is to have.
///
/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn values_of<'c>(p: &HeaderParams) -> Vec<&'c [u8]> {
    // SAFETY: by the contract.
    unsafe {
        let mut all = vec![bytes(p.key, p.key_len)];
        if p.is_nil == 0 {
            if p.values.is_null() {
                all.push(bytes(p.value, p.value_len));
            } else {
                all.extend(texts(p.values, p.values_len));
            }
        }
        all
    }
}

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn set_resp_header(p: &HeaderParams) -> c_int {
    // SAFETY: by the contract.
    let all = unsafe { values_of(p) };
    ask(
        |core| core.set_resp_header,
        &all,
        &[f64::from(p.replaces)],
        |code, reply| {
            if code == ERROR {
                // SAFETY: by the contract.
                unsafe { show_error(reply, p.error) };
            }
            code
        },
    )
}

/// A piece of the reply's text, between two of its places; one without a place has the length -1.
fn piece(reply: &Reply, at: usize) -> Str {
    let place = |at: usize| reply.places.get(at).copied().unwrap_or(-1);
    let from = place(at);
    if from < 0 {
        return Str { len: -1, data: reply.text.as_ptr() };
    }
    let text = reply.text.get(from as usize..).unwrap_or_default();
    Str { len: place(at + 1) - from, data: text.as_ptr() }
}

/// Puts as many pairs of the reply as there is room for; how many.
///
/// # Safety
/// There is such room.
unsafe fn put_pairs(reply: &Reply, to: *mut Pair, room: c_int) -> c_int {
    let count = (reply.places.len() / 4).min(usize::try_from(room).unwrap_or(0));
    for at in 0..count {
        let pair = Pair { key: piece(reply, 4 * at), value: piece(reply, 4 * at + 2) };
        // SAFETY: by the contract.
        unsafe { put(to.add(at), pair) };
    }
    count as c_int
}

exported! {
    /// The number of `ngx.ctx` on the shelf, or -2; then also whether a handshake is under way, and the
    /// number of the table that its connection has from handshakes, or -2.
    fn ngx_http_lua_ffi_get_ctx_ref(
        request: Request,
        is_handshake: *mut c_int,
        fallback: *mut c_int,
    ) -> c_int {
        let _ = request;
        ask(|core| core.get_ctx, &[], &[], |code, reply| {
            if let [its, of_connection] = reply.places[..] {
                put(is_handshake, its);
                put(fallback, of_connection);
            }
            code
        })
    }

    /// `ngx.ctx` is what the shelf has under this number.
    fn ngx_http_lua_ffi_set_ctx_ref(request: Request, number: c_int) -> c_int {
        let _ = request;
        ask(|core| core.set_ctx, &[], &[f64::from(number)], |code, _| code)
    }

    /// A variable by its name, or what a group of the last expression has matched: 0, -5 for nothing, -1.
    fn ngx_http_lua_ffi_var_get(
        request: Request,
        name: *const c_char,
        name_len: usize,
        lower: *mut c_char,
        group: c_int,
        value: *mut *const u8,
        value_len: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let (_, _) = (request, lower);
        let numbers = [f64::from(group), f64::from(u8::from(!name.is_null()))];
        ask(|core| core.var_get, &[bytes(name.cast(), name_len)], &numbers, |code, reply| {
            match code {
                OK => show(reply, value, value_len),
                ERROR => show_error(reply, error),
                _ => {}
            }
            code
        })
    }

    /// Gives a variable a value, or none: 0, -1.
    fn ngx_http_lua_ffi_var_set(
        request: Request,
        name: *const c_uchar,
        name_len: usize,
        lower: *mut c_uchar,
        value: *const c_uchar,
        value_len: usize,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let (_, _) = (request, lower);
        let given = [bytes(name, name_len), bytes(value, value_len)];
        let has_value = f64::from(u8::from(!value.is_null()));
        ask(|core| core.var_set, &given, &[has_value], |code, reply| {
            if code != OK {
                copy_error(reply, error, error_len);
            }
            code
        })
    }

    /// The code ends: 0 where it is to yield for that, -4 where it goes on, -1 with words.
    fn ngx_http_lua_ffi_exit(
        request: Request,
        status: c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        ask(|core| core.exit, &[], &[f64::from(status)], |code, reply| {
            copy_error(reply, error, error_len);
            code
        })
    }

    /// The phase, as a bit.
    fn ngx_http_lua_ffi_get_phase(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        ask(|core| core.get_phase, &[], &[], |code, reply| {
            if code == ERROR {
                show_error(reply, error);
            }
            code
        })
    }

    /// When the request began, seconds since the epoch.
    fn ngx_http_lua_ffi_req_start_time(request: Request) -> f64 {
        let _ = request;
        ask(|core| core.start_time, &[], &[], |_, reply| reply.number)
    }

    /// How many lines of the head there are, at most as many as are wanted.
    fn ngx_http_lua_ffi_req_get_headers_count(request: Request, max: c_int, truncated: *mut c_int) -> c_int {
        let _ = request;
        ask(|core| core.req_headers, &[], &[f64::from(max)], |code, reply| {
            put(truncated, reply.number as c_int);
            code
        })
    }

    /// The lines of the head.
    fn ngx_http_lua_ffi_req_get_headers(request: Request, to: *mut Pair, count: c_int, raw: c_int) -> c_int {
        let _ = request;
        ask(|core| core.req_headers, &[], &[f64::from(count), f64::from(raw)], |code, reply| {
            if code < 0 {
                return code;
            }
            put_pairs(reply, to, count);
            OK
        })
    }

    /// How many arguments there are, at most as many as are wanted.
    fn ngx_http_lua_ffi_req_get_uri_args_count(request: Request, max: c_int, truncated: *mut c_int) -> c_int {
        let _ = request;
        ask(|core| core.uri_args, &[], &[f64::from(max)], |code, reply| {
            put(truncated, reply.number as c_int);
            code
        })
    }

    /// Bytes of the arguments.
    fn ngx_http_lua_ffi_req_get_querystring_len(request: Request) -> usize {
        let _ = request;
        ask(|core| core.query_len, &[], &[], |_, reply| reply.number as usize)
    }

    /// The arguments: how many.
    fn ngx_http_lua_ffi_req_get_uri_args(
        request: Request,
        room: *mut c_uchar,
        to: *mut Pair,
        count: c_int,
    ) -> c_int {
        let (_, _) = (request, room);
        ask(|core| core.uri_args, &[], &[f64::from(count)], |code, reply| {
            if code < 0 { code } else { put_pairs(reply, to, count) }
        })
    }

    /// The number of the method.
    fn ngx_http_lua_ffi_req_get_method(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.get_method, &[], &[], |code, _| code)
    }

    /// The name of the method.
    fn ngx_http_lua_ffi_req_get_method_name(
        request: Request,
        name: *mut *const u8,
        len: *mut usize,
    ) -> c_int {
        let _ = request;
        ask(|core| core.get_method, &[], &[], |code, reply| {
            show(reply, name, len);
            code.min(OK)
        })
    }

    /// The method from now on, by its number.
    fn ngx_http_lua_ffi_req_set_method(request: Request, method: c_int) -> c_int {
        let _ = request;
        ask(|core| core.set_method, &[], &[f64::from(method)], |code, _| code)
    }

    /// A line of the head from now on.
    fn ngx_http_lua_ffi_req_set_header(
        request: Request,
        key: *const c_uchar,
        key_len: usize,
        value: *const c_uchar,
        value_len: usize,
        values: *const Str,
        values_len: usize,
        replaces: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let is_nil = c_int::from(value.is_null() && values.is_null());
        let params = HeaderParams {
            request, key, key_len, is_nil, value, value_len, values, values_len, replaces, error,
        };
        ask(|core| core.set_req_header, &values_of(&params), &[f64::from(replaces)], |code, reply| {
            if code == ERROR {
                show_error(reply, error);
            }
            code
        })
    }

    /// The values of a line of the response's head: how many.
    fn ngx_http_lua_ffi_get_resp_header(
        request: Request,
        key: *const c_uchar,
        key_len: usize,
        room: *mut c_uchar,
        to: *mut Str,
        max: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let (_, _) = (request, room);
        ask(|core| core.get_resp_header, &[bytes(key, key_len)], &[], |code, reply| {
            if code == ERROR {
                show_error(reply, error);
            }
            if code < 0 {
                return code;
            }
            let count = (reply.places.len() / 2).min(usize::try_from(max).unwrap_or(0));
            for at in 0..count {
                put(to.add(at), piece(reply, 2 * at));
            }
            count as c_int
        })
    }

    /// A line of the response's head from now on.
    fn ngx_http_lua_ffi_set_resp_header(
        request: Request,
        key: *const c_uchar,
        key_len: usize,
        is_nil: c_int,
        value: *const c_uchar,
        value_len: usize,
        values: *const Str,
        values_len: usize,
        replaces: c_int,
        error: *mut *const u8,
    ) -> c_int {
        set_resp_header(&HeaderParams {
            request, key, key_len, is_nil, value, value_len, values, values_len, replaces, error,
        })
    }

    /// As the function without this ending.
    fn ngx_http_lua_ffi_set_resp_header_macos(params: *const HeaderParams) -> c_int {
        set_resp_header(&*params)
    }

    /// Has the conditions of the request count for nothing.
    fn ngx_http_lua_ffi_bypass_if_checks(request: Request) {
        let _ = request;
        ask(|core| core.bypass_if_checks, &[], &[], |_, _| ());
    }

    /// The status of the response.
    fn ngx_http_lua_ffi_get_resp_status(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.get_status, &[], &[], |code, _| code)
    }

    /// The status of the response from now on.
    fn ngx_http_lua_ffi_set_resp_status(request: Request, status: c_int) -> c_int {
        let _ = request;
        ask(|core| core.set_status, &[], &[f64::from(status)], |code, _| code)
    }

    /// Sets the status with a phrase for the status line: 0, or -5 if it is too late or the status is
    /// invalid.
    fn ngx_http_lua_ffi_set_resp_status_and_reason(
        request: Request,
        status: c_int,
        reason: *const c_char,
        reason_len: usize,
    ) -> c_int {
        let _ = request;
        let reason = bytes(reason.cast(), reason_len);
        ask(|core| core.set_phrased_status, &[reason], &[f64::from(status)], |code, _| code)
    }

    /// Whether the request is one of another.
    fn ngx_http_lua_ffi_is_subrequest(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.property, &[], &[0.0], |code, _| code)
    }

    /// Whether the response's head has been sent.
    fn ngx_http_lua_ffi_headers_sent(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.property, &[], &[1.0], |code, _| code)
    }

    /// Whether the request came to be here by the server itself.
    fn ngx_http_lua_ffi_req_is_internal(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.property, &[], &[2.0], |code, _| code)
    }

    /// An argument of `set_by_lua`.
    fn ngx_http_lua_ffi_get_setby_param(request: Request, at: c_int, data: *mut *const u8, len: *mut usize) {
        let _ = request;
        ask(|core| core.set_by_param, &[], &[f64::from(at)], |_, reply| show(reply, data, len));
    }

    /// Whether the body ends behind this piece.
    fn ngx_http_lua_ffi_get_body_filter_param_eof(request: Request) -> c_int {
        let _ = request;
        ask(|core| core.body_param, &[], &[], |code, _| c_int::from(code > 0))
    }

    /// The piece of the body.
    fn ngx_http_lua_ffi_get_body_filter_param_body(
        request: Request,
        data: *mut *const u8,
        len: *mut usize,
    ) -> c_int {
        let _ = request;
        ask(|core| core.body_param, &[], &[], |code, reply| {
            show(reply, data, len);
            debug_assert!(code != AGAIN, "a piece is one text");
            if code == NO_REQUEST { ERROR } else { OK }
        })
    }

    /// Copies the piece of the body.
    fn ngx_http_lua_ffi_copy_body_filter_param_body(request: Request, to: *mut c_uchar) -> c_int {
        let _ = request;
        ask(|core| core.body_param, &[], &[], |_, reply| {
            copy(to, &reply.text);
            OK
        })
    }

    /// The function that a directive stands for: 0, or -5.
    fn ngx_http_lua_ffi_ndk_lookup_directive(
        name: *const c_uchar,
        len: usize,
        function: *mut *const c_void,
    ) -> c_int {
        ask(|core| core.ndk_find, &[bytes(name, len)], &[], |code, _| {
            if code < 0 {
                return code;
            }
            // No address: one plus the number of the function.
            put(function, std::ptr::without_provenance(code as usize + 1));
            OK
        })
    }

    /// The result of the function for a text.
    fn ngx_http_lua_ffi_ndk_set_var_get(
        request: Request,
        function: *const c_void,
        text: *const c_uchar,
        len: usize,
        value: *mut Str,
    ) -> c_int {
        let _ = request;
        let which = function.addr() as f64 - 1.0;
        ask(|core| core.ndk_call, &[bytes(text, len)], &[which], |code, reply| {
            put(value, Str { len: reply.text.len() as i32, data: reply.text.as_ptr() });
            code
        })
    }
}
