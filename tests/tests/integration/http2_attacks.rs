//! What clients of HTTP/2 may do to a server, each known attack against the limit that meets it: the limit is
//! counted, memory is bounded, and others are served meanwhile.

use std::time::{Duration, Instant};

use clearway_h2::connection::{RESETS_MAX, USELESS_FRAMES_MAX};
use clearway_h2::frame::{Rest, kind};
use clearway_h2::settings::Settings;
use clearway_testkit::Server;
use clearway_testkit::http2::{Frames, Http2};
use clearway_testkit::process::rss_bytes;
use clearway_testkit::proofs::{ATTACKS, Attack, BATCH, BATCHES_MAX};

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
/// How long another request may take meanwhile, in a build without optimization on a busy machine.
const OTHERS_MAX: Duration = Duration::from_secs(10);
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
        // Where handlers end late, streams that are over already count as open, and others are refused.
        let counted = || counter(&server, limit) + counter(&server, "refusals");
        let (before, memory) = (counted(), rss_bytes(server.pid()));
        attack(&server, case);
        assert!(counted() > before, "{name}: {limit} is not counted");
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
