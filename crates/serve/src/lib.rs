//! Connections: how they begin, wait for requests, move between loops and end. Each is one task ([`serve`]);
//! what a request is, and how it is answered, is the engine's below.
#![forbid(unsafe_code)]

mod apart;
mod conn;
mod connection;
mod handshake_budget;
mod http1;
mod http2;
mod internal;
mod lingering;
pub mod metrics;
mod proxy_header;
mod stream;
mod tls;

pub use connection::serve;
#[cfg(feature = "testing")]
pub use connection::serve_transport;
pub use internal::{InternalAnswer, Unanswered, answer_internal};
pub use stream::serve_stream;
