//! Responses that end early (HEAD, 304, errors) while a mirrored request goes on in the background: they do
//! not wait for it, it runs to its end, and what follows on the connection waits for that. In nginx a
//! mirrored request that `limit_req` delays never goes on when the response has been sent, nor does the
//! connection.

use std::time::{Duration, Instant};

use clearway_testkit::{Answer, Binary, Connection, Server, Setup};

/// How long a mirrored request takes at least: each but the first waits for its turn.
const SLOW: Duration = Duration::from_millis(500);

const CONFIG: &str = "log_format main '$request_method $uri $status';
    limit_req_zone $server_port zone=slow:1m rate=2r/s;
    server { listen %%PORT%%; access_log logs/access.log main; root %%PREFIX%%/site;
    location / { mirror /mirror; }
    location = /mirror { log_subrequest on; limit_req zone=slow burst=100; try_files /none =404; }
    location = /plain { return 200 plain; } }";

/// Nothing where the server is an nginx.
fn start() -> Option<Server> {
    if !Binary::under_test().is_clearway() {
        return None;
    }
    let server = Setup::http(Binary::under_test(), CONFIG).file("site/a", "a file").start();
    // The next one has to wait.
    assert_eq!(server.get("/a").text(), "a file");
    server.wait_log("logs/access.log", "/mirror 404");
    Some(server)
}

fn answer(connection: &mut Connection, request: &str, answer: Answer) -> (u16, Vec<u8>) {
    connection.send(request.as_bytes());
    let response = connection.try_response(answer).expect("it is answered");
    (response.status, response.body)
}

/// Asks, and asks for something else on the same connection behind it.
fn play(request: &str, kind: Answer, wanted: (u16, &[u8])) {
    let Some(server) = start() else { return };
    let mut connection = server.connect();
    let since = Instant::now();
    let (status, body) = answer(&mut connection, request, kind);
    assert_eq!((status, &body[..wanted.1.len()]), wanted, "{}", request.escape_debug());
    let mirrored = server.lines("logs/access.log").matches("/mirror 404").count();
    assert_eq!(mirrored, 1, "{} waited for the mirrored request", request.escape_debug());
    let plain = "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(answer(&mut connection, plain, Answer::Whole), (200, b"plain".to_vec()));
    assert!(since.elapsed() * 2 > SLOW, "the next request has not waited");
    let method = request.split(' ').next().unwrap_or_default();
    let log = server.wait_lines("logs/access.log", "/mirror 404", 2);
    assert!(log.contains(&format!("{method} /mirror 404\n")), "{log}");
    server.wait_log("logs/access.log", "GET /plain 200");
}

#[test]
fn a_head_is_answered() {
    play("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n", Answer::HeadOnly, (200, b""));
}

#[test]
fn a_304_is_sent() {
    play("GET /a HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n", Answer::Whole, (304, b""));
}

#[test]
fn errors_are_sent() {
    play("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", Answer::Whole, (404, b"<html>"));
    let range = "GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=100-\r\n\r\n";
    play(range, Answer::Whole, (416, b"<html>"));
}

#[test]
fn a_412_is_sent_and_closes_the_connection_behind_the_mirrored_request() {
    let Some(server) = start() else { return };
    let mut connection = server.connect();
    let request = "GET /a HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n";
    assert_eq!(answer(&mut connection, request, Answer::Whole).0, 412);
    assert_eq!(server.lines("logs/access.log").matches("/mirror 404").count(), 1);
    let log = server.wait_lines("logs/access.log", "/mirror 404", 2);
    assert_eq!(log.matches("GET /mirror 404").count(), 2, "{log}");
    server.wait_log("logs/access.log", "GET /a 412");
}
