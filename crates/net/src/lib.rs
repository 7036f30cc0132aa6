//! Listening, accepting, addresses: from the first argument of `listen` to accepted connections.
//!
//! Addresses are read and sockets bound at boot ([`listen`], [`bind`]). Connections are accepted on
//! loops ([`accept`]) by a task that knows its loop through a small trait; [`on_loop`] implements it for
//! the loops of the runtime. [`connect`] makes connections to upstream servers, which count as others do.
#![forbid(unsafe_code)]

pub mod accept;
pub mod bind;
pub mod connect;
pub mod listen;
#[cfg(feature = "testing")]
pub mod memory;
pub mod metrics;
pub mod on_loop;
mod peer;
pub mod placement;
pub mod proxy_protocol;
pub mod reuse;
mod sys;
pub mod tune;
pub mod url;

pub use peer::PeerAddr;
