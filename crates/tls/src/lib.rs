//! TLS: what clients offer, and what configurations say about it. No socket, no clock: bytes go in, and what
//! they mean comes out.
//!
//! [`hello`] reads the ClientHello before a library sees anything of a connection; [`ciphers`] and [`level`]
//! are OpenSSL's cipher strings and security levels, whatever library is used.
#![forbid(unsafe_code)]

mod bytes;
pub mod ciphers;
pub mod hello;
pub mod level;
pub mod reason;
pub mod tickets;
