//! What a simulated run does, before anything runs: a *program* drawn from a seed, and how one that fails is
//! made smaller. What runs programs, and what must be true meanwhile, is `tests/sim`.
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
