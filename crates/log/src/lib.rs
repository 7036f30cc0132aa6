//! Error and access logs that never write on a loop. Any thread hands over lines; the writer's threads
//! own the files and sockets. What a queue does not take is lost, counted and reported, and makes
//! nobody wait; a disk that hangs holds up nothing but its own logs.
#![forbid(unsafe_code)]

mod chunk;
mod desk;
mod error_log;
mod files;
mod local_time;
mod metrics;
mod named;
mod progress;
pub mod syslog;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

pub use desk::Buffering;
pub use error_log::{Destination, ErrorLog, ErrorTarget, LINE_BYTES_MAX};
pub use files::{Disk, OpenError, Opener};
pub use local_time::UtcOffset;
pub use metrics::{LINES_LOST, LINES_UNWRITTEN};
pub use named::FileCacheConfig;
pub use progress::{LogPosition, Progress};
pub use writer::{LogFile, NamedLog, QUEUE_BYTES, QUEUE_LINES, Syslog, Writer};
