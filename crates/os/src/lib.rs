//! The only raw system calls: thin, typed, nothing remembered. Above this crate nobody names a
//! libc function. Calls that can block say so; what is not documented as blocking may be made on a
//! loop. Any thread.
//!
//! What loops call is `#[inline]`, here and above: kernels that guard against branch target injection leave
//! nothing of the processor's return stack, so each function that returns after a system call which it did
//! not make itself costs a misprediction, measured at 0.15 µs (pread of 1 KiB: 0.35 µs inlined, 0.50 not).

// For the whole crate, since the lint looks at no attribute nearer to a macro that makes items.
#![expect(clippy::disallowed_macros, reason = "signal_stack.rs: a stack is the thread's, whatever it polls")]

pub mod accept_queue;
pub mod addresses;
pub mod channel;
pub mod child;
pub mod clock;
pub mod crypt;
pub mod epoll;
pub mod file;
pub mod filter;
pub mod futex;
pub mod library;
pub mod memory_limit;
pub mod open;
pub mod outgoing;
pub mod page_cache;
pub mod piped;
pub mod poll;
pub mod process;
pub mod program;
pub mod sampling;
pub mod shared_memory;
pub mod signal;
mod signal_stack;
pub mod socket;
pub mod spin;
pub mod stack_walk;
pub mod stat;
pub mod system_calls;
pub mod tcp;
pub mod thread;
pub mod thread_files;
pub mod title;
pub mod users;
