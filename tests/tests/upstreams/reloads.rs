//! What of other servers a reload leaves alone.

use std::io::{Read, Write};
use std::net::TcpStream;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::config;
use crate::origins::{Dns, Origin, Zone, nobody, read_head};

/// A configuration that tells which it is.
fn numbered(number: u32, http: &str, locations: &str) -> String {
    let server = format!(
        "{http} server {{ listen 127.0.0.1:%%PORT%%;
             location = /number {{ return 200 {number}; }} {locations} }}"
    );
    config("events { }", &server)
}

fn reload(server: &mut Server, number: u32, http: &str, locations: &str) {
    server.configure(&numbered(number, http, locations));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/number").text() == number.to_string()));
}

#[test]
fn failures_begin_anew() {
    let (live, dead) = (Origin::named("here"), nobody());
    let http = format!(
        "upstream u {{ server 127.0.0.1:{dead} fail_timeout=1h; server 127.0.0.1:{} fail_timeout=1h; }}",
        live.port
    );
    let locations = "location / { proxy_pass http://u; }";
    let mut server = Setup::new(Binary::under_test(), &numbered(1, &http, locations)).start();
    let dead_asked = |server: &Server| server.access_log().matches(&format!("127.0.0.1:{dead}")).count();
    for _ in 0..6 {
        assert_eq!(server.get("/").text(), "here");
    }
    server.wait_lines("logs/access.log", "/ 200", 6);
    assert_eq!(dead_asked(&server), 1, "{}", server.access_log());
    reload(&mut server, 2, &http, locations);
    for _ in 0..6 {
        assert_eq!(server.get("/").text(), "here");
    }
    server.wait_lines("logs/access.log", "/ 200", 12);
    assert_eq!(dead_asked(&server), 2, "it is tried again: {}", server.access_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does not say whether a connection was there before")]
fn idle_connections_and_counts_stay() {
    let origin = Origin::named("here");
    let http = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let locations = "location / { add_header Reused $upstream_reused;
            add_header Times \"$upstream_wait_time $upstream_send_time\"; proxy_pass http://u; }
        location = /status { status prometheus; }";
    let mut server = Setup::new(Binary::under_test(), &numbered(1, &http, locations)).start();
    let first = server.get("/");
    assert_eq!(first.header("reused"), Some("0"));
    let times: Vec<f64> = first
        .header("times")
        .unwrap_or_default()
        .split(' ')
        .map(|time| time.parse().expect("seconds"))
        .collect();
    assert!(times.len() == 2 && times.iter().all(|time| (0.0..30.0).contains(time)), "{times:?}");
    for number in 2..5 {
        reload(&mut server, number, &http, locations);
        assert_eq!(server.get("/").header("reused"), Some("1"), "reload {number}");
    }
    assert_eq!(origin.accepted(), 1);
    let status = server.get("/status").text().to_owned();
    let counted = format!(
        "clearway_upstream_attempts_total{{upstream=\"u\",server=\"127.0.0.1:{}\",outcome=\"answered\"}} 4",
        origin.port
    );
    let pool = [
        "upstream_connections_total{upstream=\"u\",origin=\"idle\"} 3",
        "upstream_idle{upstream=\"u\"} 1",
        "upstream_idle_closed_total{upstream=\"u\",reason=\"server\"} 0",
    ];
    for counted in pool.into_iter().chain([&counted[..]]) {
        assert!(status.contains(counted), "{counted} is not in {status}");
    }
}

#[test]
fn what_names_have_led_to_is_known() {
    let origin = Origin::named("here");
    let dns = Dns::start(Zone { addresses: vec![("a.example", 1)], ttl_s: 200, ..Zone::default() });
    let http = format!(
        "resolver 127.0.0.1:{} ipv6=off; upstream u {{ zone u 1m; server a.example:{} resolve; }}",
        dns.port, origin.port
    );
    let locations = "location / { proxy_pass http://u; }";
    let mut server = Setup::new(Binary::under_test(), &numbered(1, &http, locations)).start();
    assert!(wait_until(PATIENCE, || server.get("/").text() == "here"));
    dns.change(|zone| zone.is_dead = true);
    reload(&mut server, 2, &http, locations);
    for _ in 0..10 {
        assert_eq!(server.get("/").text(), "here", "{}", server.error_log());
    }
}

#[test]
fn tunnels_stay() {
    let echo = Origin::start(|mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let mut part = [0; 64];
        while let Ok(size @ 1..) = stream.read(&mut part) {
            if stream.write_all(&part[..size]).is_err() {
                return;
            }
        }
    });
    let locations = format!(
        "location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}",
        echo.port
    );
    let mut server = Setup::new(Binary::under_test(), &numbered(1, "", &locations)).start();
    let mut tunnel = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    tunnel.set_read_timeout(Some(PATIENCE)).expect("a time");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    tunnel.write_all(request.as_bytes()).expect("it is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(tunnel.read(&mut byte).expect("a head comes"), 1);
        head.push(byte[0]);
    }
    for number in 2..6 {
        reload(&mut server, number, "", &locations);
        tunnel.write_all(b"hello").expect("it is open");
        let mut heard = [0; 5];
        tunnel.read_exact(&mut heard).expect("it is open");
        assert_eq!(&heard, b"hello", "reload {number}");
    }
}

#[test]
fn idle_connections_do_not_keep_a_server_that_quits() {
    let origin = Origin::named("here");
    let http = format!("upstream u {{ server 127.0.0.1:{}; keepalive 4; }}", origin.port);
    let locations = "location / { proxy_pass http://u; }";
    let mut server = Setup::new(Binary::under_test(), &numbered(1, &http, locations)).start();
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), "here");
    }
    assert_eq!(origin.accepted(), 1, "it stays open");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).is_some_and(|status| status.success()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn servers_that_were_found_healthy_need_not_be_checked_again() {
    let origin = Origin::named("here");
    let http = format!("upstream u {{ zone u 64k; server 127.0.0.1:{}; }}", origin.port);
    let locations = |check: &str| format!("location / {{ proxy_pass http://u; health_check {check}; }}");
    let first = locations("mandatory interval=100ms");
    let mut server = Setup::new(Binary::under_test(), &numbered(1, &http, &first)).start();
    assert!(wait_until(PATIENCE, || server.get("/").text() == "here"));
    // The first check of a configuration is hours away.
    reload(&mut server, 2, &http, &locations("mandatory persistent jitter=99h"));
    assert_eq!(server.get("/").text(), "here", "{}", server.error_log());
    reload(&mut server, 3, &http, &locations("mandatory jitter=99h"));
    assert_eq!(server.get("/").status, 502, "{}", server.error_log());
}
