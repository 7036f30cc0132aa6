//! Every time that the proxy waits for at most.

use std::io::Write;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};

use crate::origins::{Dns, FullQueue, Origin, Zone, nobody, read_head};
use crate::start;

const TIMED_OUT: &str = "upstream timed out (110: Connection timed out) while";

/// A GET that ends with a status, no sooner than `least`; every other time of the server is a minute.
fn expect(server: &Server, path: &str, status: u16, least: Duration) {
    let begun = Instant::now();
    assert_eq!(server.get(path).status, status, "{path}: {}", server.error_log());
    assert!(begun.elapsed() >= least, "{path} after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(25), "{path} after {:?}", begun.elapsed());
}

const LIMIT: Duration = Duration::from_millis(300);
/// What a clock of milliseconds may round off.
const LEAST: Duration = Duration::from_millis(290);

#[test]
fn a_server_that_cannot_be_connected_to() {
    let full = FullQueue::start();
    let pass = format!("proxy_connect_timeout 300ms; proxy_pass http://127.0.0.1:{};", full.port);
    let server = start("", &format!("location / {{ {pass} }}"));
    expect(&server, "/connect", 504, LEAST);
    server.wait_log("logs/error.log", &format!("{TIMED_OUT} connecting to upstream"));
    server.wait_log("logs/access.log", &format!("/connect 504 127.0.0.1:{} 504", full.port));
}

#[test]
fn a_server_that_does_not_take_the_request() {
    let origin = Origin::deaf();
    let pass = format!("proxy_send_timeout 300ms; proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start("", &format!("client_max_body_size 64m; location / {{ {pass} }}"));
    let mut client = server.connect();
    let body = vec![b'x'; 32 << 20];
    let head = format!("POST /send HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), &body].concat());
    assert_eq!(client.response().status, 504);
    server.wait_log("logs/error.log", &format!("{TIMED_OUT} sending request to upstream"));
}

#[test]
fn a_server_that_does_not_answer() {
    let origin = Origin::silent();
    let pass = format!("proxy_read_timeout 300ms; proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start("", &format!("location / {{ {pass} }}"));
    expect(&server, "/head", 504, LEAST);
    server.wait_log("logs/error.log", &format!("{TIMED_OUT} reading response header from upstream"));
}

#[test]
fn a_server_whose_head_comes_byte_by_byte() {
    let head = Origin::start(|mut stream| {
        if read_head(&mut stream) {
            let _ = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".iter().try_for_each(|&byte| {
                std::thread::sleep(Duration::from_millis(100));
                stream.write_all(&[byte])
            });
        }
    });
    // Of the body each part may take that long.
    let body = Origin::start(|mut stream| {
        if read_head(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n");
            (0..12).for_each(|_| {
                std::thread::sleep(Duration::from_millis(100));
                let _ = stream.write_all(b"x");
            });
        }
    });
    let locations = format!(
        "proxy_read_timeout 1s;
         location /head {{ proxy_pass http://127.0.0.1:{}; }}
         location /body {{ proxy_pass http://127.0.0.1:{}; }}",
        head.port, body.port
    );
    let server = start("", &locations);
    expect(&server, "/head", 504, Duration::from_millis(990));
    assert_eq!(server.get("/body").text(), "xxxxxxxxxxxx");
    server.wait_log("logs/error.log", &format!("{TIMED_OUT} reading response header from upstream"));
}

#[test]
fn a_server_that_stops_in_the_head_or_the_body() {
    let in_head = Origin::saying("HTTP/1.1 200 OK\r\nContent-Le");
    let in_body = Origin::saying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let in_chunk = Origin::saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc");
    let locations = format!(
        "proxy_read_timeout 300ms;
         location /head {{ proxy_pass http://127.0.0.1:{}; }}
         location /body {{ proxy_pass http://127.0.0.1:{}; }}
         location /chunk {{ proxy_pass http://127.0.0.1:{}; }}",
        in_head.port, in_body.port, in_chunk.port
    );
    let server = start("", &locations);
    expect(&server, "/head", 504, LEAST);
    for (count, path) in [(1, "/body"), (2, "/chunk")] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let (received, end) = client.read_to_end(PATIENCE);
        let received = String::from_utf8_lossy(&received);
        assert_ne!(end, clearway_testkit::End::Open, "{path}");
        assert!(received.starts_with("HTTP/1.1 200 OK\r\n"), "{received}");
        assert!(!received.ends_with("0\r\n\r\n"), "it is not complete: {received}");
        server.wait_lines("logs/error.log", &format!("{TIMED_OUT} reading upstream"), count);
    }
}

#[test]
fn a_name_server_that_does_not_answer() {
    let dns = Dns::start(Zone { is_dead: true, ..Zone::default() });
    let locations = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 300ms;
         location / {{ set $name a.example; proxy_pass http://$name:1; }}",
        dns.port
    );
    let server = start("", &locations);
    expect(&server, "/name", 502, LEAST);
    server.wait_log("logs/error.log", "a.example could not be resolved (110: Operation timed out)");
}

/// Three servers, of which each takes its time; how many were asked.
fn asked(server: &Server, path: &str) -> usize {
    assert!(wait_until(PATIENCE, || server.access_log().contains(path)));
    let log = server.access_log();
    let line = log.lines().find(|line| line.starts_with(path)).expect("it is there").to_owned();
    line.matches("127.0.0.1:").count()
}

#[test]
fn how_often_and_for_how_long_other_servers_are_asked() {
    let silent = [Origin::silent(), Origin::silent(), Origin::silent()];
    let group = |name: &str, ports: [u16; 3]| {
        let servers = ports.map(|port| format!("server 127.0.0.1:{port} max_fails=0;"));
        format!("upstream {name} {{ {} }}", servers.concat())
    };
    let http = group("slow", [0, 1, 2].map(|at: usize| silent[at].port))
        + &group("none", [nobody(), nobody(), nobody()]);
    let locations = "
        location = /all { proxy_pass http://none; }
        location = /tries { proxy_next_upstream_tries 2; proxy_pass http://none; }
        location = /off { proxy_next_upstream off; proxy_pass http://none; }
        location = /slow { proxy_read_timeout 300ms; proxy_pass http://slow; }
        location = /time { proxy_read_timeout 300ms; proxy_next_upstream_timeout 500ms;
            proxy_pass http://slow; }
        location = /post { proxy_read_timeout 300ms; proxy_pass http://slow; }";
    let server = start(&http, locations);
    for (path, status, count, limits) in [
        ("/all", 502, 3, 0),
        ("/tries", 502, 2, 0),
        ("/off", 502, 1, 0),
        ("/slow", 504, 3, 3),
        // The second attempt has begun in time, and takes its own; there is no third.
        ("/time", 504, 2, 2),
    ] {
        expect(&server, path, status, LEAST * limits);
        assert_eq!(asked(&server, path), count, "{path}: {}", server.access_log());
    }
    // What was sent and changes something is not sent again.
    let begun = Instant::now();
    let mut client = server.connect();
    let response = client.ask("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!((response.status, asked(&server, "/post")), (504, 1));
    assert!(begun.elapsed() >= LIMIT - Duration::from_millis(10));
}
