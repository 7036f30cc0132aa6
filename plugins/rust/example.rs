//! A plugin in Rust: two threads that answer one call after the other, with what the example in C does by the
//! names `greet`, `echo` and `check`. Build it with `rustc --edition 2024 --crate-type cdylib -O -o
//! example.so example.rs`.
#![expect(unsafe_code, reason = "an interface of C's")]

use std::ffi::{CStr, c_char, c_int};
use std::thread;

/// `struct clearway_plugin`, see `../clearway_plugin.h`.
#[repr(C)]
pub struct Host {
    version: u32,
    message_max: u32,
    name: *const c_char,
    config: *const c_char,
    next: unsafe extern "C" fn(*const Host, u32, *mut u32) -> u64,
    read: unsafe extern "C" fn(*const Host, u64, u32, *mut u8, u32) -> u32,
    answer: unsafe extern "C" fn(*const Host, u64, *const u8, u32) -> c_int,
}

const VERSION: u32 = 1;
const NOTHING: u64 = 0;
const CLOSED: u64 = u64::MAX;
const THREADS: usize = 2;

/// A plugin as threads of it use it.
#[derive(Clone, Copy)]
struct Plugin(&'static Host);

// SAFETY: the header says that any thread may use it.
unsafe impl Send for Plugin {}

impl Plugin {
    /// The next call and its question; `None` when there will be none.
    fn next(self) -> Option<(u64, Vec<u8>)> {
        loop {
            let mut length = 0;
            // SAFETY: as the header says.
            match unsafe { (self.0.next)(self.0, 1000, &mut length) } {
                NOTHING => {}
                CLOSED => return None,
                call => {
                    let mut question = vec![0; length as usize];
                    // SAFETY: there is room for as many bytes.
                    let count = unsafe { (self.0.read)(self.0, call, 0, question.as_mut_ptr(), length) };
                    question.truncate(count as usize);
                    return Some((call, question));
                }
            }
        }
    }

    fn answer(self, call: u64, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // SAFETY: there are as many bytes.
        unsafe { (self.0.answer)(self.0, call, bytes.as_ptr(), length) };
    }

    fn config(self) -> &'static [u8] {
        // SAFETY: a text that stays.
        unsafe { CStr::from_ptr(self.0.config) }.to_bytes()
    }
}

/// The fields of a message.
fn fields(message: &[u8]) -> Vec<(&[u8], &[u8])> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes) as usize;
    let (mut rest, mut fields) = (message.get(8..).unwrap_or_default(), Vec::new());
    while let Some((lengths, behind)) = rest.split_at_checked(8) {
        let Some((name, behind)) = behind.split_at_checked(number(&lengths[..4])) else { break };
        let Some((value, behind)) = behind.split_at_checked(number(&lengths[4..])) else { break };
        fields.push((name, value));
        rest = behind;
    }
    fields
}

/// The answer of these fields.
fn message(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let length = |text: &[u8]| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut message = vec![1, 4, 0, 0];
    message.extend(u32::try_from(fields.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (name, value) in fields {
        message.extend(length(name.as_bytes()));
        message.extend(length(value));
        message.extend_from_slice(name.as_bytes());
        message.extend_from_slice(value);
    }
    message
}

fn work(plugin: Plugin, question: &[u8]) -> Vec<u8> {
    let fields = fields(question);
    let field = |name: &str| {
        let found = fields.iter().find(|field| field.0.eq_ignore_ascii_case(name.as_bytes()));
        found.map_or(&b""[..], |field| field.1)
    };
    match field(":function") {
        b"greet" => {
            let page = [&b"hello "[..], field(":args"), b" from Rust\n"].concat();
            message(&[(":status", b"200"), ("Content-Type", b"text/plain"), (":body", &page)])
        }
        b"echo" => message(&[(":status", b"200"), (":body", field(":body"))]),
        b"check" if field("X-Key") == plugin.config() => message(&[(":status", b"204")]),
        b"check" => message(&[(":status", b"403"), (":body", b"wrong key\n")]),
        _ => message(&[(":status", b"404"), (":body", b"no such function\n")]),
    }
}

/// Starts the threads.
///
/// # Safety
/// As the header says.
// SAFETY: the only function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_plugin_start(host: *const Host) -> c_int {
    // SAFETY: what a plugin is given stays for the life of the process.
    let plugin = Plugin(unsafe { &*host });
    if plugin.0.version != VERSION {
        return 1;
    }
    for _ in 0..THREADS {
        thread::spawn(move || {
            let plugin = plugin;
            while let Some((call, question)) = plugin.next() {
                plugin.answer(call, &work(plugin, &question));
            }
        });
    }
    0
}
