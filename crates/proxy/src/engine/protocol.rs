//! What differs from one protocol of servers to another: how a response is read. Sans-I/O: bytes in, what
//! they mean out.

use std::fmt;

use clearway_h1::{Decoded, ResponseFault};
use clearway_message::Header;

/// How far a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadProgress {
    Incomplete,
    /// An interim response is complete.
    Interim,
    /// The response's own head is complete.
    Final,
    /// There is none: all that comes is a body.
    Headless,
}

/// What the end of a connection means for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eof {
    Complete,
    Premature,
}

/// Whether a connection may serve another request once its body has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    Closes,
    Stays,
}

/// What the request wants to be answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    /// `HEAD`
    Head,
}

/// What becomes of trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrailerUse {
    Dropped,
    Kept { max_bytes: usize },
}

/// See the file's head. One value serves all attempts of a request.
pub(super) trait Protocol: Default + Send {
    /// Before another attempt.
    fn reset(&mut self);

    /// Goes on with the head at the beginning of `input`, which has to be complete within so many bytes.
    ///
    /// # Errors
    /// The response is refused.
    fn head(&mut self, input: &[u8], max_bytes: usize) -> Result<HeadProgress, ResponseFault>;

    /// Goes on behind an interim head: its length.
    fn next_head(&mut self) -> usize;

    /// The message for the log about a fault of the head.
    fn describe_head<'a>(&'a self, fault: ResponseFault, input: &'a [u8]) -> Box<dyn fmt::Display + 'a>;

    /// Lines about a head that is strange, but taken.
    fn warn(&self, input: &[u8], say: &mut dyn FnMut(fmt::Arguments<'_>));

    fn status(&self) -> u16;

    /// The status line from the status on.
    fn status_line<'a>(&self, input: &'a [u8]) -> &'a [u8];

    fn lines(&self) -> &[Header];

    /// The lines, to be kept; from here on there are none.
    fn take_lines(&mut self) -> Vec<Header>;

    /// Where the body begins.
    fn head_len(&self) -> usize;

    fn content_length(&self) -> Option<u64>;

    /// Whether the connection has become a tunnel.
    fn switches_protocols(&self) -> bool;

    fn persistence(&self) -> Persistence;

    /// The head is dealt with: from here on the body is read.
    fn begin_body(&mut self, wanted: Wanted, trailers: TrailerUse);

    /// The next step of the body.
    ///
    /// # Errors
    /// It is cut here.
    fn body(&mut self, input: &[u8]) -> Result<Decoded, ResponseFault>;

    fn describe_body(&self, fault: ResponseFault) -> Box<dyn fmt::Display + '_>;

    /// Whether the body is complete.
    fn is_done(&self) -> bool;

    fn eof(&self) -> Eof;

    /// The message for the log about bytes behind the end.
    fn excess(&self) -> &'static str;

    /// The trailers that were kept.
    fn trailers(&self, take: &mut dyn FnMut(&[u8], &[u8]));
}
