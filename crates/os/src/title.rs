//! The title that ps(1) shows. Linux has none of its own: it shows the memory in which the program's
//! arguments were handed over, and, where those have been overwritten to their end, the environment's that
//! follows. So both are copied away at the very start, and the memory becomes the title's.
#![expect(unsafe_code, reason = "the memory of the arguments is the kernel's gift, and environ is libc's")]

use std::ffi::{CStr, CString, OsString, c_char};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

unsafe extern "C" {
    /// The array that getenv(3) searches.
    static mut environ: *mut *mut c_char;
}

/// Where the start of the arguments stands among what follows the name in /proc/PID/stat; their end
/// and those of the environment come next. See proc(5), fields 48 to 51 (the name is the second).
const ARG_START_FIELD: usize = 48 - 3;

/// Whether a [`Title`] has the memory: there is one of it.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The program's arguments, and its title in their place.
#[derive(Debug)]
pub struct Title {
    args: Vec<OsString>,
    /// None where there is nothing that could be overwritten.
    area: Option<Area>,
}

/// Memory of arguments and environment, to which nobody has a pointer that counts.
#[derive(Debug)]
struct Area {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the area belongs to this value alone, whichever thread holds it; it is never freed.
unsafe impl Send for Area {}

impl Title {
    /// Copies arguments and environment and takes the memory in which they were. To be called first
    /// in `main`, once: whatever pointer to an argument or a variable somebody keeps shows the title
    /// later. [`std::env::vars_os`] and its like go on working; [`std::env::args_os`] tells no
    /// arguments any more after [`set`](Self::set): [`args`](Self::args) does.
    ///
    /// Where there is no procfs (which is where titles are shown), where the process has more than one
    /// thread, and for a second caller, titles are not set, and nothing is moved.
    #[must_use]
    pub fn capture() -> Self {
        let args = std::env::args_os().collect();
        let alone = crate::child::threads().is_ok_and(|threads| threads == 1);
        let area = if alone && !TAKEN.swap(true, Relaxed) { own_area() } else { None };
        if area.is_some() {
            // SAFETY: the process has one thread, by the check above.
            unsafe { move_environment() };
        }
        Self { args, area }
    }

    /// The arguments, the program's name first, as they were.
    #[must_use]
    pub fn args(&self) -> &[OsString] {
        &self.args
    }

    /// Makes `title` the title; what does not fit into the room of arguments and environment is cut off.
    pub fn set(&self, title: &str) {
        let Some(area) = &self.area else { return };
        let text = title.as_bytes().split(|&byte| byte == 0).next().unwrap_or_default();
        // The last byte stays the end of the last string.
        let text = &text[..text.len().min(area.bytes - 1)];
        // SAFETY: the kernel told that these bytes are there, and more than `text` has; the stack below
        // `main` stays for good, the environment no longer lies there, and the arguments are read before
        // `main` or through std's copying functions, never by a reference that is kept. Only one thread
        // writes at a time, since an `Area` is one of its kind and not `Sync`.
        unsafe {
            area.start.copy_from_nonoverlapping(NonNull::from(text).cast(), text.len());
            area.start.add(text.len()).write_bytes(0, area.bytes - text.len());
        }
    }
}

/// Names the calling thread, at most 15 bytes; the main thread's name is that of the process
/// (PR_SET_NAME).
///
/// # Errors
/// `InvalidInput` for a name with a zero byte.
pub fn set_thread_name(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    Ok(rustix::thread::set_name(&name)?)
}

/// The arguments' memory, with the environment's if that follows.
fn own_area() -> Option<Area> {
    #[expect(clippy::disallowed_methods, reason = "procfs, before there is any loop")]
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let (start, bytes) = parse_area(&stat)?;
    Some(Area { start: NonNull::new(std::ptr::with_exposed_provenance_mut(start))?, bytes })
}

/// Address and size of what /proc/self/stat says of arguments and environment; `None` without either.
fn parse_area(stat: &[u8]) -> Option<(usize, usize)> {
    // The name in parentheses may hold anything, so the last one closes it.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(ARG_START_FIELD);
    let mut next = || fields.next()?.parse::<usize>().ok();
    let (arg_start, arg_end, env_start, env_end) = (next()?, next()?, next()?, next()?);
    let end = if arg_end == env_start { env_end } else { arg_end };
    let bytes = end.checked_sub(arg_start)?;
    (arg_start != 0 && bytes > 0 && isize::try_from(bytes).is_ok()).then_some((arg_start, bytes))
}

/// Has `environ` and its strings on the heap, for good, in their order.
///
/// # Safety
/// The process has a single thread: another one that reads a variable meanwhile would lose its array.
unsafe fn move_environment() {
    let mut moved: Vec<*mut c_char> = Vec::new();
    // SAFETY: by the contract nobody changes it meanwhile; it is null or an array that ends with null.
    let mut entry = unsafe { environ };
    // SAFETY: within the array, of which the end has not been seen.
    while let Some(text) = unsafe { entry.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: every entry before the end is a string.
        moved.push(unsafe { CStr::from_ptr(*text) }.to_owned().into_raw());
        // SAFETY: the entry was not the end.
        entry = unsafe { entry.add(1) };
    }
    moved.push(std::ptr::null_mut());
    // SAFETY: by the contract nobody looks meanwhile; the new array is complete and never freed.
    unsafe { environ = Box::leak(moved.into_boxed_slice()).as_mut_ptr() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as the kernel writes it, whose last fields are arguments, environment and exit code.
    fn stat(last: &str) -> Vec<u8> {
        let between = "0 ".repeat(ARG_START_FIELD - 1);
        format!("12 (a) name) S {between}{last} 0\n").into_bytes()
    }

    #[test]
    fn the_environment_belongs_to_it_only_if_it_follows() {
        assert_eq!(parse_area(&stat("1000 1100 1100 1500")), Some((1000, 500)));
        assert_eq!(parse_area(&stat("1000 1100 1200 1500")), Some((1000, 100)));
    }

    #[test]
    fn nothing_is_made_of_what_says_nothing() {
        for text in ["0 0 0 0", "1000 1000 1000 1000", "1000 900 0 0", "1000 x 1100 1500", "1000"] {
            assert_eq!(parse_area(&stat(text)), None, "{text}");
        }
        assert_eq!(parse_area(b""), None);
    }

    #[test]
    fn with_threads_only_the_arguments_are_told() {
        // The harness has a thread besides this one.
        let title = Title::capture();
        assert!(title.area.is_none());
        assert_eq!(title.args(), std::env::args_os().collect::<Vec<_>>());
        title.set("no title");
    }
}
