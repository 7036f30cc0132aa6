//! Bodies: the decoder against a plain one that sees all of the input at once. The first two bytes of the
//! input choose the size of the pieces and the limit.
#![no_main]

#[path = "../../crates/h1/tests/models/chunked.rs"]
mod chunked;

use clearway_h1::CHUNK_OVERHEAD_MAX_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[piece, limit], body)) = input.split_first_chunk::<2>() else {
        return;
    };
    let limit = u64::from(limit) * 8;
    let decoded = chunked::decode(body, usize::from(piece).max(1), limit);
    if body.len() as u64 <= CHUNK_OVERHEAD_MAX_BYTES {
        assert_eq!(decoded, chunked::reference(body, limit));
    }
});
