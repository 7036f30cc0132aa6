//! Functions that C modules, and code through the FFI, find in the executable under their names of nginx's
//! and OpenResty's C interfaces: dictionaries by name, what is in them, and two of texts. What dictionaries
//! are is said by [`set`]. Any thread. Nothing here calls them: exports.list names each, and has the linker
//! keep it.
//!
//! 1. A dictionary's name is declared once in the life of the process, and its place stays where it is: its
//!    address is what C gets. What it stands for may be another one after a reload.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use arc_swap::ArcSwap;

/// Names that are remembered; what comes beyond them is not found.
pub const NAMES_MAX: usize = 4096;

/// `NGX_OK`, `NGX_ERROR` and `NGX_DECLINED`
const OK: isize = 0;
const ERROR: isize = -1;
const DECLINED: isize = -5;

/// `LUA_TBOOLEAN`, `LUA_TNUMBER` and `LUA_TSTRING`
const BOOLEAN: u8 = 1;
const NUMBER: u8 = 3;
const STRING: u8 = 4;

/// A value of a dictionary.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// A boolean.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(Vec<u8>),
    /// A list, which this interface has no form for.
    List,
}

/// A dictionary, as C may ask for it.
pub trait Dictionary: Send + Sync {
    /// The value of the key, unless it has expired.
    fn get(&self, key: &[u8]) -> Option<Stored>;
}

struct NamedDictionary {
    name: Vec<u8>,
    dictionary: ArcSwap<Box<dyn Dictionary>>,
}

static PLACES: std::sync::LazyLock<ArcSwap<Vec<&'static NamedDictionary>>> =
    std::sync::LazyLock::new(ArcSwap::default);

fn find(name: &[u8]) -> Option<&'static NamedDictionary> {
    PLACES.load().iter().copied().find(|place| place.name == name)
}

/// Says which dictionary C finds under the name from now on.
pub fn set(name: &[u8], dictionary: Box<dyn Dictionary>) {
    if let Some(place) = find(name) {
        return place.dictionary.store(Arc::new(dictionary));
    }
    let place = NamedDictionary { name: name.to_vec(), dictionary: ArcSwap::from_pointee(dictionary) };
    // Rule 1.
    let place: &'static NamedDictionary = Box::leak(Box::new(place));
    PLACES.rcu(|places| {
        let mut places = Vec::clone(places);
        // If two threads add a place at the same time, either one will do.
        if places.len() < NAMES_MAX && !places.iter().any(|other| other.name == place.name) {
            places.push(place);
        }
        places
    });
}

/// The words that the process was begun with, with a null behind the last one; null until they are shown.
#[unsafe(no_mangle)]
pub static ngx_argv: AtomicPtr<*const c_char> = AtomicPtr::new(ptr::null_mut());

/// Shows these words to C, but for such as have a zero byte. Called once, at boot; another time changes
/// nothing.
pub fn show_arguments(words: Vec<Vec<u8>>) {
    if !ngx_argv.load(Ordering::Relaxed).is_null() {
        return;
    }
    let words = words.into_iter().filter_map(|word| CString::new(word).ok());
    // They stay for the life of the process: C may keep them.
    let words = words.map(|word| word.into_raw().cast_const()).chain([ptr::null()]);
    let words: &'static mut [*const c_char] = Box::leak(words.collect());
    ngx_argv.store(words.as_mut_ptr(), Ordering::Relaxed);
}

/// A text of nginx's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Text {
    len: usize,
    data: *mut u8,
}

#[repr(C)]
union Content {
    boolean: c_int,
    number: f64,
    text: Text,
}

/// Where C wants a value: for a text it has room, and says how much.
#[repr(C)]
pub struct Value {
    kind: u8,
    content: Content,
}

/// The dictionary of this name, or null.
///
/// # Safety
/// There are `len` bytes at `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_http_lua_find_zone(name: *const u8, len: usize) -> *const std::ffi::c_void {
    // SAFETY: by the contract.
    let name = unsafe { bytes(name, len) };
    find(name).map_or(ptr::null(), |place| ptr::from_ref(place).cast())
}

/// Puts what is under a key where C wants it: 0; -5 if there is nothing, -1 if it does not fit.
///
/// # Safety
/// `zone` is null or what the function above gave; there are `len` bytes at `key`; `value` is there, and for
/// a text it has as much room as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_http_lua_shared_dict_get(
    zone: *const std::ffi::c_void,
    key: *const u8,
    len: usize,
    value: *mut Value,
) -> isize {
    // SAFETY: rule 1.
    let Some(place) = (unsafe { zone.cast::<NamedDictionary>().as_ref() }) else { return ERROR };
    // SAFETY: by the contract.
    let key = unsafe { bytes(key, len) };
    let found = catch_unwind(AssertUnwindSafe(|| place.dictionary.load().get(key)));
    let Ok(found) = found else { return ERROR };
    // SAFETY: by the contract.
    found.map_or(DECLINED, |stored| unsafe { put(&stored, &mut *value) })
}

/// Writes each byte as two lowercase hexadecimal digits; what is behind the last one.
///
/// # Safety
/// There are `len` bytes at `from`, and room for twice as many at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_hex_dump(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // SAFETY: by the contract.
    for (at, byte) in unsafe { bytes(from, len) }.iter().enumerate() {
        let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        // SAFETY: `at` is less than `len`.
        unsafe { ptr::copy_nonoverlapping(digits.as_ptr(), to.add(2 * at), 2) };
    }
    // SAFETY: as much was written.
    unsafe { to.add(2 * len) }
}

/// The number that decimal digits are; -1 where there are none, or others between them, or too many.
///
/// # Safety
/// There are `len` bytes at `line`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ngx_atoi(line: *const u8, len: usize) -> isize {
    // SAFETY: by the contract.
    let digits = unsafe { bytes(line, len) };
    let number = digits.iter().try_fold(0_isize, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| isize::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|_| !digits.is_empty()).unwrap_or(ERROR)
}

/// # Safety
/// Where it is a text, `value` has room for one, as it says.
unsafe fn put(stored: &Stored, value: &mut Value) -> isize {
    match stored {
        Stored::Boolean(boolean) => {
            value.kind = BOOLEAN;
            value.content.boolean = c_int::from(*boolean);
        }
        Stored::Number(number) => {
            value.kind = NUMBER;
            value.content.number = *number;
        }
        Stored::Text(text) => {
            value.kind = STRING;
            // SAFETY: by the contract; any bytes are a length and an address.
            let Text { len, data } = unsafe { value.content.text };
            if data.is_null() || len == 0 {
                return ERROR;
            }
            let len = len.min(text.len());
            // SAFETY: by the contract there is room for it.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), data, len) };
            value.content.text = Text { len, data };
        }
        Stored::List => return ERROR,
    }
    OK
}

/// # Safety
/// There are so many bytes, for as long as the call takes.
unsafe fn bytes<'c>(at: *const u8, len: usize) -> &'c [u8] {
    // SAFETY: by the contract.
    if at.is_null() { &[] } else { unsafe { slice::from_raw_parts(at, len) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atoi(text: &str) -> isize {
        // SAFETY: a text has as many bytes as it says.
        unsafe { ngx_atoi(text.as_ptr(), text.len()) }
    }

    #[test]
    fn digits_are_numbers() {
        assert_eq!((atoi("0"), atoi("1204"), atoi("9223372036854775807")), (0, 1204, isize::MAX));
        for none in ["", "-1", "1a", " 1", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(atoi(none), ERROR, "{none}");
        }
    }

    #[test]
    fn bytes_are_two_digits() {
        let mut room = [b'.'; 8];
        // SAFETY: there is room for eight digits.
        let end = unsafe { ngx_hex_dump(room.as_mut_ptr(), b"\x00\xfa\x7f".as_ptr(), 3) };
        assert_eq!(&room, b"00fa7f..");
        assert_eq!(end.addr() - room.as_ptr().addr(), 6);
    }
}
