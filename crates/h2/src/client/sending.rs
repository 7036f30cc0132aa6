//! The sending side of the client: requests, resets, windows.

use clearway_message::HeaderLine;

use super::streams::{Body, Phase};
use super::{Client, Farewell, Leave};
use crate::frame::{ErrorCode, Rest};
use crate::hpack::{NO_TABLE, push_field, push_static};
use crate::push;

/// The longest payload that is sent, however much the server takes, bytes.
const SENT_PAYLOAD_MAX_BYTES: u32 = 64 * 1024;

/// The numbers of the fields that most requests begin with.
mod number {
    pub(super) const GET: u8 = 2;
    pub(super) const POST: u8 = 3;
    pub(super) const ROOT: u8 = 4;
    pub(super) const HTTP: u8 = 6;
    pub(super) const HTTPS: u8 = 7;
}

/// The beginning of a request. Its bytes are those of a request that was validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RequestLine<'r> {
    pub method: &'r [u8],
    pub scheme: &'r [u8],
    pub authority: &'r [u8],
    pub path: &'r [u8],
}

/// Why there cannot be another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// As many are open as there may be: one has to close before.
    Full,
    /// The server takes no more, or this side has said that it sends no more.
    Leaving,
    /// The numbers of streams are used up.
    Exhausted,
}

impl RequestLine<'_> {
    fn push(self, block: &mut Vec<u8>) {
        match self.method {
            b"GET" => push_static(block, number::GET),
            b"POST" => push_static(block, number::POST),
            method => push_field(block, b":method", method),
        }
        match self.scheme {
            b"http" => push_static(block, number::HTTP),
            b"https" => push_static(block, number::HTTPS),
            scheme => push_field(block, b":scheme", scheme),
        }
        match self.path {
            b"/" => push_static(block, number::ROOT),
            path => push_field(block, b":path", path),
        }
        if !self.authority.is_empty() {
            push_field(block, b":authority", self.authority);
        }
    }
}

/// Output of a stream.
impl Client {
    /// Moves control frames behind what `out` holds. They go before what was written of streams since.
    pub fn take_control(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.control);
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Whether another stream may be opened.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_open(&self) -> Result<(), Unopened> {
        if self.leave != Leave::Stays || self.farewell == Farewell::Said {
            return Err(Unopened::Leaving);
        }
        if self.streams.next().is_none() {
            return Err(Unopened::Exhausted);
        }
        let most = self.streams_max.min(self.limits.streams) as usize;
        if self.streams.len() >= most { Err(Unopened::Full) } else { Ok(()) }
    }

    /// Opens a stream and writes its head behind what `out` holds; its number. `lines` are fields without
    /// those that concern a connection of HTTP/1.
    ///
    /// # Errors
    /// There cannot be another one, and nothing was written.
    pub fn open<'h>(
        &mut self,
        out: &mut Vec<u8>,
        line: RequestLine<'_>,
        lines: impl Iterator<Item = HeaderLine<'h>>,
        rest: Rest,
    ) -> Result<u32, Unopened> {
        self.may_open()?;
        let stream = self.streams.next().ok_or(Unopened::Exhausted)?;
        let mut block = Vec::new();
        line.push(&mut block);
        lines.for_each(|line| push_field(&mut block, line.name, line.value));
        let body = if line.method == b"HEAD" { Body::Never } else { Body::Possible };
        self.streams.open(stream, (self.first_window_bytes, self.limits.window_bytes), (body, Rest::Open));
        debug_assert!(self.streams.len() <= self.limits.streams as usize, "no more are open than may be");
        // The first stream may not be seen before the preface.
        self.take_control(out);
        self.push_block(out, stream, &block, rest);
        Ok(stream)
    }

    /// Writes trailers, which end the request.
    pub fn push_trailers<'h>(
        &mut self,
        out: &mut Vec<u8>,
        stream: u32,
        lines: impl Iterator<Item = HeaderLine<'h>>,
    ) {
        let mut block = Vec::new();
        lines.for_each(|line| push_field(&mut block, line.name, line.value));
        self.push_block(out, stream, &block, Rest::Ended);
    }

    fn push_block(&mut self, out: &mut Vec<u8>, stream: u32, block: &[u8], rest: Rest) {
        debug_assert!(
            self.streams.find(stream).is_some_and(|open| open.output == Rest::Open),
            "nothing is said on stream {stream} behind its end"
        );
        // A first byte of a block may stand in front of it.
        let prefix: &[u8] = if std::mem::take(&mut self.says_no_table) { &[NO_TABLE] } else { &[] };
        push::block(out, (stream, rest), (prefix, block), self.payload_max_bytes);
        self.meter.sent();
        self.note_output(stream, rest);
    }

    /// How much of a body may be sent now in one frame, bytes; none where its stream is over.
    #[must_use]
    pub fn sendable(&self, stream: u32) -> usize {
        let open = self.streams.find(stream).filter(|open| open.output == Rest::Open);
        let window = open.map_or(0, |open| open.send_window.available());
        let window = window.min(self.send_window.available());
        window.min(self.payload_max_bytes).min(SENT_PAYLOAD_MAX_BYTES) as usize
    }

    /// Whether the stream takes more of a body, now or later.
    #[must_use]
    pub fn is_sending(&self, stream: u32) -> bool {
        self.streams.find(stream).is_some_and(|open| open.output == Rest::Open)
    }

    /// Writes a part of a body, which may be [sent](Self::sendable).
    pub fn push_data(&mut self, out: &mut Vec<u8>, stream: u32, bytes: &[u8], rest: Rest) {
        let at = push::begin_data(out, stream);
        out.extend_from_slice(bytes);
        let length = push::end_data(out, at, rest);
        let open = self.streams.find_mut(stream).expect("a stream that sends is open");
        debug_assert!(open.output == Rest::Open, "nothing is said on stream {stream} behind its end");
        let taken = open.send_window.take(length).and_then(|()| self.send_window.take(length));
        assert!(taken.is_ok(), "so much may be sent on stream {stream}");
        self.meter.sent();
        self.note_output(stream, rest);
    }

    fn note_output(&mut self, stream: u32, rest: Rest) {
        if rest == Rest::Ended
            && let Some(open) = self.streams.find_mut(stream)
        {
            open.output = Rest::Ended;
        }
    }

    /// Ends a stream before its request or its response is complete, once.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if let Some(open) = self.streams.find_mut(stream)
            && !std::mem::replace(&mut open.is_reset, true)
        {
            (open.output, open.phase) = (Rest::Ended, Phase::Ended);
            push::reset(&mut self.control, stream, code);
            self.skip(stream);
        }
    }

    /// Drops the rest of a body; the owner hears no more of it.
    fn skip(&mut self, stream: u32) {
        if let Some(passing) = self.passing.as_mut().filter(|passing| passing.stream == stream) {
            passing.stream = 0;
        }
    }

    /// The owner is done with a stream. Where either side of it is not over the server is told that nothing
    /// more of it is wanted.
    pub fn close(&mut self, stream: u32) {
        let Some(open) = self.streams.close(stream) else { return };
        let is_over = open.phase == Phase::Ended && open.output == Rest::Ended;
        if !is_over && !open.is_reset {
            push::reset(&mut self.control, stream, ErrorCode::Cancel);
        }
        self.skip(stream);
    }

    /// Bytes that the server may send on a stream now; `None` if its response is over.
    #[must_use]
    pub fn receivable(&self, stream: u32) -> Option<u32> {
        let open = self.streams.find(stream).filter(|open| open.phase != Phase::Ended)?;
        Some(open.receive_window.available())
    }

    /// Lets the server send more on a stream.
    pub fn widen(&mut self, stream: u32, increment: u32) {
        let open = self.streams.find_mut(stream).filter(|open| open.phase != Phase::Ended);
        let Some(open) = open else { return };
        let widened = open.receive_window.widen(increment);
        debug_assert!(widened.is_ok() && increment > 0, "a window is no larger than it may be");
        push::window_update(&mut self.control, stream, increment);
    }

    /// Tells the server that no more streams come, once.
    pub fn go_away(&mut self, code: ErrorCode) {
        if std::mem::replace(&mut self.farewell, Farewell::Said) == Farewell::Unsaid {
            push::go_away(&mut self.control, 0, code);
        }
    }
}
