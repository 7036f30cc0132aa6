//! Lua in the configuration: VMs, phases, and what Lua calls of the server.
//!
//! `code` is what the configuration says, `vm` the interpreters of a loop, `api` the functions that Lua finds
//! in `ngx`, `current` what such a function is called for; `phases` has the directives, the handlers and
//! filters that run code, and what they wait for.
#![forbid(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "models use a part of what VMs use"))]

#[cfg(not(loom))]
pub mod api;
#[cfg(not(loom))]
pub mod code;
#[cfg(not(loom))]
pub mod current;
#[cfg(not(loom))]
pub(crate) mod metrics;
#[cfg(not(loom))]
pub mod phases;
#[cfg(not(loom))]
pub(crate) mod request_state;
pub mod vm;

#[cfg(not(loom))]
pub use phases::{LUA, LUA_EARLY, LUA_FILTER, SET_MISC, begin, end, make_ahead, prepare, try_out};
