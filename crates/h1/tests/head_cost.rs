//! Measures the head parser. Ignored by default because it asserts nothing about time:
//! `cargo test --release -p clearway-h1 --test head_cost -- --ignored --nocapture`

use std::hint::black_box;
use std::time::Instant;

use clearway_h1::{BodyReader, ConnectionHeader, HeadParser, HeadProgress, HeadWriter, Options};
use clearway_message::{Header, Headers, Known, Piece, RequestHead, Span, name_hash};

const WRK: &[u8] = b"GET /ret HTTP/1.1\r\nHost: localhost:18000\r\n\r\n";

const BROWSER: &[u8] = b"GET /assets/app/main.4f3c2a1b.js?v=20240101 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: */*\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Referer: https://www.example.com/articles/2024/a-long-title-of-an-article\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes; id=4711\r\n\
    Sec-Fetch-Dest: script\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    If-None-Match: \"66a1b2c3-1f40\"\r\n\
    Cache-Control: max-age=0\r\n\r\n";

fn nanoseconds(rounds: u32, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..rounds {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(rounds));
    }
    best
}

/// A head of 24 lines of which one is hidden: passed on, and made line by line as if nothing could be kept.
#[expect(clippy::disallowed_macros, reason = "prints its figures")]
fn cost_of_passing() {
    let received: String =
        (0..24).map(|n| format!("X-Header-{n}: a value of usual length {n}\r\n")).collect();
    let lines: Vec<(&[u8], &[u8])> = received
        .lines()
        .map(|line| line.split_once(": ").expect("a line of a header"))
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    let start_of = |text: &[u8]| text.as_ptr().addr() - received.as_ptr().addr();
    let span_of = |text: &[u8]| Span::new(start_of(text), start_of(text) + text.len());
    let header = |&(name, value): &(&[u8], &[u8])| Header {
        name: span_of(name),
        value: span_of(value),
        hash: name_hash(name),
        known: Known::find(name),
    };
    let spans: Vec<Header> = lines.iter().map(header).collect();
    let mut passed = Headers::default();
    passed.pass(received.clone().into_bytes(), spans);
    passed.remove(clearway_message::HeaderName::new(b"x-header-9"));
    let mut out = Vec::with_capacity(4096);
    let cost = nanoseconds(100_000, || {
        out.clear();
        for piece in black_box(&passed).pieces() {
            match piece {
                Piece::Lines(lines) => out.extend_from_slice(lines),
                Piece::Line(..) => unreachable!("all lines stand as they are sent"),
            }
        }
        black_box(&out);
    });
    println!("passed head: {} bytes in {} pieces, {cost:.1} ns", out.len(), passed.pieces().count());
    let cost = nanoseconds(100_000, || {
        out.clear();
        let mut writer = HeadWriter::with_lines(&mut out, b"");
        for (name, value) in black_box(&lines) {
            writer = writer.header(name, value);
        }
        writer.finish();
        black_box(&out);
    });
    println!("the same line by line: {cost:.1} ns");
}

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_macros, reason = "prints its figures")]
fn cost_of_a_request() {
    let options = Options::default();
    for (name, input) in [("wrk", WRK), ("browser", BROWSER)] {
        let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
        let cost = nanoseconds(100_000, || {
            parser.clear();
            head.clear();
            let progress = parser.parse(&mut head, black_box(input), &options).expect("a valid request");
            assert_eq!(progress, HeadProgress::Complete);
            black_box(&head);
        });
        println!("{name}: {} bytes, {cost:.1} ns", input.len());
    }
    let mut out = Vec::with_capacity(1024);
    let cost = nanoseconds(100_000, || {
        out.clear();
        HeadWriter::new(&mut out, 200, "OK")
            .lines(b"Server: clearway\r\nDate: Mon, 28 Sep 1970 06:00:00 GMT\r\n")
            .header(b"Content-Type", black_box(b"text/plain"))
            .content_length(black_box(2))
            .connection(ConnectionHeader::KeepAlive(None))
            .finish();
        black_box(&out);
    });
    println!("response head: {} bytes, {cost:.1} ns", out.len());
    cost_of_passing();
    println!("sizes: body {}, head {}", size_of::<BodyReader>(), size_of::<RequestHead>());
}
