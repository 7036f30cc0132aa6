//! The directives, and what runs their code: handlers of phases, filters, and what is done when a
//! configuration begins and ends.

mod at_once;
mod balancer;
mod code_file;
mod directives;
mod filters;
mod handlers;
#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod made_body;
mod net_directives;
pub(crate) mod run;
pub(crate) mod scheduler;
mod set;
mod set_misc;
#[cfg(feature = "tls")]
mod tls_directives;
#[cfg(feature = "tls")]
mod upstream_handshake;

pub use crate::vm::vms::{begin, end, is_busy, retire, wanted_agent};
pub use balancer::LUA_BALANCER;
pub use handlers::{LUA, LUA_EARLY, LUA_FILTER};
#[cfg(feature = "tls")]
pub use handshake::LUA_HANDSHAKE;
pub use net_directives::LUA_NET;
pub use set_misc::SET_MISC;
#[cfg(feature = "tls")]
pub use tls_directives::LUA_TLS;
#[cfg(feature = "tls")]
pub use upstream_handshake::{LUA_UPSTREAM_HANDSHAKE, LUA_UPSTREAM_VERIFY};

use std::sync::Arc;

use clearway_base::kept_lines;
use clearway_base::log::Sink;
use clearway_http::Snapshot;
use clearway_runtime::Runtime;

use crate::vm::settings::LUA_MAIN;

/// Makes the VMs of a configuration that is about to be used, and runs `init_by_lua` in each. Takes its time:
/// not to be called on a loop.
///
/// # Errors
/// What `init_by_lua` raised, or that a VM cannot be made.
pub fn prepare(snapshot: &Arc<Snapshot>, runtime: Runtime, sink: &Arc<dyn Sink>) -> Result<(), String> {
    kept_lines::keep(*snapshot.conf(&LUA_MAIN).kept_lines_bytes);
    crate::vm::vms::prepare(snapshot, runtime, sink, crate::api::install)?;
    crate::pooled::prepare(snapshot, runtime, sink, crate::api::install);
    Ok(())
}

/// Makes them before there are loops: `init_by_lua` runs with the rights that the process has now
/// (`lua_init_privileged`). [`prepare`] finds them. A main thread.
///
/// # Errors
/// As of [`prepare`].
pub fn make_ahead(snapshot: &Arc<Snapshot>, loops: usize, sink: &Arc<dyn Sink>) -> Result<(), String> {
    crate::vm::vms::make_ahead(snapshot, loops, sink, crate::api::install)
}

/// Runs `init_by_lua` in a VM that nobody uses afterwards. A main thread of a process that serves nothing.
///
/// # Errors
/// As of [`prepare`].
pub fn try_out(snapshot: &Arc<Snapshot>, loops: usize, sink: &Arc<dyn Sink>) -> Result<(), String> {
    crate::vm::vms::try_out(snapshot, loops, sink, crate::api::install)
}
