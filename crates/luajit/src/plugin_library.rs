//! Libraries of plugins, and the runtimes that they have started: one for each library and configuration in
//! the process. All are started on one thread, which stays: the start of a JVM or an interpreter ties data to
//! its thread. Libraries stay loaded: their threads may be anywhere.
#![expect(unsafe_code, reason = "libraries of others, and their entry")]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use clearway_os::library::Library;
pub use clearway_os::library::Visibility;

use crate::resty_ffi;

/// The most runtimes of the process.
pub const RUNTIMES_MAX: usize = 1024;

unsafe extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(at: *mut c_void);
}

/// The plugin to start.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The library, as LuaJIT's `ffi.load` takes it.
    pub library: Vec<u8>,
    /// The configuration for its entry.
    pub configuration: Option<Vec<u8>>,
    /// Tells runtimes of the same library and configuration apart; empty for the runtime that the process
    /// shares.
    pub owner: Vec<u8>,
    /// Whether libraries that are loaded later see its symbols.
    pub visibility: Visibility,
    /// The most tasks that may wait.
    pub max_queue: c_int,
}

/// Why there is no runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The library cannot be loaded, or is no plugin.
    Library(Vec<u8>),
    /// The entry function has returned this error.
    Refused(i32),
}

type Key = (Vec<u8>, Option<Vec<u8>>, Vec<u8>);

/// Queues, by library, configuration and owner of their runtimes.
static RUNTIMES: LazyLock<Mutex<HashMap<Key, usize>>> = LazyLock::new(Mutex::default);

fn runtimes() -> MutexGuard<'static, HashMap<Key, usize>> {
    RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of the queue of a runtime, which is started now unless it was before. **Blocks** for as long
/// as that takes: only for the thread that does nothing else.
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
    let entry = library.find(c"libffi_init").map_err(|error| Failed::Library(error.into_bytes()))?;
    let queue = resty_ffi::ngx_http_lua_ffi_create_task_queue(wanted.max_queue);
    if queue.is_null() {
        return Err(Failed::Library(b"too many runtimes of plugins".to_vec()));
    }
    let configuration = wanted.configuration.clone().map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: the entry of a plugin takes a text that it may change, or null, and a queue. The text is
    // malloc's and is freed here when the entry has returned.
    let code = unsafe {
        let entry: unsafe extern "C" fn(*mut c_char, *mut c_void) -> c_int =
            std::mem::transmute::<NonNull<c_void>, _>(entry);
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
fn open(name: &[u8], visibility: Visibility) -> Result<Library, Failed> {
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
    Library::open(&path, visibility).map_err(|error| Failed::Library(error.into_bytes()))
}
