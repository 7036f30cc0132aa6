//! Several requests of one connection at once, each in its own task, through the engine that answers HTTP/1:
//! a protocol of the tests on a transport in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod internal;
mod site;
mod support;

use std::sync::atomic::Ordering;

use clearway_http::STREAM_WINDOW_BYTES;
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use site::{Site, gate, logged};
use support::{Ended, Peer};

const SERVER: &str = "
    server {
        listen 127.0.0.1:8000;
        default_type text/html;
        client_body_buffer_size 1m;
        location / { echo one; }
        location /slow/ { echo slow; pause 300; }
        location /quick/ { echo quick; pause 20; }
        location /impatient/ { echo never; client_body_timeout 50ms; }
        location /page/ { echo page; add_before_body /part/before; add_after_body /part/after; }
        location /part/ { echo part; pause 10; }
        location /small/ { echo small; client_max_body_size 10; }
        location /large/ { large 300000; }
        location /waits/ { echo waits; pause 60000; }
        location /later/ { echo later; later; }
        location /laterpage/ { echo later; later; add_before_body /part/before; add_after_body /part/after; }
        location /gone/ { return 404; }
    }";

fn connect(site: &Site) -> Peer {
    Peer::connect(&site.listener, site.home(0))
}

#[test]
fn two_requests_are_answered_at_once_each_with_its_own_body() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.post(1, "/two/first", "");
    peer.post(2, "/two/second", "Content-Length: 6\r\n");
    peer.body(1, b"one ");
    peer.body(2, b"other ");
    peer.end(2);
    let second = peer.wait(2);
    assert_eq!((second.status(), second.text()), ("200", "one[other ]"));
    assert_eq!(peer.answered(1).end, None, "the first one waits for the rest of its body");
    assert!(logged("/two/first").is_none());
    peer.body(1, b"body");
    peer.end(1);
    let first = peer.wait(1);
    assert_eq!((first.text(), first.end), ("one[one body]", Some(Ended::Complete)));
    assert_eq!(logged("/two/first").unwrap(), "POST 200 body 8 sent 13 request 1");
    assert_eq!(logged("/two/second").unwrap(), "POST 200 body 6 sent 11 request 2");
}

#[test]
fn heads_have_the_lines_of_http1_without_those_about_its_connection() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.get(7, "/head/");
    let head = peer.wait(7).heads.remove(0);
    let names: Vec<&str> = head.lines().skip(1).map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(names, ["server", "date", "content-type", "content-length"]);
    peer.get(8, "/gone/");
    let gone = peer.wait(8);
    assert_eq!(gone.status(), "404");
    assert!(gone.text().contains("<h1>404 Not Found</h1>"), "{}", gone.text());
}

#[test]
fn each_has_timers_of_its_own() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.get(1, "/slow/own");
    peer.get(2, "/quick/own");
    peer.post(3, "/impatient/own", "Content-Length: 3\r\n");
    peer.body(3, b"a");
    assert_eq!(peer.wait(2).text(), "quick[]");
    assert_eq!(peer.answered(1).end, None, "what was asked first takes longer");
    let impatient = peer.wait(3);
    assert_eq!((impatient.heads.len(), impatient.end), (0, Some(Ended::Reset)));
    assert_eq!(peer.wait(1).text(), "slow[]");
    assert_eq!(logged("/impatient/own").unwrap(), "POST 408 body 1 sent 0 request 3");
}

#[test]
fn each_has_subrequests_of_its_own() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    let streams = 1..=20;
    streams.clone().for_each(|stream| peer.get(stream, &format!("/page/{stream}")));
    for stream in streams {
        assert_eq!(peer.wait(stream).text(), "part[]page[]part[]", "stream {stream}");
        assert_eq!(
            logged(&format!("/page/{stream}")).unwrap(),
            format!("GET 200 body 0 sent 18 request {stream}")
        );
    }
}

#[test]
fn each_keeps_the_generation_that_it_was_begun_with() {
    let mut site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.post(1, "/generation/first", "");
    peer.get(2, "/generation/second");
    assert_eq!(peer.wait(2).text(), "one[]");
    site.publish(&SERVER.replace("echo one", "echo two"));
    peer.get(3, "/generation/third");
    assert_eq!(peer.wait(3).text(), "two[]");
    assert!(site.is_alive(1), "a request of the first generation is under way");
    peer.body(1, b"late");
    peer.end(1);
    assert_eq!(peer.wait(1).text(), "one[late]");
    assert!(wait_until(PATIENCE, || !site.is_alive(1)), "nobody uses the first generation any more");
}

#[test]
fn bodies_are_limited_and_have_the_length_that_was_announced() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.post(1, "/small/announced", "Content-Length: 11\r\n");
    assert_eq!(peer.wait(1).status(), "413");
    peer.post(2, "/small/counted", "");
    peer.body(2, b"01234567890");
    assert_eq!(peer.wait(2).status(), "413");
    peer.post(3, "/two/long", "Content-Length: 3\r\n");
    peer.body(3, b"four");
    assert_eq!(peer.wait(3).status(), "400");
    peer.post(4, "/two/short", "Content-Length: 3\r\n");
    peer.body(4, b"ab");
    peer.end(4);
    assert_eq!(peer.wait(4).status(), "400");
}

#[test]
fn who_waits_to_be_told_so_is_told_to_go_on() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.post(1, "/two/expects", "Content-Length: 2\r\nExpect: 100-continue\r\n");
    assert!(wait_until(PATIENCE, || !peer.answered(1).heads.is_empty()));
    assert_eq!(peer.answered(1).heads, ["100"]);
    peer.body(1, b"go");
    peer.end(1);
    let answered = peer.wait(1);
    assert_eq!((answered.heads.len(), answered.text()), (2, "one[go]"));
}

#[test]
fn what_is_larger_than_a_window_comes_in_order() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    let sent: Vec<u8> = (0..STREAM_WINDOW_BYTES * 3).map(|at| b'a' + (at % 23) as u8).collect();
    peer.post(1, "/two/upload", "");
    peer.get(2, "/large/");
    // The server reads no more than a stream has room for, and the client waits.
    peer.body(1, &sent);
    peer.end(1);
    assert!(peer.wait(1).body == [b"one[", &sent[..], b"]"].concat(), "the body comes back");
    let large: Vec<u8> = (0..300_000).map(|at| b'0' + (at % 10) as u8).collect();
    assert!(peer.wait(2).body == large, "300,000 digits in their order");
}

#[test]
fn a_stream_that_is_reset_is_given_up_and_the_others_are_not() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    peer.get(1, "/waits/reset");
    peer.get(2, "/slow/stays");
    peer.reset(1);
    assert!(wait_until(PATIENCE, || logged("/waits/reset").is_some()), "it waits for a minute");
    assert_eq!(logged("/waits/reset").unwrap(), "GET 499 body 0 sent 0 request 1");
    assert_eq!(peer.wait(2).text(), "slow[]");
    peer.get(3, "/waits/dropped");
    drop(peer);
    assert!(wait_until(PATIENCE, || logged("/waits/dropped").is_some()), "the connection is gone");
}

/// A filter that waits is asked when what it waits for has come, and not over and over.
#[test]
fn a_filter_waits_without_spinning_beside_others() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    let paths = [(1, "/later/alone", "later[]"), (2, "/laterpage/parts", "part[]later[]part[]")];
    paths.iter().for_each(|(stream, path, _)| peer.get(*stream, path));
    // Takes a while, in which the filters could be asked thousands of times.
    peer.get(3, "/slow/meanwhile");
    assert_eq!(peer.wait(3).text(), "slow[]");
    for (stream, path, text) in paths {
        let gate = gate(path);
        let looks = gate.looks.load(Ordering::SeqCst);
        assert!((1..=8).contains(&looks), "{path}: {looks} looks");
        assert_eq!(peer.answered(stream).end, None, "{path} waits");
        gate.open();
        assert_eq!(peer.wait(stream).text(), text);
    }
}

#[test]
fn who_leaves_while_a_filter_waits_is_noticed() {
    let site = Site::start(SERVER);
    let mut peer = connect(&site);
    for (stream, path) in [(1, "/later/left"), (2, "/laterpage/left")] {
        peer.get(stream, path);
        let looks = || gate(path).looks.load(Ordering::SeqCst) > 0;
        assert!(wait_until(PATIENCE, looks), "the filter of {path} waits");
        peer.reset(stream);
        assert!(wait_until(PATIENCE, || logged(path).is_some()), "{path} is given up");
        assert_eq!(peer.wait(stream).end, Some(Ended::Reset));
    }
}
