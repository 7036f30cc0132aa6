//! Subrequests that wait, that never end, and that are too much: what comparing answers does not show.

use std::time::{Duration, Instant};

use clearway_http::{Module, POSTPONE};
use clearway_modules::filters::{addition::ADDITION, ssi::SSI};
use clearway_modules::mirror::MIRROR;

use crate::support::Site;

const MODULES: &[&Module] = &[&ADDITION, &SSI, &POSTPONE, &MIRROR];

/// Locations below `/late` answer after 200 ms and more, each later than the one before.
const SITE: &str = "limit_req_zone $server_name zone=late:64k rate=5r/s;
    server { listen 127.0.0.1:PORT; server_name late; root ROOT; default_type text/html; ssi on;
    access_log ROOT/access.log; log_subrequest on;
    location /late { limit_req zone=late burst=100; }
    location /around { add_before_body /late/0; add_after_body /late/1; }
    location /mirrored { mirror /late/mirror; }
    location /limited { subrequest_output_buffer_size 4; }
    }";

/// Serves it, with some files that answer late.
fn start() -> Site {
    let site = Site::start_with(SITE, MODULES);
    for name in ["0", "1", "2", "3", "mirror"] {
        site.file(&format!("late/{name}"), format!("[{name}]").as_bytes());
    }
    site
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A body in chunks, put together.
fn whole(answer: &str) -> String {
    let (mut rest, mut all) = (body(answer), String::new());
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return all;
        }
        all.push_str(&behind[..size]);
        rest = &behind[size + 2..];
    }
    panic!("no end: {answer}");
}

#[test]
fn what_comes_late_comes_in_its_place() {
    let site = start();
    site.file("inc.html", b"(<!--#include virtual='/late/3' -->)");
    site.file(
        "a.html",
        b"a<!--#include virtual='/late/1' -->b<!--#include virtual='/inc.html' -->c\
        <!--#include virtual='/late/2' wait='yes' -->d<!--#include virtual='/none/' -->e",
    );
    let answer = whole(&site.get("/a.html"));
    assert!(answer.starts_with("a[1]b([3])c[2]d<html>"), "{answer}");
    assert!(answer.ends_with("</html>\r\ne"), "{answer}");
    site.file("around/a", b" around ");
    assert_eq!(whole(&site.get("/around/a")), "[0] around [1]");
}

#[test]
fn the_next_request_waits_for_what_is_mirrored() {
    let (site, begin) = (start(), Instant::now());
    site.file("mirrored", b"done").get("/late/0");
    let mut client = site.connect();
    let request = "GET /mirrored HTTP/1.1\r\nHost: a\r\n";
    client.send(&format!("{request}\r\n{request}Connection: close\r\n\r\n"));
    let answers = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    assert_eq!(answers.matches("200 OK").count(), 2, "{answers}");
    // Five in a second, and the first of three was asked for at the beginning.
    assert!(begin.elapsed() >= Duration::from_millis(390), "what is mirrored was waited for");
}

#[test]
fn what_is_mirrored_goes_on_when_the_client_has_left() {
    let site = start();
    site.file("mirrored", b"done").get("/late/0");
    for asked in 0..4 {
        let mut client = site.connect();
        client.send(&format!("GET /mirrored?{asked} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.read_until("done");
    }
    let log = site.wait_lines("access.log", 1 + 2 * 4);
    assert_eq!(log.matches("/mirrored?").count(), 2 * 4, "{log}");
    assert_eq!(log.matches(" HTTP/1.1\" 200 ").count(), log.lines().count(), "{log}");
    assert!(!site.has_logged("prematurely closed"));
}

#[test]
fn nesting_and_memory_have_limits() {
    let site = start();
    site.file("cycle.html", b"<!--#include virtual='/cycle.html' -->.");
    let answer = whole(&site.get("/cycle.html"));
    assert!(answer.starts_with("[an error occurred"), "{answer}");
    assert_eq!(answer.matches('.').count(), 52, "{answer}");
    site.expect_logged("[error] subrequests cycle while processing \"/cycle.html\"");
    site.expect_logged(", subrequest: \"/cycle.html\", host: ");
    site.file("limited/long.txt", b"longer")
        .file("set.html", b"<!--#include virtual='/limited/long.txt' set='x' -->");
    site.get("/set.html");
    site.expect_logged("[error] too big subrequest response: 6");
    site.file("nested.html", b"<!--#include virtual='/inner.html' set='x' --><!--#echo var='x' -->");
    site.file(
        "inner.html",
        b"<!--#include virtual='/limited/long.txt' --> and so much more that there is room",
    );
    site.get("/nested.html");
    site.expect_logged("[error] nested in-memory subrequest \"/limited/long.txt\"");
}

#[test]
fn who_leaves_is_not_waited_for() {
    let site = start();
    let includes = "<!--#include virtual='/late/1' -->".repeat(20);
    site.file("many.html", includes.as_bytes());
    let mut client = site.connect();
    client.send("GET /many.html HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(client);
    site.file("other.txt", b"other");
    assert_eq!(whole(&site.get("/other.txt")), "other");
}
