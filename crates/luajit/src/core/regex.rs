//! Expressions. What Lua gets is a structure that it reads itself; behind it stands what is ours.
#![expect(unsafe_code, reason = "pointers that C gives, and structures that Lua reads")]

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr;

use super::asking::{ERROR, OK, ask, ask_of, bytes, copy, copy_error, exported, put};

/// No match, and no such expression.
const NO_MATCH: c_int = -1;

/// `ngx_http_lua_complex_value_t`: where it has lengths, Lua asks what it comes to.
#[repr(C)]
struct ComplexValue {
    len: usize,
    data: *const u8,
    lengths: *const c_void,
    values: *const c_void,
}

/// `ngx_http_lua_regex_t`.
#[repr(C)]
struct Shown {
    pool: *const c_void,
    name_table: *const u8,
    name_count: c_int,
    name_entry_size: c_int,
    captures_count: c_int,
    captures: *mut c_int,
    regex: *const c_void,
    study: *const c_void,
    replace: *const ComplexValue,
    pattern: *const c_char,
}

/// An expression: Lua reads its beginning.
#[repr(C)]
struct Regex {
    shown: Shown,
    captures: Box<[c_int]>,
    _names: Box<[u8]>,
    code: Box<dyn Any + Send>,
    replacement: Option<Box<(ComplexValue, Vec<u8>)>>,
}

/// The values that a template is filled with.
struct Engine {
    subject: *const u8,
    regex: *const Regex,
    count: usize,
}

/// The table of names as PCRE has it: a number in two bytes, a name, a zero; how long an entry is.
fn name_table(text: &[u8], places: &[i32]) -> (Box<[u8]>, usize) {
    let names: Vec<(i32, &[u8])> = places
        .chunks_exact(3)
        .map(|of| (of[0], text.get(of[1] as usize..of[2] as usize).unwrap_or_default()))
        .collect();
    let entry = 3 + names.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
    let mut table = vec![0; entry * names.len()];
    for ((number, name), room) in names.iter().zip(table.chunks_exact_mut(entry)) {
        room[..2].copy_from_slice(&(*number as u16).to_be_bytes());
        room[2..2 + name.len()].copy_from_slice(name);
    }
    (table.into(), entry)
}

/// Fills a template and copies the result if there is room. Returns the number of bytes.
///
/// # Safety
/// Rule 1 of `core.rs`: the engine was begun with a subject and an expression that live.
unsafe fn expand(engine: *const Engine, to: *mut u8) -> usize {
    // SAFETY: by the contract.
    unsafe {
        let Engine { subject, regex, count } = &*engine;
        let Some(replacement) = (**regex).replacement.as_deref() else { return 0 };
        let captures = &(**regex).captures;
        let captures = &captures[..captures.len().min(2 * count)];
        let end = captures.iter().copied().max().unwrap_or(0).max(0) as usize;
        let numbers: Vec<f64> = captures.iter().copied().map(f64::from).collect();
        ask(
            |core| core.regex_expand,
            &[&replacement.1, bytes(*subject, end)],
            &numbers,
            |_, reply| {
                copy(to, &reply.text);
                reply.text.len()
            },
        )
    }
}

exported! {
    /// The version of PCRE2.
    fn ngx_http_lua_ffi_pcre_version() -> *const c_char {
        const VERSION: &CStr = c"10.42 2022-12-11";
        VERSION.as_ptr()
    }

    /// How many expressions `o` remembers.
    fn ngx_http_lua_ffi_max_regex_cache_size() -> u32 {
        ask(|core| core.regex_cache_max, &[], &[], |_, reply| reply.number as u32)
    }

    /// How many bytes of stack machine code of expressions has: 0, or -1 with words.
    fn ngx_http_lua_ffi_set_jit_stack_size(bytes: c_int, error: *mut c_uchar, len: *mut usize) -> c_int {
        ask(|core| core.regex_stack, &[], &[f64::from(bytes)], |code, reply| {
            if code != OK {
                copy_error(reply, error, len);
            }
            code
        })
    }

    /// An expression, or null with words.
    fn ngx_http_lua_ffi_compile_regex(
        pattern: *const c_uchar,
        len: usize,
        flags: c_int,
        options: c_int,
        error: *mut c_uchar,
        error_len: usize,
    ) -> *mut c_void {
        let numbers = [f64::from(flags), f64::from(options.cast_unsigned())];
        ask(|core| core.regex_compile, &[bytes(pattern, len)], &numbers, |groups, reply| {
            let Some(code) = reply.object.take().filter(|_| groups >= 0) else {
                let count = reply.text.len().min(error_len.saturating_sub(1));
                copy(error, &reply.text[..count]);
                put(error.add(count), 0);
                return ptr::null_mut();
            };
            let (names, entry) = name_table(&reply.text, &reply.places);
            let mut captures = vec![-1; 3 * (groups as usize + 1)].into_boxed_slice();
            let shown = Shown {
                pool: ptr::null(),
                name_table: names.as_ptr(),
                name_count: (reply.places.len() / 3) as c_int,
                name_entry_size: entry as c_int,
                captures_count: groups,
                captures: captures.as_mut_ptr(),
                regex: ptr::null(),
                study: ptr::null(),
                replace: ptr::null(),
                pattern: c"".as_ptr(),
            };
            let regex = Regex { shown, captures, _names: names, code, replacement: None };
            Box::into_raw(Box::new(regex)).cast()
        })
    }

    /// Looks for an expression: how many groups have matched, or -1, or PCRE2's number.
    fn ngx_http_lua_ffi_exec_regex(
        regex: *mut c_void,
        flags: c_int,
        subject: *const c_uchar,
        len: usize,
        from: c_int,
    ) -> c_int {
        let Some(regex) = regex.cast::<Regex>().as_mut() else { return NO_MATCH };
        let numbers = [f64::from(flags), f64::from(from)];
        let (code, captures): (&(dyn Any + Send), _) = (&*regex.code, regex.shown.captures);
        let room = regex.captures.len();
        ask_of(&[code], |core| core.regex_exec, &[bytes(subject, len)], &numbers, |found, reply| {
            for (at, place) in reply.places.iter().take(room).enumerate() {
                put(captures.add(at), *place);
            }
            found
        })
    }

    /// Lua needs an expression no longer.
    fn ngx_http_lua_ffi_destroy_regex(regex: *mut c_void) {
        if !regex.is_null() {
            drop(Box::from_raw(regex.cast::<Regex>()));
        }
    }

    /// Compiles the template that replaces matches of an expression: 0, or -1.
    fn ngx_http_lua_ffi_compile_replace_template(
        regex: *mut c_void,
        text: *const c_uchar,
        len: usize,
    ) -> c_int {
        let Some(regex) = regex.cast::<Regex>().as_mut() else { return ERROR };
        let text = bytes(text, len);
        let code = ask(|core| core.regex_template, &[text], &[], |code, _| code);
        if code == OK {
            // Any address says that there is something to fill in.
            let lengths = ptr::from_ref(&regex.shown).cast();
            let text = text.to_vec();
            let value = ComplexValue { len, data: text.as_ptr(), lengths, values: lengths };
            let replacement = regex.replacement.insert(Box::new((value, text)));
            regex.shown.replace = &raw const replacement.0;
        }
        code
    }

    /// Makes an engine that fills templates.
    fn ngx_http_lua_ffi_create_script_engine() -> *mut c_void {
        let engine = Engine { subject: ptr::null(), regex: ptr::null(), count: 0 };
        Box::into_raw(Box::new(engine)).cast()
    }

    /// Sets the values for the next template.
    fn ngx_http_lua_ffi_init_script_engine(
        engine: *mut c_void,
        subject: *const c_uchar,
        regex: *const c_void,
        count: c_int,
    ) {
        let count = usize::try_from(count).unwrap_or(0);
        put(engine.cast(), Engine { subject, regex: regex.cast(), count });
    }

    /// Lua needs it no longer.
    fn ngx_http_lua_ffi_destroy_script_engine(engine: *mut c_void) {
        if !engine.is_null() {
            drop(Box::from_raw(engine.cast::<Engine>()));
        }
    }

    /// How many bytes the filled template has.
    fn ngx_http_lua_ffi_script_eval_len(engine: *mut c_void, value: *const c_void) -> usize {
        let _ = value;
        expand(engine.cast(), ptr::null_mut())
    }

    /// The filled template.
    fn ngx_http_lua_ffi_script_eval_data(
        engine: *mut c_void,
        value: *const c_void,
        to: *mut c_uchar,
    ) -> usize {
        let _ = value;
        expand(engine.cast(), to)
    }
}
