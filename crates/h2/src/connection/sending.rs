//! What the server sends: heads, bodies, and what it says of streams and windows.

use clearway_message::HeaderLine;

use super::{Connection, Leave};
use crate::frame::{ErrorCode, FrameHead, HEAD_BYTES, Rest, STREAM_MAX, flag, kind};
use crate::hpack::{NO_TABLE, push_field, push_status};

/// The longest payload that is sent, however much the client takes, bytes.
const SENT_PAYLOAD_MAX_BYTES: u32 = 64 * 1024;
/// Where a frame's head has its flags.
const FLAGS_AT: usize = 4;
/// Length of WINDOW_UPDATE and RST_STREAM, bytes.
const NUMBER_BYTES: u32 = 4;
/// Length of PING, bytes.
const PING_BYTES: u32 = 8;
/// Length of GOAWAY, bytes.
const GOAWAY_BYTES: u32 = 8;

pub(super) fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    FrameHead { length: NUMBER_BYTES, kind: kind::WINDOW_UPDATE, flags: 0, stream }.push(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(super) fn push_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    FrameHead { length: NUMBER_BYTES, kind: kind::RST_STREAM, flags: 0, stream }.push(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

pub(super) fn push_ping_ack(out: &mut Vec<u8>, bytes: [u8; 8]) {
    FrameHead { length: PING_BYTES, kind: kind::PING, flags: flag::ACK, stream: 0 }.push(out);
    out.extend_from_slice(&bytes);
}

/// What a stream says.
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
        // A first byte of a block may stand in front of it.
        let prefix: &[u8] = if std::mem::take(&mut self.says_no_table) { &[NO_TABLE] } else { &[] };
        let payload_max = self.payload_max_bytes as usize;
        let (first, mut behind) = block.split_at(block.len().min(payload_max - prefix.len()));
        let mut flags = if rest == Rest::Ended { flag::END_STREAM } else { 0 };
        flags |= if behind.is_empty() { flag::END_HEADERS } else { 0 };
        let length = length(first) + length(prefix);
        FrameHead { length, kind: kind::HEADERS, flags, stream }.push(out);
        out.extend_from_slice(prefix);
        out.extend_from_slice(first);
        while !behind.is_empty() {
            let (part, rest) = behind.split_at(behind.len().min(payload_max));
            let flags = if rest.is_empty() { flag::END_HEADERS } else { 0 };
            FrameHead { length: self::length(part), kind: kind::CONTINUATION, flags, stream }.push(out);
            out.extend_from_slice(part);
            behind = rest;
        }
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
        let at = out.len();
        FrameHead { length: 0, kind: kind::DATA, flags: 0, stream }.push(out);
        (stream, at)
    }

    /// Ends what was begun: no more was written than may be [sent](Self::sendable).
    pub fn end_data(&mut self, out: &mut [u8], (stream, at): (u32, usize), rest: Rest) {
        let flags = if rest == Rest::Ended { flag::END_STREAM } else { 0 };
        let length = length(&out[at + HEAD_BYTES..]);
        let open = self.streams.find_mut(stream).expect("a stream that sends is open");
        let taken = open.send_window.take(length).and_then(|()| self.send_window.take(length));
        debug_assert!(taken.is_ok(), "so much may be sent");
        out[at..][..3].copy_from_slice(&length.to_be_bytes()[1..]);
        out[at + FLAGS_AT] = flags;
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
            push_reset(&mut self.control, stream, code);
        }
    }

    /// The request of a stream is over on both sides of its handler. What the client still sends of its body
    /// is not waited for.
    pub fn close(&mut self, stream: u32) {
        let Some(open) = self.streams.find(stream) else { return };
        self.schedule.close(stream);
        if open.output == Rest::Ended && open.input == Rest::Open && !open.is_told {
            push_reset(&mut self.control, stream, ErrorCode::NoError);
        }
        self.streams.close(stream);
    }

    /// A response was sent to its end.
    pub fn note_answered(&mut self) {
        self.meter.answered();
    }
}

/// What the client may send.
impl Connection {
    /// What the client may send on a stream now, bytes; none where its body is over.
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
        push_window_update(&mut self.control, stream, increment);
    }

    /// Tells the client that no more streams are taken, once.
    pub fn go_away(&mut self, code: ErrorCode) {
        if std::mem::replace(&mut self.leave, Leave::Told) == Leave::Told {
            return;
        }
        let last = self.streams.last();
        debug_assert!(last <= STREAM_MAX, "a stream's number has 31 bits");
        FrameHead { length: GOAWAY_BYTES, kind: kind::GOAWAY, flags: 0, stream: 0 }.push(&mut self.control);
        self.control.extend_from_slice(&last.to_be_bytes());
        self.control.extend_from_slice(&(code as u32).to_be_bytes());
    }
}

fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("a payload has less than 2^24 bytes")
}
