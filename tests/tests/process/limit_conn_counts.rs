//! `limit_conn`: requests that are under way count until they end, whatever becomes of the configuration and
//! of the worker that serves them.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::is_running;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Connection, End, Server, wait_until};
use rustix::process::Signal;

use crate::{config, setup};

const HTTP: &str = "limit_conn_zone $binary_remote_addr zone=one:1m; limit_conn_zone $arg_k zone=two:32k;
    log_format status '$request_uri $status $limit_conn_status';
    server { listen 127.0.0.1:%%PORT%%; root site; access_log logs/status.log status;
        location /big { limit_conn one 2; limit_conn two 1; }
        location /small { limit_conn one 2; }
        location /other { limit_conn two 5; }
        location /custom { limit_conn one 2; limit_conn_status 429; limit_conn_log_level warn; }
        location /page { limit_conn one 2; error_page 503 =200 /free; }
        location /dry { limit_conn one 2; limit_conn_dry_run on; }
        location /free { } }";
const BIG_BYTES: usize = 24 << 20;

fn start() -> Server {
    let mut setup = setup("", HTTP).file("site/big", vec![b'x'; BIG_BYTES]);
    for name in ["small", "other", "custom", "page", "dry", "free"] {
        setup = setup.file(&format!("site/{name}"), name);
    }
    setup.start()
}

/// A download that is not read: it is under way until its connection is closed. Requests that were answered
/// before count until they are logged, which comes after their last byte, so it is asked for until it begins.
fn download(server: &Server, target: &str) -> Connection {
    let mut begun = None;
    let begins = || {
        let mut connection = server.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(connection.next_event(PATIENCE), End::Data);
        begun = connection.received().starts_with(b"HTTP/1.1 200 ").then_some(connection);
        begun.is_some()
    };
    assert!(wait_until(PATIENCE, begins), "it may begin");
    begun.expect("waited for")
}

fn status(server: &Server, target: &str) -> u16 {
    server.get(target).status
}

#[test]
fn requests_that_are_under_way_count() {
    let server = start();
    let first = download(&server, "/big");
    assert_eq!((status(&server, "/small"), status(&server, "/dry")), (200, 200));
    let second = download(&server, "/big");
    assert_eq!(status(&server, "/small"), 503);
    assert_eq!(status(&server, "/custom"), 429);
    assert_eq!(server.get("/page").text(), "free");
    assert_eq!(server.get("/dry").text(), "dry");
    assert_eq!((status(&server, "/free"), status(&server, "/other?k=x")), (200, 200));
    drop(first);
    assert!(wait_until(PATIENCE, || status(&server, "/small") == 200), "one may again");
    drop(second);
    let lines = [
        "/small 200 PASSED",
        "/small 503 REJECTED",
        "/custom 429 REJECTED",
        "/page 200 REJECTED",
        "/dry 200 REJECTED_DRY_RUN",
        "/free 200 -",
    ];
    for line in lines {
        server.wait_log("logs/status.log", line);
    }
    server.wait_log("logs/error.log", "[error]");
    for message in ["limiting connections by zone \"one\"", "limiting connections, dry run, by zone \"one\""]
    {
        server.wait_log("logs/error.log", message);
    }
}

#[test]
fn who_is_refused_by_one_zone_is_counted_by_none() {
    let server = start();
    let first = download(&server, "/big?k=a");
    // `two` refuses; `one` must not keep what it counted before.
    assert_eq!((status(&server, "/big?k=a"), status(&server, "/big?k=a")), (503, 503));
    let second = download(&server, "/big?k=b");
    assert_eq!(status(&server, "/small"), 503);
    let long = format!("/other?k={}", "x".repeat(256));
    assert_eq!(status(&server, &long), 200);
    server.wait_log("logs/error.log", "the value of the \"$arg_k\" key is more than 255 bytes: \"xxx");
    drop((first, second));
}

#[test]
fn counts_survive_a_reload() {
    let mut server = start();
    let (first, second) = (download(&server, "/big"), download(&server, "/big"));
    server.configure(&config("", &HTTP.replace("location /free { }", "location /free { return 204; }")));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || status(&server, "/free") == 204), "it is reloaded");
    assert_eq!(status(&server, "/small"), 503);
    drop((first, second));
    assert!(wait_until(PATIENCE, || status(&server, "/small") == 200), "they have ended");
}

#[test]
fn what_another_worker_has_counted_counts() {
    let mut server = start();
    let (first, second) = (download(&server, "/big"), download(&server, "/big"));
    let old = server.worker();
    // What a process cannot change takes another one; the old one goes on with what it has begun.
    let changed = HTTP.replace("location /free { }", "location /free { return 204; }");
    server.configure(&config("env CLEARWAY_TEST=1;", &changed));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || status(&server, "/free") == 204), "another worker serves");
    assert!(is_running(old), "it has downloads on their way");
    assert_eq!(status(&server, "/small"), 503);
    drop(first);
    assert!(wait_until(PATIENCE, || status(&server, "/small") == 200), "one has ended");
    drop(second);
    server.wait_gone(old);
    let again = [download(&server, "/big"), download(&server, "/big")];
    assert_eq!(status(&server, "/small"), 503);
    drop(again);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "the counts of nginx stay as they are")]
fn what_a_killed_worker_has_counted_counts_no_more() {
    let server = start();
    for _ in 0..2 {
        let (first, second) = (download(&server, "/big"), download(&server, "/big"));
        assert_eq!(status(&server, "/small"), 503);
        let worker = server.worker();
        send_signal(worker, Signal::KILL);
        server.wait_gone(worker);
        server.worker_after(worker);
        assert_eq!(status(&server, "/small"), 200, "its requests have ended with it");
        drop((first, second));
    }
}
