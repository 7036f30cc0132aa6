//! Files under conditions that a list of requests cannot make: pools that are full, files that change while
//! they are asked for, or that are not what they should be.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![allow(clippy::disallowed_macros, reason = "test programs talk to their terminal")]

mod choke;
mod edges;
mod never_old;
mod queue_overflow;
