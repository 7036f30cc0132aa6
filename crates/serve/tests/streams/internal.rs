//! Requests that no client has made.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::channel;

use clearway_runtime::{Tag, Timer};
use clearway_serve::{InternalAnswer, Unanswered, answer_internal};
use clearway_testkit::client::PATIENCE;

use crate::site::{Site, logged};

const SERVER: &str = "
    server {
        listen 127.0.0.1:8000;
        location / { echo one; }
        location /inside/ { internal; echo inside; pause 10; }
        location /page/ { echo page; add_before_body /inside/before; default_type text/html; }
        location /large/ { large 300000; }
    }
    server { listen 127.0.0.1:8000; server_name other; location / { return 204; } }";

/// What a timer's request is answered with.
fn ask(site: &Site, target: &str, host: &str, body_max_bytes: usize) -> Result<InternalAnswer, Unanswered> {
    let (listener, home) = (Arc::clone(&site.listener), site.home(1));
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let (sender, receiver) = channel();
    home.spawn(Tag::NONE, async move {
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + 5);
        poll_fn(|cx| timer.poll_expired(cx)).await;
        sender.send(answer_internal(listener, home, head.as_bytes(), body_max_bytes).await).unwrap();
    });
    receiver.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn a_timer_makes_requests() {
    let site = Site::start(SERVER);
    let answer = |status, body: &str| Ok(InternalAnswer { status, body: body.into() });
    assert_eq!(ask(&site, "/timer/1", "a", 1_000), answer(200, "one[]"));
    assert_eq!(ask(&site, "/timer/2", "other", 0), answer(204, ""));
    assert_eq!(ask(&site, "/inside/timer", "a", 1_000), answer(200, "inside[]"), "it may enter");
    assert_eq!(ask(&site, "/page/timer", "a", 1_000), answer(200, "inside[]page[]"));
    assert!(logged("/timer/1").is_some());
}

#[test]
fn what_is_too_much_or_incomplete_is_no_answer() {
    let site = Site::start(SERVER);
    assert_eq!(ask(&site, "/large/all", "a", 300_000).unwrap().body.len(), 300_000);
    assert_eq!(ask(&site, "/large/some", "a", 299_999), Err(Unanswered));
    assert_eq!(ask(&site, "/malformed", "a\r\nno line", 1_000).map(|answer| answer.status), Ok(400));
}
