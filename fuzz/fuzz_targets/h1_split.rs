//! A stream of requests gives the same events whether it arrives at once, by the byte or in pieces. The
//! first byte of the input chooses the size of the pieces.
#![no_main]

#[expect(dead_code, reason = "each test uses a part")]
#[path = "../../crates/h1/tests/connection/mod.rs"]
mod connection;

use clearway_h1::{Fault, Options};
use connection::{End, Event, Received, Wish, receive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let keep = Wish::Keep(BODY_MAX_BYTES);
    let whole = observe(stream, stream.len().max(1), keep);
    assert_eq!(observe(stream, 1, keep), whole);
    assert_eq!(observe(stream, usize::from(piece).max(1), keep), whole);
    let dropped = observe(stream, usize::from(piece).max(1), Wish::Drop);
    if whole.fault.is_none() {
        // The requests are the same whether their bodies are kept or not.
        assert_eq!(Observed { body: whole.body.clone(), ..dropped }, whole);
    }
});

/// The most bytes that are kept of a body.
const BODY_MAX_BYTES: u64 = 512;

/// The bytes that were received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Observed {
    requests: Vec<String>,
    /// The bodies, one behind the other.
    body: Vec<u8>,
    ended: usize,
    fault: Option<Fault>,
    end: End,
}

fn observe(stream: &[u8], piece: usize, wish: Wish) -> Observed {
    // Small buffers, so that inputs of the usual size reach the limits.
    let options = Options {
        client_header_buffer_size: 64,
        large_client_header_buffers: 2,
        large_client_header_buffer_size: 128,
        max_headers: 8,
        ..Options::default()
    };
    let mut observed = Observed::default();
    let mut body_start = 0;
    let end = receive(stream.chunks(piece), &options, |event| {
        match event {
            Event::Head(head, bytes) => {
                body_start = observed.body.len();
                observed.requests.push(spell(head, bytes));
            }
            Event::Body(data) => {
                observed.body.truncate(body_start);
                observed.body.extend_from_slice(data);
            }
            Event::End => observed.ended += 1,
            Event::Refused(fault, Received { head, parser }, bytes) => {
                observed.fault = Some(fault);
                observed.requests.push(parser.describe(head, fault, bytes).to_string());
            }
        }
        wish
    });
    Observed { end, ..observed }
}

fn spell(Received { head, parser }: Received<'_>, bytes: &[u8]) -> String {
    let mut text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {}",
        head.line.method_name.of(bytes),
        head.line.raw.of(bytes),
        head.line.path.of(bytes),
        head.line.args.of(bytes),
        head.host.map(|host| (host.name.of(bytes), host.port)),
        head.line.protocol.of(bytes),
        head.body,
        parser.connection(),
        head.line.path_is_plain,
    );
    for line in head.headers.iter(bytes) {
        text.push_str(&format!(" {:?}: {:?}", line.name, line.value));
    }
    for line in parser.ignored() {
        text.push_str(&format!(" -{:?}", line.of(bytes)));
    }
    text
}
