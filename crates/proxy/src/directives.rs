//! The tables of directives. Executed at boot or reload.

mod cache;
#[macro_use]
mod family;
pub mod fastcgi;
pub mod memcached;
pub mod proxy;
mod readers;
pub mod scgi;
pub mod uwsgi;
