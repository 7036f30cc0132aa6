//! What a request that is passed on costs where both connections are kept, and one that a cache answers:
//! system calls, as strace sees them. Where there is no strace, or it may not look, nothing is counted.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};

use crate::tls;

/// Where the calls are written.
const CALLS: &str = "calls.log";

/// Each receives, sends, connects, closes, or has a descriptor watched. epoll_wait is not among them: one is
/// for all that is ready; nor are read and write, which logs use.
const TRACED: &str = "trace=%network,readv,writev,sendfile,close,epoll_ctl";

/// The same, and what is asked of files.
const TRACED_WITH_FILES: &str =
    "trace=%network,readv,writev,sendfile,close,epoll_ctl,%fstat,statx,open,openat,openat2,pread64,preadv2";

/// Requests that are counted, behind as many that are not.
const REQUESTS: usize = 50;

/// By then connections that were made for the first requests alone are closed.
const SETTLED_AFTER: Duration = Duration::from_millis(1500);

/// Answers every request with 1 KiB.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n{}", "x".repeat(1024));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                // A request comes in one piece.
                while let Ok(1..) = stream.read(&mut part) {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

fn may_trace() -> bool {
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    strace.status().is_ok_and(|status| status.success())
}

fn start(traced: &str, location: &str) -> Server {
    let http = format!(
        "proxy_cache_path %%PREFIX%%/cache keys_zone=one:1m use_temp_path=off;
         upstream origins {{ server 127.0.0.1:{}; keepalive 4; }}
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ {location} proxy_pass http://origins; }} }}",
        origin()
    );
    let strace = ["strace", "-D", "-f", "-qq", "-s", "0", "-e", traced, "-o", CALLS];
    Setup::http(Binary::under_test(), &http).through(&strace).start()
}

/// How often each of these calls was begun from a line of the record on, by threads that serve: what looks
/// after them asks the kernel about them where the machine is busy.
fn count(record: &str, from: usize, names: &[&str]) -> usize {
    let calls = |from| record.lines().skip(from).filter_map(|line| line.split_once(' '));
    let is = |call: &str, names: &[&str]| {
        let begins = |name| call.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
        names.iter().any(|&name| begins(name))
    };
    let serve: HashSet<&str> =
        calls(0).filter(|(_, call)| is(call, SENDING)).map(|(thread, _)| thread).collect();
    calls(from).filter(|(thread, call)| serve.contains(thread) && is(call, names)).count()
}

const RECEIVING: &[&str] = &["recvfrom", "recvmsg", "readv"];
const SENDING: &[&str] = &["sendto", "sendmsg", "writev", "sendfile"];
const OTHERS: &[&str] = &["connect", "socket", "close", "accept4", "epoll_ctl", "getsockopt", "setsockopt"];

const LOOKING: &[&str] = &["fstat", "newfstatat", "statx"];
const READING: &[&str] = &["open", "openat", "openat2", "pread64", "preadv2"];

fn expect_two_each(request: &str) {
    let server = start(TRACED, "");
    let mut client = server.connect();
    let mut ask = || (0..REQUESTS).for_each(|_| assert_eq!(client.ask(request).status, 200));
    ask();
    // A server that is new is not trusted with a POST on a connection that has just served another one, and
    // what is too much of these is closed a second later.
    wait_until(SETTLED_AFTER, || false);
    ask();
    let sent = |from| count(&server.read(CALLS), from, SENDING);
    assert!(wait_until(PATIENCE, || sent(0) >= 4 * REQUESTS), "the record ends early");
    let from = server.read(CALLS).lines().count();
    ask();
    assert!(wait_until(PATIENCE, || sent(from) >= 2 * REQUESTS), "the record ends early");
    let record = server.read(CALLS);
    let counts = [RECEIVING, SENDING, OTHERS].map(|names| count(&record, from, names));
    // Beside requests, files and connections are closed now and then.
    let rest = REQUESTS / 10;
    assert!(counts[0] <= 2 * REQUESTS + rest && counts[1] <= 2 * REQUESTS + rest, "{counts:?}");
    assert!(counts[2] <= rest, "{counts:?}");
}

/// A response that a cache has in memory: the request, a look at its file, the response.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx opens and reads the file")]
#[expect(clippy::disallowed_macros, reason = "a test says why it did nothing")]
fn a_hot_hit_takes_a_look_at_its_file_and_no_more() {
    if !may_trace() {
        println!("skipped: nothing can be traced here");
        return;
    }
    let server = start(TRACED_WITH_FILES, "proxy_cache one; proxy_cache_valid 1h;");
    let mut client = server.connect();
    let mut ask = || {
        (0..REQUESTS).for_each(|_| {
            assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        });
    };
    ask();
    wait_until(SETTLED_AFTER, || false);
    ask();
    let sent = |from| count(&server.read(CALLS), from, SENDING);
    assert!(wait_until(PATIENCE, || sent(0) >= 2 * REQUESTS), "the record ends early");
    let from = server.read(CALLS).lines().count();
    ask();
    assert!(wait_until(PATIENCE, || sent(from) >= REQUESTS), "the record ends early");
    let record = server.read(CALLS);
    let counts = [RECEIVING, SENDING, LOOKING, READING].map(|names| count(&record, from, names));
    // The cache looks after its files now and then.
    let rest = REQUESTS / 5;
    assert!(counts[..3].iter().all(|&count| count <= REQUESTS + rest), "{counts:?}");
    assert!(counts[2] >= REQUESTS && counts[3] <= rest, "{counts:?}");
}

#[test]
#[expect(clippy::disallowed_macros, reason = "a test says why it did nothing")]
fn a_request_takes_two_calls_to_receive_and_two_to_send() {
    if !may_trace() {
        println!("skipped: nothing can be traced here");
        return;
    }
    expect_two_each("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_two_each("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
}

/// The answer of a connection with TLS that ends with it: one call for the handshake, and one for the
/// response with what says that nothing follows. Where something is logged that is said behind the line.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx says that nothing follows by itself")]
#[expect(clippy::disallowed_macros, reason = "a test says why it did nothing")]
fn the_last_response_leaves_with_the_end_of_its_connection() {
    const CERTIFICATE: &[u8] = include_bytes!("../../../crates/tls/tests/data/ecdsa.pem");
    const KEY: &[u8] = include_bytes!("../../../crates/tls/tests/data/ecdsa.key");
    if !may_trace() {
        println!("skipped: nothing can be traced here");
        return;
    }
    let http = "
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        ssl_session_tickets off;
        error_log logs/error.log crit;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            location / { access_log off; return 200 fine; }
            location /logged { return 200 fine; }
        }";
    let strace = ["strace", "-D", "-f", "-qq", "-s", "0", "-e", TRACED, "-o", CALLS];
    let setup = crate::deployed("events { }", http).through(&strace);
    let server = setup.file("example.pem", CERTIFICATE).file("example.key", KEY).start();
    let config = tls::config(tls::TLS13);
    let sends = |target| {
        let from = server.read(CALLS).lines().count();
        for _ in 0..REQUESTS {
            assert_eq!(tls::body(&tls::ask(&mut tls::connect(&server, &config), target)), b"fine");
        }
        let closed = |record: &str| count(record, from, &["close"]) >= REQUESTS;
        assert!(wait_until(PATIENCE, || closed(&server.read(CALLS))), "the record ends early");
        count(&server.read(CALLS), from, SENDING)
    };
    // What was logged of others may wait to be written now and then.
    let rest = REQUESTS / 5;
    let (quiet, logged) = (sends("/"), sends("/logged"));
    assert!((2 * REQUESTS..=2 * REQUESTS + rest).contains(&quiet), "{quiet}");
    assert!(logged >= 3 * REQUESTS, "{logged}");
}
