//! What clients of HTTP/2 may do to a server, each known attack against the limit that meets it: the limit is
//! counted, memory is bounded, and others are served meanwhile.

use std::time::{Duration, Instant};

use clearway_h2::connection::{CONTINUATIONS_MAX, RESETS_MAX, USELESS_FRAMES_MAX};
use clearway_h2::frame::{ErrorCode, Rest, STREAM_MAX, flag, kind};
use clearway_h2::settings::Settings;
use clearway_testkit::Server;
use clearway_testkit::http2::{Frames, Http2};
use clearway_testkit::process::rss_bytes;

use crate::deployed;

const HTTP: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        http2_max_concurrent_streams 64;
        keepalive_requests 1000000;
        location / { return 200 here; }
        location /slow { echo_sleep 5; echo slow; }
        location /body { echo_read_request_body; echo_request_body; }
        location = /status { status prometheus; }
    }";

/// What one attack may add to the memory of a server, bytes: what allocators keep varies.
const GROWTH_MAX_BYTES: u64 = 12 << 20;
/// How long another request may take meanwhile, in a build without optimization.
const OTHERS_MAX: Duration = Duration::from_secs(1);
/// How often a batch is sent before an attack counts as not met.
const BATCHES_MAX: u32 = 200;
/// Streams, or frames, of a batch.
const BATCH: u32 = 500;

/// Streams that are begun at once where none of them is to be refused.
const OPEN_AT_ONCE: u32 = 20;

/// An attack: what it is called, which counter it leads to, and the `nth` batch of what it sends.
type Attack = (&'static str, &'static str, fn(nth: u32) -> Vec<u8>);

const ATTACKS: &[Attack] = &[
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

/// Something that goes before the first batch.
fn first(nth: u32, bytes: &[u8]) -> Vec<u8> {
    if nth == 0 { bytes.to_vec() } else { Vec::new() }
}

fn streams(nth: u32, count: u32) -> impl Iterator<Item = u32> {
    (nth * count..(nth + 1) * count).map(|at| 2 * at + 1)
}

/// CVE-2023-44487
fn rapid_resets(nth: u32) -> Vec<u8> {
    let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
    let both = |id| {
        let mut bytes = Frames::request(id, "GET", "/slow", &[], Rest::Ended);
        bytes.extend(Frames::frame(kind::RST_STREAM, 0, id, &cancel));
        bytes
    };
    streams(nth, OPEN_AT_ONCE).flat_map(both).collect()
}

/// CVE-2025-8671: the server is made to reset what it has begun.
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

fn counter(server: &Server, name: &str) -> u64 {
    let name = format!("clearway_http2_{name}_total ");
    let page = server.get("/status").text();
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

fn open(server: &Server) -> Http2 {
    Http2::open(&server.address(), Settings::default())
}

/// Sends batches until the server has had enough.
fn attack(server: &Server, (name, _, batch): &Attack) {
    let mut client = open(server);
    for nth in 0..BATCHES_MAX {
        client.send(&batch(nth));
        let begun = Instant::now();
        let mut other = open(server);
        other.get(1, "/");
        assert_eq!(other.answer(1).text(), "here", "{name}");
        assert!(begun.elapsed() < OTHERS_MAX, "{name}: others wait for {:?}", begun.elapsed());
        if !client.receive(Duration::from_millis(5)) || client.frames.gone.is_some() {
            return;
        }
    }
    panic!("{name}: it goes on for ever");
}

#[test]
fn each_attack_meets_its_limit() {
    assert!(u64::from(BATCHES_MAX * BATCH) > 2 * (USELESS_FRAMES_MAX + RESETS_MAX), "enough of it");
    let server = deployed("events { worker_connections 4096; }", HTTP).start();
    attack(&server, &ATTACKS[0]);
    for case @ (name, limit, _) in ATTACKS {
        let (before, memory) = (counter(&server, limit), rss_bytes(server.pid()));
        attack(&server, case);
        assert!(counter(&server, limit) > before, "{name}: {limit} is not counted");
        let growth = rss_bytes(server.pid()).saturating_sub(memory);
        assert!(growth < GROWTH_MAX_BYTES, "{name}: {growth} bytes more");
    }
    assert!(counter(&server, "streams_refused") > 0 && counter(&server, "streams_cut") > 0);
}

/// A client that takes nothing of what it asks for: nothing more is read of it, and nothing more is kept.
#[test]
fn clients_that_take_no_answers_are_not_read() {
    let server = deployed("events { worker_connections 4096; }", HTTP).start();
    let mut client = open(&server);
    client.get(1, "/");
    client.answer(1);
    let memory = rss_bytes(server.pid());
    let pings = Frames::frame(kind::PING, 0, 0, b"12345678").repeat(9_000);
    client.send(&pings);
    let mut other = open(&server);
    other.get(1, "/");
    assert_eq!(other.answer(1).text(), "here");
    let growth = rss_bytes(server.pid()).saturating_sub(memory);
    assert!(growth < GROWTH_MAX_BYTES, "{growth} bytes more");
    client.wait(|frames| frames.pongs == 9_000);
}

/// A head that does not come to its end holds its stream, and not the connection.
#[test]
fn late_heads_are_given_up() {
    let http = HTTP.replace("http2 on;", "http2 on; client_header_timeout 500ms;");
    let server = deployed("events { }", &http).start();
    let mut client = open(&server);
    let head = Frames::request(1, "GET", "/", &[], Rest::Ended);
    let (front, rest) = head.split_at(15);
    client.send(front);
    client.wait(|frames| frames.answers.get(&1).is_some_and(|answer| answer.end.is_some()));
    client.send(rest);
    client.get(3, "/");
    assert_eq!(client.answer(3).text(), "here");
    assert_eq!(counter(&server, "heads_late"), 1);
}
