//! What every layer needs and nothing else: units of the configuration language, dates, the log
//! sink that lower layers write to, lines of it that are kept, how memory is given back. No threads, no
//! system calls, no dependencies.
#![forbid(unsafe_code)]

pub mod base64;
pub mod date;
mod errno;
pub mod json;
pub mod kept_lines;
pub mod log;
pub mod memory;
pub mod units;

pub use errno::Errno;
