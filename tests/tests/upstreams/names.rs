//! Servers whose names are resolved while serving (`resolve`, `service=`).

use std::collections::BTreeSet;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::origins::{Dns, Origin, Zone};
use crate::{config, start};

const PASS: &str = "location / { proxy_pass http://u; }";

#[test]
fn a_group_follows_its_name() {
    let origin = Origin::named("here");
    let dns = Dns::start(Zone { addresses: vec![("a.example", 1)], ttl_s: 1, ..Zone::default() });
    let http = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 1s;
         upstream u {{ zone u 1m; server a.example:{} resolve; }}",
        dns.port, origin.port
    );
    let server = start(&http, PASS);
    assert!(wait_until(PATIENCE, || server.get("/").text() == "here"), "{}", server.error_log());
    // The name moves to an address at which nobody listens, and back.
    dns.change(|zone| zone.addresses = vec![("a.example", 9)]);
    assert!(wait_until(PATIENCE, || server.get("/").status == 502), "it is asked again");
    server.wait_log("logs/access.log", &format!("127.0.0.9:{}", origin.port));
    dns.change(|zone| zone.addresses = vec![("a.example", 1)]);
    assert!(wait_until(PATIENCE, || server.get("/").status == 200));
    // While the name server is dead what is known holds.
    dns.change(|zone| zone.is_dead = true);
    let asked = dns.asked();
    assert!(wait_until(PATIENCE, || dns.asked() > asked + 1), "it goes on asking");
    assert_eq!(server.get("/").text(), "here");
    // A name that does not exist any more has no servers.
    dns.change(|zone| (zone.is_dead, zone.addresses) = (false, Vec::new()));
    assert!(wait_until(PATIENCE, || server.get("/").status == 502));
    server.wait_log("logs/error.log", "a.example could not be resolved (3: Host not found)");
    server.wait_log("logs/error.log", "no live upstreams");
}

/// Waits until each of so many worker processes answers with that status.
fn wait_all(server: &Server, processes: usize, status: u16) {
    let mut there = BTreeSet::new();
    let all = wait_until(PATIENCE, || {
        let response = server.get("/");
        let process = response.header("X-Process").expect("a location says it").to_owned();
        match response.status == status {
            true => there.insert(process),
            false => there.remove(&process),
        };
        there.len() == processes
    });
    assert!(all, "{status} from {there:?}: {}", server.error_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn one_of_all_processes_asks_and_the_others_know() {
    const PROCESSES: usize = 4;
    let origin = Origin::named("here");
    let dns = Dns::start(Zone { addresses: vec![("a.example", 1)], ttl_s: 60, ..Zone::default() });
    let http = format!(
        "resolver 127.0.0.1:{} ipv6=off valid=%%VALID%%s; resolver_timeout 60s;
         upstream u {{ zone u 1m; server a.example:{} resolve max_fails=0; }}
         server {{ listen 127.0.0.1:%%PORT%%; add_header X-Process $pid always; {PASS} }}",
        dns.port, origin.port
    );
    let text = config("events { }", &http)
        .replace("worker_processes 1;", &format!("worker_processes {PROCESSES}; worker_groups auto;"));
    let lasting = Setup::new(Binary::under_test(), &text.replace("%%VALID%%", "3600")).start();
    wait_all(&lasting, PROCESSES, 200);
    assert!(dns.asked() < PROCESSES, "each has asked: {}", dns.asked());
    // One that comes later knows the findings.
    let asked = dns.asked();
    send_signal(lasting.workers_of(lasting.pid())[0], Signal::KILL);
    lasting.wait_log("logs/error.log", "exited on signal 9");
    wait_all(&lasting, PROCESSES, 200);
    assert_eq!(dns.asked(), asked);
    // Answers that end are asked for again, and all have the new ones.
    let following = Setup::new(Binary::under_test(), &text.replace("%%VALID%%", "1")).start();
    for (last, status) in [(1, 200), (9, 502), (1, 200)] {
        dns.change(|zone| zone.addresses = vec![("a.example", last)]);
        wait_all(&following, PROCESSES, status);
    }
}

#[test]
fn a_service_says_where_it_is() {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let service = |port| vec![("_http._tcp.example.com", port, "host.example.com")];
    let zone = Zone {
        addresses: vec![("host.example.com", 1)],
        services: service(first.port),
        ttl_s: 1,
        is_dead: false,
    };
    let dns = Dns::start(zone);
    let http = format!(
        "resolver 127.0.0.1:{} ipv6=off;
         upstream u {{ zone u 1m; server example.com service=http resolve; }}",
        dns.port
    );
    let server = start(&http, PASS);
    assert!(wait_until(PATIENCE, || server.get("/").text() == "first"), "{}", server.error_log());
    dns.change(|zone| zone.services = service(second.port));
    assert!(wait_until(PATIENCE, || server.get("/").text() == "second"), "{}", server.error_log());
}

/// A name whose address changes each second, asked for all the time: no request fails.
#[test]
fn no_request_fails_while_a_name_changes_each_second() {
    let origin = Origin::start(|stream| crate::origins::answer(stream, "here"));
    let dns = Dns::start(Zone { addresses: vec![("a.example", 1)], ttl_s: 0, ..Zone::default() });
    let locations = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 20s;
         location / {{ set $name a.example; proxy_pass http://$name:{}; }}",
        dns.port, origin.port
    );
    let server = start("", &locations);
    for round in 0..12 {
        // Both lead to the same server: that of 127.0.0.1 alone.
        let addresses = if round % 2 == 0 { vec![("a.example", 1)] } else { vec![("a.example", 1); 2] };
        dns.change(|zone| zone.addresses = addresses);
        for _ in 0..10 {
            assert_eq!(server.get("/").text(), "here", "{}", server.error_log());
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(dns.asked() >= 3, "answers do not hold: {}", dns.asked());
}

/// Which servers each of some requests has tried, as the log says.
fn tried(server: &Server, path: &str) -> Vec<usize> {
    (0..10).for_each(|number| drop(server.get(&format!("{path}/{number}"))));
    let log = server.wait_log("logs/access.log", &format!("{path}/9 "));
    let lines = log.lines().filter(|line| line.starts_with(&format!("{path}/")));
    lines.map(|line| line.matches("127.0.0.").count()).collect()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx forgets them with each request")]
fn a_server_that_a_variable_names_and_that_failed_is_asked_behind_the_others() {
    let origin = Origin::named("here");
    // At its port nobody listens but at 127.0.0.1.
    let some = [("some.example", 9), ("some.example", 1)];
    let none = [("none.example", 8), ("none.example", 9)];
    let zone = Zone { addresses: [some, none].concat(), ttl_s: 60, ..Zone::default() };
    let (dns, port) = (Dns::start(zone), origin.port);
    let locations = format!(
        "resolver 127.0.0.1:{} ipv6=off; set $some some.example; set $none none.example;
         location /some {{ proxy_pass http://$some:{port}; }}
         location /none {{ proxy_pass http://$none:{port}; }}
         location /status {{ status; }}",
        dns.port
    );
    let server = start("", &locations);
    let some = tried(&server, "/some");
    assert_eq!(some.len(), 10, "{some:?}");
    assert_eq!(some.iter().sum::<usize>(), 11, "one request has met the one that is not there: {some:?}");
    // Where all have failed each request tries them nevertheless.
    assert_eq!(tried(&server, "/none"), [2; 10], "{}", server.error_log());
    let status = server.get("/status").text().to_owned();
    let count = |server: &str, outcome: &str| {
        let name =
            format!("upstream=\"some.example:{port}\",server=\"{server}:{port}\",outcome=\"{outcome}\"");
        let line = status.lines().find(|line| line.contains(&name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(
        (count("127.0.0.1", "answered"), count("127.0.0.9", "failed")),
        (Some(10), Some(1)),
        "{status}"
    );
}

/// A name that nobody knows when the server starts.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does not start")]
fn a_server_starts_although_a_name_is_unknown() {
    let origin = Origin::named("here");
    let dns = Dns::start(Zone { ttl_s: 1, ..Zone::default() });
    let (name, port) = ("late.invalid", origin.port);
    let http = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 1s; upstream_start_unresolved on;
         upstream u {{ server {name}:{port}; }}",
        dns.port
    );
    let server = start(&http, &format!("{PASS} location /host {{ proxy_pass http://{name}:{port}; }}"));
    for path in ["/", "/host"] {
        assert_eq!(server.get(path).status, 502, "{path}: {}", server.error_log());
    }
    server.wait_log("logs/error.log", "no live upstreams");
    dns.change(|zone| zone.addresses = vec![(name, 1)]);
    for path in ["/", "/host"] {
        assert!(wait_until(PATIENCE, || server.get(path).text() == "here"), "{path}: {}", server.error_log());
    }
}
