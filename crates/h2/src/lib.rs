//! HTTP/2 as it stands on the wire (RFC 9113), as state machines without sockets: [`frame`] is what frames
//! say, [`settings`] what each side tells of itself, [`flow`] how much may be sent, [`hpack`] how header
//! lines are written (RFC 7541), [`request`] how they become the head of a request, [`schedule`] which stream
//! sends next, [`connection`] the server's side of a connection, with its streams and its limits, and
//! [`client`] the client's.
#![forbid(unsafe_code)]

pub mod client;
pub mod connection;
pub mod flow;
pub mod frame;
pub mod hpack;
mod passing;
mod push;
pub mod request;
pub mod schedule;
pub mod settings;
