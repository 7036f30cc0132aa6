//! The body of a request: decoded as it is read to be stored, or to be dropped. Owned by the task of the
//! request; it reads from the socket only when it is asked to, which is the back-pressure, and writes
//! nothing: that a client should go on is said by the response (`OutputState::invite`).

use std::task::{Context, Poll};

use clearway_h1::{BodyReader, Fault};
use clearway_message::{BodyLength, RequestHead};

use crate::link::Link;
use crate::request::Chunks;
use crate::request::body_source::{BodyError, BodySource, StreamReader};

/// Whether the client waits for `100 Continue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Nothing,
    Continue,
}

/// The state of one request's body; nothing if it has none, as most have.
#[derive(Default)]
pub(crate) struct BodyState(Option<Box<Receiving>>);

pub(crate) struct Receiving {
    source: BodySource,
    /// As announced.
    pub(crate) length: BodyLength,
    fate: Fate,
    expect: Expect,
    /// Until when more of it is waited for; there while a handler that reads pieces waits.
    deadline_ms: Option<u64>,
    /// Bytes that were read ahead and not taken.
    ahead: Vec<u8>,
}

/// The fate of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Kept for a handler that stores it.
    Wanted,
    /// A handler reads it piece by piece, so that no other one can have all of it.
    Pieces,
    /// The body is dropped as it comes, whatever its size.
    Dropped,
}

/// A request body as its handler sees it.
pub struct Body<'a> {
    pub(crate) state: &'a mut BodyState,
}

impl Body<'_> {
    /// Whether the request has one that is not empty, or may be: one in chunks.
    pub fn is_announced(&self) -> bool {
        let length = self.state.0.as_ref().map(|body| body.length);
        !matches!(length, None | Some(BodyLength::Empty | BodyLength::Length(0)))
    }

    /// Whether it [is announced](Self::is_announced), or is on a stream whose end has not come: that of an
    /// empty one may come late.
    pub fn may_come(&self) -> bool {
        let is_open = |body: &Receiving| body.is_on_stream() && !body.is_done();
        self.is_announced() || self.state.0.as_deref().is_some_and(is_open)
    }

    /// Whether all of it was taken: its end is known.
    pub fn is_taken(&self) -> bool {
        self.state.is_done()
    }

    /// Its length in bytes, as announced; `None` where it is not known before the end.
    pub fn announced(&self) -> Option<u64> {
        match self.state.0.as_ref()?.length {
            BodyLength::Length(bytes) => Some(bytes),
            BodyLength::Empty => Some(0),
            BodyLength::Chunked => None,
        }
    }

    /// Whether its length is not known before its end.
    pub fn is_chunked(&self) -> bool {
        self.state.0.as_ref().is_some_and(|body| body.length == BodyLength::Chunked)
    }

    /// Whether a handler has begun to drop it, or to read it in pieces, so that no other one can have it any
    /// more.
    pub fn is_dropped(&self) -> bool {
        self.state.0.as_ref().is_some_and(|body| body.fate != Fate::Wanted)
    }
}

impl BodyState {
    /// The body behind a head; takes what was already received of it, and of requests behind it.
    pub(crate) fn begin(head: &RequestHead, received: &[u8], input: Vec<u8>) -> Self {
        let length = head.body;
        let expect = if head.expects_continue(received) { Expect::Continue } else { Expect::Nothing };
        Self(Some(Box::new(Receiving {
            source: BodySource::Http1(BodyReader::new(length, input)),
            length,
            fate: Fate::Wanted,
            expect,
            deadline_ms: None,
            ahead: Vec::new(),
        })))
    }

    /// The body that follows a head on a stream.
    pub(crate) fn begin_stream(head: &RequestHead, received: &[u8]) -> Self {
        // A body of unknown length ends with the stream: the rules for chunks hold for it, too.
        let (length, announced) = match head.body {
            BodyLength::Length(bytes) => (BodyLength::Length(bytes), Some(bytes)),
            BodyLength::Empty | BodyLength::Chunked => (BodyLength::Chunked, None),
        };
        let expect = if head.expects_continue(received) { Expect::Continue } else { Expect::Nothing };
        let source = BodySource::Stream(StreamReader::new(announced));
        let (fate, deadline_ms, ahead) = (Fate::Wanted, None, Vec::new());
        Self(Some(Box::new(Receiving { source, length, fate, expect, deadline_ms, ahead })))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.source.is_done())
    }

    /// Whether there is one that somebody has read, or may read still.
    pub(crate) fn is_wanted(&self) -> bool {
        let is_wanted = |body: &Receiving| body.length != BodyLength::Empty && body.fate != Fate::Dropped;
        self.0.as_deref().is_some_and(is_wanted)
    }

    /// Refuses a body beyond `client_max_body_size`, of which 0 is none, unless it is dropped anyway. The
    /// error is the length that was announced, or that of what has come of one in chunks.
    pub(crate) fn limit(&mut self, max_bytes: u64) -> Result<(), u64> {
        let Some(body) = &mut self.0 else { return Ok(()) };
        if max_bytes == 0 || body.fate == Fate::Dropped {
            body.source.unlimit();
            return Ok(());
        }
        let (received, remaining) = body.sizes();
        body.source.limit(max_bytes).map_err(|_| received + remaining)
    }

    pub(crate) fn receiving(&mut self) -> Option<&mut Receiving> {
        self.0.as_deref_mut()
    }

    /// Bytes of the body as sent that handlers have read.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |body| body.source.taken_bytes())
    }

    /// Whether there are chunks, and nobody has had them.
    #[inline]
    pub(crate) fn chunks(&self) -> Chunks {
        let is_dropped = |body: &Receiving| body.length == BodyLength::Chunked && body.fate == Fate::Dropped;
        if self.0.as_deref().is_some_and(is_dropped) { Chunks::Dropped } else { Chunks::Kept }
    }

    /// Whether the client waits for `100 Continue`; it is told so once.
    pub(crate) fn take_expectation(&mut self) -> bool {
        let Some(body) = &mut self.0 else { return false };
        std::mem::replace(&mut body.expect, Expect::Nothing) == Expect::Continue
    }

    /// Whether the request has no body.
    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Drops what was received so far.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn discard_received(&mut self) -> Result<(), Fault> {
        let Some(body) = &mut self.0 else { return Ok(()) };
        if body.source.is_done() {
            return Ok(());
        }
        body.fate = Fate::Dropped;
        body.ahead = Vec::new();
        body.source.unlimit();
        body.source.discard()
    }

    /// Gives away what was received behind the end of the body.
    pub(crate) fn put_rest_into(&mut self, input: &mut Vec<u8>) {
        if let Some(body) = self.0.take() {
            body.source.put_rest_into(input);
        }
    }

    /// Whether something was received that is not of this body, or not decoded yet.
    pub(crate) fn has_rest(&self) -> bool {
        self.0.as_ref().is_some_and(|body| body.source.has_rest())
    }

    /// Reads more, over what is decoded already; ready at once where there is no body.
    pub(crate) fn poll_input(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.0.as_mut().map_or(Poll::Ready(Ok(())), |body| body.poll_input(link, cx))
    }
}

/// Used by `body_store`, which keeps the whole body.
impl Receiving {
    /// Whether it comes on a stream, which has nothing else.
    pub(crate) fn is_on_stream(&self) -> bool {
        matches!(self.source, BodySource::Stream(_))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.source.is_done()
    }

    /// Bytes of the body that have arrived, and bytes of it, or of the current chunk, that are known to be
    /// missing.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        (self.source.received(), self.source.remaining())
    }

    /// How much is still to come, bytes; `None` where it comes in chunks.
    pub(crate) fn rest(&self) -> Option<u64> {
        (self.length != BodyLength::Chunked).then(|| self.source.remaining())
    }

    /// Appends what was received already to `data`, with the head or [ahead](Self::read_ahead).
    ///
    /// # Errors
    /// The body is malformed or too large.
    pub(crate) fn take_received(&mut self, data: &mut Vec<u8>) -> Result<(), Fault> {
        debug_assert!(self.fate != Fate::Dropped, "nothing of a body that is dropped is handed on");
        data.append(&mut self.ahead);
        self.source.take_received(data)
    }

    /// How much was read [ahead](Self::read_ahead), bytes.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Reads what the socket has, into `room_bytes` at most; whether that is all of the body.
    pub(crate) fn read_ahead(
        &mut self,
        link: Link<'_>,
        room_bytes: usize,
        cx: &mut Context<'_>,
    ) -> Result<bool, BodyError> {
        let mut data = std::mem::take(&mut self.ahead);
        self.source.take_received(&mut data).map_err(BodyError::Refused)?;
        data.reserve_exact(room_bytes);
        while !self.is_done() && data.len() < data.capacity() {
            match self.poll_read_into(link, &mut data, cx) {
                Poll::Ready(read) => read?,
                Poll::Pending => break,
            };
        }
        debug_assert!(self.ahead.is_empty(), "what was read ahead was taken before");
        self.ahead = data;
        Ok(self.is_done())
    }

    /// Reads from the socket into the spare room of `data`, and leaves there what is of the body. The
    /// result is how much was read, framing included.
    pub(crate) fn poll_read_into(
        &mut self,
        link: Link<'_>,
        data: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, BodyError>> {
        self.source.poll_read_into(link, data, cx)
    }

    fn poll_input(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.source.poll_input(link, cx)
    }

    /// Appends a piece of it to `data`, and what has come with the head first. Waits no longer than
    /// `timeout_ms`; nothing else may wait with the link's timer meanwhile.
    pub(crate) fn poll_piece(
        &mut self,
        link: Link<'_>,
        data: &mut Vec<u8>,
        timeout_ms: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyError>> {
        let from = data.len();
        if self.fate == Fate::Wanted {
            self.fate = Fate::Pieces;
            self.take_received(data).map_err(BodyError::Refused)?;
        }
        debug_assert!(self.ahead.is_empty(), "what was read ahead comes first");
        debug_assert!(data.len() >= from, "pieces are appended");
        while data.len() == from && !self.is_done() {
            match self.poll_read_into(link, data, cx) {
                Poll::Ready(read) => {
                    self.deadline_ms = None;
                    read?;
                }
                Poll::Pending if data.len() > from => break,
                Poll::Pending => {
                    if self.deadline_ms.is_none() {
                        let deadline_ms = link.home().now_ms() + timeout_ms;
                        self.deadline_ms = Some(deadline_ms);
                        link.timer().arm(deadline_ms);
                    }
                    return link.timer().poll_expired(cx).map(|()| Err(BodyError::TimedOut));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
