//! The sending side of the server: heads, bodies, resets, windows.

use clearway_message::HeaderLine;

use super::{Connection, Leave};
use crate::frame::{ErrorCode, Rest, STREAM_MAX};
use crate::hpack::{NO_TABLE, push_field, push_status};
use crate::push;

/// The longest payload that is sent, however much the client takes, bytes.
const SENT_PAYLOAD_MAX_BYTES: u32 = 64 * 1024;

/// The payload of the PING whose answer shows that the client knows that the connection will end.
const FAREWELL: [u8; 8] = *b"farewell";

/// Output of a stream.
impl Connection {
    /// Moves control frames behind what `out` holds.
    pub fn take_control(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.control);
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Writes trailers.
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

    /// Writes the head of a response, or an interim one: its fields are in `block`, as they are encoded.
    pub fn push_head(&mut self, out: &mut Vec<u8>, stream: u32, status: u16, block: &[u8], rest: Rest) {
        let mut whole = std::mem::take(&mut self.scratch);
        whole.clear();
        push_status(&mut whole, status);
        whole.extend_from_slice(block);
        self.push_block(out, stream, &whole, rest);
        self.scratch = whole;
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

    /// How much of a body may be sent now, bytes.
    #[must_use]
    pub fn window(&self, stream: u32) -> u32 {
        let window = self.streams.find(stream).map_or(0, |open| open.send_window.available());
        window.min(self.send_window.available())
    }

    /// How much of it may be sent in one frame, bytes.
    #[must_use]
    pub fn sendable(&self, stream: u32) -> usize {
        self.window(stream).min(self.payload_max_bytes).min(SENT_PAYLOAD_MAX_BYTES) as usize
    }

    /// Writes a part of a body, which may be [sent](Self::sendable).
    pub fn push_data(&mut self, out: &mut Vec<u8>, stream: u32, bytes: &[u8], rest: Rest) {
        let at = self.begin_data(out, stream);
        out.extend_from_slice(bytes);
        self.end_data(out, at, rest);
    }

    /// Begins a part of a body, which is to be written behind what `out` holds, and [ended](Self::end_data)
    /// with what this says.
    #[must_use]
    pub fn begin_data(&self, out: &mut Vec<u8>, stream: u32) -> (u32, usize) {
        (stream, push::begin_data(out, stream))
    }

    /// Ends what was begun: no more was written than may be [sent](Self::sendable).
    pub fn end_data(&mut self, out: &mut [u8], (stream, at): (u32, usize), rest: Rest) {
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

    /// Ends a stream on this side before its response is complete.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if let Some(open) = self.streams.find_mut(stream) {
            (open.output, open.is_told) = (Rest::Ended, true);
            push::reset(&mut self.control, stream, code);
        }
    }

    /// The request of a stream is over on both sides of its handler. What the client still sends of its body
    /// is not waited for.
    pub fn close(&mut self, stream: u32) {
        let Some(open) = self.streams.find(stream) else { return };
        self.schedule.close(stream);
        if open.output == Rest::Ended && open.input == Rest::Open && !open.is_told {
            push::reset(&mut self.control, stream, ErrorCode::NoError);
        }
        self.streams.close(stream);
    }

    /// A response was sent to its end.
    pub fn note_answered(&mut self) {
        self.meter.answered();
    }
}

/// The bytes that the client may send.
impl Connection {
    /// Bytes that the client may send on a stream now; `None` if its body is over.
    #[must_use]
    pub fn receivable(&self, stream: u32) -> Option<u32> {
        let open = self.streams.find(stream).filter(|open| open.input == Rest::Open)?;
        Some(open.receive_window.available())
    }

    /// Lets the client send more on a stream.
    pub fn widen(&mut self, stream: u32, increment: u32) {
        let Some(open) = self.streams.find_mut(stream).filter(|open| open.input == Rest::Open) else {
            return;
        };
        let widened = open.receive_window.widen(increment);
        debug_assert!(widened.is_ok() && increment > 0, "a window is no larger than it may be");
        push::window_update(&mut self.control, stream, increment);
    }

    /// Tells the client that the connection is to end, once. One that has begun no stream yet has its first
    /// request on its way as a rule: nothing is refused before it knows, and a PING follows, whose answer
    /// says that. With that answer comes the [last word](Self::go_away), which is the caller's to say if the
    /// client does not answer (RFC 9113 §6.8). Others are told the last word at once, as nginx does.
    pub fn announce_leave(&mut self) {
        if self.streams.last() > 0 && self.leave == Leave::Stays {
            self.go_away(ErrorCode::NoError);
        }
        if self.leave == Leave::Stays {
            self.leave = Leave::Announced;
            push::go_away(&mut self.control, STREAM_MAX, ErrorCode::NoError);
            push::ping(&mut self.control, FAREWELL);
        }
    }

    /// Whether this answers the PING behind what was announced.
    pub(super) fn is_farewell(&self, bytes: [u8; 8]) -> bool {
        self.leave == Leave::Announced && bytes == FAREWELL
    }

    /// Tells the client that no more streams are taken, once.
    pub fn go_away(&mut self, code: ErrorCode) {
        if std::mem::replace(&mut self.leave, Leave::Told) == Leave::Told {
            return;
        }
        let last = self.streams.last();
        debug_assert!(last <= STREAM_MAX, "a stream's number has 31 bits");
        push::go_away(&mut self.control, last, code);
    }
}
