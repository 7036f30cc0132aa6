//! Access logs as they are configured: which level's logs hold, files named by variables, buffers.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_log::{Disk, Writer};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::support::{Lines, Site, load};

fn load_error(http: &str) -> String {
    let writer = Arc::new(Writer::new(Box::new(Disk)));
    let loaded = load(http, &std::env::temp_dir(), &writer, &Arc::new(Lines::default()), &[]);
    loaded.err().unwrap().to_string()
}

#[test]
fn the_innermost_level_with_logs_holds_and_off_ends_them() {
    let site = Site::start(
        "log_format uri $uri; access_log ROOT/http.log uri;
         server { listen 127.0.0.1:PORT;
            location / { return 200; }
            location /two { access_log ROOT/one.log uri; access_log ROOT/two.log uri; return 200;
                location /two/inner { return 200; }
                location /two/off { access_log off; return 200; }
            }
         }",
    );
    // A request is logged after its last byte, so the line of the next one may come before.
    for (target, log, lines) in [
        ("/server", "http.log", 1),
        ("/two", "one.log", 1),
        ("/two/inner", "two.log", 2),
        ("/two/off", "two.log", 2),
        ("/end", "http.log", 2),
    ] {
        site.get(target);
        site.wait_lines(log, lines);
    }
    assert_eq!(site.wait_lines("http.log", 2), "/server\n/end\n");
    assert_eq!(site.wait_lines("one.log", 2), "/two\n/two/inner\n");
    assert_eq!(site.wait_lines("two.log", 2), "/two\n/two/inner\n");
}

#[test]
fn a_client_that_has_seen_the_end_of_its_connection_finds_its_line() {
    let site = Site::start(
        "log_format uri $uri;
         server { listen 127.0.0.1:PORT; root ROOT; access_log ROOT/$arg_log.log uri; return 200; }",
    );
    let late = (0..100).filter(|number| {
        // Many in a row are no idle server.
        std::thread::sleep(Duration::from_millis(1));
        site.get(&format!("/{number}?log={}", number % 3));
        let log = fs::read_to_string(site.root.join(format!("{}.log", number % 3)));
        !log.is_ok_and(|log| log.ends_with(&format!("/{number}\n")))
    });
    // A machine that is busy may keep the writer from running for as long as a connection waits for it.
    assert!(late.count() <= 2);
}

#[test]
fn connections_end_though_a_log_hangs() {
    let site = Site::start(
        "log_format block $uri$arg_x; log_format uri $uri;
         server { listen 127.0.0.1:PORT; root ROOT; large_client_header_buffers 4 64k;
            location / { return 200; access_log ROOT/$arg_log block; access_log ROOT/file.log uri; } }",
    );
    let fifo = site.root.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Nobody reads what comes: it holds its writer as soon as a pipe is full.
    let reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let target = format!("/fifo?log=fifo&x={}", "x".repeat(30_000));
    (0..3).for_each(|_| drop(site.get(&target)));
    let begun = Instant::now();
    (0..50).for_each(|_| drop(site.get("/file?log=none")));
    assert!(begun.elapsed() < Duration::from_secs(3), "50 connections took {:?}", begun.elapsed());
    drop(reader);
}

#[test]
fn files_that_variables_name_exist_for_roots_that_exist() {
    let site = Site::start(
        "log_format uri $uri;
         server { listen 127.0.0.1:PORT; root ROOT/$arg_root; access_log ROOT/$arg_log.log uri;
            location /cached/ { open_log_file_cache max=10; return 200; }
            location /index.html { }
         }",
    );
    site.file("here/index.html", b"found");
    for target in [
        "/cached/a?log=a&root=here",
        "/cached/b?log=b&root=here",
        "/cached/lost?log=lost&root=nowhere",
        "/cached/none?root=here",
        "/index.html?log=b&root=here",
        "/cached/c?log=a&root=here",
    ] {
        site.get(target);
    }
    // In any order: a request is logged after its last byte, and the cache is another log's.
    for (log, expected) in [("a.log", ["/cached/a", "/cached/c"]), ("b.log", ["/cached/b", "/index.html"])] {
        let both = site.wait_lines(log, 2);
        let mut lines: Vec<_> = both.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected);
    }
    assert_eq!(site.wait_lines(".log", 1), "/cached/none\n");
    assert!(!site.root.join("lost.log").exists());
}

#[test]
fn a_buffer_holds_for_all_logs_of_a_file_and_is_written_at_the_end() {
    let site = Site::start(
        "log_format uri $uri;
         server { listen 127.0.0.1:PORT; access_log ROOT/a.log uri;
            location / { return 200; }
            location /buffered { access_log ROOT/a.log uri buffer=1k; return 200; }
            location /timed { access_log ROOT/timed.log uri gzip=9 flush=50ms; return 200; }
         }",
    );
    // Over one connection, on which one is logged before the next is answered.
    let mut client = site.connect();
    for target in ["/plain", "/buffered", "/timed"] {
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.read_until("\r\n\r\n");
    }
    assert!(site.writer.flush(PATIENCE));
    assert_eq!(
        fs::read_to_string(site.root.join("a.log")).unwrap(),
        "",
        "as nginx has it, both are buffered"
    );
    let mut packed = Vec::new();
    let is_there = wait_until(PATIENCE, || {
        packed = fs::read(site.root.join("timed.log")).unwrap();
        packed.len() > 3
    });
    assert!(is_there, "written without more lines");
    assert_eq!(packed[..3], [0x1f, 0x8b, 8], "a member of a gzip file");
    assert!(site.writer.shutdown(PATIENCE));
    assert_eq!(site.wait_lines("a.log", 2), "/plain\n/buffered\n");
}

#[test]
fn what_cannot_be_opened_is_refused_after_everything_else_was_read() {
    let error = load_error("access_log /nonexistent/a.log; server { nonsense; }");
    assert_eq!(error, "unknown directive \"nonsense\" in nginx.conf:2");
    let error = load_error("access_log /nonexistent/a.log; server { access_log off; }");
    assert_eq!(error, "open() \"/nonexistent/a.log\" failed (2: No such file or directory)");
}

#[test]
fn missing_files_are_logged_unless_nobody_wants_to_know() {
    let site = Site::start(
        "access_log off;
         server { listen 127.0.0.1:PORT; root ROOT;
            location /quiet { log_not_found off; }
         }",
    );
    for target in ["/quiet/file", "/quiet/directory/", "/loud"] {
        assert!(site.get(target).starts_with("HTTP/1.1 404"), "{target}");
    }
    site.expect_logged("/loud\" failed (2: No such file or directory)");
    assert!(!site.has_logged("/quiet/file\" failed"), "it came before");
    assert!(!site.has_logged("/quiet/directory/index.html\" is not found"));
}
