//! Servers that are asked whether they are well (`health_check`).

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};

use crate::origins::{Origin, nobody, read_request};
use crate::{config, start};

/// One that can be ill: it says so where it is asked for `/health`, and fails otherwise.
struct Patient {
    origin: Origin,
    is_ill: Arc<AtomicBool>,
    /// Requests beside those for `/health`.
    asked: Arc<AtomicUsize>,
}

impl Patient {
    fn start(name: &'static str) -> Self {
        let (is_ill, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (ill, count) = (Arc::clone(&is_ill), Arc::clone(&asked));
        let origin = Origin::start(move |mut stream: TcpStream| {
            while let Some(head) = read_request(&mut stream) {
                let is_check = head.starts_with("GET /health HTTP/1.1\r\nHost: u\r\nX-Asks: us\r\n");
                if !is_check {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let (status, text) = match (ill.load(Ordering::SeqCst), is_check) {
                    (true, _) => ("503 Ill", "ill"),
                    (false, true) => ("200 OK", "I am well"),
                    (false, false) => ("200 OK", name),
                };
                let response = format!(
                    "HTTP/1.1 {status}\r\nX-Health: {text}\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                );
                let _ = stream.write_all(response.as_bytes());
            }
        });
        Self { origin, is_ill, asked }
    }

    fn fall_ill(&self) {
        self.is_ill.store(true, Ordering::SeqCst);
    }

    fn get_well(&self) {
        self.is_ill.store(false, Ordering::SeqCst);
    }

    fn server(&self) -> String {
        format!("server 127.0.0.1:{} max_fails=0;", self.origin.port)
    }
}

const STATUS: &str = "location = /status { status prometheus; }";

fn checked(servers: &str, check: &str) -> Server {
    let http = format!(
        "match well {{ status 200; header X-Health; body ~ ^I.am; }} upstream u {{ zone u 64k; {servers} }}"
    );
    let locations = format!(
        "location / {{ proxy_pass http://u; proxy_next_upstream off;
             proxy_set_header X-Asks us; proxy_set_header X-Client $remote_addr;
             health_check interval=100ms uri=/health {check}; }} {STATUS}"
    );
    start(&http, &locations)
}

fn answers(server: &Server, requests: usize) -> String {
    (0..requests).map(|_| server.get("/").text()).collect()
}

fn about(patient: &Patient, tests: &str) -> String {
    format!("health check \"{tests}\" of peer 127.0.0.1:{} in upstream \"u\"", patient.origin.port)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn an_unhealthy_server_gets_no_requests_until_it_is_well() {
    let (one, other) = (Patient::start("a"), Patient::start("b"));
    for (check, tests) in [("fails=2 passes=3", ""), ("match=well jitter=10ms", "well")] {
        let server = checked(&(one.server() + &other.server()), check);
        assert_eq!(answers(&server, 4), "abab");
        one.fall_ill();
        let about = about(&one, tests);
        server.wait_log("logs/error.log", &format!("peer is unhealthy, {about}"));
        server.wait_log("logs/error.log", &format!("unexpected status 503, {about}"));
        let before = one.asked.load(Ordering::SeqCst);
        assert_eq!(answers(&server, 20), "b".repeat(20));
        assert_eq!(one.asked.load(Ordering::SeqCst), before);
        let status = server.get("/status").text();
        let name = format!("{{upstream=\"u\",server=\"127.0.0.1:{}\"", one.origin.port);
        assert!(status.contains(&format!("upstream_unhealthy{name}}} 1\n")), "{status}");
        one.get_well();
        server.wait_log("logs/error.log", &format!("peer is healthy, {about}"));
        assert!(answers(&server, 4).contains('a'));
        let status = server.get("/status").text();
        assert!(status.contains(&format!("upstream_unhealthy{name}}} 0\n")), "{status}");
        assert!(!status.contains(&format!("upstream_health_checks_total{name},outcome=\"passed\"}} 0\n")));
    }
}

/// Checks that have passed, as `status` counts them.
fn passed(server: &Server) -> u32 {
    let status = server.get("/status").text();
    let mut lines = status.lines().filter(|line| line.contains("health_checks_total{"));
    let line = lines.find(|line| line.contains("outcome=\"passed\"")).unwrap_or_default();
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn checks_share_a_connection_where_they_may() {
    for (check, connections) in [("keepalive_time=1h", 1..=1), ("", 6..=20), ("keepalive_time=150ms", 2..=5)]
    {
        let patient = Patient::start("a");
        let server = checked(&patient.server(), check);
        assert!(wait_until(PATIENCE, || passed(&server) >= 6));
        let accepted = patient.origin.accepted();
        assert!(connections.contains(&accepted), "{check}: {accepted}");
        assert!(!server.error_log().contains("health check"), "{}", server.error_log());
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn a_server_that_has_to_be_checked_gets_nothing_before() {
    let (one, other) = (Patient::start("a"), Patient::start("b"));
    one.fall_ill();
    let dead = format!("server 127.0.0.1:{};", nobody());
    let server = checked(&(one.server() + &dead + &other.server()), "mandatory");
    assert!(wait_until(PATIENCE, || server.get("/").status == 200));
    assert_eq!(answers(&server, 20), "b".repeat(20));
    assert_eq!(one.asked.load(Ordering::SeqCst), 0);
    let said = "(111: Connection refused) while connecting to upstream, health check \"\" of peer 127.0.0.1:";
    server.wait_log("logs/error.log", said);
}

/// A server that takes questions and says nothing is as bad as one that is not there.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn silence_is_found_out_without_a_request() {
    let (silent, other) = (Origin::silent(), Patient::start("b"));
    let http = format!("upstream u {{ zone u 64k; server 127.0.0.1:{}; {} }}", silent.port, other.server());
    let server = start(
        &http,
        "location / { proxy_pass http://u; proxy_read_timeout 3s; health_check interval=100ms; }",
    );
    let said = "upstream timed out (110: Connection timed out) while reading response";
    server.wait_log("logs/error.log", said);
    server.wait_log("logs/error.log", "peer is unhealthy, health check \"\" of peer");
    assert_eq!(answers(&server, 10), "b".repeat(10));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn what_cannot_be_checked_is_refused() {
    let zoned = "upstream u { zone u 64k; server 127.0.0.1:1; }";
    for (http, location, said) in [
        (zoned, "proxy_pass http://u; health_check match=none;", "unknown match \"none\" in"),
        (zoned, "proxy_pass http://u; health_check type=grpc;", "invalid parameter \"type=grpc\" in"),
        (zoned, "proxy_pass http://u; health_check persistent;", "invalid parameter \"persistent\" in"),
        (zoned, "proxy_pass http://u; health_check; health_check;", "directive is duplicate in"),
        (zoned, "proxy_pass http://$host; health_check;", "requires \"proxy_pass\" without variables in"),
        (zoned, "fastcgi_pass $host:1; health_check;", "requires \"fastcgi_pass\" without variables in"),
        (zoned, "health_check;", "\"uwsgi_pass\" or \"memcached_pass\" in its location in"),
        (zoned, "proxy_pass http://u; health_check \"uri=/a b\";", "invalid parameter \"uri=/a b\" in"),
        ("match a { require $none; }", "return 204;", "unknown \"none\" variable"),
        (
            "upstream u { server 127.0.0.1:1; }",
            "proxy_pass http://u; health_check;",
            "health checks require upstream \"u\" to be in shared memory in",
        ),
        ("match a { } match a { }", "return 204;", "duplicate match \"a\" in"),
    ] {
        let server = format!("{http} server {{ listen 127.0.0.1:%%PORT%%; location / {{ {location} }} }}");
        let text = config("events { }", &server);
        let (_, output) = Setup::new(Binary::under_test(), &text).arguments(&["-t"]).refused();
        assert!(output.contains(said), "{said}: {output}");
    }
}

/// How many of 400 requests fail when three of ten servers fall ill meanwhile.
fn failures(check: &str) -> usize {
    let patients: Vec<Patient> = (0..10).map(|_| Patient::start("ok")).collect();
    let servers: String = patients.iter().map(Patient::server).collect();
    let http = format!("upstream u {{ zone u 64k; {servers} }}");
    let location = "proxy_pass http://u; proxy_next_upstream off; proxy_set_header X-Asks us;";
    let server = start(&http, &format!("location / {{ {location} {check} }}"));
    assert_eq!(answers(&server, 10), "ok".repeat(10));
    patients[..3].iter().for_each(Patient::fall_ill);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut client = server.connect();
                scope.spawn(move || {
                    let failed = (0..50).filter(|_| {
                        std::thread::sleep(Duration::from_millis(10));
                        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status != 200
                    });
                    failed.count()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it asks")).sum()
    })
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn three_of_ten_servers_that_fall_ill_are_found_out() {
    let without = failures("");
    let with = failures("health_check interval=50ms uri=/health;");
    assert_eq!(without, 120);
    assert!(with * 2 < without, "{with} {without}");
}
