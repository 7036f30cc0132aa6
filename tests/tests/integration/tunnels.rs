//! Connections that change to another protocol through the proxy (101), such as WebSockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use clearway_testkit::Server;
use clearway_testkit::client::PATIENCE;

use crate::deployed;

const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// Switches each connection to a protocol in which it says what it is told, but does not speak first.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&mut stream));
        }
    });
    port
}

fn serve(stream: &mut TcpStream) {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&part[..count]),
        }
    }
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    let mut written = stream.write_all(head.as_bytes());
    while let (Ok(()), Ok(count @ 1..)) = (&written, stream.read(&mut part)) {
        written = stream.write_all(&part[..count]);
    }
}

fn start() -> Server {
    let http = format!(
        "log_format line '$status $sent_http_connection $upstream_status'; access_log logs/tunnels.log line;
         server {{ listen 127.0.0.1:%%PORT%%;
             location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1;
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }}",
        echo()
    );
    deployed("events { }", &http).start()
}

/// Reads until what has come ends so.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> String {
    let mut received = Vec::new();
    while !received.ends_with(end) {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).expect("something comes");
        assert!(count > 0, "ended behind {}", received.escape_ascii());
        received.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// The client waits for the switch before it speaks, and the server waits for the client.
#[test]
fn the_switch_is_told_before_anybody_speaks() {
    let server = start();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.write_all(UPGRADE).expect("it is taken");
    let head = read_until(&mut stream, b"\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("\r\nUpgrade: echo\r\n"), "{head}");
    for said in ["one", "two", "three"] {
        stream.write_all(said.as_bytes()).expect("it is taken");
        assert_eq!(read_until(&mut stream, said.as_bytes()), said);
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(stream.read(&mut [0; 1]).expect("it ends"), 0);
    server.wait_log("logs/tunnels.log", "101 upgrade 101");
}
