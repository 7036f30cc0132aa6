//! Connections that wait for the next request.

pub(crate) mod shelf;
