//! Lua in the configuration: VMs, phases, and the functions of the server that Lua calls.
//!
//! `code` is what the configuration says, `vm` the interpreters of a loop, `api` the functions that Lua finds
//! in `ngx`, `current` what such a function is called for; `phases` has the directives, the handlers and
//! filters that run code, and what they wait for. `socket` has connections, with TLS by the upstream crate's
//! transport (`aside` is the protocol of those that wait for their next use), `timer_task` runs without a
//! request, `pooled` and `pooled_call` run functions in threads of pools, whose arguments and results are
//! copied as bytes (`copy`); `program` starts programs by posix_spawn(3).
//!
//! Files with code are read by pools, once in a generation (`vm/texts`). A capture is a subrequest in the VM
//! of its parent. Bodies that code makes are put aside in files as a client's are. `ngx.ctx` of a handshake
//! stays with its connection, and a request's falls back on it. The code that a run ends with (`ngx.exit`) is
//! kept until a redirect. With `lua_code_cache off` a VM is made for each request, and closed in a pool.
#![forbid(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "models use a part of what VMs use"))]

#[cfg(not(loom))]
pub(crate) mod alone;
#[cfg(not(loom))]
pub mod api;
pub(crate) mod aside;
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
#[cfg(not(loom))]
pub(crate) mod semaphore;
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
pub use clearway_luajit::exports::show_arguments;
#[cfg(not(loom))]
pub use phases::{
    LUA, LUA_BALANCER, LUA_EARLY, LUA_FILTER, LUA_NET, SET_MISC, begin, end, is_busy, make_ahead, prepare,
    retire, try_out, wanted_agent,
};
#[cfg(all(not(loom), feature = "tls"))]
pub use phases::{LUA_HANDSHAKE, LUA_TLS, LUA_UPSTREAM_HANDSHAKE, LUA_UPSTREAM_VERIFY};
#[cfg(not(loom))]
pub use socket::connect_with;
#[cfg(not(loom))]
pub use socket::pool::end_connections;
#[cfg(not(loom))]
pub use vm::workers::{count_workers, name_workers};
