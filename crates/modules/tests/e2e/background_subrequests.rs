//! What goes on beside a handler that waits: subrequests in the background, and those in its response.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

use clearway_http::{
    Chunk, Cost, Delivery, Exchange, Mark, Module, POSTPONE, Phase, PhaseHandler, Step, Subrequest,
};
use clearway_modules::filters::ssi::SSI;

use crate::support::Site;

/// Handlers that wait for each other.
static MEETING: Module = Module {
    name: "test_meeting",
    phases: &[
        PhaseHandler {
            phase: Phase::PreContent,
            cost: Cost::Cheap,
            enabled: |_| true,
            handler: refuse_clones,
        },
        PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler },
    ],
    ..Module::EMPTY
};

const MODULES: &[&Module] = &[&SSI, &POSTPONE, &MEETING];

const SITE: &str = "server { listen 127.0.0.1:PORT; root ROOT; default_type text/html; ssi on; }";

/// Which requests have come to where others wait for them, and which ones wait.
static MEETINGS: Mutex<Option<HashMap<Vec<u8>, Meeting>>> = Mutex::new(None);

#[derive(Default)]
struct Meeting {
    is_over: bool,
    waiting: Option<Waker>,
}

fn with_meeting<R>(name: &[u8], look: impl FnOnce(&mut Meeting) -> R) -> R {
    let mut meetings = MEETINGS.lock().unwrap();
    look(meetings.get_or_insert_default().entry(name.to_vec()).or_default())
}

/// Waits until somebody has come to `name`.
async fn wait_for(name: &[u8]) {
    poll_fn(|cx| {
        with_meeting(name, |meeting| {
            meeting.waiting = Some(cx.waker().clone());
            if meeting.is_over { Poll::Ready(()) } else { Poll::Pending }
        })
    })
    .await;
}

fn come_to(name: &[u8]) {
    let waker = with_meeting(name, |meeting| {
        meeting.is_over = true;
        meeting.waiting.take()
    });
    waker.into_iter().for_each(Waker::wake);
}

/// Waits for another thread to have slept.
async fn nap(name: &[u8]) {
    let owned = name.to_vec();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        come_to(&owned);
    });
    wait_for(name).await;
}

/// Those that enter before the content phase.
fn refuse_clones<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let is_clone = exchange.request.path() == b"/cloned" && !exchange.request.is_main();
    if is_clone { Step::status(500) } else { Step::Declined }
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    match exchange.request.path() {
        b"/background" => Step::Wait(Box::pin(begin_background(exchange))),
        b"/cloned" if exchange.request.is_main() => Step::Wait(Box::pin(clone_itself(exchange))),
        b"/cloned" => Step::status(if exchange.request.args() == b"x=1" { 204 } else { 500 }),
        b"/in-order" => Step::Wait(Box::pin(push_includes(exchange))),
        path if path.starts_with(b"/part/") => Step::Wait(Box::pin(answer_part(exchange))),
        _ => Step::Declined,
    }
}

/// Waits for what it has begun in the background.
async fn begin_background(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let wanted = Subrequest::head_only(b"/part/background".to_vec(), Vec::new());
    exchange.start_background(wanted).unwrap();
    wait_for(b"/part/background").await;
    Step::status(403)
}

/// Asks for the same once more.
async fn clone_itself(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let wanted = Subrequest::clone_of(exchange.request, Delivery::HeadOnly);
    match exchange.subrequest(wanted).await {
        Ok(finished) => Step::status(if finished.status() == 204 { 402 } else { 500 }),
        Err(answer) => Step::Respond(answer),
    }
}

/// Waits for what its response includes before it goes on with it, and flushes nothing meanwhile.
async fn push_includes(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    exchange.output.head().status = 200;
    exchange.output.head().content_type = Some((&b"text/html"[..]).into());
    let page = b"a<!--#include virtual='/part/1' -->b<!--#include virtual='/part/2' -->c";
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(page), Mark::More);
    wait_for(b"/part/2").await;
    wait_for(b"/part/1").await;
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(b"d"), Mark::Last);
    Step::Done
}

/// Waits a moment, says that it is there, and answers.
async fn answer_part(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let path = exchange.request.path().to_vec();
    nap(&[b"nap", &path[..]].concat()).await;
    exchange.output.head().status = 200;
    come_to(&path);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(path), Mark::Last);
    Step::Done
}

#[test]
fn the_background_of_a_handler_that_waits_goes_on() {
    let site = Site::start_with(SITE, MODULES);
    assert!(site.get("/background").starts_with("HTTP/1.1 403 "));
}

#[test]
fn what_a_response_includes_goes_on_while_its_handler_waits() {
    let site = Site::start_with(SITE, MODULES);
    let answer = site.get("/in-order");
    let parts: Vec<&str> = ["a", "/part/1", "b", "/part/2", "c", "d"].to_vec();
    let places: Vec<usize> = parts.iter().map(|part| answer.rfind(&format!("{part}\r\n")).unwrap()).collect();
    assert!(places.is_sorted(), "{answer}");
}

#[test]
fn a_clone_enters_at_the_content_phase_of_the_same_location() {
    let site = Site::start_with("server { listen 127.0.0.1:PORT; root ROOT; }", MODULES);
    assert!(site.get("/cloned?x=1").starts_with("HTTP/1.1 402 "));
    assert!(site.get("/cloned?x=2").starts_with("HTTP/1.1 500 "));
}
