//! A stream of requests gives the same events whether it arrives at once, by the byte or in pieces. The
//! first byte of the input chooses the size of the pieces.
#![no_main]

use clearway_h1::{Codec, Event, Fault, Options, RequestHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let whole = observe(stream, stream.len().max(1));
    assert_eq!(observe(stream, 1), whole);
    assert_eq!(observe(stream, usize::from(piece).max(1)), whole);
});

/// What the events say, the pieces of a body put together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Observed {
    requests: Vec<String>,
    bodies: Vec<u8>,
    ended: u64,
    fault: Option<Fault>,
    /// Without the empty lines before a request that is incomplete.
    consumed: usize,
}

fn observe(stream: &[u8], piece: usize) -> Observed {
    // Small buffers, so that inputs of the usual size reach the limits.
    let options = Options {
        client_header_buffer_size: 64,
        large_client_header_buffers: 2,
        large_client_header_buffer_size: 128,
        max_headers: 8,
        ..Options::default()
    };
    let (mut codec, mut head) = (Codec::new(), RequestHead::new());
    let mut observed = Observed::default();
    let (mut start, mut end) = (0, 0);
    loop {
        let bytes = &stream[start..end];
        let received = match codec.receive(bytes, &mut head, &options) {
            Ok(received) => received,
            Err(fault) => {
                observed.fault = Some(fault);
                observed.requests.push(head.describe(fault, bytes).to_string());
                return observed;
            }
        };
        match received.event {
            Event::Head { end_stream } => {
                observed.requests.push(spell(&head, bytes));
                observed.ended += u64::from(end_stream);
            }
            Event::Data(range) => observed.bodies.extend_from_slice(&bytes[range]),
            Event::End => observed.ended += 1,
            Event::NeedInput if end == stream.len() => return observed,
            Event::NeedInput => {
                start += received.consumed;
                end = (end + piece).min(stream.len());
                continue;
            }
        }
        start += received.consumed;
        observed.consumed = start;
        assert_eq!(codec.stream().0, observed.ended + 1);
    }
}

fn spell(head: &RequestHead, bytes: &[u8]) -> String {
    let mut text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {}",
        head.method_name().of(bytes),
        head.raw_target().of(bytes),
        head.path().of(bytes),
        head.args().of(bytes),
        head.host().map(|host| (host.name.of(bytes), host.port)),
        head.protocol().of(bytes),
        head.body_length(),
        head.connection(),
        head.path_is_plain(),
    );
    for header in head.headers() {
        text.push_str(&format!(" {:?}: {:?}", header.name.of(bytes), header.value.of(bytes)));
    }
    for line in head.ignored() {
        text.push_str(&format!(" -{:?}", line.of(bytes)));
    }
    text
}
