//! Functions that need no request: time, digests, encodings, the process.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{c_char, c_int, c_long, c_uchar, c_uint};

use super::asking::{ERROR, OK, ask, bytes, copy, copy_error, exported, put, show};

/// `ngx_str_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Text {
    len: usize,
    data: *mut u8,
}

/// Numbers for the kinds of `clock`, `date`, `digest` and `decode_base64`.
const NOW_MS: f64 = 0.0;
const MONOTONIC_MS: f64 = 1.0;

fn clock(which: f64) -> f64 {
    ask(|core| core.clock, &[], &[which], |_, reply| reply.number)
}

/// # Safety
/// There is room for such a date.
unsafe fn date(which: f64, seconds: c_long, to: *mut u8) -> c_int {
    ask(
        |core| core.date,
        &[],
        &[which, seconds as f64],
        |_, reply| {
            // SAFETY: by the contract.
            unsafe { copy(to, &reply.text) };
            reply.text.len() as c_int
        },
    )
}

/// # Safety
/// There are so many bytes, and room for such a digest.
unsafe fn digest(which: f64, from: *const u8, len: usize, to: *mut u8) -> c_int {
    // SAFETY: by the contract.
    let from = unsafe { bytes(from, len) };
    ask(
        |core| core.digest,
        &[from],
        &[which],
        |_, reply| {
            // SAFETY: by the contract.
            unsafe { copy(to, &reply.text) };
            1
        },
    )
}

/// # Safety
/// There are so many bytes, and room for three quarters of them.
unsafe fn decode(which: f64, from: *const u8, len: usize, to: *mut u8, to_len: *mut usize) -> c_int {
    // SAFETY: by the contract.
    let from = unsafe { bytes(from, len) };
    ask(
        |core| core.decode_base64,
        &[from],
        &[which],
        |code, reply| {
            if code != OK {
                return ERROR;
            }
            // SAFETY: by the contract.
            unsafe {
                copy(to, &reply.text);
                put(to_len, reply.text.len());
            }
            OK
        },
    )
}

fn process(which: f64) -> c_int {
    ask(|core| core.process, &[], &[which], |code, _| code)
}

exported! {
    /// Seconds since the epoch.
    fn ngx_http_lua_ffi_now() -> f64 {
        clock(NOW_MS) / 1000.0
    }

    /// Whole seconds since the epoch.
    fn ngx_http_lua_ffi_time() -> c_long {
        (clock(NOW_MS) / 1000.0) as c_long
    }

    /// Milliseconds of a clock that nobody sets.
    fn ngx_http_lua_ffi_monotonic_msec() -> c_long {
        clock(MONOTONIC_MS) as c_long
    }

    /// Each look at the clock is one at the real one.
    fn ngx_http_lua_ffi_update_time() {}

    /// The local date: 10 bytes.
    fn ngx_http_lua_ffi_today(to: *mut c_uchar) {
        date(0.0, 0, to);
    }

    /// The local date and time: 19 bytes.
    fn ngx_http_lua_ffi_localtime(to: *mut c_uchar) {
        date(1.0, 0, to);
    }

    /// The date and time of UTC: 19 bytes.
    fn ngx_http_lua_ffi_utctime(to: *mut c_uchar) {
        date(2.0, 0, to);
    }

    /// A date as cookies have it: how many bytes, at most 29.
    fn ngx_http_lua_ffi_cookie_time(to: *mut c_uchar, seconds: c_long) -> c_int {
        date(3.0, seconds, to)
    }

    /// A date as HTTP has it: 29 bytes.
    fn ngx_http_lua_ffi_http_time(to: *mut c_uchar, seconds: c_long) {
        date(4.0, seconds, to);
    }

    /// The seconds that a date of HTTP's is; -1 for what is none.
    fn ngx_http_lua_ffi_parse_http_time(text: *const c_uchar, len: usize, seconds: *mut c_long) {
        let text = bytes(text, len);
        let parsed = ask(|core| core.parse_date, &[text], &[], |code, reply| {
            if code == OK { reply.number as c_long } else { -1 }
        });
        put(seconds, parsed);
    }

    /// MD5: 16 bytes.
    fn ngx_http_lua_ffi_md5_bin(from: *const c_uchar, len: usize, to: *mut c_uchar) {
        digest(0.0, from, len, to);
    }

    /// MD5 in hexadecimal digits: 32 bytes.
    fn ngx_http_lua_ffi_md5(from: *const c_uchar, len: usize, to: *mut c_uchar) {
        digest(1.0, from, len, to);
    }

    /// SHA-1: 20 bytes.
    fn ngx_http_lua_ffi_sha1_bin(from: *const c_uchar, len: usize, to: *mut c_uchar) -> c_int {
        digest(2.0, from, len, to)
    }

    /// CRC-32.
    fn ngx_http_lua_ffi_crc32_long(from: *const c_uchar, len: usize) -> c_uint {
        ask(|core| core.crc32, &[bytes(from, len)], &[], |_, reply| reply.number as c_uint)
    }

    /// CRC-32, for short texts.
    fn ngx_http_lua_ffi_crc32_short(from: *const c_uchar, len: usize) -> c_uint {
        ask(|core| core.crc32, &[bytes(from, len)], &[], |_, reply| reply.number as c_uint)
    }

    /// How many bytes the text has once it is escaped.
    fn ngx_http_lua_ffi_uri_escaped_length(from: *const c_uchar, len: usize, kind: c_int) -> usize {
        ask(|core| core.escape_uri, &[bytes(from, len)], &[f64::from(kind)], |_, reply| reply.text.len())
    }

    /// Escapes a text.
    fn ngx_http_lua_ffi_escape_uri(from: *const c_uchar, len: usize, to: *mut c_uchar, kind: c_int) {
        ask(|core| core.escape_uri, &[bytes(from, len)], &[f64::from(kind)], |_, reply| {
            copy(to, &reply.text);
        });
    }

    /// Unescapes a URI. Returns the number of bytes.
    fn ngx_http_lua_ffi_unescape_uri(from: *const c_uchar, len: usize, to: *mut c_uchar) -> usize {
        ask(|core| core.unescape_uri, &[bytes(from, len)], &[], |_, reply| {
            copy(to, &reply.text);
            reply.text.len()
        })
    }

    /// Base64: how many bytes.
    fn ngx_http_lua_ffi_encode_base64(
        from: *const c_uchar,
        len: usize,
        to: *mut c_uchar,
        no_padding: c_int,
    ) -> usize {
        let kind = f64::from(u8::from(no_padding != 0));
        ask(|core| core.encode_base64, &[bytes(from, len)], &[kind], |_, reply| {
            copy(to, &reply.text);
            reply.text.len()
        })
    }

    /// Decodes base64. Returns whether it was valid.
    fn ngx_http_lua_ffi_decode_base64(
        from: *const c_uchar,
        len: usize,
        to: *mut c_uchar,
        to_len: *mut usize,
    ) -> c_int {
        c_int::from(decode(0.0, from, len, to, to_len) == OK)
    }

    /// Decodes base64 without characters that are not of its alphabet. Returns whether it was valid.
    fn ngx_http_lua_ffi_decode_base64mime(
        from: *const c_uchar,
        len: usize,
        to: *mut c_uchar,
        to_len: *mut usize,
    ) -> c_int {
        c_int::from(decode(1.0, from, len, to, to_len) == OK)
    }

    /// Base64 for URLs.
    fn ngx_encode_base64url(to: *mut Text, from: *const Text) {
        let (text, mut room) = (from.read_unaligned(), to.read_unaligned());
        ask(|core| core.encode_base64, &[bytes(text.data, text.len)], &[2.0], |_, reply| {
            copy(room.data, &reply.text);
            room.len = reply.text.len();
        });
        put(to, room);
    }

    /// Decodes base64 for URLs: 0, or -1.
    fn ngx_decode_base64url(to: *mut Text, from: *const Text) -> isize {
        let (text, mut room) = (from.read_unaligned(), to.read_unaligned());
        let code = decode(2.0, text.data, text.len, room.data, &raw mut room.len);
        put(to, room);
        code as isize
    }

    /// Puts a byte in the place of another, wherever that stands.
    fn ngx_http_lua_ffi_str_replace_char(text: *mut c_uchar, len: usize, find: c_uchar, with: c_uchar) {
        for at in 0..len {
            let byte = text.add(at);
            if *byte == find {
                *byte = with;
            }
        }
    }

    /// The number of the loop that serves.
    fn ngx_http_lua_ffi_worker_id() -> c_int {
        ask(|core| core.worker, &[], &[0.0], |code, _| code)
    }

    /// How many loops serve.
    fn ngx_http_lua_ffi_worker_count() -> c_int {
        ask(|core| core.worker, &[], &[1.0], |code, _| code)
    }

    /// Whether the server ends.
    fn ngx_http_lua_ffi_worker_exiting() -> c_int {
        ask(|core| core.worker, &[], &[2.0], |code, _| code)
    }

    /// The number of the loop that serves, as in `$pid`.
    fn ngx_http_lua_ffi_worker_pid() -> c_int {
        ask(|core| core.worker, &[], &[3.0], |code, _| code)
    }

    /// The numbers of all loops.
    fn ngx_http_lua_ffi_worker_pids(pids: *mut c_int, count: *mut usize) -> c_int {
        if count.is_null() || pids.is_null() {
            return ERROR;
        }
        let all = ask(|core| core.worker, &[], &[4.0], |code, _| code);
        let given = count.read_unaligned().min(usize::try_from(all).unwrap_or(0));
        if given == 0 {
            return ERROR;
        }
        for at in 0..given {
            put(pids.add(at), ask(|core| core.worker, &[], &[5.0 + at as f64], |code, _| code));
        }
        put(count, given);
        OK
    }

    /// Where `env` has put a variable: those of the process are found by themselves.
    fn ngx_http_lua_ffi_get_conf_env(
        name: *const c_uchar,
        room: *mut *mut c_uchar,
        len: *mut usize,
    ) -> c_int {
        let (_, _, _) = (name, room, len);
        -5
    }

    /// The kind of process.
    fn ngx_http_lua_ffi_get_process_type() -> c_int {
        process(0.0)
    }

    /// The process that has started this one, or itself.
    fn ngx_http_lua_ffi_master_pid() -> c_int {
        process(1.0)
    }

    /// The process is told to end.
    fn ngx_http_lua_ffi_process_signal_graceful_exit() {
        process(2.0);
    }

    /// A process is to run beside the workers with the rights of the master: 0. Callers make sure that
    /// `init_by_lua` calls.
    fn ngx_http_lua_ffi_enable_privileged_agent(
        error: *mut *const c_char,
        connections: std::ffi::c_uint,
    ) -> c_int {
        let _ = error;
        ask(|core| core.process, &[], &[4.0, f64::from(connections)], |code, _| code)
    }

    /// A line without the place that it comes from.
    fn ngx_http_lua_ffi_raw_log(
        request: *const std::ffi::c_void,
        level: c_int,
        text: *const c_uchar,
        len: usize,
    ) -> c_int {
        let _ = request;
        ask(|core| core.raw_log, &[bytes(text, len)], &[f64::from(level)], |code, _| code)
    }

    /// The least severe level that is logged where the code runs.
    fn ngx_http_lua_ffi_errlog_get_sys_filter_level(request: *const std::ffi::c_void) -> c_int {
        let _ = request;
        process(3.0)
    }
    /// Has lines of a level and of more severe ones kept: 0, or -1 with words.
    fn ngx_http_lua_ffi_errlog_set_filter_level(
        level: c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        ask(|core| core.kept_lines, &[], &[1.0, f64::from(level)], |code, reply| {
            if code != OK {
                copy_error(reply, error, error_len);
            }
            code
        })
    }

    /// Takes the oldest line that is kept: how long it is, -4 where there is none, or -1 with words.
    fn ngx_http_lua_ffi_errlog_get_msg(
        text: *mut *const u8,
        level: *mut c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
        time: *mut f64,
    ) -> c_int {
        ask(|core| core.kept_lines, &[], &[0.0], |code, reply| {
            if code == ERROR {
                copy_error(reply, error, error_len);
            }
            if code != OK {
                return code;
            }
            show(reply, text, std::ptr::null_mut());
            put(level, reply.places.first().copied().unwrap_or(0));
            put(time, reply.number);
            reply.text.len() as c_int
        })
    }
}
