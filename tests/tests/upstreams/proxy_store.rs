//! Responses that are kept as files (`proxy_store`): a file has its name when it is complete, or never.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{End, Server, wait_until};

use crate::origins::{Origin, read_head};
use crate::start;

const FIRST: &[u8] = &[b'1'; 100_000];
const SECOND: &[u8] = &[b'2'; 100_000];

/// Sends a head and half of a body, waits to be told, and goes on as `end` says.
fn half(head: &'static str, end: fn(TcpStream)) -> (Origin, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let origin = Origin::start(move |mut stream| {
        if read_head(&mut stream) {
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(FIRST);
            let _ = wait.lock().expect("nobody panics").recv_timeout(PATIENCE);
            end(stream);
        }
    });
    (origin, go)
}

fn keeping(origin: &Origin) -> Server {
    let pass = format!(
        "proxy_temp_path %%PREFIX%%/waiting;
             proxy_store %%PREFIX%%/kept$uri; proxy_pass http://127.0.0.1:{};",
        origin.port
    );
    // Little is kept in memory, so that a file is begun.
    start("", &format!("location / {{ proxy_buffers 4 4k; proxy_buffer_size 4k; {pass} }}"))
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => files(&path),
        path => vec![path],
    });
    below.collect()
}

/// Asks, and takes what there is of the response.
fn ask(server: &Server) -> clearway_testkit::Connection {
    let mut client = server.connect();
    client.send(b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.next_event(PATIENCE), End::Data);
    client
}

#[test]
fn a_response_is_kept_although_its_client_leaves() {
    let (origin, go) = half("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", |mut stream| {
        let _ = stream.write_all(SECOND);
    });
    let server = keeping(&origin);
    let kept = server.prefix().join("kept/page");
    let client = ask(&server);
    assert!(!kept.exists(), "it is not complete");
    drop(client);
    go.send(()).expect("it is waited for");
    assert!(wait_until(PATIENCE, || kept.exists()), "{}", server.error_log());
    assert!(std::fs::read(&kept).expect("it is there") == [FIRST, SECOND].concat(), "it is whole");
    assert!(wait_until(PATIENCE, || files(&server.prefix().join("waiting")).is_empty()));
}

#[test]
fn no_half_file_is_left_of_a_response_that_is_cut() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n";
    let reset = |stream: TcpStream| {
        let linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&stream, linger).expect("it is a socket");
    };
    for (head, end) in [(LENGTH, drop as fn(TcpStream)), (CHUNKED, drop), (LENGTH, reset), (CHUNKED, reset)] {
        let (origin, go) = half(head, end);
        let server = keeping(&origin);
        let mut client = ask(&server);
        go.send(()).expect("it is waited for");
        assert_ne!(client.read_to_end(PATIENCE).1, End::Open);
        server.wait_log("logs/access.log", "/page 200 ");
        let empty = || files(&server.prefix().join("waiting")).is_empty();
        assert!(wait_until(PATIENCE, empty), "{head:?}: {}", server.error_log());
        assert!(!server.prefix().join("kept/page").exists(), "{head:?}");
    }
}
