//! Request bodies that are stored before anything is done with them: in memory, in files, and what goes
//! wrong on the way. `tests/` has no handler that wants a body as it is, so one stands here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clearway_http::{Chunk, Cost, Exchange, Mark, Module, Phase, PhaseHandler, Step, Store, StoredBody};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::support::{Client, Site};

/// Answers under `/stored/` with the body of the request, read twice.
static STORED: Module = Module {
    name: "test_stored",
    phases: &[PhaseHandler {
        phase: Phase::PreContent,
        cost: Cost::Cheap,
        enabled: |_| true,
        handler: |exchange| match exchange.request.path().starts_with(b"/stored/") {
            true => Step::Wait(Box::pin(stored(exchange))),
            false => Step::Declined,
        },
    }],
    ..Module::EMPTY
};

async fn stored(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let body = match exchange.read_body(Store::AsConfigured).await {
        Ok(body) => body,
        Err(answer) => return Step::Respond(answer),
    };
    let text = match body {
        None => b"no body".to_vec(),
        Some(body) => {
            let (whole, pieces) = (read(&body, 1 << 20).await, read(&body, 1000).await);
            assert!(whole == pieces && whole.len() as u64 == body.len());
            whole
        }
    };
    exchange.output.head().status = 200;
    exchange.output.head().content_length = Some(text.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(text), Mark::Last);
    Step::Done
}

async fn read(body: &StoredBody, piece_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let piece = body.read(all.len() as u64, piece_bytes).await.unwrap();
        if piece.is_empty() {
            return all;
        }
        all.extend_from_slice(&piece);
    }
}

const SITE: &str = "
    log_format l '$status $request_length [$request_body] [$request_body_file]';
    access_log ROOT/access.log l;
    client_body_temp_path ROOT/temp 1 2;
    client_body_buffer_size 4k;
    server {
        listen 127.0.0.1:PORT;
        location /stored/ { }
        location /stored/on/ { client_body_in_file_only on; }
        location /stored/clean/ { client_body_in_file_only clean; }
        location /stored/short/ { client_max_body_size 10; }
        location /stored/any/ { client_max_body_size 0; }
        location /stored/nowhere/ { client_body_temp_path ROOT/none; }
        location /stored/hasty/ { client_body_timeout 200ms; }
        location /page/ { error_page 404 = /stored/page; return 404; }
        location /named/ { try_files /none @stored; }
        location @stored { rewrite ^ /stored/named break; }
    }
    server {
        listen 127.0.0.1:PORT;
        server_name early;
        client_body_early_read $arg_early;
        location / { return 200 '[$request_body]'; }
        location = /lengths { return 200 '[$request_length $content_length]'; }
    }
";

fn site() -> Site {
    let site = Site::start_with(SITE, &[&STORED]);
    fs::create_dir(site.root.join("temp")).unwrap();
    site
}

fn text(bytes: usize) -> String {
    (0..bytes).map(|at| char::from(b'a' + (at * 7 / 3 % 26) as u8)).collect()
}

fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn chunked(target: &str, chunks: &[&str]) -> String {
    let mut request = format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in chunks {
        request.push_str(&format!("{:x};x=y\r\n{chunk}\r\n", chunk.len()));
    }
    request + "0\r\nT: t\r\n\r\n"
}

/// The body of the next answer, which has to be a 200.
fn answer(client: &mut Client, length: usize) -> String {
    let head = client.read_until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {length}\r\n")), "{head}");
    client.read_exact(length)
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(self::files(&entry.path())),
            false => files.push(entry.path().display().to_string()),
        }
    }
    files
}

#[test]
fn what_was_sent_is_what_is_stored() {
    let site = site();
    let mut client = site.connect();
    for bytes in [0, 1, 4096, 5119, 5120, 5121, 70_000, 900_000] {
        let body = text(bytes);
        client.send(&post("/stored/x", &body));
        assert!(answer(&mut client, bytes) == body, "{bytes} bytes at once");
        let request = post("/stored/x", &body);
        let (head, rest) = request.split_at(request.len() - bytes);
        client.send(head);
        client.send(&rest[..bytes / 2]);
        client.send(&rest[bytes / 2..]);
        assert!(answer(&mut client, bytes) == body, "{bytes} bytes in parts");
        let chunks: Vec<&str> = body.as_bytes().chunks(999).map(|c| str::from_utf8(c).unwrap()).collect();
        client.send(&chunked("/stored/x", &chunks));
        assert!(answer(&mut client, bytes) == body, "{bytes} bytes in chunks");
    }
    client.send("POST /stored/x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer(&mut client, 7), "no body");
    assert_eq!(files(&site.root.join("temp")), [""; 0], "nothing is left");
}

#[test]
fn bodies_in_files_are_told_of_and_named() {
    let site = site();
    let (mut client, body) = (site.connect(), text(20_000));
    client.send(&post("/stored/x", "short"));
    answer(&mut client, 5);
    client.send(&post("/stored/x", &body));
    answer(&mut client, 20_000);
    let temp = site.root.join("temp");
    site.expect_logged(&format!(
        "[warn] a client request body is buffered to a temporary file {}/",
        temp.display()
    ));
    assert_eq!(files(&temp), [""; 0], "it has no name while it is used");
    client.send(&post("/stored/on/x", "kept"));
    assert_eq!(answer(&mut client, 4), "kept");
    client.send(&post("/stored/clean/x", "cleaned"));
    assert_eq!(answer(&mut client, 7), "cleaned");
    client.send(&post("/stored/on/x", ""));
    assert_eq!(answer(&mut client, 0), "");
    assert!(wait_until(PATIENCE, || files(&temp).len() == 2), "{:?}", files(&temp));
    site.expect_logged("[notice] a client request body is buffered to a temporary file ");
    let log = site.wait_lines("access.log", 5);
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines[0], format!("200 {} [short] [-]", post("/stored/x", "short").len()));
    for (line, bytes) in [(lines[1], 20_000), (lines[2], 4), (lines[3], 7)] {
        let name = line.split('[').nth(2).unwrap().trim_end_matches(']');
        let place = name.strip_prefix(temp.to_str().unwrap()).unwrap();
        let digits = place.rsplit('/').next().unwrap();
        assert_eq!(place, format!("/{}/{}/{digits}", &digits[9..], &digits[7..9]), "{line}");
        assert_eq!(digits.len(), 10);
        if bytes == 4 {
            assert_eq!(fs::read(name).unwrap(), b"kept");
            assert_eq!(fs::metadata(name).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}

#[test]
fn bodies_that_are_too_large() {
    let site = site();
    let close = |request: String| {
        let mut client = site.connect();
        client.send(&request);
        String::from_utf8(client.read_to_end()).unwrap()
    };
    let too_large = "HTTP/1.1 413 Request Entity Too Large\r\n";
    assert!(close(post("/stored/short/x", &text(11))).starts_with(too_large));
    site.expect_logged("[error] client intended to send too large body: 11 bytes, client: 127.0.0.1, ");
    assert!(close(chunked("/stored/short/x", &["12345", "6789012"])).starts_with(too_large));
    site.expect_logged("[error] client intended to send too large chunked body: 5+7 bytes, client: 127.");
    let mut client = site.connect();
    client.send(&post("/stored/short/x", &text(10)));
    answer(&mut client, 10);
    client.send(&post("/stored/any/x", &text(2_000_000)));
    answer(&mut client, 2_000_000);
}

#[test]
fn bodies_that_do_not_come() {
    let site = site();
    let mut client = site.connect();
    client.send("POST /stored/hasty/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(client.read_to_end(), b"");
    let log = site.wait_lines("access.log", 1);
    assert!(log.starts_with("408 "), "{log}");
    let mut client = site.connect();
    client.send("POST /stored/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    client.end_sending();
    assert_eq!(client.read_to_end(), b"");
    site.expect_logged("[info] client prematurely closed connection, client: 127.0.0.1, server: , reque");
    assert!(site.wait_lines("access.log", 2).contains("\n400 "));
    let mut client = site.connect();
    client.send("POST /stored/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlong!");
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 400 Bad Request\r\n"));
    site.expect_logged("[error] client sent invalid chunked body, client: 127.0.0.1, server: , request: ");
}

#[test]
fn a_directory_that_is_not_there() {
    let site = site();
    let mut client = site.connect();
    client.send(&post("/stored/nowhere/x", &text(20_000)));
    assert!(client.read_until("</html>").starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
    let path = site.root.join("none").display().to_string();
    site.expect_logged(&format!("[crit] open() \"{path}/"));
    site.expect_logged("\" failed (2: No such file or directory), client: 127.0.0.1, server: , request: ");
    // Nothing is needed for what fits in memory.
    let mut client = site.connect();
    client.send(&post("/stored/nowhere/x", "short"));
    answer(&mut client, 5);
}

#[test]
fn who_answers_in_the_end_has_the_body() {
    let site = site();
    let mut client = site.connect();
    for target in ["/page/", "/named/"] {
        client.send(&post(target, "through a redirect"));
        assert_eq!(answer(&mut client, 18), "through a redirect", "{target}");
    }
    client.send(&post("/stored/x", "Expect").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(answer(&mut client, 6), "Expect");
}

#[test]
fn a_body_is_read_early_where_a_variable_says_so() {
    let site = site();
    let mut client = site.connect();
    for (target, expected) in [("/?early=1", "[body]"), ("/?early=0", "[]"), ("/", "[]")] {
        client.send(&post(target, "body").replace("Host: a", "Host: early"));
        assert_eq!(answer(&mut client, expected.len()), expected, "{target}");
    }
    // It counts from then on, and its length is known.
    for (request, read_bytes, content_length) in [
        (post("/lengths?early=1", "body"), 4, "4"),
        (post("/lengths", "body"), 0, "4"),
        (chunked("/lengths?early=1", &["bo", "dy!"]), 34, "5"),
        (chunked("/lengths", &["bo", "dy!"]), 0, "0"),
    ] {
        let request = request.replace("Host: a", "Host: early");
        let head_bytes = request.find("\r\n\r\n").expect("a head has an end") + 4;
        client.send(&request);
        let expected = format!("[{} {content_length}]", head_bytes + read_bytes);
        assert_eq!(answer(&mut client, expected.len()), expected, "{request}");
    }
}

#[test]
fn many_bodies_at_once_do_not_mix() {
    let site = site();
    std::thread::scope(|scope| {
        for client in 0..16_u8 {
            let site = &site;
            scope.spawn(move || {
                let body: String = text(100_000 + usize::from(client)).replace('a', &client.to_string());
                let mut connection = site.connect();
                for _ in 0..5 {
                    connection.send(&post("/stored/x", &body));
                    assert!(answer(&mut connection, body.len()) == body);
                }
            });
        }
    });
    assert_eq!(files(&site.root.join("temp")), [""; 0]);
}
