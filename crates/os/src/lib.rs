//! The only raw system calls: thin, typed, nothing remembered. Above this crate nobody names a
//! libc function. Calls that can block say so; what is not documented as blocking may be made on a
//! loop. Any thread.

pub mod channel;
pub mod child;
pub mod clock;
pub mod epoll;
pub mod file;
pub mod filter;
pub mod futex;
pub mod open;
pub mod page_cache;
pub mod poll;
pub mod process;
pub mod shared_memory;
pub mod signal;
pub mod socket;
pub mod stat;
pub mod thread;
pub mod title;
pub mod users;
