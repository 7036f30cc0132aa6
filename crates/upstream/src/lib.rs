//! Groups of servers that requests are passed to (`upstream`): which one is next, which are there, and idle
//! connections to them. It knows no HTTP; of sockets it knows whether an idle one is still quiet.
//!
//! A [`Group`] is shared by all loops. Each attempt of a request holds a [`Lease`] of a [`Peer`], so that
//! what a peer has to do is known whatever becomes of the attempt. A server that is altered is another `Peer`
//! with the same state, so nothing that is known of it begins anew. Servers with `max_conns` are looked at
//! each time. An idle connection is taken by a tag first, then by address, local address and scope.
#![forbid(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "models use a part"))]

mod balance;
mod budget;
mod common;
mod cycle;
mod eject;
mod group;
mod health;
mod idle;
mod moment;
mod peer;
mod peer_config;
mod peers;
mod queue;
mod ring;
mod sids;
mod sync;
mod times;

pub use crate::balance::{Key, Method};
pub use crate::budget::RetryBudget;
pub use crate::common::{Common, Memory, PEER_WORDS, PeerMemory};
pub use crate::eject::{EjectRule, Ejection, Fault};
pub use crate::group::{Choice, Group, GroupConfig};
pub use crate::health::Checked;
#[cfg(not(loom))]
pub use crate::idle::connection::{Connection, Identity, LOOK_AFTER_MS, Repeat};
#[cfg(not(loom))]
pub use crate::idle::pool::{Pool, PoolConfig, PoolCounts};
#[cfg(not(loom))]
pub use crate::idle::tls::{HandshakeFault, Shaken, TlsStream};
#[cfg(not(loom))]
pub use crate::idle::transport::Transport;
pub use crate::moment::Moment;
pub use crate::peer::{Attempt, AttemptOutcome, GivenSession, Lease, Peer, PeerCounts, PeerState, Verdict};
pub use crate::peer_config::{FailRule, PeerConfig, ServerState};
pub use crate::queue::{LOOK_AGAIN_APART_MS, LOOK_AGAIN_MS, Queue, QueueCounts, QueuePlace, Where};
pub use crate::sids::SID_BITS;
pub use crate::times::{PeerTimes, TimeRule, Waiting};
