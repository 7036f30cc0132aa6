//! Clients that leave, or only end their direction, while their request waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use clearway_http::{
    BodyFilter, Chunk, Cost, Exchange, FilterSpec, Mark, Module, Next, POSTPONE, Phase, PhaseHandler, Step,
};
use clearway_modules::access_control::auth_request::AUTH_REQUEST;
use clearway_modules::filters::ssi::SSI;
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::support::{Client, Site};

/// Handlers that wait forever below `/never`, for a moment below `/soon`.
static WAITING: Module = Module {
    name: "test_waiting",
    phases: &[PhaseHandler { phase: Phase::PreContent, cost: Cost::Cheap, enabled: |_| true, handler: wait }],
    ..Module::EMPTY
};

/// Bodies below `/busy` are filtered without end.
static BUSY: Module = Module {
    name: "test_busy",
    filters: &[FilterSpec {
        enabled: |_| true,
        filter: |filtering| {
            filtering.request.path().starts_with(b"/busy").then(|| Box::new(Busy) as Box<dyn BodyFilter>)
        },
    }],
    ..Module::EMPTY
};

const MODULES: &[&Module] = &[&AUTH_REQUEST, &WAITING, &SSI, &POSTPONE, &BUSY];

const SITE: &str = "log_format line '$uri $status $bytes_sent';
    server { listen 127.0.0.1:PORT; root ROOT; default_type text/html; ssi on;
    access_log ROOT/access.log line;
    location /guarded { auth_request /never/auth; }
    }";

static WAITERS: AtomicU32 = AtomicU32::new(0);

/// Counts handlers that wait.
struct Waiter;

impl Waiter {
    fn begin() -> Self {
        WAITERS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITERS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let path = exchange.request.path();
    if path.starts_with(b"/never") {
        return Step::Wait(Box::pin(async {
            let _waiter = Waiter::begin();
            std::future::pending().await
        }));
    }
    if path.starts_with(b"/soon") {
        return Step::Wait(Box::pin(async {
            nap(Duration::from_millis(400)).await;
            Step::status(403)
        }));
    }
    Step::Declined
}

/// Waits for another thread to have slept.
async fn nap(time: Duration) {
    let mut ended: Option<Arc<AtomicBool>> = None;
    poll_fn(|cx| match &ended {
        Some(ended) if ended.load(Ordering::SeqCst) => Poll::Ready(()),
        Some(_) => Poll::Pending,
        None => {
            let (flag, waker) = (Arc::new(AtomicBool::new(false)), cx.waker().clone());
            ended = Some(Arc::clone(&flag));
            std::thread::spawn(move || {
                std::thread::sleep(time);
                flag.store(true, Ordering::SeqCst);
                waker.wake();
            });
            Poll::Pending
        }
    })
    .await;
}

struct Busy;

impl BodyFilter for Busy {
    fn push<'c>(&mut self, _: Chunk<'c>, _: Mark, _: &mut Next<'_, 'c>) {}

    fn is_busy(&self) -> bool {
        true
    }
}

fn start() -> Site {
    let site = Site::start_with(SITE, MODULES);
    let include = "<!--#include virtual='/never/1' -->";
    site.file("short.html", format!("a{include}b{include}").as_bytes());
    site.file("long.html", format!("{}{include}b{include}", "x".repeat(5000)).as_bytes());
    site.file("busy.txt", b"busy").file("guarded", b"guarded");
    site
}

fn ask(site: &Site, target: &str) -> Client {
    let mut client = site.connect();
    client.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

fn expect_waiters(count: impl Fn(u32) -> bool, what: &str) {
    assert!(wait_until(PATIENCE, || count(WAITERS.load(Ordering::SeqCst))), "{what}");
}

#[test]
fn nothing_waits_for_a_client_that_has_left() {
    let site = start();
    for (lines, (target, logged)) in [
        ("/never/main", "/never/main 499 0"),
        // Subrequests, as long as nothing was sent.
        ("/short.html", "/short.html 499 0"),
        ("/guarded", "/guarded 499 0"),
    ]
    .into_iter()
    .enumerate()
    {
        let client = ask(&site, target);
        expect_waiters(|count| count > 0, "a handler waits");
        drop(client);
        let log = site.wait_lines("access.log", lines + 1);
        assert_eq!(log.lines().nth(lines), Some(logged), "{target}");
        expect_waiters(|count| count == 0, "what it waits for is dropped");
    }
    // What was sent is a response; the log has its status, as nginx's has.
    let mut client = ask(&site, "/long.html");
    client.read_until("xxxx");
    expect_waiters(|count| count > 0, "subrequests wait");
    drop(client);
    let log = site.wait_lines("access.log", 4);
    assert!(log.lines().nth(3).unwrap().starts_with("/long.html 200 5"), "{log}");
    expect_waiters(|count| count == 0, "subrequests are dropped");
    site.expect_logged("[info] client prematurely closed connection, client: 127.0.0.1, server: , request: ");
    // One that breaks its connection need not be doubted.
    let client = ask(&site, "/never/broken");
    expect_waiters(|count| count > 0, "a handler waits");
    let begin = Instant::now();
    client.reset();
    site.wait_lines("access.log", 5);
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
    site.expect_logged("client prematurely closed connection (104: Connection reset by peer)");
}

#[test]
fn a_filter_does_not_work_for_a_client_that_has_left() {
    let site = start();
    drop(ask(&site, "/busy.txt"));
    assert_eq!(site.wait_lines("access.log", 1), "/busy.txt 499 0\n");
}

#[test]
fn a_client_that_has_only_ended_its_direction_is_answered() {
    let site = start();
    let mut client = ask(&site, "/soon");
    client.end_sending();
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 403 "));
    let mut client = ask(&site, "/soon");
    std::thread::sleep(Duration::from_millis(100));
    client.end_sending();
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 403 "));
}
