//! Running out: of descriptors, and of `worker_connections`. Others go on, the log says so once in a
//! while, nothing spins, and everything recovers.

use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::{cpu_time, family};
use clearway_testkit::{Answer, Connection, End, Server, wait_until};

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

    let before = (Instant::now(), cpu(&server), server.error_log().matches("[crit]").count());
    thread::sleep(Duration::from_secs(2));
    let spent = cpu(&server) - before.1;
    let lines = server.error_log().matches("[crit]").count() - before.2;
    let took = before.0.elapsed();
    let seconds = usize::try_from(took.as_secs()).expect("a test is short");
    assert!(spent * 4 < took, "accepting is paused, but {spent:?} of CPU in {took:?} went somewhere");
    assert!(lines <= 3 * (seconds + 1), "{lines} lines in {seconds} seconds");
    server.wait_log("logs/error.log", "[crit]");

    drop(waiting);
    assert_eq!(server.get("/").text(), "ok", "accepting goes on");
    let mut again: Vec<Connection> = (0..50).map(|_| server.connect()).collect();
    for connection in &mut again {
        assert_eq!(connection.ask(ASK).text(), "ok");
    }
}

#[test]
fn out_of_worker_connections() {
    let http =
        "server { listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site; location = /ok { return 200 ok; } }";
    let server =
        deployed("events { worker_connections 16; }", http).file("site/big", vec![b'x'; 24 << 20]).start();
    // Downloads that are not read: none of these connections is idle.
    let mut downloads: Vec<(Connection, End)> = Vec::new();
    for _ in 0..30 {
        let mut connection = server.connect();
        connection.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        let end = connection.next_event(PATIENCE);
        downloads.push((connection, end));
    }
    let served = downloads.iter().filter(|(_, end)| *end == End::Data).count();
    assert!((8..=16).contains(&served), "{served} downloads at once");
    assert!(downloads.iter().all(|(_, end)| *end != End::Open), "nobody is left waiting");
    let log = server.wait_log("logs/error.log", "16 worker_connections are not enough");
    let alert =
        |line: &str| line.contains("[alert]") && line.ends_with("16 worker_connections are not enough");
    assert!(log.lines().any(alert), "{log}");

    drop(downloads);
    let recovered = wait_until(PATIENCE, || {
        let mut connection = server.connect();
        connection.send(b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.try_response(Answer::Whole).is_ok()
    });
    assert!(recovered, "connections are taken again");
}

/// A poll ends after a number of operations; whatever it did last, reading or answering, the next goes on.
#[test]
fn many_requests_at_once_are_answered() {
    let server = deployed("events { }", HTTP).start();
    // Lengths that buffers are filled with exactly, and others.
    for length in [64, 100, 128, 250, 256, 500, 512, 1000, 1024, 2048] {
        let bare = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
        let request = bare.replace("X: ", &format!("X: {}", "x".repeat(length - bare.len())));
        assert_eq!(request.len(), length);
        let mut connection = server.connect();
        connection.send(request.repeat(600).as_bytes());
        for number in 0..600 {
            let response = connection.response();
            assert_eq!(response.text(), "ok", "answer {number} to requests of {length} bytes");
        }
    }
}

/// CPU time that pages with so many commands take.
fn cpu_of_pages(server: &Server, path: &str, pages: usize) -> Duration {
    let before = cpu(server);
    for _ in 0..pages {
        assert_eq!(server.get(path).status, 200);
    }
    cpu(server) - before
}

/// What a document includes is looked at when its turn is near, however many wait behind it.
#[test]
fn a_long_document_takes_no_more_for_each_command_than_a_short_one() {
    let (short, long) = (1000, 60_000);
    let include = "<!--#include virtual=\"/in\" -->";
    let http = "server { listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site; location / { ssi on; }
        location = /in { return 200 x; } }";
    let server = deployed("events { }", http)
        .file("site/short.html", include.repeat(short))
        .file("site/long.html", include.repeat(long))
        .start();
    assert_eq!(server.get("/long.html").text().len(), long);
    let of_short = cpu_of_pages(&server, "/short.html", long / short);
    let of_long = cpu_of_pages(&server, "/long.html", 1);
    // Sixty times as much where each looks through those behind it; caches are worth half on a busy machine.
    assert!(of_long < of_short * 5, "{of_long:?}, as many in short ones {of_short:?}");
}

/// Tasks that the loops and their helpers have polled.
fn polls(server: &Server) -> u64 {
    let page = server.get("/status").text();
    let counters = ["clearway_loop_polls_total", "clearway_helped_polls_total"];
    let lines = page.lines().filter(|line| counters.iter().any(|counter| line.starts_with(counter)));
    lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a number")).sum()
}

/// Its commands are executed in many polls, so that no other request waits for all of them.
#[test]
fn a_long_document_has_others_take_turns() {
    let commands = 2000;
    let http = "server { listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site; location / { ssi on; }
        location = /status { status prometheus; } }";
    // All of it is read at once.
    let document = "<!--#echo var='uri' -->".repeat(commands);
    let server = deployed("events { }", http).file("site/a.html", document).start();
    let before = polls(&server);
    assert_eq!(server.get("/a.html").text(), "/a.html".repeat(commands));
    let polls = polls(&server) - before;
    assert!(polls >= 10, "{polls} polls");
}
