//! Groups of servers that heal: weights that rise, requests that wait for a server.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearway_testkit::client::{Connection, PATIENCE};
use clearway_testkit::{Server, wait_until};

use crate::origins::{Origin, answer, read_head};
use crate::start;

/// One that closes connections without a word while it is broken.
fn breakable(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let is_broken = Arc::<AtomicBool>::default();
    let broken = Arc::clone(&is_broken);
    let origin = Origin::start(move |stream: TcpStream| {
        if !broken.load(Ordering::SeqCst) {
            answer_one(stream, name);
        }
    });
    (origin, is_broken)
}

/// Answers one request and closes.
fn answer_one(mut stream: TcpStream, name: &str) {
    use std::io::Write;
    if read_head(&mut stream) {
        let text =
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        let _ = stream.write_all(text.as_bytes());
    }
}

/// The part that "a" has of the answers of some time.
fn part_of_a(server: &Server, client: &mut Connection, time: Duration) -> f64 {
    let end = Instant::now() + time;
    let (mut all, mut of_a) = (0, 0);
    while Instant::now() < end {
        let text = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text();
        assert!(text == "a" || text == "b", "{text}: {}", server.error_log());
        (all, of_a) = (all + 1, of_a + i32::from(text == "a"));
        std::thread::sleep(Duration::from_millis(2));
    }
    f64::from(of_a) / f64::from(all)
}

/// Of a server that is there again, right then and some seconds later.
fn parts_behind_a_failure(parameter: &str) -> (f64, f64) {
    let ((one, is_broken), (other, _)) = (breakable("a"), breakable("b"));
    let (one, other) = (one.port, other.port);
    let http = format!(
        "upstream u {{ server 127.0.0.1:{one} fail_timeout=1s {parameter}; server 127.0.0.1:{other}; }}"
    );
    let server = start(&http, "keepalive_requests 100000; location / { proxy_pass http://u; }");
    is_broken.store(true, Ordering::SeqCst);
    let mut client = server.connect();
    let part = part_of_a(&server, &mut client, Duration::from_millis(200));
    assert!(part < 0.01, "{part}");
    is_broken.store(false, Ordering::SeqCst);
    assert!(wait_until(PATIENCE, || client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text() == "a"));
    let at_first = part_of_a(&server, &mut client, Duration::from_millis(800));
    std::thread::sleep(Duration::from_millis(4000));
    part_of_a(&server, &mut client, Duration::from_millis(100));
    (at_first, part_of_a(&server, &mut client, Duration::from_millis(800)))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such parameter")]
fn a_server_that_comes_back_gets_its_part_by_and_by() {
    let (at_first, later) = parts_behind_a_failure("slow_start=4s");
    assert!(at_first < 0.25, "{at_first}");
    assert!((0.4..0.6).contains(&later), "{later}");
    let (at_once, later) = parts_behind_a_failure("");
    assert!((0.4..0.6).contains(&at_once) && (0.4..0.6).contains(&later), "{at_once} {later}");
}

/// One that answers a request when it is told to.
fn gated() -> (Origin, Sender<()>) {
    let (open, gate) = channel();
    let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
    let origin = Origin::start(move |stream: TcpStream| {
        let is_told = || gate.lock().expect("nobody panics").recv().is_ok();
        if is_told() {
            answer(stream, "here");
        }
    });
    (origin, open)
}

fn ask(server: &Server, path: &str) -> Connection {
    let mut client = server.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    client
}

fn status(server: &Server) -> String {
    server.get("/status").text()
}

fn waits_for(server: &Server, counted: &str) {
    assert!(wait_until(PATIENCE, || status(server).contains(counted)), "{counted}: {}", status(server));
}

const LOCATIONS: &str = "location / { add_header Queued $upstream_queue_time; proxy_pass http://u; }
    location = /status { status prometheus; }";

fn one_at_a_time(origin: &Origin, queue: &str) -> Server {
    let http = format!(
        "upstream u {{ zone u 64k; server 127.0.0.1:{} max_conns=1; keepalive 0; {queue} }}",
        origin.port
    );
    start(&http, LOCATIONS)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no queue")]
fn requests_wait_for_a_server_in_their_order() {
    let (origin, open) = gated();
    let server = one_at_a_time(&origin, "queue 3;");
    let mut first = ask(&server, "/1");
    assert!(wait_until(PATIENCE, || origin.accepted() == 1));
    let mut others = Vec::new();
    for number in 1..=3 {
        others.push(ask(&server, &format!("/{}", number + 1)));
        waits_for(&server, &format!("clearway_upstream_queued{{upstream=\"u\"}} {number}\n"));
    }
    assert_eq!(server.get("/5").status, 502);
    server.wait_log("logs/error.log", "upstream queue is full while connecting to upstream");
    // One of them leaves.
    drop(others.remove(1));
    server.wait_log("logs/access.log", "/3 499 u ");
    waits_for(&server, "clearway_upstream_queued{upstream=\"u\"} 2\n");
    let mut last = ask(&server, "/6");
    waits_for(&server, "clearway_upstream_queued{upstream=\"u\"} 3\n");
    open.send(()).expect("it listens");
    let response = first.response();
    assert_eq!((response.text(), response.header("queued")), ("here".to_owned(), Some("-")));
    (0..3).for_each(|_| open.send(()).expect("it listens"));
    for client in others.iter_mut().chain([&mut last]) {
        let response = client.response();
        assert_eq!(response.text(), "here", "{}", server.error_log());
        let waited: f64 = response.header("queued").unwrap_or_default().parse().expect("seconds");
        assert!(waited > 0.0 && waited < 60.0, "{waited}");
    }
    server.wait_log("logs/access.log", "/4 200 ");
    let log = server.wait_log("logs/access.log", "/6 200 ");
    let mut order: Vec<_> =
        log.lines().filter(|line| line.contains(" 200 127.")).map(|line| &line[..2]).collect();
    if cfg!(chaos_lend) {
        // Two that are called at the same moment may look in any order where their polls are lent.
        order.sort_unstable();
    }
    assert_eq!(order, ["/1", "/2", "/4", "/6"], "{log}");
    for (outcome, count) in [("served", 3), ("full", 1), ("left", 1), ("timed_out", 0)] {
        waits_for(
            &server,
            &format!("upstream_queue_total{{upstream=\"u\",outcome=\"{outcome}\"}} {count}\n"),
        );
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no queue")]
fn requests_wait_for_no_longer_than_is_said() {
    let (origin, open) = gated();
    let server = one_at_a_time(&origin, "queue 3 timeout=300ms;");
    let mut first = ask(&server, "/1");
    assert!(wait_until(PATIENCE, || origin.accepted() == 1));
    let began = Instant::now();
    let response = server.get("/2");
    assert_eq!(response.status, 502);
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    server.wait_log("logs/error.log", "upstream queue timed out while connecting to upstream");
    waits_for(&server, "upstream_queue_total{upstream=\"u\",outcome=\"timed_out\"} 1\n");
    open.send(()).expect("it listens");
    assert_eq!(first.response().text(), "here");
}

/// Nothing says so when its `fail_timeout` is over.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no queue")]
fn requests_wait_for_servers_that_have_failed() {
    let ((one, is_broken), (other, _)) = (breakable("a"), breakable("b"));
    let http = format!(
        "upstream u {{ server 127.0.0.1:{} fail_timeout=1s; server 127.0.0.1:{} down; queue 3; }}",
        one.port, other.port
    );
    let server = start(&http, LOCATIONS);
    is_broken.store(true, Ordering::SeqCst);
    assert_eq!(server.get("/").status, 502);
    is_broken.store(false, Ordering::SeqCst);
    let response = server.get("/");
    assert_eq!((response.status, response.text()), (200, "a".to_owned()), "{}", server.error_log());
    assert_ne!(response.header("queued"), Some("-"));
}

/// What three of ten servers do.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Errors,
    Silence,
    Slowness,
}

/// How long the slow ones take.
const SLOW: Duration = Duration::from_millis(400);

fn troubled(trouble: Trouble) -> Origin {
    Origin::start(move |mut stream: TcpStream| {
        use std::io::Write;
        while read_head(&mut stream) {
            match trouble {
                Trouble::Errors => {
                    let _ = stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
                }
                Trouble::Silence => {}
                Trouble::Slowness => {
                    std::thread::sleep(SLOW);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            }
        }
    })
}

/// How many of 480 requests fail, or take as long as the slow servers.
fn suffering(trouble: Trouble, directive: &str) -> usize {
    let origins: Vec<Origin> =
        (0..10).map(|number| if number < 3 { troubled(trouble) } else { Origin::named("ok") }).collect();
    let servers = origins.iter().map(|it| format!("server 127.0.0.1:{} max_fails=0;", it.port));
    let http = format!("upstream u {{ {} {directive} }}", servers.collect::<String>());
    let locations = "proxy_next_upstream off; proxy_read_timeout 300ms;
        location / { proxy_pass http://u; } location = /status { status prometheus; }";
    // Slow servers are no failures.
    let locations = match trouble {
        Trouble::Slowness => locations.replace("300ms", "10s"),
        Trouble::Errors | Trouble::Silence => locations.to_owned(),
    };
    let server = start(&http, &locations);
    let suffers = |client: &mut Connection| {
        let began = Instant::now();
        let status = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status;
        status != 200 || began.elapsed() >= SLOW
    };
    let suffered = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|_| {
                let mut client = server.connect();
                scope.spawn(move || (0..40).filter(|_| suffers(&mut client)).count())
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it asks")).sum()
    });
    if !directive.is_empty() {
        let ejected = status(&server);
        let ejected = ejected.lines().filter(|line| line.starts_with("clearway_upstream_ejected{"));
        let away: Vec<_> = ejected.filter(|line| line.ends_with(" 1")).collect();
        for origin in &origins[..3] {
            let name = format!("127.0.0.1:{}\"", origin.port);
            assert!(away.iter().any(|line| line.contains(&name)), "{away:?}: {}", server.error_log());
        }
        server.wait_log("logs/error.log", ", left alone for 10s while connecting to upstream");
    }
    suffered
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does not compare servers")]
fn three_of_ten_servers_in_trouble_are_found_out() {
    for trouble in [Trouble::Errors, Trouble::Silence, Trouble::Slowness] {
        let without = suffering(trouble, "");
        let with = suffering(trouble, "upstream_ejection on fails=3 slow=4;");
        assert!(without >= 96, "{trouble:?} {without}");
        assert!(with * 2 < without, "{trouble:?} {with} {without}");
    }
}
