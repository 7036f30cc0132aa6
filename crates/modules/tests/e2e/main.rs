//! The engine and its modules end to end, in one process: a configuration, sockets, bytes.
#![expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access_log;
mod autoindex;
mod background_subrequests;
mod bodies;
mod clients_leave;
mod compression;
mod dav;
mod echo;
mod engine;
mod files;
#[cfg(feature = "testing")]
mod handover;
mod headers;
mod limit_req;
mod rewrite;
mod subrequests;
mod support;
mod upstreams;
