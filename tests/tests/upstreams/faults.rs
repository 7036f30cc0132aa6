//! Servers that hang, reset and close connections where it hurts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clearway_testkit::End;
use clearway_testkit::client::PATIENCE;

use crate::origins::{Origin, nobody, read_head};
use crate::start;

/// An origin that says this to each request and resets the connection.
fn resetting(text: &'static str) -> Origin {
    Origin::start(move |mut stream| {
        if read_head(&mut stream) {
            let _ = stream.write_all(text.as_bytes());
            // What was said has arrived, as both ends are on one machine.
            reset(&stream);
        }
    })
}

fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("it is a socket");
}

/// A group of the faulty server and a sound one.
fn group(name: &str, faulty: &Origin, sound: &Origin) -> String {
    let (faulty, sound) = (faulty.port, sound.port);
    format!("upstream {name} {{ server 127.0.0.1:{faulty}; server 127.0.0.1:{sound}; }}")
}

#[test]
fn no_get_fails_where_one_of_two_servers_hangs_or_resets() {
    let sound = Origin::named("here");
    let faulty = [
        ("hangs", Origin::silent()),
        ("accepts", Origin::deaf()),
        ("resets", resetting("")),
        ("in_head", resetting("HTTP/1.1 200 OK\r\nContent-Le")),
    ];
    let groups = faulty.iter().map(|(name, origin)| group(name, origin, &sound));
    let locations =
        faulty.iter().map(|(name, _)| format!("location /{name} {{ proxy_pass http://{name}; }}\n"));
    let (groups, locations): (String, String) = (groups.collect(), locations.collect());
    let server = start(&groups, &format!("proxy_read_timeout 300ms; {locations}"));
    for (name, _) in &faulty {
        for number in 0..4 {
            let response = server.get(&format!("/{name}/{number}"));
            assert_eq!(response.text(), "here", "/{name}: {}", server.error_log());
        }
        // The first one has met it, and left it alone for the others.
        let log = server.wait_log("logs/access.log", &format!("/{name}/3 "));
        let tried: Vec<_> = log.lines().filter(|line| line.starts_with(&format!("/{name}/"))).collect();
        assert_eq!(tried.iter().filter(|line| line.contains(", ")).count(), 1, "{tried:?}");
    }
    for said in [
        "upstream timed out (110: Connection timed out) while reading response header from upstream",
        "recv() failed (104: Connection reset by peer) while reading response header from upstream",
    ] {
        server.wait_log("logs/error.log", said);
    }
}

#[test]
fn a_response_that_is_reset_ends_early_and_nothing_else() {
    let faulty = [
        ("/length", resetting("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")),
        ("/chunk", resetting("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc")),
        ("/last", resetting("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")),
        ("/close", resetting("HTTP/1.1 200 OK\r\n\r\nabc")),
    ];
    let sound = Origin::named("here");
    let mut locations = format!("location / {{ proxy_pass http://127.0.0.1:{}; }}", sound.port);
    for (path, origin) in &faulty {
        for buffering in ["on", "off"] {
            locations += &format!(
                "location {path}/{buffering} {{ proxy_buffering {buffering};
                     proxy_pass http://127.0.0.1:{}; }}\n",
                origin.port
            );
        }
    }
    let server = start("", &locations);
    let mut count = 0;
    for path in
        faulty.iter().flat_map(|(path, _)| ["on", "off"].map(|buffering| format!("{path}/{buffering}")))
    {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let (received, end) = client.read_to_end(PATIENCE);
        let received = String::from_utf8_lossy(&received);
        assert_ne!(end, End::Open, "{path}");
        // How much there is of a response that is cut is chance.
        assert!(received.is_empty() || received.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {received}");
        assert!(!received.ends_with("\r\n0\r\n\r\n"), "{path} is not complete: {received}");
        count += 1;
        server.wait_lines(
            "logs/error.log",
            "failed (104: Connection reset by peer) while reading upstream",
            count,
        );
        assert_eq!(server.get("/").text(), "here");
    }
}

/// An origin that closes each connection as soon as it has answered, but does not say so.
fn closing(asked: &Arc<AtomicUsize>) -> Origin {
    let asked = Arc::clone(asked);
    Origin::start(move |mut stream| {
        if read_head(&mut stream) && stream.read_exact(&mut [0; 4]).is_ok() {
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    })
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx answers some with 502")]
fn no_post_fails_on_connections_that_were_just_closed() {
    let asked = Arc::<AtomicUsize>::default();
    let origin = closing(&asked);
    let http = format!("upstream u {{ server 127.0.0.1:{}; keepalive 8; }}", origin.port);
    let server = start(&http, "location / { proxy_pass http://u; }");
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for round in 0..25 {
        clients.iter_mut().for_each(|client| client.send(post));
        for client in &mut clients {
            assert_eq!(client.response().status, 200, "round {round}: {}", server.error_log());
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), 100, "each was asked once");
}

/// The last bytes may come while those before are read: what the loop is told of them then is old.
#[test]
fn a_connection_is_kept_in_whatever_pieces_its_response_came() {
    let origin = Origin::start(|mut stream| {
        let _ = stream.set_nodelay(true);
        while read_head(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n");
            for piece in [40_000, 8000, 17_000, 536] {
                let _ = stream.write_all(&vec![b'x'; piece]);
                std::thread::yield_now();
            }
        }
    });
    let http = format!(
        "proxy_cache_path %%PREFIX%%/cache keys_zone=c:1m;
         upstream u {{ server 127.0.0.1:{}; keepalive 8; }}",
        origin.port
    );
    let proxy = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://u;";
    let locations = format!(
        "location / {{ {proxy} }} location /unbuffered {{ {proxy} proxy_buffering off; }}
         location /kept {{ {proxy} proxy_cache c; proxy_cache_valid 1h; }}"
    );
    let server = start(&http, &locations);
    for round in 0..100 {
        for path in ["/", "/unbuffered", "/kept"] {
            assert_eq!(server.get(&format!("{path}/{round}")).body.len(), 65_536);
        }
    }
    // One that is still in use when the next request comes gets company.
    assert!(origin.accepted() <= 24, "{} connections for 300 requests", origin.accepted());
}

/// Ten further attempts are there in any case, and one more for each ten requests.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such budget")]
fn further_attempts_are_as_many_as_the_budget_says() {
    let (first, second) = (nobody(), nobody());
    let servers = format!("server 127.0.0.1:{first} max_fails=0; server 127.0.0.1:{second} max_fails=0;");
    let http = format!(
        "upstream_retry_budget 10%; upstream limited {{ {servers} }}
         upstream unlimited {{ {servers} upstream_retry_budget off; }}"
    );
    let locations =
        ["limited", "unlimited"].map(|name| format!("location /{name} {{ proxy_pass http://{name}; }}"));
    let server = start(&http, &locations.concat());
    for (path, attempts) in [("/limited", 30 + 13), ("/unlimited", 60)] {
        (0..30).for_each(|_| assert_eq!(server.get(path).status, 502));
        let log = server.wait_lines("logs/access.log", &format!("{path} 502 "), 30);
        let lines = log.lines().filter(|line| line.starts_with(&format!("{path} ")));
        let made: usize = lines.map(|line| line.matches("127.0.0.1:").count()).sum();
        assert_eq!(made, attempts, "{log}");
    }
}

#[test]
fn a_tunnel_whose_server_resets_it_ends() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello";
    let origin = Origin::start(|mut stream| {
        if read_head(&mut stream) {
            let _ = stream.write_all(SWITCH.as_bytes());
            // It is a tunnel when what follows the head comes.
            let _ = stream.read_exact(&mut [0; 4]);
            reset(&stream);
        }
    });
    let upgrade = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
    let pass = format!("{upgrade} proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start("", &format!("location / {{ {pass} }}"));
    let mut client = server.connect();
    client.send(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nmore");
    assert_ne!(client.read_to_end(PATIENCE).1, End::Open);
    let said = "recv() failed (104: Connection reset by peer) while proxying upgraded connection";
    let log = server.wait_log("logs/error.log", said);
    assert!(log.lines().any(|line| line.contains("[error]") && line.contains(said)), "{log}");
    server.wait_log("logs/access.log", "/tunnel 101 ");
}
