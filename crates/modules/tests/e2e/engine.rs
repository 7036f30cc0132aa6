//! The engine end to end: filters, framing, back-pressure, redirects, connections.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, Lines, Site, load};
use clearway_http::{
    BodyFilter, Chunk, Cost, Exchange, FilterSpec, Mark, Module, Next, Phase, PhaseHandler, Step, Store,
};
use clearway_log::{Disk, Writer};
use clearway_testkit::wait_until;

/// Answers under `/stream/` with three chunks of unknown total length, and under `/huge/` with more than
/// any socket takes at once.
static STREAM: Module = Module {
    name: "test_stream",
    phases: &[PhaseHandler { phase: Phase::Access, cost: Cost::Cheap, enabled: |_| true, handler: stream }],
    ..Module::EMPTY
};

/// Makes everything upper case, and holds the last byte of each chunk back until the next one.
static SHOUT: Module = Module {
    name: "test_shout",
    filters: &[FilterSpec {
        enabled: |_| true,
        filter: |filtering| {
            if !filtering.request.path().starts_with(b"/stream/shout") {
                return None;
            }
            filtering.head().headers.add(b"X-Shout", b"yes");
            Some(Box::new(Shout { held: Vec::new() }))
        },
    }],
    ..Module::EMPTY
};

struct Shout {
    held: Vec<u8>,
}

impl BodyFilter for Shout {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        let mut text = std::mem::take(&mut self.held);
        text.extend(chunk.bytes().to_ascii_uppercase());
        if mark == Mark::More && !text.is_empty() {
            self.held = text.split_off(text.len() - 1);
        }
        next.push(Chunk::Owned(text), mark);
    }
}

const HUGE_BYTES: usize = 32 * 1024 * 1024;

fn stream<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    if exchange.request.path().starts_with(b"/huge/") {
        return Step::Wait(Box::pin(huge(exchange)));
    }
    if exchange.request.path().starts_with(b"/echo/") {
        return Step::Wait(Box::pin(echo(exchange)));
    }
    if exchange.request.path().starts_with(b"/late/") {
        return Step::Wait(Box::pin(late(exchange)));
    }
    if !exchange.request.path().starts_with(b"/stream/") {
        return Step::Declined;
    }
    exchange.output.head().status = 200;
    for text in ["one,", "two,"] {
        let _ = exchange.output.write(exchange.request, Chunk::from(text.as_bytes()), Mark::More);
    }
    let _ = exchange.output.write(exchange.request, Chunk::Owned(b"three".to_vec()), Mark::Last);
    Step::Done
}

/// Sends the request body back.
async fn echo(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let body = match exchange.read_body(Store::AsConfigured).await {
        Ok(body) => body.map(|body| body.in_memory().expect("a small one").clone()).unwrap_or_default(),
        Err(answer) => return Step::Respond(answer),
    };
    exchange.output.head().status = 200;
    exchange.output.head().content_length = Some(body.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Shared(body), Mark::Last);
    Step::Done
}

/// Begins to answer before it wants the body.
async fn late(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    exchange.output.head().status = 200;
    exchange.output.head().content_length = Some(14);
    let _ = exchange.output.write(exchange.request, Chunk::from(&b"before "[..]), Mark::Flush);
    exchange.output.ready(exchange.request).await.unwrap();
    let body = exchange.read_body(Store::AsConfigured).await.unwrap();
    assert_eq!(body.map(|body| body.len()), Some(4));
    let _ = exchange.output.write(exchange.request, Chunk::from(&b"behind\n"[..]), Mark::Last);
    Step::Done
}

async fn huge(exchange: Exchange<'_, '_>) -> Step<'static> {
    let Exchange { request, mut output, .. } = exchange;
    output.head().status = 200;
    output.head().content_length = Some(HUGE_BYTES as u64);
    let piece = bytes::Bytes::from(vec![b'h'; 1024 * 1024]);
    for _ in 0..HUGE_BYTES / piece.len() {
        let pushed = output.write(request, Chunk::Shared(piece.clone()), Mark::More);
        assert_eq!(pushed, clearway_http::Pushed::Full);
        if output.ready(request).await.is_err() {
            break;
        }
    }
    Step::Done
}

const SITE: &str = "
    server {
        listen 127.0.0.1:PORT;
        root ROOT;
        error_page 404 /custom.html;
        location /short { return 200 short; }
        location /loop { try_files /none /loop; }
        location /named { try_files /none @other; }
        location @other { return 200 'other $uri'; }
        location ~ ^/user/(?<who>\\w+)/(\\d+)$ { return 200 '$who $2 $arg_x $host'; }
        location /slow { keepalive_timeout 300ms; return 200 slow; }
    }
    server { listen 127.0.0.1:PORT; server_name ~^(?<sub>\\w+)\\.example\\.com$; return 200 'sub $sub'; }
";

fn site() -> Site {
    Site::start_with(SITE, &[&SHOUT, &STREAM])
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn unknown_length_is_chunked_and_filters_see_every_chunk() {
    let site = site();
    let answer = site.get("/stream/plain");
    assert!(answer.contains("Transfer-Encoding: chunked\r\n"), "{answer}");
    assert_eq!(body(&answer), "4\r\none,\r\n4\r\ntwo,\r\n5\r\nthree\r\n0\r\n\r\n");
    let answer = site.get("/stream/shout");
    assert!(answer.contains("X-Shout: yes\r\n"), "{answer}");
    assert_eq!(body(&answer), "3\r\nONE\r\n4\r\n,TWO\r\n6\r\n,THREE\r\n0\r\n\r\n");
}

#[test]
fn old_clients_get_the_end_of_the_connection_instead_of_chunks() {
    let site = site();
    let mut client = site.connect();
    client.send("GET /stream/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    assert!(answer.contains("Connection: close\r\n") && !answer.contains("chunked"), "{answer}");
    assert_eq!(body(&answer), "one,two,three");
    let mut client = site.connect();
    client.send("GET /stream/x\r\n");
    assert_eq!(client.read_to_end(), b"one,two,three");
}

#[test]
fn a_huge_response_arrives_whole_through_full_buffers() {
    let site = site();
    let mut client = site.connect();
    client.send("GET /huge/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = client.read_to_end();
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - head, HUGE_BYTES);
    assert!(answer[head..].iter().all(|&byte| byte == b'h'));
}

#[test]
fn bodies_are_read_as_they_come() {
    let site = Site::start_with("server { listen 127.0.0.1:PORT; }", &[&STREAM]);
    let mut client = site.connect();
    client.send("POST /echo/ HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("01234");
    client.send("56789POST /echo/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab");
    assert!(client.read_until("0123456789").starts_with("HTTP/1.1 200 OK\r\n"));
    client.send("c\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\nPOST /echo/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_until("abcde").contains("Content-Length: 5\r\n"));
    assert!(client.read_until("\r\n\r\n").contains("Content-Length: 0\r\n"));
    client.send("POST /echo/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx");
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 400 Bad Request\r\n"));

    let site = Site::start_with("server { listen 127.0.0.1:PORT; client_body_timeout 300ms; }", &[&STREAM]);
    let mut client = site.connect();
    client.send("POST /echo/ HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(client.read_to_end(), b"", "closed when nothing more comes");
}

#[test]
fn nobody_is_told_to_continue_in_the_middle_of_an_answer() {
    let site = Site::start_with("server { listen 127.0.0.1:PORT; }", &[&STREAM]);
    let mut client = site.connect();
    client.send("POST /late/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert!(client.read_until("before ").starts_with("HTTP/1.1 200 OK\r\n"));
    client.send("body");
    assert_eq!(client.read_until("behind\n"), "behind\n");
}

#[test]
fn a_body_nobody_wants_is_dropped_before_the_next_request() {
    let site = site();
    let mut client = site.connect();
    let body = "x".repeat(300_000);
    client.send(&format!("POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n{body}"));
    client.send("GET /user/me/2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_until("me 2  a").contains("\r\n\r\nshortHTTP/1.1 200 OK\r\n"));
    client.send("POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 413 Request Entity Too Large\r\n"));
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let site = Site::start_with(
        "server { listen 127.0.0.1:PORT; send_timeout 200ms; access_log ROOT/a.log; }",
        &[&STREAM],
    );
    let mut client = site.connect();
    client.send("GET /huge/x HTTP/1.1\r\nHost: a\r\n\r\n");
    // Handlers say what they send; this one has not.
    site.expect_logged("client timed out (110: Connection timed out), client");
    assert!(client.read_available() < HUGE_BYTES);
    let log = site.wait_lines("a.log", 1);
    assert!(log.contains("\"GET /huge/x HTTP/1.1\" 200 "), "{log}");
}

/// Whether this is logged of one of several clients: where the machine is slow, a server learns of a reset
/// earlier or later than usual.
fn is_logged_of_one(site: &Site, text: &str, client: impl Fn(Client)) -> bool {
    (0..30).any(|_| {
        client(site.connect());
        wait_until(Duration::from_secs(1), || site.has_logged(text))
    })
}

#[test]
fn a_client_that_resets_while_it_is_waited_for_has_closed_prematurely() {
    let site = Site::start_with("server { listen 127.0.0.1:PORT; root ROOT; sendfile on; }", &[&STREAM]);
    site.file("file", &vec![0; HUGE_BYTES]);
    for (target, action) in [("/huge/x", ""), ("/file", " while sending response to client")] {
        let closed = "[info] client prematurely closed connection (104: Connection reset by peer)";
        let request = format!("client: 127.0.0.1, server: , request: \"GET {target} HTTP/1.1\"");
        let found = is_logged_of_one(&site, &format!("{closed}{action}, {request}"), |mut client| {
            client.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            // What is not read makes a reset of the end.
            client.wait_for_silence();
        });
        assert!(found, "{target}");
    }
}

#[test]
fn a_client_that_resets_before_it_is_answered_makes_the_call_fail() {
    let site = Site::start_with("server { listen 127.0.0.1:PORT; root ROOT; }", &[&STREAM]);
    let text = "[info] writev() failed (104: Connection reset by peer), client: 127.0.0.1, server: , ";
    assert!(is_logged_of_one(&site, text, |mut client| {
        client.send("GET /stream/first HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_for_silence();
        client.send("GET /stream/next HTTP/1.1\r\nHost: a\r\n\r\n");
    }));
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    let site = site();
    let mut client = site.connect();
    let mut requests = String::new();
    for number in 0..50 {
        requests += &format!("GET /user/u{number}/1?x=y HTTP/1.1\r\nHost: Local\r\n\r\n");
        requests += "POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        requests += "HEAD /short HTTP/1.1\r\nHost: a\r\n\r\n";
    }
    client.send(&requests);
    for number in 0..50 {
        let answer = client.read_until(&format!("u{number} 1 y local"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(client.read_until("\r\n\r\nshort").contains("Content-Length: 5\r\n"));
        assert!(client.read_until("\r\n\r\n").contains("Content-Length: 5\r\n"));
    }
}

#[test]
fn redirects_end_and_error_pages_are_used_once() {
    let site = site();
    site.file("custom.html", b"<p>custom</p>");
    let answer = site.get("/nothing");
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
    assert_eq!(body(&answer), "<p>custom</p>");
    std::fs::rename(site.root.join("custom.html"), site.root.join("gone")).unwrap();
    assert!(body(&site.get("/nothing")).contains("<center>clearway/"));
    assert_eq!(body(&site.get("/named/x")), "other /named/x");
    assert!(site.get("/loop").starts_with("HTTP/1.1 500 "));
    site.expect_logged("rewrite or internal redirection cycle while internally redirecting to \"/loop\"");
}

#[test]
fn the_host_chooses_the_server() {
    let site = site();
    let mut client = site.connect();
    client.send("GET / HTTP/1.1\r\nHost: WWW.Example.com:1\r\n\r\n");
    assert!(client.read_until("sub www").contains("200 OK"));
}

#[test]
fn idle_connections_end_by_timeout_and_by_stopping() {
    let site = site();
    let mut client = site.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(String::from_utf8(client.read_to_end()).unwrap().ends_with("slow"));

    let mut client = site.connect();
    client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.read_until("short").contains("Connection: keep-alive\r\n"));
    site.stop();
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn half_a_request_is_given_up_silently() {
    let site = Site::start(
        "server { listen 127.0.0.1:PORT; client_header_timeout 200ms; access_log ROOT/a.log; return 200; }",
    );
    for half in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let mut client = site.connect();
        client.send(half);
        assert_eq!(client.read_to_end(), b"", "{half:?}");
    }
    site.expect_logged("client timed out (110: Connection timed out) while waiting for request, client: 127");
    site.expect_logged("while reading client request headers, client: 127.0.0.1, server: , request: \"GET /");
    let log = site.wait_lines("a.log", 2);
    assert_eq!(log.matches("\" 408 0 \"-\" \"-\"").count(), 2, "{log}");
}

#[test]
fn mistakes_are_told_in_the_words_of_nginx() {
    let cases = [
        ("server { listen 80; listen 80; }", "a duplicate listen 0.0.0.0:80 in nginx.conf:2"),
        ("server { location /a { } location /a { } }", "duplicate location \"/a\" in nginx.conf:2"),
        ("server { return 200 $nothing; }", "unknown \"nothing\" variable"),
        ("server { return x; }", "invalid return code \"x\" in nginx.conf:2"),
        ("server { error_page 200 /x; }", "value \"200\" must be between 300 and 599 in nginx.conf:2"),
        (
            "server { location /a { location /b { } } }",
            "location \"/b\" is outside location \"/a\" in nginx.conf:2",
        ),
        (
            "server { location /a { root /x; alias /y; } }",
            "\"alias\" directive is duplicate, \"root\" directive was specified earlier in nginx.conf:2",
        ),
        (
            "keepalive_timeout 1; keepalive_timeout 2;",
            "\"keepalive_timeout\" directive is duplicate in nginx.conf:2",
        ),
        ("index a; listen 80;", "\"listen\" directive is not allowed here in nginx.conf:2"),
        ("access_log a b;", "unknown log format \"b\" in nginx.conf:2"),
        ("server { try_files a =x; }", "invalid code \"=x\" in nginx.conf:2"),
    ];
    let writer = Arc::new(Writer::new(Box::new(Disk)));
    writer.start().unwrap();
    for (http, message) in cases {
        let root = std::env::temp_dir();
        let error = load(http, &root, &writer, &Arc::new(Lines::default()), &[]).err();
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(message), "{http}");
    }
    let http = "server { server_name a; } server { server_name a; } server { server_name b/; }";
    let loaded = load(http, &std::env::temp_dir(), &writer, &Arc::new(Lines::default()), &[]).unwrap();
    let warnings: Vec<_> = loaded.1.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "server name \"b/\" has suspicious symbols in nginx.conf:2",
            "conflicting server name \"a\" on 0.0.0.0:8000, ignored"
        ]
    );
}
