//! Ends what runs for too long, compiled or not, whatever it catches: from a signal's handler a hook is set
//! that raises an error at each instruction; compiled code looks for it at each turn of a loop. Where a slice
//! of time is over the same hook yields, once.
//!
//! 1. Hooks are set by the thread that runs the VM alone: by itself, or in a handler that has interrupted
//!    it. Another thread sends that thread a signal, since LuaJIT changes the same tables when it begins or
//!    ends to record a trace.
//! 2. In a handler only where the interrupted code is the interpreter's own (assembler, which reads those
//!    tables and never writes them), or was compiled by LuaJIT, or is in a foreign library that compiled code
//!    has called. Elsewhere (the recorder, the collector, our functions) the handler leaves things alone,
//!    and the next signal tries again: LuaJIT's own C code is in this program, and so is ours.
//! 3. The hook stays until the outermost run is over; the next one begins without it.
//! 4. A slice ends for the thread that the server has resumed, where it can yield. One of the user's own
//!    below it would yield to the code that has resumed it, which expects something else.
//! 5. A function of C or of ours that does not return is not ended. When it does, the error comes next.
#![expect(unsafe_code, reason = "a hook is set in a signal's handler")]

use std::ptr;

use clearway_os::program;

use crate::ffi::LuaState;
use crate::host::{Halt, Host};
use crate::layout::{interpreter, layout};
use crate::registry::Run;

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The next instruction of Lua raises an error, or yields.
    Armed,
    /// The thread is not in this code now; to be tried again.
    NotHere,
}

/// The action on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The code ends with an error.
    TooLong,
    /// The code yields to other threads.
    SliceOver,
}

/// Has the run that this signal has interrupted end, or yield. Async-signal-safe.
///
/// # Safety
/// In a handler of a signal that has interrupted the thread of this run, at `pc`; `Run::on` has
/// found the run in the same handler.
#[must_use]
pub unsafe fn end_run(run: &Run, pc: usize, why: Why) -> Interrupted {
    let field = |offset: u32| run.global.wrapping_add(offset as usize);
    // SAFETY: the run is under way on this thread, so its VM is there; the offsets are those of its fields.
    let (vm_state, state) = unsafe {
        let vm_state = ptr::with_exposed_provenance::<i32>(field(layout().global_vmstate));
        let state = ptr::with_exposed_provenance::<*mut LuaState>(field(layout().global_cur_state));
        (vm_state.read_volatile(), state.read_volatile())
    };
    let is_compiled = vm_state >= 0 && !program::text().contains(&pc);
    if state.is_null() || !(is_compiled || interpreter().contains(&pc)) {
        return Interrupted::NotHere;
    }
    let why = if why == Why::TooLong { Halt::TimeLimit } else { Halt::Slice };
    // SAFETY: a thread of a VM of ours that is open; rule 2 has been looked at.
    unsafe { Host::of(state).halt_for(state, why) };
    Interrupted::Armed
}
