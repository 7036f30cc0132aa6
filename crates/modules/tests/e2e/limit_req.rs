//! `limit_req`: what passes, waits and is refused. Rates are either so slow that a slow machine makes no
//! difference, or only bound times from below.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_log::{Disk, Writer};

use crate::support::{Lines, Site, load};

fn status(site: &Site, target: &str) -> String {
    let answer = site.get(target);
    let line = answer.lines().next().unwrap_or_default();
    line.trim_start_matches("HTTP/1.1 ").chars().take(3).collect()
}

fn statuses(site: &Site, targets: &[&str]) -> Vec<String> {
    targets.iter().map(|target| status(site, target)).collect()
}

#[test]
fn what_is_over_the_rate_is_refused_and_logged() {
    let site = Site::start(
        "limit_req_zone $arg_key zone=one:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            limit_req zone=one;
            location /info {
                limit_req zone=one burst=1 nodelay;
                limit_req_log_level info;
                limit_req_status 429;
            }
        }",
    );
    site.file("f", b"").file("info/f", b"");
    assert_eq!(statuses(&site, &["/f?key=a", "/f?key=a", "/f?key=b"]), ["200", "503", "200"]);
    site.expect_logged("[error] limiting requests, excess: ");
    site.expect_logged(
        " by zone \"one\", client: 127.0.0.1, server: , request: \"GET /f?key=a HTTP/1.1\", host",
    );
    // An empty key is not counted.
    assert_eq!(statuses(&site, &["/f", "/f", "/f?key="]), ["200", "200", "200"]);
    // The same state with another burst: one request is left.
    assert_eq!(statuses(&site, &["/info/f?key=a", "/info/f?key=a"]), ["200", "429"]);
    site.expect_logged("[info] limiting requests, excess: ");
}

#[test]
fn a_request_that_waits_is_served_when_it_is_within_the_rate() {
    let site = Site::start(
        "limit_req_zone $uri zone=one:64k rate=20r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            limit_req zone=one burst=1;
        }",
    );
    site.file("f", b"content");
    let start = Instant::now();
    assert_eq!(statuses(&site, &["/f", "/f"]), ["200", "200"]);
    // The clocks of loops stand still during a turn, and are read to the millisecond.
    assert!(start.elapsed() >= Duration::from_millis(2980), "{:?}", start.elapsed());
    site.expect_logged("[warn] delaying request, excess: ");
    site.expect_logged(", by zone \"one\", client: 127.0.0.1");
}

#[test]
fn a_client_that_leaves_while_it_waits_is_let_go() {
    let site = Site::start(
        "limit_req_zone $uri zone=one:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            access_log ROOT/access.log;
            limit_req zone=one burst=5;
        }",
    );
    site.file("f", b"");
    assert_eq!(status(&site, "/f"), "200");
    let mut client = site.connect();
    client.send("GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    site.expect_logged("[warn] delaying request, excess: ");
    // A request behind it is no reason to stop waiting.
    client.send("GET /g HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(client.has_nothing());
    drop(client);
    site.expect_logged("[info] client prematurely closed connection");
    let log = site.wait_lines("access.log", 2);
    assert!(log.lines().nth(1).unwrap().contains("\"GET /f HTTP/1.1\" 499 0 "), "{log}");
}

#[test]
fn some_do_not_wait() {
    let site = Site::start(
        "limit_req_zone $uri zone=one:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            location /all { limit_req zone=one burst=3 nodelay; }
            location /two { limit_req zone=one burst=3 delay=2; }
        }",
    );
    site.file("all", b"").file("two", b"");
    assert_eq!(statuses(&site, &["/all"; 5]), ["200", "200", "200", "200", "503"]);
    assert_eq!(statuses(&site, &["/two"; 3]), ["200"; 3]);
    let mut client = site.connect();
    client.send("GET /two HTTP/1.1\r\nHost: localhost\r\n\r\n");
    site.expect_logged("[warn] delaying request, excess: ");
    assert!(client.has_nothing());
    assert_eq!(status(&site, "/two"), "503");
}

#[test]
fn several_limits_all_hold_and_who_is_refused_is_not_charged() {
    let site = Site::start(
        "limit_req_zone $arg_a zone=a:64k rate=1r/m;
        limit_req_zone $arg_b zone=b:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            limit_req zone=a burst=1 nodelay;
            limit_req zone=b;
        }",
    );
    site.file("f", b"");
    let targets = ["/f?a=1&b=1", "/f?a=1&b=1", "/f?a=1&b=1", "/f?a=1", "/f?a=1"];
    // The second and the third are refused by `b`, and leave `a` as it is; then `a` alone counts.
    assert_eq!(statuses(&site, &targets), ["200", "503", "503", "200", "503"]);
    // `a` refuses, and `b` is not charged.
    assert_eq!(statuses(&site, &["/f?a=1&b=2", "/f?b=2", "/f?b=2"]), ["503", "200", "503"]);
    site.expect_logged(" by zone \"a\", client");
    site.expect_logged(" by zone \"b\", client");
}

#[test]
fn the_status_is_told_and_a_request_is_counted_once() {
    let site = Site::start(
        "limit_req_zone $arg_key zone=one:64k rate=1r/m;
        limit_req_zone $uri zone=other:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            root ROOT;
            error_page 404 503 = /status;
            location / { limit_req zone=one; }
            location /again { limit_req zone=one; try_files /none /f?key=$arg_key; }
            location /delay { limit_req zone=other burst=9; limit_req_dry_run on; }
            location /reject { limit_req zone=other; limit_req_dry_run on; }
            location /free { }
            location = /status { return 200 \"<$limit_req_status>\"; }
        }",
    );
    site.file("f", b"");
    let told = |target| {
        let answer = site.get(target);
        answer[answer.find("\r\n\r\n").unwrap() + 4..].to_owned()
    };
    assert_eq!(["/none?key=a", "/none?key=a"].map(told), ["<PASSED>", "<REJECTED>"]);
    assert_eq!(["/none", "/free"].map(told), ["<>", "<>"]);
    assert_eq!(["/delay", "/delay"].map(told), ["<PASSED>", "<DELAYED_DRY_RUN>"]);
    assert_eq!(
        ["/reject", "/reject", "/reject"].map(told),
        ["<PASSED>", "<REJECTED_DRY_RUN>", "<REJECTED_DRY_RUN>"]
    );
    site.expect_logged("[warn] delaying request, dry run, excess: ");
    site.expect_logged("[error] limiting requests, dry run, excess: ");
    // From one location with the limit to another: it would be refused if it were counted again.
    assert_eq!(status(&site, "/again?key=b"), "200");
    assert_eq!(told("/again?key=b"), "<REJECTED>");
}

#[test]
fn a_key_that_is_too_long_does_not_count() {
    // Sixteen kilobytes of path, five times.
    let site = Site::start(
        "limit_req_zone $uri$uri$uri$uri$uri zone=one:64k rate=1r/m;
        server {
            listen 127.0.0.1:PORT;
            large_client_header_buffers 4 32k;
            location / { limit_req zone=one; }
        }",
    );
    let long = format!("/{}", "x".repeat(16 * 1024));
    assert_eq!(statuses(&site, &[&long, &long]), ["404", "404"]);
    site.expect_logged(
        "[error] the value of the \"$uri$uri$uri$uri$uri\" key is more than 65535 bytes: \"/xxxx",
    );
}

/// What is wrong with an `http` block.
fn refusal(http: &str) -> String {
    let (writer, lines) = (Arc::new(Writer::new(Box::new(Disk))), Arc::new(Lines::default()));
    match load(http, &std::env::temp_dir(), &writer, &lines, &[]) {
        Ok(_) => String::from("none"),
        Err(error) => String::from_utf8_lossy(error.message()).into_owned(),
    }
}

/// The texts are those of nginx 1.31.5 for the same configurations.
#[test]
fn what_is_written_wrongly_is_refused_as_by_nginx() {
    const ZONE: &str = "limit_req_zone $uri zone=one:1m rate=1r/s;";
    for (http, text) in [
        (
            "limit_req_zone $uri zone=one:1m rate=1r/s sync;",
            "invalid number of arguments in \"limit_req_zone\" directive",
        ),
        ("limit_req_zone $uri zone=one:1m sync;", "invalid parameter \"sync\""),
        ("limit_req_zone $uri zone=one rate=1r/s;", "invalid zone size \"zone=one\""),
        ("limit_req_zone $uri zone=one:1g rate=1r/s;", "invalid zone size \"zone=one:1g\""),
        ("limit_req_zone $uri zone=one:32767 rate=1r/s;", "zone \"zone=one:32767\" is too small"),
        ("limit_req_zone $uri zone=one:32768 rate=1r/s;", "none"),
        ("limit_req_zone $uri zone=:1m rate=1r/s;", "\"limit_req_zone\" must have \"zone\" parameter"),
        ("limit_req_zone $uri zone=one:1m rate=0r/s;", "invalid rate \"rate=0r/s\""),
        ("limit_req_zone $uri zone=one:1m rate=5r/h;", "invalid rate \"rate=5r/h\""),
        ("limit_req_zone $uri zone=one:1m rate=5;", "none"),
        ("limit_req_zone $uri rate=1r/m zone=one:1m;", "none"),
        (
            "ZONE limit_req_zone $host zone=one:1m rate=1r/s;",
            "limit_req_zone \"one\" is already bound to key \"$uri\"",
        ),
        (
            "ZONE limit_req_zone $uri zone=one:2m rate=1r/s;",
            "the size 2097152 of shared memory zone \"one\" conflicts with already declared size 1048576",
        ),
        ("limit_req zone=one; ZONE", "none"),
        ("limit_req zone=two; ZONE", "zero size shared memory zone \"two\""),
        ("limit_req zone=;", "zero size shared memory zone \"\""),
        ("limit_req nodelay;", "\"limit_req\" must have \"zone\" parameter"),
        ("limit_req zone=one burst=0;", "invalid burst value \"burst=0\""),
        ("limit_req zone=one delay=-1;", "invalid delay value \"delay=-1\""),
        ("limit_req zone=one nodelay=1;", "invalid parameter \"nodelay=1\""),
        ("limit_req zone=one; limit_req zone=one;", "\"limit_req\" directive is duplicate"),
        ("ZONE limit_req zone=one; server { limit_req zone=one; }", "none"),
        ("limit_req_log_level debug;", "invalid value \"debug\""),
        ("limit_req_status 200;", "value must be between 400 and 599"),
        ("limit_req_dry_run on; limit_req_dry_run on;", "\"limit_req_dry_run\" directive is duplicate"),
    ] {
        assert_eq!(refusal(&http.replace("ZONE", ZONE)), text, "{http}");
    }
}
