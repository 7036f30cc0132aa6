//! Tunnels that clients ask for (CONNECT, `tunnel_pass`): bytes go both ways, whichever side speaks first;
//! times; and which other servers are tried.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use clearway_testkit::Server;
use clearway_testkit::client::PATIENCE;

use crate::origins::{Dns, FullQueue, Origin, Zone, nobody};
use crate::start;

/// Says what it is told, and nothing first.
fn echo() -> Origin {
    Origin::start(|mut stream| {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut part) {
            if stream.write_all(&part[..count]).is_err() {
                return;
            }
        }
    })
}

/// A tunnel that leads to a port, or what is said instead; `early` comes with the request.
fn open(server: &Server, to: &str, early: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n{early}");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("it answers"), 1, "{}", server.error_log());
        head.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&head).into_owned())
}

fn expect(stream: &mut TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    stream.read_exact(&mut received).expect("it comes");
    assert_eq!(String::from_utf8_lossy(&received), text);
}

fn expect_end(mut stream: TcpStream) {
    assert_eq!(stream.read(&mut [0; 1]).expect("it ends"), 0);
}

#[test]
fn bytes_go_both_ways() {
    let (echo, greeter) = (echo(), Origin::start(|mut stream| drop(stream.write_all(b"welcome"))));
    let server = start("", "tunnel_pass;");
    let (mut stream, head) = open(&server, &format!("127.0.0.1:{}", echo.port), "early");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(!head.contains("chunked") && !head.contains("Content-Type"), "{head}");
    expect(&mut stream, "early");
    for text in ["one", "two", &"x".repeat(3000)] {
        stream.write_all(text.as_bytes()).expect("it is taken");
        expect(&mut stream, text);
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    expect_end(stream);
    // The server speaks first, and closes.
    let (mut stream, _) = open(&server, &format!("127.0.0.1:{}", greeter.port), "");
    expect(&mut stream, "welcome");
    expect_end(stream);
    server.wait_log("logs/access.log", &format!("/ 200 127.0.0.1:{} 200", echo.port));
}

#[test]
fn much_goes_through_at_once() {
    const BYTES: usize = 8 << 20;
    let echo = echo();
    let server = start("", &format!("tunnel_pass 127.0.0.1:{}; tunnel_buffer_size 64k;", echo.port));
    let (mut stream, _) = open(&server, "a:1", "");
    let mut writing = stream.try_clone().expect("a second handle");
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 % 251) as u8).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || writing.write_all(&sent));
    let mut received = vec![0; BYTES];
    stream.read_exact(&mut received).expect("all of it comes back");
    assert!(received == data);
    writer.join().expect("it ends").expect("it is taken");
}

#[test]
fn silence_ends_a_tunnel() {
    let (silent, deaf) = (Origin::silent(), Origin::deaf());
    let server = start(
        "",
        &format!(
            "location / {{ tunnel_pass 127.0.0.1:{}; tunnel_read_timeout 300ms; }}
             if ($host = deaf) {{ rewrite ^ /deaf; }}
             location /deaf {{ tunnel_pass 127.0.0.1:{}; tunnel_send_timeout 300ms; }}",
            silent.port, deaf.port
        ),
    );
    let begun = Instant::now();
    let (stream, _) = open(&server, "silent:1", "");
    expect_end(stream);
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    let said = "upstream timed out (110: Connection timed out) while proxying upgraded connection, client";
    server.wait_log("logs/error.log", said);
    let (mut stream, _) = open(&server, "deaf:1", "");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time");
    // Until neither side has room any more; then the tunnel is cut.
    let piece = vec![b'x'; 1 << 20];
    while stream.write_all(&piece).is_ok() {}
    let is_cut = |server: &Server| server.error_log().matches(said).count() == 2;
    assert!(clearway_testkit::wait_until(PATIENCE, || is_cut(&server)), "{}", server.error_log());
}

#[test]
fn another_server_is_tried_before_there_is_a_tunnel() {
    let (echo, full, dead) = (echo(), FullQueue::start(), nobody());
    let servers =
        |first: u16| format!("server 127.0.0.1:{first} max_fails=0; server 127.0.0.1:{};", echo.port);
    let groups = format!("upstream dead {{ {} }} upstream full {{ {} }}", servers(dead), servers(full.port));
    let locations = "tunnel_connect_timeout 300ms;
        location / { tunnel_pass dead; }
        location /full { tunnel_pass full; } location /off { tunnel_pass dead; tunnel_next_upstream off; }
        location /once { tunnel_pass dead; tunnel_next_upstream_tries 1; }
        location /timeout { tunnel_pass dead; tunnel_next_upstream timeout; }
        location /error { tunnel_pass full; tunnel_next_upstream error; }
        rewrite ^ /$host;";
    let server = start(&groups, locations);
    for (host, status) in
        [("a", 200), ("full", 200), ("off", 502), ("once", 502), ("timeout", 502), ("error", 504)]
    {
        // Turns differ: each is asked until it has begun with the first one.
        let statuses: Vec<String> = (0..2).map(|_| open(&server, &format!("{host}:1"), "").1).collect();
        let expected = format!("HTTP/1.1 {status} ");
        assert!(statuses.iter().any(|head| head.starts_with(&expected)), "{host}: {statuses:?}");
        let is_expected = |head: &String| head.starts_with(&expected) || head.starts_with("HTTP/1.1 200 ");
        assert!(statuses.iter().all(is_expected), "{host}: {statuses:?}");
    }
}

#[test]
fn names_are_resolved() {
    let echo = echo();
    let dns = Dns::start(Zone { addresses: vec![("echo.test", 1)], ttl_s: 60, ..Zone::default() });
    let server =
        start(&format!("resolver 127.0.0.1:{} ipv6=off; resolver_timeout 5s;", dns.port), "tunnel_pass;");
    let (mut stream, _) = open(&server, &format!("echo.test:{}", echo.port), "hello");
    expect(&mut stream, "hello");
    let (_, head) = open(&server, "none.test:80", "");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}
