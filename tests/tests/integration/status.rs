//! `status`: the numbers add up, in both forms, and stay over a reload.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};
use rustix::process::Signal;

const HTTP: &str = "
    limit_conn_zone $binary_remote_addr zone=ones:1m;
    server { listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:%%PORT2%%;
        location = /metrics { status; }
        location = /only { status prometheus; }
        location = /json { status json; }
        location = /stub { stub_status; }
        location = /closed { status; deny all; }
        location = /ok { return 200 ok; }
        location = /gone { return 410; }
        location = /one { limit_conn ones 1; limit_rate 1; empty_gif; }
    }
";

fn setup() -> Setup {
    let config = format!(
        "daemon off;\nuser root;\nworker_processes 3;\npid nginx.pid;\nerror_log logs/error.log info;\n\
         thread_pool disk threads=2 max_queue=5;\nevents {{ }}\n\
         http {{\n%%TEMP%%\naccess_log off;\n{HTTP}\n}}\n"
    );
    Setup::new(Binary::under_test(), &config)
}

/// The values of a metric, with `labels` among its labels.
fn values(page: &str, name: &str, labels: &[&str]) -> Vec<f64> {
    let lines = page.lines().filter(|line| {
        let metric = line.split(['{', ' ']).next().unwrap_or_default();
        metric == format!("clearway_{name}") && labels.iter().all(|label| line.contains(label))
    });
    lines
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number"))
        .collect()
}

fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    values(page, name, labels).iter().sum()
}

fn page(server: &Server) -> String {
    let response = server.get("/metrics");
    assert_eq!(response.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    response.text()
}

/// Each sample belongs to a metric that was declared before it, and none stands twice.
fn check_form(page: &str) {
    let mut seen = std::collections::HashSet::new();
    let mut current = "";
    for line in page.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            current = declared.split(' ').next().unwrap_or_default();
        } else if !line.starts_with('#') {
            let series = line.rsplit_once(' ').expect("a name and a value").0;
            assert!(series.starts_with(current) && !current.is_empty(), "{line} behind {current}");
            assert!(seen.insert(series), "{series} stands twice");
        }
    }
    assert!(seen.len() > 200, "{page}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such directive")]
fn numbers_add_up() {
    let server = setup().start();
    let before = page(&server);
    check_form(&before);
    for _ in 0..20 {
        assert_eq!(server.get("/ok").text(), "ok");
        assert_eq!(server.get("/gone").status, 410);
    }
    let mut kept = server.connect();
    (0..7).for_each(|_| assert_eq!(kept.ask("GET /ok HTTP/1.1\r\nHost: a\r\n\r\n").text(), "ok"));
    // A request is over a moment after its answer was sent; a client that reads the answer may be ahead of
    // that. The one for the page never is.
    let mut now = String::new();
    let is_quiet = wait_until(PATIENCE, || {
        now = page(&server);
        let under_way = sum(&now, "requests_total", &[]) - sum(&now, "responses_total", &[]);
        (under_way, sum(&now, "connections", &["\"writing\""])) == (1.0, 1.0)
    });
    assert!(is_quiet, "{now}");
    check_form(&now);
    let total = |name| sum(&now, name, &[]);
    let grown = |code| sum(&now, "responses_total", &[code]) - sum(&before, "responses_total", &[code]);
    assert_eq!(grown("code=\"410\""), 20.0);
    assert!(grown("code=\"200\"") >= 28.0, "27 others and a page: {now}");
    assert_eq!(total("connections_handled_total"), total("accepts_total"));
    assert_eq!(total("connections_handled_total"), total("connections_accepted_total"));
    assert_eq!(values(&now, "accepts_total", &["listener=\"127.0.0.1:"]).len(), 6, "loops and listeners");
    let state = |state: &str| sum(&now, "connections", &[state]);
    assert_eq!(state("\"reading\""), 0.0);
    assert_eq!(state("\"active\""), 1.0 + state("\"waiting\""));
    assert_eq!(values(&now, "loop_lag_seconds_count", &[]).len(), 3);
    let lag = |label| sum(&now, "loop_lag_seconds_bucket", &[label]);
    assert_eq!(lag("le=\"+Inf\""), total("loop_lag_seconds_count"));
    assert!(total("loop_polls_total") >= 47.0 && total("loop_lag_seconds_sum") > 0.0);
    // The default one, that of the configuration, and those of passwords and of handshakes.
    assert_eq!(values(&now, "pool_threads", &[]).len(), 4, "{now}");
    assert_eq!(values(&now, "pool_overflows_total", &["pool=\"disk\""]), [0.0]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such directive")]
fn a_reload_keeps_them() {
    let mut server = setup().start();
    for _ in 0..5 {
        assert_eq!(server.get("/gone").status, 410);
    }
    let gone = |page: &str| sum(page, "responses_total", &["code=\"410\""]);
    assert!(wait_until(PATIENCE, || gone(&page(&server)) == 5.0));
    let before = page(&server);
    let config = server.read("nginx.conf").replace("410", "411");
    server.configure(&config);
    server.signal(Signal::HUP);
    let generation = |page: &str| sum(page, "config_generation", &[]);
    assert!(wait_until(PATIENCE, || generation(&page(&server)) > generation(&before)));
    let after = page(&server);
    assert_eq!(gone(&after), 5.0);
    for name in ["requests_total", "accepts_total", "loop_polls_total"] {
        assert!(sum(&after, name, &[]) > sum(&before, name, &[]), "{name}");
    }
    assert_eq!(values(&after, "start_time_seconds", &[]), values(&before, "start_time_seconds", &[]));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such directive")]
fn limits_that_were_hit() {
    let server = setup().start();
    // The answers take minutes.
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || sum(&page(&server), "limit_conn_passed_total", &[]) == 1.0));
    second.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || sum(&page(&server), "limit_conn_rejected_total", &[]) == 1.0));
    assert_eq!(values(&page(&server), "limit_conn_rejected_dry_run_total", &[]), [0.0]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such directive")]
fn two_forms() {
    let server = setup().start();
    let json = |head: &str| {
        let response = server.connect().ask(&format!("GET {head}Host: a\r\nConnection: close\r\n\r\n"));
        let is_json = response.header("Content-Type") == Some("application/json");
        let text = response.text();
        assert_eq!(is_json, text.starts_with("{\"metrics\":{"));
        if is_json {
            assert!(text.contains("\"stalls\":{\"reports\":["), "{text}");
            assert!(
                text.contains("\"clearway_loop_lag_seconds\":{\"type\":\"histogram\",\"unit\":\"seconds\"")
            );
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
        }
        is_json
    };
    assert!(!json("/metrics HTTP/1.1\r\n"));
    assert!(json("/metrics HTTP/1.1\r\nAccept: application/json\r\n"));
    assert!(!json("/metrics HTTP/1.1\r\nAccept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"));
    assert!(!json("/only HTTP/1.1\r\nAccept: application/json\r\n"));
    assert!(json("/json HTTP/1.1\r\nAccept: text/plain\r\n"));
    assert_eq!(server.get("/closed").status, 403, "allow and deny are in force");
    let post = "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(server.connect().ask(post).status, 405);
}
