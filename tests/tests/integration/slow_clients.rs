//! Clients that do not take what another server has answered: it waits in memory, then in a file, and the
//! server that made it is free.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Connection, End, Server, wait_until};

use crate::deployed;

/// More than the sockets on the way take.
const BIG_BYTES: usize = 24 << 20;

/// How long it takes at least to see that something does not happen.
const MOMENT: Duration = Duration::from_millis(400);

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Bytes that are in order, or not.
fn body() -> Vec<u8> {
    (0..BIG_BYTES as u32 / 4).flat_map(u32::to_be_bytes).collect()
}

/// Answers one request, and says when all of that was taken.
fn origin() -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let (say, said) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        answer(&mut stream);
        // Nobody may want to know.
        let _ = say.send(());
    });
    (port, said)
}

fn answer(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&part[..count]),
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG_BYTES}\r\n\r\n");
    // A response that is cut is not taken.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body()));
}

fn start(port: u16, directives: &str) -> Server {
    let location = format!("location / {{ proxy_pass http://127.0.0.1:{port}; }}");
    let http = format!("server {{ listen 127.0.0.1:%%PORT%%; {directives} {location} }}");
    deployed("events { }", &http).start()
}

/// A client that has its head and does not go on.
fn begun(server: &Server) -> Connection {
    let mut connection = server.connect();
    connection.send(GET);
    assert_eq!(connection.next_event(PATIENCE), End::Data);
    connection
}

#[track_caller]
fn expect_all(mut connection: Connection) {
    let (received, end) = connection.read_to_end(PATIENCE);
    let head = received.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!((received.len() - head, end), (BIG_BYTES, End::Closed));
    assert!(received[head..] == body(), "in its order");
}

#[test]
fn what_a_client_does_not_take_is_put_aside() {
    let (port, taken) = origin();
    let server = start(port, "proxy_temp_path mine 1 2;");
    let connection = begun(&server);
    assert_eq!(taken.recv_timeout(PATIENCE), Ok(()), "nobody has to wait for the client");
    let log = server.wait_log("logs/error.log", "an upstream response is buffered to a temporary file ");
    assert!(log.contains("[warn] ") && log.contains("while reading upstream, client: 127.0.0.1"), "{log}");
    expect_all(connection);
}

#[test]
fn without_files_it_waits_at_its_server() {
    let (port, taken) = origin();
    let server = start(port, "proxy_max_temp_file_size 0;");
    let connection = begun(&server);
    assert_eq!(taken.recv_timeout(MOMENT), Err(RecvTimeoutError::Timeout));
    expect_all(connection);
    assert_eq!(taken.recv_timeout(PATIENCE), Ok(()));
    assert!(!server.error_log().contains("temporary file"));
}

#[test]
fn a_file_has_its_limit_and_is_used_again() {
    let (port, taken) = origin();
    let server = start(port, "proxy_temp_path mine; proxy_max_temp_file_size 100k;");
    let connection = begun(&server);
    assert_eq!(taken.recv_timeout(MOMENT), Err(RecvTimeoutError::Timeout));
    expect_all(connection);
    assert_eq!(taken.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn a_response_that_cannot_be_put_aside_is_cut() {
    let (port, _taken) = origin();
    let server = start(port, "proxy_temp_path mine;");
    let temp = server.prefix().join("mine");
    assert!(wait_until(PATIENCE, || temp.is_dir()), "made at the start");
    std::fs::remove_dir(&temp).expect("it is ours");
    let mut connection = begun(&server);
    let log = server.wait_log("logs/error.log", "[crit] ");
    assert!(log.contains(&format!("open() \"{}/0000000001\" failed (2: No such", temp.display())), "{log}");
    let (received, _) = connection.read_to_end(PATIENCE);
    assert!(received.len() < BIG_BYTES);
}
