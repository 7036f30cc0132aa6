//! Bodies of responses alone, chunked with trailers: what `h1_response_head` checks, behind a head that is
//! always the same, so that all of the input is body. The first two bytes choose the size of the pieces and
//! what becomes of trailers.
#![no_main]

#[path = "../../crates/h1/tests/responses/model.rs"]
mod model;
#[path = "../../crates/h1/tests/responses/play.rs"]
mod play;

use clearway_h1::{Asked, CHUNK_OVERHEAD_MAX_BYTES, Trailers};
use libfuzzer_sys::fuzz_target;
use play::{Reading, play};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

fuzz_target!(|input: &[u8]| {
    let Some((&[piece, how], body)) = input.split_first_chunk::<2>() else {
        return;
    };
    let trailers = match how {
        0 => Trailers::Dropped,
        max_bytes => Trailers::Kept { max_bytes: usize::from(max_bytes) * 4 },
    };
    let reading = Reading { asked: Asked::Whole, head_max_bytes: 4096, trailers };
    let response = [HEAD, body].concat();
    let whole = play(&response, [], reading);
    let piece = usize::from(piece).max(1);
    assert_eq!(play(&response, (1..).map(|count| count * piece), reading), whole);
    if body.len() as u64 <= CHUNK_OVERHEAD_MAX_BYTES {
        assert_eq!(model::read(&response, reading), whole.0);
    }
});
