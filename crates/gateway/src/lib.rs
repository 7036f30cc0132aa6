//! The protocols of application servers other than HTTP as they stand on the wire: what a request is made
//! of, and what a response consists of. No sockets, no clock; a value belongs to one connection.
//!
//! Requests consist of parameters: names like `SCRIPT_FILENAME` and `HTTP_HOST`, and their values. Heads of
//! responses in CGI style are read by `h1`, whose header lines they share.
#![forbid(unsafe_code)]

pub mod fastcgi;
pub mod memc;
pub mod memcached;
mod param;
pub mod scgi;
pub mod uwsgi;

pub use param::{TooBig, push_header_name};
