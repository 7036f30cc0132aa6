//! What clients send that nobody wants to read.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{End, Server};

use crate::deployed;

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; root site; location /ok { return 200 ok; } }";
const BIG_BYTES: usize = 24 << 20;

fn start() -> Server {
    deployed("events { }", HTTP).file("site/big", vec![b'x'; BIG_BYTES]).start()
}

/// What a client has sent that nobody reads would reset the connection when it is closed, and take the end of
/// the response along.
#[test]
fn who_sends_more_during_the_last_response_gets_all_of_it() {
    // More than both sockets take, so that the server waits in the middle of it, and learns of what comes.
    let server = start();
    let mut connection = server.connect();
    connection.send(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(connection.next_event(PATIENCE), End::Data);
    connection.wait_for_silence();
    connection.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    let (received, end) = connection.read_to_end(PATIENCE);
    assert_eq!(end, End::Closed);
    let head = received.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(received.len() - head, BIG_BYTES);
}

/// The answer is there before the body turns out to be broken.
#[test]
fn a_body_that_breaks_while_it_is_dropped_is_told_of() {
    let server = start();
    let mut connection = server.connect();
    let head = "POST /ok HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_eq!(connection.ask(head).text(), "ok");
    connection.send(b"zz\r\nGET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.read_to_end(PATIENCE).0, b"", "nothing is taken for a request");
    server.wait_log("logs/error.log", "client sent invalid chunked body, client: 127.0.0.1");
}
