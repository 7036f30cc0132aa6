//! The streams that a client has open, and how far the answers are.

use std::collections::VecDeque;

use super::failure::{HeadFault, Note};
use super::head::ResponseHead;
use super::{INTERIM_HEADS_MAX, Rest};
use crate::flow::Window;
use crate::frame::ErrorCode;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The head has not come.
    Head,
    /// The body comes.
    Body,
    /// The response is over, or will not be completed any more.
    Ended,
}

/// The meaning of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Interim,
    Final,
    Trailers,
}

/// Whether a response to this request may have a body (`HEAD` has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Possible,
    Never,
}

/// A stream that is open.
#[derive(Debug)]
pub(super) struct Stream {
    id: u32,
    pub(super) send_window: Window,
    pub(super) receive_window: Window,
    pub(super) phase: Phase,
    /// Whether this side sends more.
    pub(super) output: Rest,
    /// Whether either side has reset it.
    pub(super) is_reset: bool,
    body: Body,
    /// Bytes of the body that are still to come, if its length was announced.
    left: Option<u64>,
    interim_heads: u32,
}

impl Stream {
    /// A head has come that is well formed in itself.
    pub(super) fn take_head(&mut self, head: &ResponseHead, rest: Rest) -> Result<Taken, Note> {
        if self.phase == Phase::Body {
            if rest == Rest::Open {
                return Err(Note::OpenTrailers);
            }
            self.end()?;
            return Ok(Taken::Trailers);
        }
        debug_assert!(self.phase == Phase::Head, "a response that is over has no head");
        if head.is_interim() {
            self.interim_heads += 1;
            if rest == Rest::Ended {
                return Err(Note::Head(HeadFault::InterimEnd));
            }
            if self.interim_heads > INTERIM_HEADS_MAX {
                return Err(Note::InterimHeads);
            }
            return Ok(Taken::Interim);
        }
        if self.body == Body::Never || matches!(head.status, 204 | 304) {
            self.left = Some(0);
        } else {
            self.left = head.content_length;
        }
        self.phase = Phase::Body;
        if rest == Rest::Ended {
            self.end()?;
        }
        Ok(Taken::Final)
    }

    /// A DATA frame has come of `length` bytes, of which `bytes` are a part of the body.
    pub(super) fn take_data(&mut self, length: u32, bytes: u32, rest: Rest) -> Result<(), (ErrorCode, Note)> {
        match self.phase {
            Phase::Head => return Err((ErrorCode::ProtocolError, Note::EarlyData)),
            Phase::Ended => return Err((ErrorCode::StreamClosed, Note::HalfClosed("DATA"))),
            Phase::Body => {}
        }
        let window = self.receive_window.available();
        if self.receive_window.take(length).is_err() {
            return Err((ErrorCode::FlowControlError, Note::Window(length, window)));
        }
        if let Some(left) = &mut self.left {
            let after = left.checked_sub(u64::from(bytes));
            *left = after.ok_or((ErrorCode::ProtocolError, Note::LongBody))?;
            if rest == Rest::Ended && *left > 0 {
                return Err((ErrorCode::ProtocolError, Note::ShortBody));
            }
        }
        Ok(())
    }

    /// The response is over.
    pub(super) fn end(&mut self) -> Result<(), Note> {
        self.phase = Phase::Ended;
        if self.left.is_some_and(|left| left > 0) { Err(Note::ShortBody) } else { Ok(()) }
    }

    /// The server has reset it, or has violated its rules; whether that is the first time.
    pub(super) fn end_by_server(&mut self) -> bool {
        (self.phase, self.output) = (Phase::Ended, Rest::Ended);
        !std::mem::replace(&mut self.is_reset, true)
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Streams by number: they are opened in that order, and mostly closed in it.
    open: VecDeque<Stream>,
    /// The highest number that was used.
    last: u32,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Gives memory back while there are none.
    pub(super) fn rest(&mut self) {
        debug_assert!(self.open.is_empty(), "a connection that rests has no streams");
        self.open = VecDeque::new();
    }

    /// The number of the next stream, if there is one more.
    pub(super) fn next(&self) -> Option<u32> {
        let next = if self.last == 0 { 1 } else { self.last + 2 };
        (next <= super::STREAM_MAX).then_some(next)
    }

    /// Whether there is or was a stream with that number.
    pub(super) fn was_opened(&self, id: u32) -> bool {
        !id.is_multiple_of(2) && id <= self.last
    }

    pub(super) fn open(&mut self, id: u32, windows: (u32, u32), (body, output): (Body, Rest)) {
        debug_assert_eq!(self.next(), Some(id), "numbers follow each other");
        self.last = id;
        self.open.push_back(Stream {
            id,
            send_window: Window::new(windows.0),
            receive_window: Window::new(windows.1),
            phase: Phase::Head,
            output,
            is_reset: false,
            body,
            left: None,
            interim_heads: 0,
        });
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    pub(super) fn find(&self, id: u32) -> Option<&Stream> {
        self.position(id).map(|at| &self.open[at])
    }

    pub(super) fn find_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.position(id).map(|at| &mut self.open[at])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    pub(super) fn close(&mut self, id: u32) -> Option<Stream> {
        self.position(id).and_then(|at| self.open.remove(at))
    }
}
