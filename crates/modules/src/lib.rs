//! The modules: one file per family of directives, with its tables, settings and handlers. Each is a
//! `static` of type [`clearway_http::Module`]; which of them take part, and in which order, is for the
//! crate above to say.
#![forbid(unsafe_code)]

pub mod access;
pub mod access_log;
pub mod addition;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
pub mod browser;
pub mod charset;
mod cidr;
pub mod copies;
pub mod dav;
pub mod disable_symlinks;
pub mod empty_gif;
pub mod files;
pub mod flv;
pub mod geo;
pub mod gunzip;
pub mod gzip;
pub mod gzip_static;
pub mod headers;
pub mod index;
pub mod limit_conn;
pub mod limit_req;
mod lookup;
pub mod map;
mod media;
pub mod mirror;
pub mod mp4;
mod names;
pub mod not_modified;
pub mod open_file_cache;
pub mod random_index;
pub mod range_filter;
pub mod realip;
pub mod realpath;
pub mod referer;
pub mod rewrite;
mod secret;
pub mod secure_link;
pub mod split_clients;
pub mod ssi;
pub mod ssl;
pub mod static_files;
pub mod status;
pub mod stub_status;
pub mod sub_filter;
#[cfg(feature = "testing")]
pub mod testing;
pub mod try_files;
mod type_set;
pub mod userid;
