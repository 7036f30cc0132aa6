//! Measures the head parser. Ignored by default because it asserts nothing about time:
//! `cargo test --release -p clearway-h1 --test head_cost -- --ignored --nocapture`

use std::hint::black_box;
use std::time::Instant;

use clearway_h1::{BodyReader, ConnectionHeader, HeadProgress, HeadWriter, Options, RequestHead};

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

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_macros, reason = "prints its figures")]
fn cost_of_a_request() {
    let options = Options::default();
    for (name, input) in [("wrk", WRK), ("browser", BROWSER)] {
        let mut head = RequestHead::new();
        let cost = nanoseconds(100_000, || {
            head.clear();
            let progress = head.parse(black_box(input), &options).expect("a valid request");
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
    println!("sizes: body {}, head {}", size_of::<BodyReader>(), size_of::<RequestHead>());
}
