//! The modules: one file per family of directives, with its tables, settings and handlers. Each is a
//! `static` of type [`clearway_http::Module`]; which of them take part, and in which order, is for the
//! crate above to say.
#![forbid(unsafe_code)]

pub mod access_control;
pub mod access_log;
pub(crate) mod cidr;
pub mod content;
pub mod filters;
pub mod http2;
pub mod mirror;
pub mod rewrite;
#[cfg(feature = "tls")]
pub mod ssl;
#[cfg(feature = "testing")]
pub mod testing;
pub mod variables;
