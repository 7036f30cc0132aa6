//! Frames as they are written, on either side of a connection: each function adds one behind what `out`
//! holds.

use crate::frame::{ErrorCode, FrameHead, HEAD_BYTES, Rest, flag, kind};

/// Where a frame's head has its flags.
const FLAGS_AT: usize = 4;
/// Length of WINDOW_UPDATE and RST_STREAM, bytes.
const NUMBER_BYTES: u32 = 4;
/// Length of PING, bytes.
const PING_BYTES: u32 = 8;
/// Length of GOAWAY, bytes.
const GOAWAY_BYTES: u32 = 8;

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    FrameHead { length: NUMBER_BYTES, kind: kind::WINDOW_UPDATE, flags: 0, stream }.push(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    FrameHead { length: NUMBER_BYTES, kind: kind::RST_STREAM, flags: 0, stream }.push(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

pub(crate) fn ping(out: &mut Vec<u8>, bytes: [u8; 8]) {
    FrameHead { length: PING_BYTES, kind: kind::PING, flags: 0, stream: 0 }.push(out);
    out.extend_from_slice(&bytes);
}

pub(crate) fn ping_ack(out: &mut Vec<u8>, bytes: [u8; 8]) {
    FrameHead { length: PING_BYTES, kind: kind::PING, flags: flag::ACK, stream: 0 }.push(out);
    out.extend_from_slice(&bytes);
}

/// `last` is the highest stream of the other side that was, or will be, dealt with.
pub(crate) fn go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    FrameHead { length: GOAWAY_BYTES, kind: kind::GOAWAY, flags: 0, stream: 0 }.push(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// A header block, of which `prefix` is the short beginning, in as many frames as it needs.
pub(crate) fn block(
    out: &mut Vec<u8>,
    (stream, rest): (u32, Rest),
    (prefix, block): (&[u8], &[u8]),
    payload_max_bytes: u32,
) {
    let payload_max = payload_max_bytes as usize;
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
}

/// The beginning of a part of a body, which the caller writes behind it; where it begins.
pub(crate) fn begin_data(out: &mut Vec<u8>, stream: u32) -> usize {
    let at = out.len();
    FrameHead { length: 0, kind: kind::DATA, flags: 0, stream }.push(out);
    at
}

/// Completes the frame that begins at `at`; the length of its payload, bytes.
pub(crate) fn end_data(out: &mut [u8], at: usize, rest: Rest) -> u32 {
    let length = length(&out[at + HEAD_BYTES..]);
    out[at..][..3].copy_from_slice(&length.to_be_bytes()[1..]);
    out[at + FLAGS_AT] = if rest == Rest::Ended { flag::END_STREAM } else { 0 };
    length
}

fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("a payload has less than 2^24 bytes")
}
