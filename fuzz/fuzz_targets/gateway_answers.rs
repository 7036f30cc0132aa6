//! Whatever an application or memcached answers, nothing breaks; however it is split, the same is read.
#![no_main]

use clearway_gateway::fastcgi::{Event, Records};
use clearway_gateway::memcached::{Answer, Flags, Value, read_head};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let size = input.first().map_or(1, |&byte| usize::from(byte) + 1);
    assert_eq!(records(input, size), records(input, usize::MAX));
    answer(input, size);
});

/// Output and errors of an application whose bytes come in pieces, and whether a record was refused.
fn records(input: &[u8], size: usize) -> (Vec<u8>, Vec<u8>, bool) {
    let (mut records, mut output, mut errors) = (Records::default(), Vec::new(), Vec::new());
    for piece in input.chunks(size) {
        let mut at = 0;
        loop {
            let Ok(step) = records.next(&piece[at..]) else { return (output, errors, true) };
            match step.event {
                Event::Stdout(range) => output.extend_from_slice(&piece[at..][range]),
                Event::Stderr(range) => errors.extend_from_slice(&piece[at..][range]),
                Event::Ended => return (output, errors, false),
                Event::Incomplete => break,
                Event::StdoutClosed | Event::EndBegins => {}
            }
            at += step.consumed;
        }
    }
    (output, errors, false)
}

fn answer(input: &[u8], size: usize) {
    let Ok(Some(head)) = read_head(input, b"key", Flags::Wanted) else { return };
    let Answer::Found { bytes, .. } = head.answer else { return };
    let (mut value, mut taken) = (Value::new(bytes), 0);
    for piece in input[head.len..].chunks(size) {
        let mut at = 0;
        while at < piece.len() && !value.is_done() {
            let Ok(step) = value.next(&piece[at..]) else { return };
            assert!(step.consumed > 0 && step.data.end <= step.consumed);
            taken += step.data.len() as u64;
            at += step.consumed;
        }
    }
    assert!(taken <= bytes && (!value.is_done() || taken == bytes));
}
