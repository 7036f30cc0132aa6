//! LuaJIT behind a safe interface, and the stacks of Lua that runs.
//!
//! [`Vm`] is one interpreter, used by its exclusive holder: [`Stack`] is values, [`Vm::resume_for`] runs a
//! coroutine, [`Call`] is a function of ours that Lua calls. Errors come back as [`Fault`]; none unwinds
//! through code that owns anything. [`walk`] reads where Lua is, from a signal's handler or another thread;
//! `interrupt` ends what runs for too long.
//!
//! Stacks are read by address, exactly for the version that was built (`layout`): a signal's handler and
//! other threads ask the kernel for each piece, so a stack that changes gives garbage and no crash. `core`
//! has what lua-resty-core calls, `exports` and `resty_ffi` what modules in C and plugins look for in the
//! executable. exports.list names each of these symbols for the linker, which would drop them otherwise, as
//! no code of ours calls them. A process with plugins ends without running the exit handlers of libraries, as
//! their threads may be anywhere.
#![deny(unsafe_op_in_unsafe_fn)]
// For the whole crate, since the lint looks at no attribute nearer to a macro that makes items.
#![expect(
    clippy::disallowed_macros,
    reason = "entered.rs: a run of Lua stays on its thread until it returns"
)]

mod call;
pub mod core;
mod entered;
pub mod exports;
mod fast;
mod fault;
mod ffi;
mod host;
pub mod interrupt;
mod layout;
pub mod plugin_library;
mod reference;
pub mod registry;
mod reply;
pub mod resty_ffi;
pub mod samples;
mod stack;
#[cfg(test)]
mod tests;
mod value;
mod vm;
pub mod walk;

/// LuaJIT's own modules in Lua that look into it, by name: `jit.v`, `jit.dump` and what they need.
pub const JIT_MODULES: [(&str, &str); 10] = include!(concat!(env!("OUT_DIR"), "/jit_modules.rs"));

pub use call::{Call, Context, HostFunction, NoContext, Raise, Returns, SLOTS};
pub use fast::{DECLARATIONS, FastCall, FastFunction};
pub use fault::{Fault, FaultKind};
pub use reference::Reference;
pub use reply::Reply;
pub use stack::{Push, Stack};
pub use value::{Address, Boxed, Caller, Value};
pub use vm::{Coroutine, IDLE_MAX, NoVm, Resumed, Vm};
