//! An upstream server that closes its connections behind its answers without saying so: what cannot be asked
//! twice is answered all the same, and asked once.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use clearway_testkit::Server;

use crate::deployed;

const CLIENTS: usize = 8;
const REQUESTS: usize = 150;
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";

/// How often each request came.
type Seen = Arc<Mutex<HashMap<String, usize>>>;

/// Answers one request per connection, and closes.
fn origin(seen: &Seen) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let seen = Arc::clone(seen);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                if let Some(line) = first_line(&mut stream) {
                    *seen.lock().expect("no panic").entry(line).or_default() += 1;
                    let _ = stream.write_all(ANSWER.as_bytes());
                }
            });
        }
    });
    port
}

/// Of a request that has come whole.
fn first_line(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    let is_whole = |request: &[u8]| {
        let end: &[u8] = if request.starts_with(b"GET") { b"\r\n\r\n" } else { b"\r\n\r\nbody" };
        request.ends_with(end)
    };
    while !is_whole(&request) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(count) => request.extend_from_slice(&part[..count]),
        }
    }
    let end = request.iter().position(|&byte| byte == b'\r')?;
    Some(String::from_utf8_lossy(&request[..end]).into_owned())
}

fn start(origin: u16) -> Server {
    let http = format!(
        "upstream hasty {{ server 127.0.0.1:{origin}; keepalive 32; }}
         server {{ listen 127.0.0.1:%%PORT%%; keepalive_requests 100000;
             location / {{ proxy_pass http://hasty; proxy_http_version 1.1;
                 proxy_set_header Connection ''; }} }}"
    );
    deployed("events { }", &http).start()
}

/// One client after the other of its requests, on one connection: the answers that were not 200.
fn ask(server: &Server, client: usize, method: &str) -> Vec<String> {
    let mut connection = server.connect();
    let answers = (0..REQUESTS).map(|number| {
        let head = format!("{method} /{method}{client}-{number} HTTP/1.1\r\nHost: a\r\n");
        let body = if method == "GET" { "\r\n" } else { "Content-Length: 4\r\n\r\nbody" };
        let answer = connection.ask(&format!("{head}{body}"));
        format!("{} {}", answer.status, answer.text())
    });
    answers.filter(|answer| answer != "200 done").collect()
}

#[test]
fn what_cannot_be_repeated_is_asked_once_and_answered() {
    let seen = Seen::default();
    let server = start(origin(&seen));
    let failed: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, method) = (&server, if client % 4 == 0 { "GET" } else { "POST" });
                scope.spawn(move || ask(server, client, method))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    });
    assert!(failed.is_empty(), "{failed:?}\n{}", server.error_log());
    let seen = seen.lock().expect("no panic");
    let posts = seen.iter().filter(|(line, _)| line.starts_with("POST"));
    assert!(posts.clone().all(|(_, times)| *times == 1), "no request came twice");
    assert_eq!(posts.count(), CLIENTS * 3 / 4 * REQUESTS);
}
