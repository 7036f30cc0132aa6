//! Applications and memcached on connections that are kept: one on which something was wrong is not used
//! again, whatever the client was told.

use std::io::{Read, Write};
use std::net::TcpStream;

use clearway_testkit::Server;
use clearway_testkit::client::PATIENCE;

use crate::origins::Origin;
use crate::start;

/// What a connection answers further requests with.
const AGAIN: &str = "again";

/// Answers the first request of each connection so, and the others with `again`; a request ends with `end`.
fn lying(first: Vec<u8>, again: Vec<u8>, end: &'static [u8]) -> Origin {
    Origin::start(move |mut stream: TcpStream| {
        let mut answer = &first;
        let (mut input, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            input.extend_from_slice(&piece[..len]);
            if !input.ends_with(end) {
                continue;
            }
            input.clear();
            if stream.write_all(answer).is_err() {
                return;
            }
            answer = &again;
        }
    })
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// A response with this in its output, as it should be.
fn honest(output: &str) -> Vec<u8> {
    [record(6, output.as_bytes()), record(6, b""), record(3, &[0; 8])].concat()
}

/// What a request is answered with, as far as it goes.
fn ask(server: &Server, path: &str) -> String {
    let mut connection = server.connect();
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
    String::from_utf8_lossy(&connection.read_to_end(PATIENCE).0).into_owned()
}

/// Asks twice: whether the second request came on the connection of the first one, which is answered somehow.
fn uses_again(server: &Server, path: &str) -> bool {
    let first = ask(server, path);
    assert!(!first.contains(AGAIN), "{path}: {first}");
    ask(server, path).contains(AGAIN)
}

#[test]
fn applications_that_have_lied_are_left() {
    let head = "X-A: b\r\n\r\n";
    let begun = || record(6, b"Content-Length: 5\r\n\r\nhel");
    let plays: Vec<(&str, Vec<u8>, bool)> = vec![
        ("honest", honest(&format!("{head}hello")), true),
        ("honest_length", honest("Content-Length: 5\r\n\r\nhello"), true),
        ("more", [honest(head), record(6, b"more")].concat(), false),
        ("complaint", [honest(head), record(7, b"late")].concat(), false),
        ("second_end", [honest(head), record(3, &[0; 8])].concat(), false),
        ("rubbish", [honest(head), b"x".to_vec()].concat(), false),
        ("too_much", honest("Content-Length: 3\r\n\r\nhello"), false),
        ("body_of_none", honest("Status: 204\r\n\r\nhello"), false),
        ("version", [begun(), vec![2, 6, 0, 1, 0, 0, 0, 0]].concat(), false),
        ("kind", [begun(), vec![1, 11, 0, 1, 0, 0, 0, 0]].concat(), false),
        ("number", [begun(), vec![1, 6, 0, 2, 0, 0, 0, 0]].concat(), false),
        ("large_number", [begun(), vec![1, 6, 1, 1, 0, 0, 0, 0]].concat(), false),
        ("ends_in_head", record(3, &[0; 8]), false),
        ("closes_in_head", record(6, b""), false),
        ("endless_head", record(6, &[b'a'; 30_000]), false),
        ("nul", honest("X-A: b\0c\r\n\r\n"), false),
    ];
    let (mut groups, mut locations) = (String::new(), String::new());
    let mut origins = Vec::new();
    for (name, first, _) in &plays {
        let again = honest(&format!("{head}{AGAIN}"));
        let origin = lying(first.clone(), again, &[1, 5, 0, 1, 0, 0, 0, 0]);
        groups +=
            &format!("upstream {name} {{ server 127.0.0.1:{} max_fails=0; keepalive 4; }}\n", origin.port);
        locations += &format!("location /{name} {{ fastcgi_pass {name}; fastcgi_keep_conn on; }}\n");
        origins.push(origin);
    }
    let server = start(&groups, &format!("fastcgi_read_timeout 5s; {locations}"));
    for (name, _, is_kept) in &plays {
        assert_eq!(uses_again(&server, &format!("/{name}")), *is_kept, "{name}: {}", server.error_log());
    }
}

#[test]
fn memcached_that_has_lied_is_left() {
    let plays: [(&str, &str, bool); 12] = [
        ("honest", "VALUE KEY 0 5\r\nhello\r\nEND\r\n", true),
        ("empty", "VALUE KEY 0 0\r\n\r\nEND\r\n", true),
        ("nothing", "END\r\n", true),
        ("more", "VALUE KEY 0 5\r\nhello\r\nEND\r\nEND\r\n", false),
        ("too_short", "VALUE KEY 0 3\r\nhello\r\nEND\r\n", false),
        ("no_end", "VALUE KEY 0 5\r\nhello\r\nENT\r\n", false),
        ("other_key", "VALUE /x 0 5\r\nhello\r\nEND\r\n", false),
        ("no_number", "VALUE KEY 0 x\r\nhello\r\nEND\r\n", false),
        ("negative", "VALUE KEY 0 -1\r\nhello\r\nEND\r\n", false),
        ("huge", "VALUE KEY 0 99999999999999999999\r\nhello\r\nEND\r\n", false),
        ("error", "SERVER_ERROR out of memory\r\n", false),
        ("not_found_and_more", "END\r\nVALUE KEY 0 5\r\nhello\r\nEND\r\n", false),
    ];
    let (mut groups, mut locations) = (String::new(), String::new());
    let mut origins = Vec::new();
    for (name, first, _) in plays {
        let with_key = |text: &str| text.replace("KEY", &format!("/{name}")).into_bytes();
        let again = with_key(&format!("VALUE KEY 0 {}\r\n{AGAIN}\r\nEND\r\n", AGAIN.len()));
        let origin = lying(with_key(first), again, b"\r\n");
        groups +=
            &format!("upstream {name} {{ server 127.0.0.1:{} max_fails=0; keepalive 4; }}\n", origin.port);
        locations += &format!("location /{name} {{ set $memcached_key $uri; memcached_pass {name}; }}\n");
        origins.push(origin);
    }
    let server = start(&groups, &format!("memcached_read_timeout 5s; {locations}"));
    for (name, _, is_kept) in plays {
        assert_eq!(uses_again(&server, &format!("/{name}")), is_kept, "{name}: {}", server.error_log());
    }
}
