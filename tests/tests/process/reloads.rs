//! What a reload changes, and what it leaves alone.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::is_running;
use clearway_testkit::{Connection, End, Server, wait_until};
use rustix::process::Signal;

use crate::{config, is_clearway, setup};

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn http(body: &str) -> String {
    format!("server {{ listen 127.0.0.1:%%PORT%%; root site; location = / {{ return 200 {body}; }} }}")
}

/// Reads the configuration anew and waits until it answers like this.
fn reload(server: &mut Server, config: &str, body: &str) {
    let before = server.workers();
    server.configure(config);
    server.signal(Signal::HUP);
    let there = wait_until(PATIENCE, || server.get("/").text() == body);
    assert!(there, "no {body:?}: {}", server.described());
    if !is_clearway() {
        // The old workers of nginx may take a connection or two after that.
        assert!(wait_until(PATIENCE, || !server.workers().iter().any(|pid| before.contains(pid))));
    }
}

#[test]
fn a_configuration_that_fails_to_load_changes_nothing_and_says_why() {
    let mut server = setup("", &http("old")).start();
    let mut kept = server.connect();
    assert_eq!(kept.ask(ASK).text(), "old");
    let worker = server.worker();
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = taken.local_addr().expect("it is bound").port();
    let broken = [
        (http("new; nonsense"), "unknown directive \"nonsense\" in ".to_owned()),
        (http("new") + "server {", "unexpected end of file, expecting \"}\" in ".to_owned()),
        (
            format!("server {{ listen 127.0.0.1:{port}; }}{}", http("new")),
            "still could not bind()".to_owned(),
        ),
        (
            format!("access_log none/a.log;{}", http("new")),
            "/none/a.log\" failed (2: No such file".to_owned(),
        ),
        (format!("include none.conf;{}", http("new")), "/none.conf\" failed (2: No such file".to_owned()),
    ];
    for (number, (http, said)) in broken.iter().enumerate() {
        server.configure(&config("", http));
        server.signal(Signal::HUP);
        let log = server.wait_log("logs/error.log", said);
        server.wait_lines("logs/error.log", "reconfiguring", number + 1);
        assert!(log.lines().any(|line| line.contains("[emerg]") && line.contains(said)), "{log}");
        assert_eq!(server.get("/").text(), "old");
        assert_eq!(kept.ask(ASK).text(), "old", "kept connections are not disturbed");
    }
    assert_eq!(server.workers(), [worker], "nor is the worker");
    assert!(wait_until(PATIENCE, || server.pid_file() == Some(server.pid())));
    reload(&mut server, &config("", &http("new")), "new");
}

#[test]
fn many_signals_at_once_end_in_the_last_configuration() {
    let mut server = setup("", &http("0")).start();
    server.worker();
    for number in 1..=20 {
        server.configure(&config("", &http(&number.to_string())));
        server.signal(Signal::HUP);
    }
    assert!(wait_until(PATIENCE, || server.get("/").text() == "20"), "{}", server.described());
    assert!(wait_until(PATIENCE, || server.workers().len() == 1), "{}", server.described());
}

#[test]
fn a_download_that_has_begun_goes_on() {
    let big = vec![b'x'; 24 << 20];
    let mut server = setup("", &http("old")).file("site/big", big.clone()).start();
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(busy.next_event(PATIENCE), End::Data);
    for body in ["new", "newer"] {
        reload(&mut server, &config("", &http(body)), body);
    }
    // The listener is gone, what came over it is not.
    let moved = http("elsewhere").replace("%%PORT%%", "%%PORT2%%");
    server.configure(&config("", &moved));
    server.signal(Signal::HUP);
    let refused = wait_until(PATIENCE, || Connection::open(&server.address()).is_err());
    assert!(refused, "{}", server.described());
    assert!(busy.response().body == big);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "every reload of nginx starts workers")]
fn the_worker_stays_unless_it_must_change() {
    let mut server = setup("", &http("old")).start();
    let mut kept = server.connect();
    assert_eq!(kept.ask(ASK).text(), "old");
    let worker = server.worker();
    reload(&mut server, &config("", &http("new")), "new");
    assert_eq!(server.workers(), [worker]);
    assert_eq!(kept.ask(ASK).text(), "new", "a kept connection has the new configuration");
    reload(&mut server, &config("env CLEARWAY_TEST=1;", &http("newer")), "newer");
    assert!(wait_until(PATIENCE, || !is_running(worker)), "the old worker ends: {}", server.described());
    assert_ne!(server.worker(), worker);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn connections_that_ask_for_nothing_end_with_the_shutdown_timeout() {
    let main = "worker_shutdown_timeout 2s;";
    let mut server = setup(main, &http("old")).start();
    let (mut silent, mut busy) = (server.connect(), server.connect());
    assert_eq!((silent.ask(ASK).text(), busy.ask(ASK).text()), ("old".to_owned(), "old".to_owned()));
    let began = Instant::now();
    server.configure(&config(main, &http("new")));
    server.signal(Signal::HUP);
    // It asks all the time, so that it has asked before the two seconds are over.
    assert!(wait_until(PATIENCE, || busy.ask(ASK).text() == "new"), "{}", server.described());
    assert_eq!(silent.next_event(PATIENCE), End::Closed);
    assert!(began.elapsed() >= Duration::from_millis(1990), "{:?}", began.elapsed());
    assert_eq!(busy.ask(ASK).text(), "new", "it has asked since the reload");
}

#[test]
fn logs_are_opened_anew() {
    let mut server = setup("", &http("old")).start();
    assert_eq!(server.get("/").text(), "old");
    server.wait_log("logs/access.log", "GET / ");
    for log in ["access", "error"] {
        let at = |name: &str| server.prefix().join(format!("logs/{name}.log"));
        std::fs::rename(at(log), at(&format!("{log}.1"))).expect("it is there");
    }
    reload(&mut server, &config("", &http("new")), "new");
    let moved = wait_until(PATIENCE, || {
        assert_eq!(server.get("/").text(), "new");
        server.lines("logs/access.log").contains("GET / ")
    });
    assert!(moved, "{}", server.described());
    let before = server.read("logs/access.1.log");
    let lines = server.lines("logs/access.log").lines().count();
    assert_eq!(server.get("/").text(), "new");
    server.wait_lines("logs/access.log", "GET / ", lines + 1);
    assert_eq!(server.read("logs/access.1.log"), before, "nothing more goes to the old file");
}

#[test]
fn without_workers_what_comes_waits_for_a_configuration_that_has_some() {
    let with = |number: &str, body: &str| {
        config("", &http(body)).replace("worker_processes 1;", &format!("worker_processes {number};"))
    };
    let binary = clearway_testkit::Binary::under_test();
    let mut server = clearway_testkit::Setup::new(binary, &with("0", "none")).start();
    assert!(wait_until(PATIENCE, || server.pid_file() == Some(server.pid())));
    assert_eq!(server.workers(), []);
    let mut waiting = server.connect();
    waiting.send(ASK.as_bytes());
    reload(&mut server, &with("2", "some"), "some");
    assert_eq!(waiting.response().text(), "some");
    server.configure(&with("0", "none"));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.workers().is_empty()), "{}", server.described());
    let mut waiting = server.connect();
    waiting.send(ASK.as_bytes());
    reload(&mut server, &with("1", "one"), "one");
    assert_eq!(waiting.response().text(), "one");
    assert_eq!(server.stop().code(), Some(0));
}
