//! The programs of simulated runs, before anything runs: a *program* is drawn from a seed, and one that fails
//! is made smaller. `tests/sim` runs programs and has the invariants.
#![forbid(unsafe_code)]

mod program;
mod random;
mod shrink;

pub use program::{
    Action, Body, Disks, Kind, Method, Others, Peer, Program, Protocol, Request, Step, never_ends, pattern,
    stops,
};
pub use random::Random;
pub use shrink::shrink;
