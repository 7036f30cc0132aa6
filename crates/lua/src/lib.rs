//! Lua in the configuration: VMs, phases, and the functions of the server that Lua calls.
//!
//! `code` is what the configuration says, `vm` the interpreters of a loop, `api` the functions that Lua finds
//! in `ngx`, `current` what such a function is called for; `phases` has the directives, the handlers and
//! filters that run code, and what they wait for.
#![forbid(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "models use a part of what VMs use"))]

#[cfg(not(loom))]
pub(crate) mod alone;
#[cfg(not(loom))]
pub mod api;
#[cfg(not(loom))]
pub mod code;
#[cfg(not(loom))]
pub(crate) mod copy;
#[cfg(not(loom))]
pub mod current;
#[cfg(not(loom))]
pub(crate) mod metrics;
#[cfg(not(loom))]
pub mod phases;
#[cfg(not(loom))]
pub(crate) mod place;
#[cfg(not(loom))]
pub(crate) mod pooled;
#[cfg(not(loom))]
pub(crate) mod pooled_call;
#[cfg(not(loom))]
pub(crate) mod program;
#[cfg(not(loom))]
pub(crate) mod request_state;
#[cfg(all(not(loom), feature = "tls"))]
pub(crate) mod shaking;
#[cfg(not(loom))]
pub(crate) mod socket;
#[cfg(not(loom))]
pub(crate) mod threads;
#[cfg(not(loom))]
pub(crate) mod timer_task;
pub mod vm;
#[cfg(not(loom))]
pub(crate) mod waiter;

#[cfg(not(loom))]
pub use api::modules::{Environment, ProcessType, run_in, say_environment};
#[cfg(not(loom))]
pub use api::say_configured;
#[cfg(not(loom))]
pub use phases::{
    LUA, LUA_BALANCER, LUA_EARLY, LUA_FILTER, LUA_NET, SET_MISC, begin, end, is_busy, make_ahead, prepare,
    retire, try_out,
};
#[cfg(all(not(loom), feature = "tls"))]
pub use phases::{LUA_HANDSHAKE, LUA_TLS, LUA_UPSTREAM_HANDSHAKE, LUA_UPSTREAM_VERIFY};
#[cfg(not(loom))]
pub use socket::connect_with;
#[cfg(not(loom))]
pub use socket::pool::end_connections;
#[cfg(not(loom))]
pub use vm::workers::count_workers;
