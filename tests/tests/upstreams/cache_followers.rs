//! Responses that are kept (`proxy_cache`) while several ask for them: which request waits for which.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Answer, Connection, End, Server, wait_until};

use crate::origins::{Origin, read_head, read_request};
use crate::start;

/// Soon enough not to have waited for anything.
const SOON: Duration = Duration::from_millis(400);

/// Answers requests one after the other, with what stands here; each answer behind the first waits to be let
/// go.
fn stepwise(answers: &'static [&'static str]) -> (Origin, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (go, wait) = mpsc::channel();
    let (wait, asked) = (Arc::new(Mutex::new(wait)), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&asked);
    let origin = Origin::start(move |mut stream| {
        while read_head(&mut stream) {
            let number = count.fetch_add(1, Ordering::SeqCst);
            if number > 0 {
                let _ = wait.lock().expect("nobody panics").recv_timeout(PATIENCE);
            }
            let answer = answers[number.min(answers.len() - 1)];
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (origin, go, asked)
}

/// Too old at once.
const OLD: &str = "HTTP/1.1 200 OK\r\nX-Accel-Expires: @1\r\nContent-Length: 5\r\n\r\nfirst";
const NEW: &str = "HTTP/1.1 200 OK\r\nX-Accel-Expires: 60\r\nContent-Length: 6\r\n\r\nsecond";

fn caching(origin: &Origin, more: &str) -> Server {
    let path = "proxy_cache_path %%PREFIX%%/cache levels=1:2 keys_zone=one:1m;";
    let pass = format!("proxy_pass http://127.0.0.1:{};", origin.port);
    start(
        path,
        &format!(
            "add_header X-Cache $upstream_cache_status;
            location / {{ proxy_cache one; proxy_cache_key $uri; {more} {pass} }}
            location /plain {{ return 200 plain; }} location /metrics {{ status; }}"
        ),
    )
}

fn ask(client: &mut Connection, path: &str) -> (String, String) {
    let response = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    (response.header("X-Cache").unwrap_or("-").to_owned(), response.text())
}

fn said(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx's connections wait for it")]
fn what_is_renewed_behind_a_response_holds_nothing_up() {
    let (origin, go, asked) = stepwise(&[OLD, NEW]);
    let server = caching(&origin, "proxy_cache_background_update on; proxy_cache_use_stale updating;");
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "/page"), said("MISS", "first"));
    assert_eq!(ask(&mut client, "/page"), said("STALE", "first"));
    assert!(wait_until(PATIENCE, || asked.load(Ordering::SeqCst) == 2), "it is being renewed");
    let since = Instant::now();
    assert_eq!(ask(&mut client, "/plain"), said("-", "plain"));
    assert_eq!(ask(&mut client, "/page"), said("UPDATING", "first"));
    client.send(b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\nGET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "plain");
    assert_eq!(client.response().text(), "first");
    server.wait_log("logs/access.log", "/page 200 - -");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(since.elapsed() < PATIENCE, "it was not waited for");
    go.send(()).expect("it is waited for");
    assert!(wait_until(PATIENCE, || ask(&mut client, "/page") == said("HIT", "second")));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx's connections wait for it")]
fn pipelines_go_on_beside_what_is_renewed_and_connections_end_behind_it() {
    let (origin, go, asked) = stepwise(&[OLD, NEW]);
    let server = caching(&origin, "proxy_cache_background_update on; proxy_cache_use_stale updating;");
    assert_eq!(server.get("/page").text(), "first");
    let mut client = server.connect();
    client.send(
        b"GET /page HTTP/1.1\r\nHost: a\r\n\r\nGET /plain HTTP/1.1\r\nHost: a\r\n\r\n\
          GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    let texts = [client.response().text(), client.response().text(), client.response().text()];
    assert_eq!(texts, ["first", "plain", "first"]);
    assert!(wait_until(PATIENCE, || asked.load(Ordering::SeqCst) == 2), "it is being renewed");
    go.send(()).expect("it is waited for");
    assert_eq!(client.next_event(PATIENCE), End::Closed);
    assert_eq!(server.get("/page").text(), "second", "a client that has seen the end finds it");
    let log = server.wait_lines("logs/access.log", "/page 200", 4);
    assert_eq!(log.matches("/plain 200").count(), 1, "{log}");
}

const HALF: usize = 100_000;

/// Sends a head and half of a body, waits to be let go, and sends the rest.
fn halves(head: &'static str) -> (Origin, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let origin = Origin::start(move |mut stream: TcpStream| {
        while read_head(&mut stream) {
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&[b'1'; HALF]);
            let _ = wait.lock().expect("nobody panics").recv_timeout(PATIENCE);
            let _ = stream.write_all(&[b'2'; HALF]);
        }
    });
    (origin, go)
}

const KEPT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\nX-Accel-Expires: 60\r\n\r\n";

#[test]
fn a_head_does_not_wait_for_the_body_that_is_fetched_with_it() {
    let (origin, go) = halves(KEPT);
    let server = caching(&origin, "");
    let mut client = server.connect();
    client.send(b"HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.try_response(Answer::HeadOnly).expect("the head has come");
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("200000")));
    go.send(()).expect("it is waited for");
    assert!(wait_until(PATIENCE, || ask(&mut client, "/page").0 == "HIT"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx's followers wait for the end")]
fn all_that_wait_are_sent_what_comes() {
    const CLIENTS: usize = 20;
    let (origin, go) = halves(KEPT);
    let server =
        caching(&origin, "proxy_cache_lock on; proxy_cache_lock_timeout 30s; proxy_cache_lock_age 30s;");
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.next_event(PATIENCE), End::Data, "the first half goes to all");
    }
    go.send(()).expect("it is waited for");
    let whole = [[b'1'; HALF], [b'2'; HALF]].concat();
    for client in &mut clients {
        assert!(client.response().body == whole, "each has all of it");
    }
    assert_eq!(origin.accepted(), 1);
}

/// Sends half of a body, waits to be let go, and leaves. Asked for a part it sends that, with this line among
/// those of both heads.
fn broken_off(line: &'static str) -> (Origin, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let origin = Origin::start(move |mut stream: TcpStream| {
        while let Some(head) = read_request(&mut stream) {
            let first = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
            let Some(first) = first.and_then(|range| range.split('-').next()?.parse::<usize>().ok()) else {
                let head = KEPT.replace("\r\n\r\n", &format!("\r\n{line}\r\n"));
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&[b'1'; HALF]);
                let _ = wait.lock().expect("nobody panics").recv_timeout(PATIENCE);
                return;
            };
            let (length, last) = (2 * HALF - first, 2 * HALF - 1);
            let head = format!(
                "HTTP/1.1 206 Part\r\nContent-Length: {length}\r\n\
                 Content-Range: bytes {first}-{last}/{}\r\n{line}\r\n",
                2 * HALF
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&[[b'1'; HALF], [b'2'; HALF]].concat()[first..]);
        }
    });
    (origin, go)
}

/// What came to the first client, and to those that followed it, when the server breaks off.
fn followed(line: &'static str) -> (Server, Vec<(Vec<u8>, End)>) {
    const CLIENTS: usize = 5;
    let (origin, go) = broken_off(line);
    let server =
        caching(&origin, "proxy_cache_lock on; proxy_cache_lock_timeout 30s; proxy_cache_lock_age 30s;");
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.next_event(PATIENCE), End::Data, "the first half goes to all");
    }
    go.send(()).expect("it is waited for");
    let received = clients.iter_mut().map(|client| {
        let (received, end) = client.read_to_end(PATIENCE);
        let start = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        (received[start..].to_vec(), end)
    });
    let received = received.collect();
    (server, received)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx's followers wait for the end")]
fn what_is_followed_and_breaks_off_is_asked_for_from_there_on() {
    let (server, received) = followed("ETag: \"v1\"\r\n");
    let whole = [[b'1'; HALF], [b'2'; HALF]].concat();
    assert!(received[0].0.len() < whole.len(), "the first client has what its server has sent");
    for (number, (body, _)) in received[1..].iter().enumerate() {
        assert!(*body == whole, "follower {number} has {} bytes", body.len());
    }
    let log = server.lines("logs/error.log");
    assert_eq!(log.matches("the rest of a cached response is fetched from byte").count(), 4, "{log}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx's followers wait for the end")]
fn what_is_followed_and_breaks_off_is_cut_without_a_validator() {
    let (server, received) = followed("");
    for (body, _) in received {
        assert!(body.len() < 2 * HALF && body.iter().all(|&byte| byte == b'1'));
    }
    server.wait_log("logs/error.log", "upstream response that is followed has ended early");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx lets them go one after the other")]
fn nobody_waits_for_what_is_not_kept() {
    const CLIENTS: usize = 20;
    let origin = Origin::start(|mut stream| {
        while read_head(&mut stream) {
            std::thread::sleep(SOON / 4);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\nno";
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let server = caching(&origin, "proxy_cache_lock on; proxy_cache_valid 1m;");
    let since = Instant::now();
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().text(), "no");
    }
    let one_by_one = SOON / 4 * CLIENTS as u32;
    assert!(since.elapsed() < one_by_one, "{:?}", since.elapsed());
}

/// Jobs that the pool of the cache's disk has done.
fn jobs_of_disk(server: &Server) -> u64 {
    let metrics = server.get("/metrics").text();
    let line =
        metrics.lines().find(|line| line.contains("pool_service_seconds_count") && line.contains("cache "));
    let count = line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("{metrics}"))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "it has no pool for a disk")]
fn a_page_is_made_written_and_published_by_one_job() {
    const PAGES: u64 = 50;
    let page: &'static str = {
        let head = "HTTP/1.1 200 OK\r\nX-Accel-Expires: 60\r\nContent-Length: 60000\r\n\r\n";
        Box::leak(format!("{head}{}", "p".repeat(60_000)).into_boxed_str())
    };
    let origin = Origin::start(
        move |mut stream| {
            while read_head(&mut stream) && stream.write_all(page.as_bytes()).is_ok() {}
        },
    );
    let server = caching(&origin, "proxy_http_version 1.1; proxy_set_header Connection \"\";");
    let mut client = server.connect();
    let mut least = u64::MAX;
    for number in 0..PAGES {
        let before = jobs_of_disk(&server);
        let (status, body) = ask(&mut client, &format!("/{number}"));
        assert_eq!((&status[..], body.len()), ("MISS", 60_000));
        // The client may have its page before the job is counted.
        assert!(wait_until(PATIENCE, || jobs_of_disk(&server) > before), "a job for a page");
        least = least.min(jobs_of_disk(&server) - before);
    }
    // The journal has jobs of its own, and what comes slowly takes two.
    assert_eq!(least, 1, "jobs for a page");
    assert_eq!(ask(&mut client, "/1"), said("HIT", &"p".repeat(60_000)));
}
