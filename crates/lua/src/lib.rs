//! Lua in the configuration. So far: which VM of a loop runs a request.
#![forbid(unsafe_code)]

pub mod vm;
