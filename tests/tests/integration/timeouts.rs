//! Clients that are too slow, in every state a connection can be in.

use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{End, Server};

use crate::deployed;

const HTTP: &str = "
    client_header_timeout 1s;
    send_timeout 1s;
    keepalive_timeout 1s;
    server { listen %%PORT%%; root %%PREFIX%%/site; location /ok { return 200 ok; } }
    server { listen %%PORT2%%; keepalive_timeout 100s 7s; location /ok { return 200 ok; } }";
const ASK: &str = "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";
/// What the configuration says, less what a clock of milliseconds may round off.
const LIMIT: Duration = Duration::from_millis(990);
const BIG_BYTES: usize = 24 << 20;

fn start() -> Server {
    deployed("events { }", HTTP).file("site/big", vec![b'x'; BIG_BYTES]).start()
}

/// Sends and waits for the end, which comes when the time is over; nothing else must come. The default
/// of every time limit is longer than the patience of this test.
fn silent_close(server: &Server, data: &str) {
    let began = Instant::now();
    let mut connection = server.connect();
    connection.send(data.as_bytes());
    let (received, end) = connection.read_to_end(PATIENCE);
    assert_eq!((received.len(), end), (0, End::Closed), "after {data:?}");
    assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
}

#[test]
fn a_slow_head_is_closed_silently_and_logged_as_408() {
    let server = start();
    for data in ["GET /ok HT", "GET /ok HTTP/1.1\r\nHos", "GET /ok HTTP/1.1\r\nHost: a\r\n"] {
        silent_close(&server, data);
    }
    let log = server.wait_lines("logs/access.log", "\" 408 0 \"-\"", 3);
    assert_eq!(log.lines().count(), 3, "{log}");
}

#[test]
fn a_client_that_says_nothing_leaves_no_line() {
    let mut server = start();
    silent_close(&server, "");
    server.stop();
    assert_eq!(server.access_log(), "");
}

#[test]
fn dripping_does_not_help() {
    let server = start();
    let mut connection = server.connect();
    let mut end = End::Open;
    for byte in b"GET /ok HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
        connection.send(&[*byte]);
        end = connection.next_event(Duration::from_millis(100));
        if end != End::Open {
            break;
        }
    }
    assert_ne!(end, End::Open, "the time is for the whole head");
}

#[test]
fn an_idle_connection_is_closed() {
    let server = start();
    let mut connection = server.connect();
    let began = Instant::now();
    assert_eq!(connection.ask(ASK).text(), "ok");
    assert_eq!(connection.next_event(PATIENCE), End::Closed);
    assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
}

#[test]
fn an_idle_connection_lives_as_long_as_configured() {
    let server = start();
    let mut connection =
        clearway_testkit::Connection::open(&server.address_of("127.0.0.1:%%PORT2%%")).expect("it listens");
    let response = connection.ask(ASK);
    assert_eq!(response.header("keep-alive"), Some("timeout=7"));
    assert_eq!(connection.next_event(Duration::from_millis(2500)), End::Open);
    assert_eq!(connection.ask(ASK).text(), "ok");
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let server = start();
    let mut connection = server.connect();
    connection.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    let log = server.wait_log("logs/access.log", "GET /big");
    assert!(log.contains("\" 200 "), "{log}");
    let (data, end) = connection.read_to_end(PATIENCE);
    assert!(end != End::Open && data.len() < BIG_BYTES, "{end:?} after {} bytes", data.len());
    assert_eq!(server.get("/ok").text(), "ok");
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = start();
    for data in [
        "",
        "GET /ok HT",
        "GET /big HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /ok HTTP/1.1\r\nContent-Length: 9\r\n",
    ] {
        let mut connection = server.connect();
        connection.send(data.as_bytes());
    }
    assert_eq!(server.get("/ok").text(), "ok");
}
