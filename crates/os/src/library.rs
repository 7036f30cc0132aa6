//! dlopen(3): a shared library that comes into the process at run time, and never leaves it: threads of its
//! own may be in it for as long as the process lives. Loading reads files and runs the library's own code,
//! which may block: for threads that may.
#![expect(unsafe_code, reason = "dlopen and dlsym are calls of C")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A library that was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle of the dynamic linker, whose functions any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Which code sees the symbols of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Its own.
    Local,
    /// Names are visible to libraries that are loaded later, too: interpreters need that for their modules.
    Global,
}

impl Library {
    /// Loads `path`, with all of its symbols found at once. **Blocks.**
    ///
    /// # Errors
    /// The text of dlerror(3).
    pub fn open(path: &CStr, visibility: Visibility) -> Result<Self, String> {
        let shared = match visibility {
            Visibility::Local => libc::RTLD_LOCAL,
            Visibility::Global => libc::RTLD_GLOBAL,
        };
        // SAFETY: the path is a text that ends in a zero byte. The library's own initialisation is code that
        // the configuration has asked for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | shared) };
        NonNull::new(handle).map(Self).ok_or_else(failure)
    }

    /// The address of a symbol, which is never 0.
    ///
    /// # Errors
    /// The text of dlerror(3).
    pub fn find(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: a handle that was never closed, and a text that ends in a zero byte.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(failure)
    }
}

/// The failure of the last call on this thread.
fn failure() -> String {
    // SAFETY: it may be called at any time.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no such symbol".to_owned();
    }
    // SAFETY: what is not null ends in a zero byte and stays until this thread's next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found() {
        let library = Library::open(c"libc.so.6", Visibility::Local).expect("it is loaded already");
        assert!(library.find(c"malloc").is_ok());
        assert!(library.find(c"no_such_function_at_all").unwrap_err().contains("no_such_function"));
        assert!(
            Library::open(c"/nonexistent.so", Visibility::Global).unwrap_err().contains("/nonexistent.so")
        );
    }
}
