//! No descriptor is left for the connection to a server.

use std::fs;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Connection, End, Server, Setup, wait_until};

use crate::config;
use crate::origins::Origin;

const LIMIT: usize = 96;

/// What takes one descriptor for as long as its client stays.
const HALF: &[u8] = b"POST /live HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";

/// What takes two.
const WHOLE: &[u8] = b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n";

fn open_files(server: &Server) -> usize {
    let worker = server.worker();
    fs::read_dir(format!("/proc/{worker}/fd")).map_or(0, Iterator::count)
}

fn client(server: &Server, request: &[u8]) -> Connection {
    let mut client = server.connect();
    client.send(request);
    client
}

/// Fills the table of open files behind so many clients that take one of them: how many requests were
/// answered for want of a socket.
fn fill(server: &Server, halves: usize) -> usize {
    const FULL: &str = "(24: Too many open files)";
    let before = server.error_log().matches(FULL).count();
    let mut held: Vec<Connection> = (0..halves).map(|_| client(server, HALF)).collect();
    held.extend((0..LIMIT / 2).map(|_| client(server, WHOLE)));
    assert!(wait_until(PATIENCE, || server.error_log().matches(FULL).count() > before));
    let failed = held.iter_mut().filter_map(|client| {
        let answered = client.next_event(Duration::from_millis(2)) == End::Data;
        answered.then(|| assert_eq!(client.response().status, 500))
    });
    failed.count()
}

#[test]
fn a_request_without_a_socket_is_answered_and_the_next_ones_served() {
    let (silent, named) = (Origin::silent(), Origin::named("here"));
    let http = format!(
        "server {{ listen 127.0.0.1:%%PORT%%;
             location /hang {{ proxy_pass http://127.0.0.1:{}; }}
             location /live {{ proxy_pass http://127.0.0.1:{}; }} }}",
        silent.port, named.port
    );
    let main = format!("worker_rlimit_nofile {LIMIT}; events {{ worker_connections 512; }}");
    let server = Setup::new(Binary::under_test(), &config(&main, &http)).start();
    assert_eq!(server.get("/live").text(), "here");
    let idle = open_files(&server);
    // Whether the last descriptor is that of a client or that of a server depends on how many there are.
    let mut failed = 0;
    for halves in [0, 1, 0, 1] {
        failed += fill(&server, halves);
        // A loop that has failed to accept rests for half a second.
        assert!(wait_until(PATIENCE, || open_files(&server) <= idle + 4), "{}", open_files(&server));
        assert_eq!(server.get("/live").text(), "here");
    }
    assert!(failed > 0, "no request was without a socket: {}", server.error_log());
    let said = "socket() failed (24: Too many open files) while connecting to upstream";
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(said)).expect("it is there");
    assert!(line.contains("[alert]") && line.contains(", upstream: \"http://127.0.0.1:"), "{line}");
}
