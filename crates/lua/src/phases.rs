//! The directives, and what runs their code: handlers of phases, filters, and what is done when a
//! configuration begins and ends.

mod at_once;
mod directives;
mod filters;
mod handlers;
pub(crate) mod made_body;
pub(crate) mod run;
mod set;
mod set_misc;

pub use crate::vm::vms::{begin, end};
pub use handlers::{LUA, LUA_EARLY, LUA_FILTER};
pub use set_misc::SET_MISC;

use std::sync::Arc;

use clearway_base::log::Sink;
use clearway_http::Snapshot;
use clearway_runtime::Runtime;

/// Makes the VMs of a configuration that is about to be used, and runs `init_by_lua` in each. Takes its time:
/// not to be called on a loop.
///
/// # Errors
/// What `init_by_lua` raised, or that a VM cannot be made.
pub fn prepare(snapshot: &Arc<Snapshot>, runtime: Runtime, sink: &Arc<dyn Sink>) -> Result<(), String> {
    crate::vm::vms::prepare(snapshot, runtime, sink, crate::api::install)
}
