//! What handlers that receive and send at once ask of a request: those of upstream servers. On sockets, as
//! how much a client takes is a matter of those.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod handlers;
mod held_heads;
mod site;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;
use handlers::{DIGITS, FURTHER, MOST_HELD, RECEIVED};
use site::{Site, read_to, wait_logged};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn a_slow_client_is_sent_all_and_no_more_is_held_than_wanted() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act digits; } }");
    let mut client = site.send("GET /slow HTTP/1.0\r\n\r\n");
    assert!(wait_until(PATIENCE, || RECEIVED.load(Ordering::SeqCst) > 0), "nobody receives");
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    let digits = body(&all);
    assert_eq!(digits.len(), DIGITS);
    assert!(digits.as_bytes().chunks(10).all(|ten| ten == b"0123456789"));
    assert!(MOST_HELD.load(Ordering::SeqCst) <= 20_000 + 200, "a head and what is held");
    assert_eq!(wait_logged("/slow"), format!("200 {DIGITS}"));

    // Its patience does not begin anew with each poll.
    let site =
        Site::start("server { listen 127.0.0.1:PORT; location / { act digits; send_timeout 200ms; } }");
    let _client = site.send("GET /never HTTP/1.0\r\n\r\n");
    site.wait_line("client timed out (110: Connection timed out)");
    assert!(wait_logged("/never").starts_with("200 "));
}

#[test]
fn a_handler_may_go_on_without_its_client() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act regardless; } }");
    let client = site.send(&get("/left"));
    client.shutdown(Shutdown::Both).unwrap();
    drop(client);
    assert!(wait_until(PATIENCE, || FURTHER.is_reached()), "it waits for something else");
    FURTHER.step();
    assert_eq!(wait_logged("/left"), "499 0");
    assert!(FURTHER.is_over());
}

#[test]
fn interim_responses_come_before_the_head_and_only_where_they_are_understood() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act hints; } }");
    let mut all = String::new();
    site.send(&get("/new")).read_to_string(&mut all).unwrap();
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let rest = all.strip_prefix(hints).unwrap();
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && body(rest) == "final", "{all}");
    let mut all = String::new();
    site.send("GET /old HTTP/1.0\r\n\r\n").read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && body(&all) == "final", "{all}");
}

#[test]
fn trailers_are_passed_behind_chunks() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act trailers; } }");
    let mut all = String::new();
    site.send(&get("/chunks")).read_to_string(&mut all).unwrap();
    assert_eq!(body(&all), "4\r\nbody\r\n0\r\nX-Sum: 4\r\n\r\n");
    let mut all = String::new();
    site.send("GET /plain HTTP/1.0\r\n\r\n").read_to_string(&mut all).unwrap();
    assert_eq!(body(&all), "body");
}

#[test]
fn a_body_is_read_piece_by_piece_while_the_response_is_sent() {
    let site = Site::start(
        "server { listen 127.0.0.1:PORT; client_body_timeout 300ms; chunked_transfer_encoding off;
             location / { act pieces; } }",
    );
    let head = |path: &str, line: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
    let mut client = site.send(&(head("/counted", "Content-Length: 6") + "ab"));
    assert!(read_to(&mut client, "ab").ends_with("\r\n\r\nSome(6) false: ab"));
    client.write_all(b"cd").unwrap();
    assert_eq!(read_to(&mut client, "cd"), " cd");
    client.write_all(b"efGET").unwrap();
    assert_eq!(read_to(&mut client, "ef"), " ef");
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);

    let mut client = site.send(&(head("/chunks", "Transfer-Encoding: chunked") + "2\r\nab\r\n1\r"));
    assert!(read_to(&mut client, "ab").ends_with("\r\n\r\nNone true: ab"));
    client.write_all(b"\nc\r\n").unwrap();
    assert_eq!(read_to(&mut client, "c"), " c");
    client.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);

    let mut client = site.send(&head("/late", "Content-Length: 6"));
    read_to(&mut client, "false:");
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    // The head was sent with 200 before.
    assert_eq!(wait_logged("/late"), "200 14");

    let mut client = site.send(&head("/wrong", "Transfer-Encoding: chunked"));
    client.write_all(b"x\r\n").unwrap();
    site.wait_line("client sent invalid chunked body");
    assert!(wait_logged("/wrong").starts_with("200 "));
}

#[test]
fn a_client_that_waits_for_leave_to_send_gets_it_once() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act pieces; } }");
    // The head of the response was sent: no leave is given any more, but the body is read.
    let head = "POST /expects HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let mut client = site.send(head);
    let start = read_to(&mut client, "false:\r\n");
    assert!(start.starts_with("HTTP/1.1 200 OK\r\n"), "{start}");
    client.write_all(b"ab").unwrap();
    assert!(read_to(&mut client, "0\r\n\r\n").contains(" ab"));
}

#[test]
fn a_handler_knows_pages_and_names_servers_in_the_log() {
    let site = Site::start("server { listen 127.0.0.1:PORT; error_page 502 /e; location / { act page; } }");
    let mut all = String::new();
    site.send(&get("/page")).read_to_string(&mut all).unwrap();
    let line = site.wait_line("reading response header");
    let rest = "server: , request: \"GET /page HTTP/1.1\", upstream: \"http://192.0.2.1:81/x\", host: \"a\"";
    assert!(line.ends_with(rest), "{line}");
    assert!(line.starts_with("[error] no while reading response header from upstream, client: 127.0.0.1, "));
}

#[test]
fn a_connection_that_was_handed_over_carries_bytes_both_ways() {
    let site = Site::start("server { listen 127.0.0.1:PORT; location / { act echo; } }");
    let mut client = site.send("GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\n\r\nearly");
    let head = read_to(&mut client, "early");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("Connection: upgrade\r\nUpgrade: echo\r\n"));
    for text in ["GET / HTTP/1.1\r\n\r\n", "x"] {
        client.write_all(text.as_bytes()).unwrap();
        assert_eq!(read_to(&mut client, text), text);
    }
    let large = vec![b'L'; 300_000];
    client.write_all(&large).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest == large);
    assert_eq!(wait_logged("/echo"), format!("101 {}", 5 + 18 + 1 + 300_000));

    // The end of a shutdown ends it, too.
    let mut client = site.send("GET /closed HTTP/1.1\r\nHost: a\r\n\r\nearly");
    read_to(&mut client, "early");
    site.close();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    assert_eq!(wait_logged("/closed"), "101 5");
}

/// The head of a server's answer, without what does not matter; the path has what is passed.
fn passed_by(site: &Site, server: &str, head: &str, request: &str) -> String {
    let head = head.replace(' ', "+");
    let mut all = Vec::new();
    let text = format!("GET /p?{head} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n{request}\r\n");
    site.send(&text).read_to_end(&mut all).unwrap();
    let all = String::from_utf8_lossy(&all);
    let head = all.split("\r\n\r\n").next().unwrap();
    let is_usual = |line: &str| {
        line.starts_with("Server: clearway")
            || line == "Connection: close"
            || (line.starts_with("Date: ") && line.ends_with(" GMT"))
    };
    head.split("\r\n").filter(|line| !is_usual(line)).collect::<Vec<_>>().join("|")
}

fn passed(site: &Site, head: &str, request: &str) -> String {
    passed_by(site, "a", head, request)
}

const HEAD: &str = "200 OK|Content-Type: text/html; charset=utf-8|ETag: \"a\"|X-A: 1|\
    Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT|Accept-Ranges: bytes|X-B: 2|Content-Length: 7";

#[test]
fn a_head_from_elsewhere_is_passed_as_it_stands_and_filters_see_what_they_need() {
    let site = Site::start(
        "server { listen 127.0.0.1:PORT; location / { act passed; } }
         server { listen 127.0.0.1:PORT; server_name zip; location / {
             act passed; gzip on; gzip_proxied any; } }
         server { listen 127.0.0.1:PORT; server_name sub; location / {
             act passed; sub_filter yy z; charset koi8-r; override_charset on;
             add_header X-Tag $sent_http_etag; } }",
    );
    let date = "Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT";
    let kind = "Content-Type: text/html; charset=utf-8";
    let usual = format!("{kind}|Content-Length: 300|ETag: \"a\"|X-A: 1|{date}|Accept-Ranges: bytes|X-B: 2");
    assert_eq!(passed(&site, HEAD, ""), format!("HTTP/1.1 200 OK|{usual}"));
    // As it was received, where it is not written as it would be here.
    let odd = HEAD.replace("200 OK", "200 Fine").replace("; charset=utf-8", ";charset=\"utf-8\"");
    let expected = usual.replace("; charset=utf-8", ";charset=\"utf-8\"");
    assert_eq!(passed(&site, &odd, ""), format!("HTTP/1.1 200 Fine|{expected}"));
    let own = "200 OK|Server: u|Date: x";
    assert_eq!(passed(&site, own, ""), "HTTP/1.1 200 OK|Content-Length: 300|Server: u|Date: x");

    let not_modified = format!("HTTP/1.1 304 Not Modified|ETag: \"a\"|X-A: 1|{date}|X-B: 2");
    assert_eq!(passed(&site, &odd, "If-None-Match: \"a\"\r\n"), not_modified);
    let stale = passed(&site, HEAD, "If-None-Match: \"b\"\r\nIf-Range: \"a\"\r\nRange: bytes=0-1\r\n");
    assert_eq!(stale, format!("HTTP/1.1 200 OK|{usual}"), "ranges are the other server's to give");
    let failed = passed(&site, HEAD, "If-Match: \"b\"\r\n");
    assert!(failed.starts_with("HTTP/1.1 412 ") && !failed.contains("X-A"), "{failed}");

    // What filters change stands where it stood.
    let zipped = passed_by(&site, "zip", HEAD, "Accept-Encoding: gzip\r\n");
    let weak = usual.replace("\"a\"", "W/\"a\"").replace("|Accept-Ranges: bytes", "");
    let weak = weak.replace("Content-Length: 300", "Transfer-Encoding: chunked");
    let weak = weak.replace("|ETag", "|Content-Encoding: gzip|ETag");
    assert_eq!(zipped, format!("HTTP/1.1 200 OK|{weak}"));
    let packed = HEAD.replace("X-A: 1", "Content-Encoding: br");
    let as_it_is = usual.replace("X-A: 1", "Content-Encoding: br");
    assert_eq!(
        passed_by(&site, "zip", &packed, "Accept-Encoding: gzip\r\n"),
        format!("HTTP/1.1 200 OK|{as_it_is}"),
        "once is enough"
    );

    let changed = passed_by(&site, "sub", &odd.replace(";charset=\"utf-8\"", ""), "");
    let kept = "Content-Type: text/html; charset=koi8-r|Transfer-Encoding: chunked|X-A: 1|\
        Accept-Ranges: bytes|X-B: 2|X-Tag: \"a\"";
    assert_eq!(changed, format!("HTTP/1.1 200 Fine|{kept}"), "tag and date are of what was replaced");
}
