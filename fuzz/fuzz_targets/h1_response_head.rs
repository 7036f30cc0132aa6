//! Responses of upstream servers: the codec against a model that sees all of a response at once, in whatever
//! pieces the bytes come. The first three bytes of the input choose the size of the pieces, the limit of the
//! head and how the response is read; the rest is the response.
#![no_main]

#[path = "../../crates/h1/tests/responses/model.rs"]
mod model;
#[path = "../../crates/h1/tests/responses/play.rs"]
mod play;

use clearway_h1::{Asked, CHUNK_OVERHEAD_MAX_BYTES, Trailers};
use libfuzzer_sys::fuzz_target;
use play::{Reading, play};

fuzz_target!(|input: &[u8]| {
    let Some((&[piece, limit, how], response)) = input.split_first_chunk::<3>() else {
        return;
    };
    let small = usize::from(limit) * 2 + 1;
    let reading = Reading {
        asked: if how & 1 == 0 { Asked::Whole } else { Asked::Head },
        head_max_bytes: if how & 2 == 0 { 4096 } else { small },
        trailers: match how & 12 {
            0 => Trailers::Dropped,
            4 => Trailers::Kept { max_bytes: small },
            _ => Trailers::Kept { max_bytes: 4096 },
        },
    };
    let whole = play(response, [], reading);
    let piece = usize::from(piece).max(1);
    assert_eq!(play(response, (1..).map(|count| count * piece), reading), whole);
    assert_eq!(play(response, 1.., reading), whole);
    if response.len() as u64 <= CHUNK_OVERHEAD_MAX_BYTES {
        assert_eq!(model::read(response, reading), whole.0);
    }
});
