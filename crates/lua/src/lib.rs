//! Lua in the configuration: VMs, phases, and what Lua calls of the server.
//!
//! `code` is what the configuration says, `vm` the interpreters of a loop, `api` the functions that Lua finds
//! in `ngx`, `current` what such a function is called for; `phases` has the directives, the handlers and
//! filters that run code, and what they wait for.
#![forbid(unsafe_code)]

pub mod api;
pub mod code;
pub mod current;
pub(crate) mod metrics;
pub mod phases;
pub(crate) mod request_state;
pub mod vm;

pub use phases::{LUA, LUA_EARLY, LUA_FILTER, SET_MISC, begin, end, prepare};
