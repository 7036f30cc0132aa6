//! Where the bytes of a request's body come from: a connection of HTTP/1, where framing has to be taken out
//! and what follows belongs to the next request, or a stream, which has nothing but the body. Owned by the
//! request's task.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use clearway_h1::{BodyReader, Fault};

use crate::link::Link;
use crate::link::stream::Stream;

/// Bytes that are read from a socket at once to be dropped.
const READ_BYTES: usize = 16 * 1024;

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The body is malformed or too large; the client gets the fault's page.
    Refused(Fault),
    /// The stream brought more bytes than were announced.
    BeyondLength,
    /// The client has ended the stream before it had sent all that it has announced.
    BelowLength,
    /// Nothing came for `client_body_timeout`; 408, which is logged and not sent.
    TimedOut,
    /// The client closed the connection before the end.
    Closed,
    /// The connection broke.
    Broken(io::Error),
}

/// Where a body comes from.
pub(super) enum BodySource {
    Http1(BodyReader),
    Stream(StreamReader),
}

impl BodySource {
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Http1(reader) => reader.is_done(),
            Self::Stream(reader) => reader.is_done(),
        }
    }

    /// Refuses what is longer.
    pub(super) fn limit(&mut self, max_bytes: u64) -> Result<(), Fault> {
        match self {
            Self::Http1(reader) => reader.limit(max_bytes),
            Self::Stream(reader) => reader.limit(max_bytes),
        }
    }

    pub(super) fn unlimit(&mut self) {
        match self {
            Self::Http1(reader) => reader.unlimit(),
            Self::Stream(reader) => reader.max_bytes = u64::MAX,
        }
    }

    /// Bytes of the body that have arrived, without framing.
    pub(super) fn received(&self) -> u64 {
        match self {
            Self::Http1(reader) => reader.received(),
            Self::Stream(reader) => reader.received,
        }
    }

    /// Bytes of the body, or of the current chunk, that are known to be missing.
    pub(super) fn remaining(&self) -> u64 {
        match self {
            Self::Http1(reader) => reader.remaining(),
            Self::Stream(reader) => reader.announced.unwrap_or(0).saturating_sub(reader.received),
        }
    }

    /// Bytes that were read to be kept, with framing.
    pub(super) fn taken_bytes(&self) -> u64 {
        match self {
            Self::Http1(reader) => reader.taken_bytes(),
            Self::Stream(reader) => reader.taken_bytes,
        }
    }

    pub(super) fn has_rest(&self) -> bool {
        matches!(self, Self::Http1(reader) if reader.has_rest())
    }

    pub(super) fn put_rest_into(self, input: &mut Vec<u8>) {
        if let Self::Http1(reader) = self {
            reader.put_rest_into(input);
        }
    }

    /// Drops what was received.
    pub(super) fn discard(&mut self) -> Result<(), Fault> {
        match self {
            Self::Http1(reader) => reader.discard(),
            Self::Stream(reader) => {
                reader.front = Bytes::new();
                Ok(())
            }
        }
    }

    /// Appends what was received with the head.
    pub(super) fn take_received(&mut self, data: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Http1(reader) => reader.take_received(data),
            Self::Stream(_) => Ok(()),
        }
    }

    /// Reads into the spare room of `data`, and leaves there what is of the body. How much was read, framing
    /// included.
    pub(super) fn poll_read_into(
        &mut self,
        link: Link<'_>,
        data: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, BodyError>> {
        match (self, link) {
            (Self::Http1(reader), Link::Http1(link)) => {
                let from = data.len();
                let size = ready!(end_is_early(link.transport.poll_read_vec(cx, data)))?;
                assert_eq!(data.len(), from + size, "what was read stands behind what was there");
                let decoded = reader.decode_in_place(data, from).map(|()| size as u64);
                debug_assert!(data.len() <= from + size, "framing takes bytes out and adds none");
                Poll::Ready(decoded.map_err(BodyError::Refused))
            }
            (Self::Stream(reader), Link::Stream(stream)) => reader.poll_read_into(stream, data, cx),
            _ => unreachable!("a body comes the way that its request came"),
        }
    }

    /// Reads what is only dropped, over what is decoded already.
    pub(super) fn poll_input(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        match (self, link) {
            (Self::Http1(reader), Link::Http1(link)) => {
                let input = reader.input();
                input.reserve(READ_BYTES);
                end_is_early(link.transport.poll_read_vec(cx, input)).map_ok(drop)
            }
            (Self::Stream(reader), Link::Stream(stream)) => reader.poll_more(stream, cx),
            _ => unreachable!("a body comes the way that its request came"),
        }
    }
}

fn end_is_early(read: Poll<io::Result<usize>>) -> Poll<Result<usize, BodyError>> {
    read.map(|read| match read {
        Ok(0) => Err(BodyError::Closed),
        Ok(size) => Ok(size),
        Err(error) => Err(BodyError::Broken(error)),
    })
}

/// Reads the body from a stream.
pub(super) struct StreamReader {
    announced: Option<u64>,
    received: u64,
    max_bytes: u64,
    taken_bytes: u64,
    /// Bytes that have arrived and had no room.
    front: Bytes,
    state: StreamBodyState,
}

/// How far a body on a stream is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamBodyState {
    Open,
    /// The end of the body was seen.
    Ended,
}

impl StreamReader {
    /// A body of which the length is known, or not before its end.
    pub(super) fn new(announced: Option<u64>) -> Self {
        let (front, state) = (Bytes::new(), StreamBodyState::Open);
        Self { announced, received: 0, max_bytes: u64::MAX, taken_bytes: 0, front, state }
    }

    /// The end is waited for also behind all that was announced: more than that may come.
    fn is_done(&self) -> bool {
        self.state == StreamBodyState::Ended && self.front.is_empty()
    }

    fn limit(&mut self, max_bytes: u64) -> Result<(), Fault> {
        self.max_bytes = max_bytes;
        match self.announced {
            Some(bytes) if bytes > max_bytes => Err(Fault::BodyTooLarge),
            _ if self.received > max_bytes => Err(Fault::ChunkedBodyTooLarge),
            _ => Ok(()),
        }
    }

    fn poll_read_into(
        &mut self,
        stream: &Stream,
        data: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, BodyError>> {
        while self.front.is_empty() && !self.is_done() {
            ready!(self.poll_more(stream, cx))?;
        }
        let count = self.front.len().min(data.capacity() - data.len());
        debug_assert!(count > 0 || self.is_done(), "a read gets somewhere, or is at the end");
        data.extend_from_slice(&self.front[..count]);
        self.front.advance(count);
        self.taken_bytes += count as u64;
        debug_assert!(self.taken_bytes <= self.received, "no more is taken than has come");
        Poll::Ready(Ok(count as u64))
    }

    /// Takes the next piece in place of the one before it.
    fn poll_more(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        debug_assert!(self.state == StreamBodyState::Open, "nothing follows the end of a body");
        let piece = ready!(stream.poll_body(cx)).map_err(BodyError::Broken)?;
        let is_last = piece.is_none() || stream.is_body_over();
        let piece = piece.unwrap_or_default();
        self.received += piece.len() as u64;
        if is_last {
            self.state = StreamBodyState::Ended;
            if self.announced.is_some_and(|announced| self.received < announced) {
                return Poll::Ready(Err(BodyError::BelowLength));
            }
        }
        self.front = piece;
        if self.announced.is_some_and(|announced| self.received > announced) {
            return Poll::Ready(Err(BodyError::BeyondLength));
        }
        if self.received > self.max_bytes {
            return Poll::Ready(Err(BodyError::Refused(Fault::ChunkedBodyTooLarge)));
        }
        Poll::Ready(Ok(()))
    }
}
