//! What handlers that receive and send at once ask of a request: those of upstream servers. On sockets, as
//! how much a client takes is a matter of those.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod handlers;
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
