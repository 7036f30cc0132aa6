//! How a server ends: at once, or after what it has begun; and what it leaves behind.

use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::response::Answer;
use clearway_testkit::{Connection, End, Server, wait_until};
use rustix::process::Signal;

use crate::deployed;

const EVENTS: &str = "events { worker_connections 256; }";
const HTTP: &str = "server { listen %%PORT%%; root %%PREFIX%%/site; location /ok { return 200 ok; } }";
const BIG_BYTES: usize = 24 << 20;
const ASK_BIG: &[u8] = b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
const ASK: &str = "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";

fn start() -> Server {
    deployed(EVENTS, HTTP).file("site/big", vec![b'x'; BIG_BYTES]).start()
}

fn pid_in_file(server: &Server) -> u32 {
    wait_until(PATIENCE, || !server.read("nginx.pid").is_empty());
    server.read("nginx.pid").trim().parse().expect("the pid file holds a number")
}

#[test]
fn term_ends_at_once() {
    let mut server = start();
    let mut idle = server.connect();
    idle.ask(ASK);
    let mut slow = server.connect();
    slow.send(ASK_BIG);
    assert_eq!(slow.next_event(PATIENCE), End::Data);
    // The download would hold up a server that waited for it for `send_timeout`, a minute.
    assert_eq!(server.stop().code(), Some(0));
    assert_ne!(idle.next_event(PATIENCE), End::Data);
    let (data, end) = slow.read_to_end(PATIENCE);
    assert!(end != End::Open && data.len() < BIG_BYTES, "{end:?} after {} bytes", data.len());
}

#[test]
fn quit_finishes_what_has_begun() {
    let mut server = start();
    let mut idle = server.connect();
    idle.ask(ASK);
    let mut busy = server.connect();
    busy.send(ASK_BIG);
    assert_eq!(busy.next_event(PATIENCE), End::Data);
    server.signal(Signal::QUIT);
    assert_eq!(idle.next_event(PATIENCE), End::Closed, "idle connections are closed");
    let refused = wait_until(PATIENCE, || Connection::open(&server.address()).is_err());
    assert!(refused, "nothing listens any more");
    assert!(server.wait_exit(Duration::from_millis(100)).is_none(), "a response is still on its way");
    let response = busy.try_response(Answer::Whole).expect("the response is completed");
    assert_eq!(response.body.len(), BIG_BYTES);
    assert_eq!(busy.next_event(PATIENCE), End::Closed);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
    assert!(server.access_log().contains("\"GET /big HTTP/1.1\" 200"), "{}", server.access_log());
}

#[test]
fn quit_without_work_ends_at_once() {
    let mut server = start();
    server.signal(Signal::QUIT);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
}

#[test]
fn the_pid_file_is_there_while_it_runs() {
    let mut server = start();
    assert_eq!(pid_in_file(&server), server.pid());
    server.stop();
    assert!(!server.prefix().join("nginx.pid").exists());
}

#[test]
fn int_is_term() {
    let mut server = start();
    server.signal(Signal::INT);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
}

#[test]
fn quit_in_one_process() {
    let main = format!("master_process off;\n{EVENTS}");
    let mut server = deployed(&main, HTTP).start();
    assert_eq!(server.get("/ok").text(), "ok");
    server.signal(Signal::QUIT);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
}
