//! TLS: what clients offer, and what configurations say about it. No socket, no clock: bytes go in, and what they
//! mean comes out.
//!
//! [`hello`] reads the ClientHello before a library sees anything of a connection.
#![forbid(unsafe_code)]

mod bytes;
pub mod hello;
