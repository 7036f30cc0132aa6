//! Whatever header blocks a client sends: what is read of them is what two other decoders read, block after
//! block with one table, and what is written is read back as it was.
#![no_main]

use std::ops::ControlFlow;

use clearway_h2::hpack::{Decoder, push_field};
use hpack::decoder::DecoderError;

/// The size of the table, bytes.
const TABLE_BYTES: usize = 4096;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    read_alike(input);
    write_and_read(input);
});

/// Blocks that follow each other, of the length that stands before each.
fn blocks(mut input: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    while let [length, rest @ ..] = input {
        let (block, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        blocks.push(block);
        input = behind;
    }
    blocks
}

fn read_alike(input: &[u8]) {
    let mut ours = Decoder::new(TABLE_BYTES);
    let (mut second, mut third) = (hpack::Decoder::new(), httlib_hpack::Decoder::default());
    for block in blocks(input) {
        let mut fields = Fields::new();
        let read = ours.decode(block, &mut |field| {
            fields.push((field.name.to_vec(), field.value.to_vec()));
            ControlFlow::Continue(())
        });
        // The others take some of what RFC 7541 forbids; behind that tables are not the same.
        if read.is_err() {
            return;
        }
        // A byte of padding is taken here, as by other servers.
        let of_second = match second.decode(block) {
            Err(DecoderError::StringDecodingError(_)) => return,
            read => read.expect("what is right is read by others"),
        };
        assert_eq!(as_of_second(of_second), as_of_second(fields.clone()));
        let (mut rest, mut of_third) = (block.to_vec(), Vec::new());
        third.decode(&mut rest, &mut of_third).expect("what is right is read by others");
        let of_third: Fields = of_third.into_iter().map(|(name, value, _)| (name, value)).collect();
        assert_eq!(of_third, fields);
    }
}

/// One name of its static table is cut.
fn as_of_second(mut fields: Fields) -> Fields {
    fields.iter_mut().filter(|field| field.0 == b"accept-").for_each(|field| field.0.extend(b"charset"));
    fields
}

/// Fields whose names and values are the pieces between zeros.
fn write_and_read(input: &[u8]) {
    let pieces: Vec<&[u8]> = input.split(|byte| *byte == 0).collect();
    let mut block = Vec::new();
    let mut written = Fields::new();
    for pair in pieces.chunks_exact(2) {
        push_field(&mut block, pair[0], pair[1]);
        written.push((pair[0].to_ascii_lowercase(), pair[1].to_vec()));
    }
    let mut read = Fields::new();
    let decoded = Decoder::new(TABLE_BYTES).decode(&block, &mut |field| {
        read.push((field.name.to_vec(), field.value.to_vec()));
        ControlFlow::Continue(())
    });
    assert!(decoded.is_ok() && read == written);
    let of_second = hpack::Decoder::new().decode(&block).expect("it is right");
    assert_eq!(as_of_second(of_second), as_of_second(written));
}
