//! HTTP/2 as it stands on the wire (RFC 9113), as state machines without sockets: [`frame`] is what frames
//! say, [`settings`] what each side tells of itself, [`flow`] how much may be sent, [`hpack`] how header
//! lines are written (RFC 7541).
#![forbid(unsafe_code)]

pub mod flow;
pub mod frame;
pub mod hpack;
pub mod settings;
