//! Known attacks of HTTP/2 clients on a server, each with the counter of the limit that ends it.

use clearway_h2::connection::CONTINUATIONS_MAX;
use clearway_h2::frame::{ErrorCode, Rest, STREAM_MAX, flag, kind};

use crate::http2::Frames;

/// The most batches of an attack until a limit has to have ended it.
pub const BATCHES_MAX: u32 = 200;
/// Streams or frames in a batch.
pub const BATCH: u32 = 500;
/// Streams in a batch that must stay below the limit of streams at once.
const OPEN_AT_ONCE: u32 = 20;

/// An attack: its name, the counter of the limit that ends it, and a function that makes the bytes of the
/// `nth` batch. The server has locations `/slow` and `/body` and allows 64 streams at once.
pub type Attack = (&'static str, &'static str, fn(nth: u32) -> Vec<u8>);

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    ("rapid reset", "resets", rapid_resets),
    ("made you reset, by a window", "resets", |nth| made_resets(nth, kind::WINDOW_UPDATE)),
    ("made you reset, by a body", "resets", |nth| made_resets(nth, kind::DATA)),
    ("streams beyond the limit", "refusals", |nth| {
        streams(nth, BATCH).flat_map(|id| Frames::request(id, "GET", "/slow", &[], Rest::Ended)).collect()
    }),
    ("pings", "useless_frames", |_| Frames::frame(kind::PING, 0, 0, b"12345678").repeat(BATCH as usize)),
    ("settings", "useless_frames", |_| Frames::frame(kind::SETTINGS, 0, 0, b"").repeat(BATCH as usize)),
    ("acknowledgements", "useless_frames", |_| {
        Frames::frame(kind::SETTINGS, flag::ACK, 0, b"").repeat(BATCH as usize)
    }),
    ("tiny windows", "useless_frames", |_| {
        Frames::frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(BATCH as usize)
    }),
    ("empty bodies", "useless_frames", |nth| {
        let mut bytes = first(nth, &Frames::request(1, "POST", "/body", &[], Rest::Open));
        bytes.extend(Frames::frame(kind::DATA, 0, 1, b"").repeat(BATCH as usize));
        bytes
    }),
    ("padding", "floods", |nth| {
        let mut bytes = first(nth, &Frames::request(1, "POST", "/body", &[], Rest::Open));
        let payload = [&[200][..], b"x", &[0; 200]].concat();
        bytes.extend(Frames::frame(kind::DATA, flag::PADDED, 1, &payload).repeat(BATCH as usize));
        bytes
    }),
    ("frames that nobody knows", "floods", |_| Frames::frame(0x42, 0, 0, &[0; 16_000]).repeat(20)),
    ("priorities", "priorities", |_| {
        Frames::frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 0]).repeat(BATCH as usize)
    }),
    ("urgencies", "priorities", |_| {
        Frames::frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1").repeat(BATCH as usize)
    }),
    ("a head in many parts", "large_heads", |nth| {
        let mut bytes = first(nth, &Frames::frame(kind::HEADERS, flag::END_STREAM, 1, &[0x82]));
        bytes.extend(Frames::frame(kind::CONTINUATION, 0, 1, b"").repeat(CONTINUATIONS_MAX as usize));
        bytes
    }),
    ("a head that expands", "large_heads", |nth| {
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
        block.extend_from_slice(&[b'x'; 4_000]);
        block.resize(16_000, 0xbe);
        Frames::frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 2 * nth + 1, &block)
    }),
    ("no stream", "faults", |_| Frames::frame(kind::DATA, 0, 0, b"x")),
];

/// Bytes for the first batch only.
fn first(nth: u32, bytes: &[u8]) -> Vec<u8> {
    if nth == 0 { bytes.to_vec() } else { Vec::new() }
}

fn streams(nth: u32, count: u32) -> impl Iterator<Item = u32> {
    (nth * count..(nth + 1) * count).map(|at| 2 * at + 1)
}

/// Streams that are begun and cancelled at once (CVE-2023-44487).
fn rapid_resets(nth: u32) -> Vec<u8> {
    let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
    let both = |id| {
        let mut bytes = Frames::request(id, "GET", "/slow", &[], Rest::Ended);
        bytes.extend(Frames::frame(kind::RST_STREAM, 0, id, &cancel));
        bytes
    };
    streams(nth, OPEN_AT_ONCE).flat_map(both).collect()
}

/// Streams that the server is made to reset itself (CVE-2025-8671).
fn made_resets(nth: u32, of: u8) -> Vec<u8> {
    let both = |id| {
        let mut bytes = Frames::request(id, "GET", "/slow", &[], Rest::Ended);
        bytes.extend(match of {
            kind::DATA => Frames::frame(of, 0, id, b"more"),
            _ => Frames::frame(of, 0, id, &STREAM_MAX.to_be_bytes()),
        });
        bytes
    };
    streams(nth, OPEN_AT_ONCE).flat_map(both).collect()
}
