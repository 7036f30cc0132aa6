//! Libraries of plugins, and the runtimes that they have begun: one for each library and configuration in
//! the process. They are begun on one thread, which stays, as what begins a JVM or an interpreter has things
//! that belong to its thread. Libraries stay loaded: threads of theirs may be anywhere.
#![expect(unsafe_code, reason = "libraries of others, and their entry")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::resty_ffi;

/// Runtimes of the process.
pub const RUNTIMES_MAX: usize = 1024;

const RTLD_NOW: c_int = 2;
const RTLD_GLOBAL: c_int = 0x100;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(at: *mut c_void);
}

/// What is to be begun.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The library, as LuaJIT's `ffi.load` takes it.
    pub library: Vec<u8>,
    /// What its entry is given.
    pub configuration: Option<Vec<u8>>,
    /// Tells runtimes of the same library and configuration apart; empty for the one of the process.
    pub owner: Vec<u8>,
    /// Whether libraries that are loaded later see its symbols.
    pub visibility: Visibility,
    /// Tasks that may wait.
    pub max_queue: c_int,
}

/// Which code sees what a library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Its own.
    Local,
    /// That of libraries that are loaded later, too: interpreters want it for their modules.
    Global,
}

/// Why there is no runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The library cannot be loaded, or is no plugin.
    Library(Vec<u8>),
    /// Its entry has refused.
    Refused(i32),
}

type Key = (Vec<u8>, Option<Vec<u8>>, Vec<u8>);

/// Queues by what their runtimes were begun with.
static RUNTIMES: LazyLock<Mutex<HashMap<Key, usize>>> = LazyLock::new(Mutex::default);

fn runtimes() -> MutexGuard<'static, HashMap<Key, usize>> {
    RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of the queue of a runtime, which is begun now unless it was. **Blocks** for as long as that
/// takes: on the thread that does nothing else.
///
/// # Errors
/// [`Failed`].
pub fn begin(wanted: &Wanted) -> Result<usize, Failed> {
    let key = (wanted.library.clone(), wanted.configuration.clone(), wanted.owner.clone());
    if let Some(&queue) = runtimes().get(&key)
        && resty_ffi::is_open(queue)
    {
        return Ok(queue);
    }
    let library = open(&wanted.library, wanted.visibility)?;
    // SAFETY: a library that was loaded and stays; a name that ends with a zero byte.
    let entry = unsafe { dlsym(library, c"libffi_init".as_ptr()) };
    if entry.is_null() {
        return Err(Failed::Library(error()));
    }
    let queue = resty_ffi::ngx_http_lua_ffi_create_task_queue(wanted.max_queue);
    if queue.is_null() {
        return Err(Failed::Library(b"too many runtimes of plugins".to_vec()));
    }
    let configuration = wanted.configuration.clone().map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: the entry of a plugin takes a text that it may change, or null, and a queue. The text is
    // malloc's and is freed here when the entry has returned.
    let code = unsafe {
        let entry: unsafe extern "C" fn(*mut c_char, *mut c_void) -> c_int = std::mem::transmute(entry);
        let text = configuration.map_or(std::ptr::null_mut(), |text| strdup(text.as_ptr()));
        let code = entry(text, queue);
        free(text.cast());
        code
    };
    resty_ffi::look_after_signals();
    if code != 0 {
        resty_ffi::ngx_http_lua_ffi_task_finish(queue);
        return Err(Failed::Refused(code));
    }
    let mut runtimes = runtimes();
    if runtimes.len() >= RUNTIMES_MAX {
        runtimes.retain(|_, queue| resty_ffi::is_open(*queue));
    }
    runtimes.insert(key, queue.addr());
    Ok(queue.addr())
}

/// Loads a library by its name or its path, as LuaJIT does: `x` is `libx.so`.
fn open(name: &[u8], visibility: Visibility) -> Result<*mut c_void, Failed> {
    let mut path = name.to_vec();
    if !path.contains(&b'/') {
        if !path.contains(&b'.') {
            path.extend_from_slice(b".so");
        }
        if !path.starts_with(b"lib") {
            path.splice(0..0, *b"lib");
        }
    }
    let path = CString::new(path).unwrap_or_default();
    let flags = RTLD_NOW | if visibility == Visibility::Global { RTLD_GLOBAL } else { 0 };
    // SAFETY: a name that ends with a zero byte. What the library does as it is loaded is its own.
    let library = unsafe { dlopen(path.as_ptr(), flags) };
    if library.is_null() { Err(Failed::Library(error())) } else { Ok(library) }
}

/// What the linker says of the last call of this thread.
fn error() -> Vec<u8> {
    // SAFETY: a text of the linker's until its next call, or null.
    unsafe {
        let text = dlerror();
        if text.is_null() { Vec::new() } else { CStr::from_ptr(text).to_bytes().to_vec() }
    }
}
