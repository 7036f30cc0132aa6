//! Settings of locations for passing requests on. Written at boot, read by loops.

pub(crate) mod cache;
pub(crate) mod gateway;
pub(crate) mod health;
pub(crate) mod masks;
pub(crate) mod names;
pub(crate) mod pass;
pub(crate) mod proxy;
#[cfg(feature = "tls")]
pub(crate) mod tls;
