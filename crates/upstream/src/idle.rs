//! Connections that wait for the next request: in a [`Pool`](pool::Pool) of shelves, one set for each loop.

#[cfg(not(loom))]
pub(crate) mod connection;
pub(crate) mod duty;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
pub(crate) mod pool;
pub(crate) mod shelf;
#[cfg(not(loom))]
pub(crate) mod tls;
#[cfg(not(loom))]
pub(crate) mod transport;
#[cfg(not(loom))]
mod trust;
