//! FastCGI 1.0: records of up to 65,535 bytes, several streams on one connection. Like nginx we have one
//! request on a connection at a time, which has the number 1.

mod records;
mod request;

pub use records::{Event, Fault, Records, Step, without_end};
pub use request::{END_OF_STDIN, KeepConnection, Request, STDIN_MAX_BYTES, push_stdin};

/// The only version there is.
const VERSION: u8 = 1;

/// The number of the only request on a connection.
const REQUEST_ID: u8 = 1;

/// Length of what is in front of each record's content, bytes.
const HEADER_BYTES: usize = 8;

/// Types of records.
mod kind {
    pub(super) const BEGIN_REQUEST: u8 = 1;
    pub(super) const END_REQUEST: u8 = 3;
    pub(super) const PARAMS: u8 = 4;
    pub(super) const STDIN: u8 = 5;
    pub(super) const STDOUT: u8 = 6;
    pub(super) const STDERR: u8 = 7;
}
