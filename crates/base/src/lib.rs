//! The basis of all layers: units of the configuration language, dates, the trait of log sinks, kept lines
//! of the log, how memory is given back, how bytes of another process are read. No threads, no system calls,
//! no dependencies.
#![forbid(unsafe_code)]

pub mod base64;
pub mod cursor;
pub mod date;
mod errno;
pub mod json;
pub mod kept_lines;
pub mod log;
pub mod memory;
pub mod units;

pub use errno::Errno;
