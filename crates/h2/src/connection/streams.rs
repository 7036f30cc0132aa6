//! The streams of a connection that are open, and the last ones that were.

use std::collections::VecDeque;

use crate::flow::Window;
use crate::frame::Rest;

/// How many streams are remembered that are over.
const REMEMBERED: usize = 64;

/// A stream that is open.
#[derive(Debug)]
pub(super) struct Stream {
    id: u32,
    pub(super) send_window: Window,
    pub(super) receive_window: Window,
    /// Whether the client sends more.
    pub(super) input: Rest,
    /// Whether this side does.
    pub(super) output: Rest,
    ended: Ended,
    /// Whether the client was told that it is over (RST_STREAM).
    pub(super) is_told: bool,
}

/// How a stream has ended, or would end now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client has ended its side, and may not send more.
    ByClient,
    /// The client has reset the stream, or made this side reset it.
    ByReset,
    /// Some of what it sends may be on its way still.
    Here,
}

impl Stream {
    /// The client has reset it, or has violated its rules; whether that is the first time.
    pub(super) fn end_by_client(&mut self) -> bool {
        let was = std::mem::replace(&mut self.ended, Ended::ByReset);
        (self.input, self.output) = (Rest::Ended, Rest::Ended);
        was == Ended::Here
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Streams by number: they are opened in that order, and mostly closed in it.
    open: VecDeque<Stream>,
    last: u32,
    /// Streams that are over, in a ring.
    closed: Vec<(u32, Ended)>,
    closed_at: usize,
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

    /// The highest number that the client has used.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn note_last(&mut self, stream: u32) {
        debug_assert!(stream > self.last, "numbers only grow");
        self.last = stream;
    }

    pub(super) fn open(&mut self, id: u32, send_bytes: u32, receive_bytes: u32, input: Rest) {
        debug_assert!(self.open.back().is_none_or(|last| last.id < id), "numbers only grow");
        self.open.push_back(Stream {
            id,
            send_window: Window::new(send_bytes),
            receive_window: Window::new(receive_bytes),
            input,
            output: Rest::Open,
            ended: Ended::Here,
            is_told: false,
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

    /// Forgets a stream but for how it has ended.
    pub(super) fn close(&mut self, id: u32) {
        let Some(at) = self.position(id) else { return };
        let Some(stream) = self.open.remove(at) else { return };
        debug_assert!(self.open.iter().all(|open| open.id != id), "a stream is closed once");
        let ended = match stream.ended {
            Ended::Here if stream.input == Rest::Ended => Ended::ByClient,
            ended => ended,
        };
        debug_assert!(id <= self.last, "a stream that is over had begun");
        if self.closed.len() < REMEMBERED {
            self.closed.push((id, ended));
        } else {
            self.closed[self.closed_at] = (id, ended);
            self.closed_at = (self.closed_at + 1) % REMEMBERED;
        }
        debug_assert!(self.closed.len() <= REMEMBERED, "so many are remembered at most");
    }

    /// How a stream has ended, if that is remembered.
    pub(super) fn ended(&self, id: u32) -> Option<Ended> {
        self.closed.iter().find(|(closed, _)| *closed == id).map(|(_, ended)| *ended)
    }
}
