//! The tables of directives. Executed at boot or reload.

pub(crate) mod cache;
mod cache_path;
#[macro_use]
mod family;
pub mod fastcgi;
pub mod health;
pub mod memc;
pub mod memcached;
pub mod proxy;
mod readers;
pub mod scgi;
#[cfg(feature = "tls")]
pub mod tls;
pub mod tunnel;
pub mod uwsgi;
