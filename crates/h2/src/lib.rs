//! HTTP/2 as it stands on the wire (RFC 9113), as state machines without sockets: [`hpack`] is how header
//! lines are written (RFC 7541).
#![forbid(unsafe_code)]

pub mod hpack;
