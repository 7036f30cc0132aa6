//! The trait of a protocol of servers: how a response is read. Sans-I/O: bytes in, events out.

use std::borrow::Cow;
use std::fmt;

use clearway_base::log::Level;
use clearway_h1::{Decoded, ResponseParser};
use clearway_http::ResponseHead;
use clearway_message::{Header, status};

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

/// The meaning of a connection's end for a body.
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

/// The answer that the request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    /// `HEAD`
    Head,
    /// `HEAD` of which the response may be kept: applications send a body all the same, or do not.
    WhatComes,
}

/// The treatment of trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrailerUse {
    Dropped,
    Kept { max_bytes: usize },
}

/// The function that takes lines about a response for the log.
pub(super) type Say<'a> = &'a mut dyn FnMut(Level, fmt::Arguments<'_>);

/// A protocol of servers. One value serves all attempts of a request.
pub(super) trait Protocol: Send {
    /// Why a response is refused.
    type Fault;

    /// Whether a server answers. One that is merely connected to has a head by then.
    const ANSWERS: bool = true;

    /// Whether a body is complete with the last of the bytes that its head announces.
    const ENDS_WITH_BODY: bool = true;

    /// Whether a response with the status 404 is always replaced by the server's own.
    const INTERCEPTS_404: bool = false;

    /// Whether heads have lines. Without them the name of what was asked for says of what type it is.
    const HAS_LINES: bool = true;

    /// Before another attempt.
    fn reset(&mut self);

    /// Takes off what frames the bytes of `input` from `from` on, which have just come: what stays there are
    /// those of the head and the body. A head has to be complete within so many bytes.
    fn unframe(&mut self, input: &mut Vec<u8>, from: usize, max_bytes: usize, say: Say<'_>) {
        let _ = (input, from, max_bytes, say);
    }

    /// Goes on with the head at the beginning of `input`, which has to be complete within so many bytes.
    ///
    /// # Errors
    /// The response is refused.
    fn head(&mut self, input: &[u8], max_bytes: usize) -> Result<HeadProgress, Self::Fault>;

    /// Goes on behind an interim head: its length.
    fn next_head(&mut self) -> usize;

    /// The message for the log about a fault of the head, if it has none yet.
    fn describe_head<'a>(&'a self, fault: Self::Fault, input: &'a [u8])
    -> Option<Box<dyn fmt::Display + 'a>>;

    /// Lines about a head that is taken.
    fn remark(&self, input: &[u8], say: Say<'_>);

    fn status(&self) -> u16;

    /// The status line from the status on.
    fn status_line<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]>;

    fn lines(&self) -> &[Header];

    /// The lines, to be kept; from here on there are none.
    fn take_lines(&mut self) -> Vec<Header>;

    /// Where the body begins.
    fn head_len(&self) -> usize;

    fn content_length(&self) -> Option<u64>;

    /// Adds lines to the head for the client, beside those that were received.
    fn complete_head(&self, head: &mut ResponseHead<'_>) {
        let _ = head;
    }

    /// Whether the connection has become a tunnel.
    fn switches_protocols(&self) -> bool;

    fn persistence(&self) -> Persistence;

    /// The head is dealt with: from here on the body is read.
    fn begin_body(&mut self, wanted: Wanted, trailers: TrailerUse);

    /// The next step of the body.
    ///
    /// # Errors
    /// It is cut here.
    fn body(&mut self, input: &[u8]) -> Result<Decoded, Self::Fault>;

    fn describe_body(&self, fault: Self::Fault) -> Box<dyn fmt::Display + '_>;

    /// Whether the body is complete.
    fn is_done(&self) -> bool;

    fn eof(&self) -> Eof;

    /// The message for the log about bytes behind the end.
    fn excess(&self) -> (Level, &'static str) {
        (Level::Warn, "upstream sent more data than specified in \"Content-Length\" header")
    }

    /// The trailers that were kept.
    fn trailers(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = take;
    }
}

/// Digits of a status.
const STATUS_DIGITS: usize = 3;

/// The status line from the status on, of a head in either style. Without a text behind the status it is as
/// if this server made the response.
pub(super) fn status_line_of<'a>(parser: &ResponseParser, input: &'a [u8]) -> Cow<'a, [u8]> {
    let reason = parser.reason();
    match (reason.start().checked_sub(STATUS_DIGITS), status::status_line(parser.status())) {
        (Some(start), _) => Cow::Borrowed(&input[start..reason.end()]),
        (None, Some(line)) => Cow::Borrowed(line.as_bytes()),
        (None, None) => Cow::Owned(format!("{:03} ", parser.status()).into_bytes()),
    }
}

/// The methods for heads that a [`ResponseParser`] reads, which is the field of this name: the same for
/// HTTP/1 and CGI style.
macro_rules! parsed_heads {
    ($parser:ident) => {
        fn next_head(&mut self) -> usize {
            self.$parser.next_head()
        }

        fn remark(&self, input: &[u8], say: Say<'_>) {
            self.$parser.warnings(input).for_each(|warning| say(Level::Warn, format_args!("{warning}")));
        }

        fn status(&self) -> u16 {
            self.$parser.status()
        }

        fn status_line<'a>(&self, input: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
            crate::engine::protocol::status_line_of(&self.$parser, input)
        }

        fn lines(&self) -> &[Header] {
            self.$parser.lines()
        }

        fn take_lines(&mut self) -> Vec<Header> {
            self.$parser.take_lines()
        }

        fn head_len(&self) -> usize {
            self.$parser.len()
        }

        fn content_length(&self) -> Option<u64> {
            self.$parser.content_length()
        }
    };
}
pub(super) use parsed_heads;
