//! Processes that are killed or told to end behind each other's back.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::is_running;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Connection, End, wait_until};
use rustix::process::Signal;

use crate::{config, setup};

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; root site; location = / { return 200 ok; } }";
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const BIG_BYTES: usize = 24 << 20;

#[test]
fn a_worker_that_ends_is_replaced_and_told_of() {
    let server = setup("", HTTP).start();
    for (signal, told) in [(Signal::KILL, "exited on signal 9"), (Signal::QUIT, "exited with code 0")] {
        // Answered, so that it is past its start: a server whose first worker fails does not start.
        assert_eq!(server.get("/").text(), "ok");
        let worker = server.worker();
        send_signal(worker, signal);
        server.wait_gone(worker);
        let log = server.wait_log("logs/error.log", told);
        let level = if signal == Signal::QUIT { "[notice]" } else { "[alert]" };
        assert!(log.lines().any(|line| line.contains(told) && line.contains(level)), "{log}");
        assert_ne!(server.worker_after(worker), worker);
    }
}

#[test]
fn zones_survive_a_worker() {
    let http = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;
        server { listen 127.0.0.1:%%PORT%%; location / { limit_req zone=one; root site; } }";
    let server = setup("", http).file("site/f", "file").start();
    assert_eq!(server.get("/f").status, 200);
    assert_eq!(server.get("/f").status, 503);
    let worker = server.worker();
    send_signal(worker, Signal::KILL);
    server.worker_after(worker);
    assert_eq!(server.get("/f").status, 503, "what was counted is not forgotten");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "workers of nginx go on for ever")]
fn a_worker_without_its_master_finishes_and_ends() {
    let mut server = setup("", HTTP).file("site/big", vec![b'x'; BIG_BYTES]).start();
    let worker = server.worker();
    let (mut idle, mut busy) = (server.connect(), server.connect());
    assert_eq!(idle.ask(ASK).text(), "ok");
    busy.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(busy.next_event(PATIENCE), End::Data);
    server.signal(Signal::KILL);
    assert!(server.wait_exit(PATIENCE).is_some());
    assert_eq!(idle.next_event(PATIENCE), End::Closed, "idle connections end");
    let refused = wait_until(PATIENCE, || Connection::open(&server.address()).is_err());
    assert!(refused, "nobody listens any more: {}", server.described());
    assert!(is_running(worker), "a download is on its way");
    assert_eq!(busy.response().body.len(), BIG_BYTES);
    server.wait_gone(worker);

    server.configure(&config("", HTTP).replace("daemon off;", "daemon on;"));
    let again = server.run(&[]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(server.get("/").text(), "ok", "a new start succeeds");
    let pid = server.pid_file().expect("the pid file of the dead one is in nobody's way");
    server.follow(pid);
    assert!(is_running(pid));
}

#[test]
fn signals_to_the_worker_itself() {
    let server = setup("", HTTP).start();
    let mut kept = server.connect();
    assert_eq!(kept.ask(ASK).text(), "ok");
    let worker = server.worker();
    // HUP is the master's business; a worker of nginx ignores it.
    send_signal(worker, Signal::HUP);
    send_signal(worker, Signal::USR1);
    assert_eq!(kept.ask(ASK).text(), "ok");
    assert_eq!(server.workers(), [worker]);
    send_signal(worker, Signal::TERM);
    server.wait_gone(worker);
    server.worker_after(worker);
    assert_eq!(server.get("/").text(), "ok");
}
