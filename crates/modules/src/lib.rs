//! The modules: one file per family of directives, with its tables, settings and handlers. Each is a
//! `static` of type [`clearway_http::Module`]; which of them take part, and in which order, is for the
//! crate above to say.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod client_body;
pub mod files;
pub mod index;
pub mod limit_req;
mod not_modified;
pub mod realpath;
pub mod rewrite;
pub mod static_files;
#[cfg(feature = "testing")]
pub mod testing;
pub mod try_files;
