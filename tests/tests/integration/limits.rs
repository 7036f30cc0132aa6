//! Running out: of descriptors, and of `worker_connections`. Others go on, the log says so once in a
//! while, nothing spins, and everything recovers.

use std::thread;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::{cpu_time, family};
use clearway_testkit::{Connection, End, Server, wait_until};

use crate::deployed;

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; location / { return 200 ok; } }";
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Opens connections that have begun a request, so that the server may not close them as idle.
fn begun(server: &Server, count: usize) -> Vec<Connection> {
    (0..count)
        .map(|_| {
            let mut connection = server.connect();
            connection.send(b"GET / HT");
            connection
        })
        .collect()
}

fn cpu(server: &Server) -> Duration {
    family(server.pid()).into_iter().map(cpu_time).sum()
}

#[test]
fn out_of_descriptors() {
    let limit = "ulimit -n 128; exec \"$@\"";
    let server =
        deployed("events { worker_connections 512; }", HTTP).through(&["sh", "-c", limit, "sh"]).start();
    let mut first = server.connect();
    assert_eq!(first.ask(ASK).text(), "ok");
    let waiting = begun(&server, 200);
    server.wait_log("logs/error.log", "accept4() failed (24: Too many open files)");
    assert_eq!(first.ask(ASK).text(), "ok", "what is open goes on");

    let before = (cpu(&server), server.error_log().matches("[crit]").count());
    thread::sleep(Duration::from_secs(2));
    let spent = cpu(&server) - before.0;
    let lines = server.error_log().matches("[crit]").count() - before.1;
    assert!(spent < Duration::from_millis(300), "accepting is paused, but {spent:?} of CPU went somewhere");
    assert!(lines <= 6, "{lines} lines in two seconds");
    assert!(server.error_log().contains("[crit]"));

    drop(waiting);
    assert_eq!(server.get("/").text(), "ok", "accepting goes on");
    let mut again: Vec<Connection> = (0..50).map(|_| server.connect()).collect();
    for connection in &mut again {
        assert_eq!(connection.ask(ASK).text(), "ok");
    }
}

#[test]
fn out_of_worker_connections() {
    let server = deployed("events { worker_connections 16; }", HTTP).start();
    let mut waiting = begun(&server, 40);
    let log = server.wait_log("logs/error.log", "16 worker_connections are not enough");
    assert!(log.lines().any(|line| line.contains("[alert]") && line.contains("are not enough")), "{log}");
    let closed = waiting
        .iter_mut()
        .filter_map(|c| (c.next_event(Duration::from_millis(50)) != End::Open).then_some(()));
    assert!(closed.count() >= 20, "more than 16 connections are held");
    drop(waiting);
    let served = wait_until(PATIENCE, || {
        let mut connection = server.connect();
        connection.send(ASK.as_bytes());
        connection.try_response(clearway_testkit::Answer::Whole).is_ok()
    });
    assert!(served, "connections are taken again");
}

#[test]
fn idle_connections_make_room() {
    let server = deployed("events { worker_connections 16; }", HTTP).start();
    let mut idle: Vec<Connection> = Vec::new();
    for _ in 0..60 {
        let mut connection = server.connect();
        assert_eq!(connection.ask(ASK).text(), "ok");
        idle.push(connection);
    }
    let first = &mut idle[0];
    assert_eq!(first.next_event(PATIENCE), End::Closed, "the oldest idle connection had to go");
}
