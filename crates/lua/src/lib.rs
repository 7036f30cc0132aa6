//! Lua in the configuration: VMs, phases, and what Lua calls of the server.
//!
//! `vm` has the interpreters of a loop, `api` the functions that Lua finds in `ngx`, `current` what such a
//! function is called for.
#![forbid(unsafe_code)]

pub mod api;
pub mod current;
pub mod vm;
