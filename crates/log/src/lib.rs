//! Error and access logs that never write on a loop. Any thread hands over lines; one writer thread
//! owns the files. A full queue loses lines, counts them and says so, and makes nobody wait.
#![forbid(unsafe_code)]

mod error_log;
mod files;
mod local_time;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

pub use error_log::{ErrorLog, ErrorTarget, LINE_BYTES_MAX};
pub use files::{Disk, Opener};
pub use local_time::UtcOffset;
pub use writer::{LINES_LOST, LINES_UNWRITTEN, LogFile, OpenError, QUEUE_BYTES, QUEUE_LINES, Writer};
