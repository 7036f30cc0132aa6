//! Servers in memory, for tests: a test's function stands for connect(2), whichever server it is.

use std::sync::OnceLock;

use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::Connector;
use clearway_net::memory::MemoryEnd;
use clearway_runtime::LoopRef;

/// Makes a call of a loop, and hands the other end to the server.
type Call = fn(LoopRef) -> MemoryEnd;

/// The function that makes calls in this process.
static CALL: OnceLock<Call> = OnceLock::new();

/// From here on no request makes a connection that is not in memory. The first function that is given stays.
pub fn start_in_memory(call: Call) {
    let _ = CALL.set(call);
}

/// A call that the server has still to take, and its place.
pub(crate) struct Called {
    pub(crate) end: Option<(MemoryEnd, ConnectionSlot)>,
    /// Connections that there may be.
    pub(crate) limit: u32,
}

/// A connection is being made, if servers are in memory.
pub(super) fn call(connector: Connector, home: LoopRef) -> Option<Called> {
    let call = CALL.get()?;
    let policy = connector.policy(home);
    let end = policy.take_slot().map(|slot| (call(home), slot));
    Some(Called { end, limit: policy.room().1 })
}
