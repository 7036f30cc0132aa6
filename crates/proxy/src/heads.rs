//! The changes of responses' heads on their way to the client.

pub(crate) mod accel;
pub(crate) mod cookies;
pub(crate) mod fill;
pub(crate) mod lifetime;
pub(crate) mod rewrite;
