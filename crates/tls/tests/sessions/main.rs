//! Sessions over memory: a server of this crate, and clients of rustls, which is a library of its own.
#![cfg(feature = "aws-lc")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod broken_handshakes;
mod clients;
mod connections;
mod handshakes;
mod keys;
mod ocsp;
mod resumption;
mod support;
