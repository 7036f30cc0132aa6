//! The C functions behind `ngx.pipe` of lua-resty-core: programs with pipes to their standard input, output
//! and error. Lua holds OpenResty's structure for a program. Its field for an address holds the program's
//! number instead, which is never followed.
#![expect(unsafe_code, reason = "pointers that C gives, and a structure that Lua reads")]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr;

use super::asking::{AGAIN, BAD_CONTEXT, DECLINED, ERROR, OK, ask, bytes, copy, copy_error, exported, put};
use crate::reply::Reply;

/// The address of a request, which is not followed (rule 2 of `core.rs`).
type Request = *const c_void;

/// `ngx_http_lua_ffi_pipe_proc_t`.
#[repr(C)]
struct Process {
    pid: c_int,
    write_timeout_ms: usize,
    output_timeout_ms: usize,
    errors_timeout_ms: usize,
    wait_timeout_ms: usize,
    number: *const c_void,
}

/// Numbers of the operations that the host is asked for.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod programs {
    pub const START: u8 = 0;
    pub const READ: u8 = 1;
    pub const READ_RESULT: u8 = 2;
    pub const WRITE: u8 = 3;
    pub const WRITE_RESULT: u8 = 4;
    pub const CLOSE: u8 = 5;
    pub const WAIT: u8 = 6;
    pub const KILL: u8 = 7;
    pub const LOSE: u8 = 8;
    /// The number of a program that could not be executed.
    pub const FAILED: u64 = u64::MAX;
    /// Ways in which a program can end.
    pub const EXITED: i32 = 0;
    pub const SIGNALLED: i32 = 1;
    pub const UNKNOWN: i32 = 2;
}

/// The most arguments, or variables of the environment, of a program.
const WORDS_MAX: usize = 65_536;

/// Lua's buffer for the text of an error, with its size.
#[derive(Clone, Copy)]
struct Room {
    data: *mut u8,
    len: *mut usize,
}

impl Room {
    /// # Safety
    /// As for [`copy_error`].
    unsafe fn say(self, reply: &Reply) {
        // SAFETY: by the contract.
        unsafe { copy_error(reply, self.data, self.len) };
    }
}

/// The strings of a list that ends with a null pointer.
///
/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn words<'c>(list: *const *const c_char) -> Vec<&'c [u8]> {
    let mut words = Vec::new();
    // SAFETY: by the contract a null is behind the last one.
    unsafe {
        while !list.is_null() && words.len() < WORDS_MAX {
            let word = list.add(words.len()).read_unaligned();
            if word.is_null() {
                break;
            }
            words.push(CStr::from_ptr(word).to_bytes());
        }
    }
    words
}

/// The number of a program; `None` where there is none.
///
/// # Safety
/// As for `put`.
unsafe fn number_of(process: *const Process) -> Option<f64> {
    // SAFETY: by the contract.
    let number = unsafe { process.as_ref()?.number.addr() } as u64;
    // A program that failed to start has no number of its own.
    (number != 0).then_some(if number == programs::FAILED { -1.0 } else { number as f64 })
}

/// Copies the data into Lua's buffer if that is large enough. Otherwise Lua gets a null pointer and the size
/// that is needed, and calls again for the data.
///
/// # Safety
/// The buffers are as large as their lengths say.
unsafe fn give(code: i32, reply: &Reply, data: *mut *mut u8, len: *mut usize, error: Room) -> c_int {
    let split = reply.places.first().map_or(0, |at| (*at).max(0) as usize);
    let (words, text) = reply.text.split_at(split.min(reply.text.len()));
    // SAFETY: by the contract.
    unsafe {
        if code == DECLINED {
            let count = words.len().min(error.len.read_unaligned());
            copy(error.data, &words[..count]);
            put(error.len, count);
        }
        if reply.number > 0.0 {
            put(data, ptr::null_mut());
            put(len, reply.number as usize);
        } else {
            copy(data.read_unaligned(), text);
            put(len, text.len());
        }
    }
    code
}

/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn read(numbers: &[f64], data: *mut *mut u8, len: *mut usize, error: Room) -> c_int {
    ask(
        |core| core.pipe,
        &[],
        numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                match code {
                    OK | DECLINED => give(code, reply, data, len, error),
                    AGAIN => AGAIN,
                    code => {
                        error.say(reply);
                        code
                    }
                }
            }
        },
    )
}

/// Asks the host for an operation whose result is a number. For an error the text is copied to Lua.
///
/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn act(texts: &[&[u8]], numbers: &[f64], error: Room) -> c_int {
    ask(
        |core| core.pipe,
        texts,
        numbers,
        |code, reply| {
            if matches!(code, ERROR | BAD_CONTEXT) {
                // SAFETY: by the contract.
                unsafe { error.say(reply) };
            }
            code
        },
    )
}

/// Closes one of the pipes.
///
/// # Safety
/// Rule 1 of `core.rs`.
unsafe fn close(process: *const Process, which: f64, error: Room) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        let number = number_of(process).unwrap_or(0.0);
        act(&[], &[f64::from(programs::CLOSE), number, which], error)
    }
}

exported! {
    /// Starts a program: 0, or -1 with an error text.
    fn ngx_http_lua_ffi_pipe_spawn(
        request: Request,
        process: *mut Process,
        file: *const c_char,
        arguments: *const *const c_char,
        merges: c_int,
        buffer: usize,
        environment: *const *const c_char,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        let (arguments, variables) = (words(arguments), words(environment));
        let numbers = [
            f64::from(programs::START),
            f64::from(merges),
            buffer as f64,
            arguments.len() as f64,
            if environment.is_null() { 0.0 } else { 1.0 },
        ];
        let mut texts = vec![CStr::from_ptr(file).to_bytes()];
        texts.extend(arguments);
        texts.extend(variables);
        ask(|core| core.pipe, &texts, &numbers, |code, reply| {
            if code < OK {
                copy_error(reply, error, error_len);
                return ERROR;
            }
            let pid = reply.places.first().copied().unwrap_or(0);
            let number = if pid == 0 { programs::FAILED } else { reply.number as u64 };
            if let Some(process) = process.as_mut() {
                process.pid = pid;
                process.number = ptr::without_provenance(number as usize);
            }
            OK
        })
    }

    /// Reads: 0; -5 for a part of the data with an error text; -1 with an error text; or -2: the Lua thread
    /// yields until there is data.
    fn ngx_http_lua_ffi_pipe_proc_read(
        request: Request,
        process: *mut Process,
        is_errors: c_int,
        wanted: c_int,
        count: usize,
        data: *mut *mut c_uchar,
        len: *mut usize,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        let number = number_of(process).unwrap_or(0.0);
        let timeout_ms = process.as_ref().map_or(0, |process| match is_errors {
            0 => process.output_timeout_ms,
            _ => process.errors_timeout_ms,
        });
        let numbers = [
            f64::from(programs::READ),
            number,
            f64::from(is_errors),
            if len.is_null() { 0.0 } else { len.read_unaligned() as f64 },
            f64::from(wanted),
            count as f64,
            timeout_ms as f64,
        ];
        read(&numbers, data, len, Room { data: error, len: error_len })
    }

    /// Returns the data to a thread that has yielded for it.
    fn ngx_http_lua_ffi_pipe_get_read_result(
        request: Request,
        process: *mut Process,
        is_errors: c_int,
        data: *mut *mut c_uchar,
        len: *mut usize,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        let numbers = [
            f64::from(programs::READ_RESULT),
            number_of(process).unwrap_or(0.0),
            f64::from(is_errors),
            if len.is_null() { 0.0 } else { len.read_unaligned() as f64 },
        ];
        read(&numbers, data, len, Room { data: error, len: error_len })
    }

    /// Writes: the number of bytes; -1 with an error text; or -2: the Lua thread yields until the data is
    /// written.
    fn ngx_http_lua_ffi_pipe_proc_write(
        request: Request,
        process: *mut Process,
        data: *const c_uchar,
        len: usize,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> isize {
        let _ = request;
        let timeout_ms = process.as_ref().map_or(0, |process| process.write_timeout_ms);
        let numbers =
            [f64::from(programs::WRITE), number_of(process).unwrap_or(0.0), timeout_ms as f64];
        match act(&[bytes(data, len)], &numbers, Room { data: error, len: error_len }) {
            OK => len.cast_signed(),
            code => code as isize,
        }
    }

    /// Returns the number of written bytes to a thread that has yielded for it.
    fn ngx_http_lua_ffi_pipe_get_write_result(
        request: Request,
        process: *mut Process,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> isize {
        let _ = request;
        let numbers = [f64::from(programs::WRITE_RESULT), number_of(process).unwrap_or(0.0)];
        ask(|core| core.pipe, &[], &numbers, |code, reply| match code {
            OK => reply.number as isize,
            code => {
                copy_error(reply, error, error_len);
                code as isize
            }
        })
    }

    /// Closes the program's standard input.
    fn ngx_http_lua_ffi_pipe_proc_shutdown_stdin(
        process: *mut Process,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        close(process, 0.0, Room { data: error, len: error_len })
    }

    /// Closes the program's standard output.
    fn ngx_http_lua_ffi_pipe_proc_shutdown_stdout(
        process: *mut Process,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        close(process, 1.0, Room { data: error, len: error_len })
    }

    /// Closes the program's standard error.
    fn ngx_http_lua_ffi_pipe_proc_shutdown_stderr(
        process: *mut Process,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        close(process, 2.0, Room { data: error, len: error_len })
    }

    /// Waits for the program's end: 0 if it succeeded; -5 if it failed; -1 with an error text; or -2: the Lua
    /// thread yields until it ends.
    fn ngx_http_lua_ffi_pipe_proc_wait(
        request: Request,
        process: *mut Process,
        reason: *mut *const c_char,
        status: *mut c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let _ = request;
        let timeout_ms = process.as_ref().map_or(0, |process| process.wait_timeout_ms);
        let numbers = [f64::from(programs::WAIT), number_of(process).unwrap_or(0.0), timeout_ms as f64];
        ask(|core| core.pipe, &[], &numbers, |code, reply| {
            match code {
                OK | DECLINED => {
                    let words = match reply.places.first().copied() {
                        Some(programs::EXITED) => c"exit",
                        Some(programs::SIGNALLED) => c"signal",
                        _ => c"unknown",
                    };
                    put(reason, words.as_ptr());
                    put(status, reply.number as c_int);
                    if let Some(process) = process.as_mut().filter(|process| process.pid == 0) {
                        process.number = ptr::null();
                    }
                }
                AGAIN => {}
                _ => copy_error(reply, error, error_len),
            }
            code
        })
    }

    /// Sends the program a signal.
    fn ngx_http_lua_ffi_pipe_proc_kill(
        process: *mut Process,
        signal: c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let numbers =
            [f64::from(programs::KILL), number_of(process).unwrap_or(0.0), f64::from(signal)];
        act(&[], &numbers, Room { data: error, len: error_len })
    }

    /// Frees a program that Lua has dropped. It is killed if it still runs.
    fn ngx_http_lua_ffi_pipe_proc_destroy(process: *mut Process) {
        let Some(number) = number_of(process) else { return };
        if let Some(process) = process.as_mut() {
            process.number = ptr::null();
        }
        ask(|core| core.pipe, &[], &[f64::from(programs::LOSE), number], |_, _| ());
    }
}
