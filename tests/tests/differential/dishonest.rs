//! Origins that answer what they should not: nginx's status, body and line of the log, and the next request
//! is none the worse for it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use clearway_testkit::{Binary, Connection, Server, Setup, recorded};

use crate::origin::{Behind, Origin, cases, play_script};

const CASES: &str = include_str!("dishonest.cases");

/// So many are played at a time.
const LANES: usize = 8;

/// How long a connection may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The most bytes of a body that are shown.
const SHOWN_MAX_BYTES: usize = 200;

/// A connection of its own for each request, but where the origin keeps it: a request that finds a connection
/// closed is tried again, and which one does is chance.
fn config(port: &str) -> String {
    format!(
        "
    upstream kept {{ server 127.0.0.1:{port} max_fails=0; keepalive 16; }}
    proxy_read_timeout 1s; proxy_buffer_size 4k; proxy_buffers 8 4k;
    server {{ listen %%PORT%%;
        location / {{ proxy_pass http://127.0.0.1:{port}; }}
        location /unbuffered/ {{ proxy_buffering off; proxy_pass http://127.0.0.1:{port}; }}
        location /trailers/ {{ proxy_pass_trailers on; proxy_pass http://127.0.0.1:{port}; }}
        location /hints/ {{ early_hints $arg_none 1; proxy_hide_header X-Hidden;
                            proxy_pass http://127.0.0.1:{port}; }}
        location /kept/ {{ proxy_pass http://kept; }}
        location /kept/unbuffered/ {{ proxy_buffering off; proxy_pass http://kept; }}
    }}"
    )
}

/// The words before a title's comma say how it is asked and what the origin does behind its bytes.
fn how(title: &str) -> (&'static str, &'static str, Behind) {
    let words = title.split(':').next().unwrap_or_default();
    let has = |word: &str| words.split(' ').any(|other| other == word);
    let method = if has("HEAD") { "HEAD" } else { "GET" };
    let path = match (has("keeps"), has("unbuffered"), has("trailers")) {
        _ if has("hints") => "/hints/",
        (true, true, _) => "/kept/unbuffered/",
        (true, ..) => "/kept/",
        (_, true, _) => "/unbuffered/",
        (.., true) => "/trailers/",
        _ => "/",
    };
    let behind = match (has("closes"), has("resets"), has("floods")) {
        (true, ..) => Behind::Close,
        (_, true, _) => Behind::Reset,
        (.., true) => Behind::Flood,
        _ => Behind::Keep,
    };
    (method, path, behind)
}

fn play(binary: &Binary, cases: &[(&str, Vec<u8>)]) -> String {
    let honest = (Behind::Keep, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let scripts = cases.iter().map(|(title, bytes)| (how(title).2, bytes.clone())).chain([honest]);
    let scripts: Arc<[(Behind, Vec<u8>)]> = scripts.collect();
    let origin = Origin::start(move |stream| play_script(stream, &scripts));
    let port = origin.port().to_string();
    let mut server = Setup::http(binary.clone(), &config(&port)).start();
    let mut texts = vec![String::new(); cases.len()];
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let server = &server;
                scope.spawn(move || {
                    let mine = cases.iter().enumerate().skip(lane).step_by(LANES);
                    mine.map(|(number, (title, _))| (number, play_one(server, number, title, cases.len())))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for (number, text) in lanes.into_iter().flat_map(|lane| lane.join().expect("it ends")) {
            texts[number] = text;
        }
    });
    let log = server.last_error_log();
    for (number, (title, _)) in cases.iter().enumerate() {
        let (method, path, _) = how(title);
        let request = format!("request: \"{method} {path}{number} ");
        texts[number].push_str(&lines_about(&log, &request));
    }
    texts.concat()
}

/// The lines of an error log that have this text: level and message.
pub(crate) fn lines_about(log: &str, request: &str) -> String {
    let mut lines = String::new();
    for line in log.lines().filter(|line| line.contains(request)) {
        let line = line.split_once(", client:").map_or(line, |(line, _)| line);
        let (_, level) = line.split_once(" [").expect("a line has a level");
        let (level, text) = level.split_once(']').expect("it ends");
        let text = text.split_once(": *").map_or(text, |(_, text)| text);
        let text = text.split_once(' ').map_or(text, |(_, text)| text);
        // What is done meanwhile depends on when the bytes come; how they are read is not compared.
        let text = text.split_once(" while ").map_or(text, |(text, _)| text).replace("readv()", "recv()");
        writeln!(lines, "    [{level}] {text}").expect("memory");
    }
    lines
}

fn play_one(server: &Server, number: usize, title: &str, honest: usize) -> String {
    let (method, path, _) = how(title);
    let answer = ask(server, method, &format!("{path}{number}"));
    let next = show("GET", &ask(server, "GET", &format!("{path}{honest}")));
    assert_eq!(next, "200 ok", "behind: {title}");
    format!("{title}\n    {}\n", show(method, &answer))
}

pub(crate) fn ask(server: &Server, method: &str, target: &str) -> Vec<u8> {
    let mut connection = Connection::open(&server.address()).expect("it listens");
    connection.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
    connection.read_to_end(END_LIMIT).0
}

/// Status, header lines that the origin has made up, body. How much there is of a response that is cut is
/// chance.
pub(crate) fn show(method: &str, answer: &[u8]) -> String {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if answer.is_empty() { "cut".to_owned() } else { format!("bare {}", answer.escape_ascii()) };
    };
    let (head, rest) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    if head.starts_with("HTTP/1.1 103 ") {
        return format!("{} | {}", head.replace("\r\n", " "), show(method, rest));
    }
    if !head.starts_with("HTTP/1.1 ") {
        return format!("bare {}", answer.escape_ascii());
    }
    let lines = head.lines().skip(1).filter(|line| line.starts_with("X-"));
    let lines: String = lines.map(|line| format!(" {line:?}")).collect();
    let find = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let (body, is_complete) = match (find("Transfer-Encoding: "), find("Content-Length: ")) {
        _ if method == "HEAD" => (rest.to_vec(), rest.is_empty()),
        (Some(_), _) => unchunked(rest),
        (None, Some(length)) => (rest.to_vec(), length.parse() == Ok(rest.len())),
        (None, None) => (rest.to_vec(), true),
    };
    if !is_complete {
        return "cut".to_owned();
    }
    let body = match body.len() {
        _ if body.windows(8).any(|window| window == b"<center>") => "(page)".to_owned(),
        0..=SHOWN_MAX_BYTES => body.escape_ascii().to_string(),
        len => format!("({len} bytes)"),
    };
    format!("{}{lines} {body}", &head[9..12])
}

/// The data of chunks, and behind it trailers; whether it is all there.
fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else { break };
        rest = &rest[end + 2..];
        if size == 0 {
            data.extend_from_slice(rest.strip_suffix(b"\r\n").unwrap_or(rest));
            return (data, rest.ends_with(b"\r\n"));
        }
        data.extend_from_slice(&rest[..size.min(rest.len())]);
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    (data, false)
}

#[test]
fn origins_that_break_the_rules() {
    let cases = cases(CASES);
    let question = format!("origins that break the rules\n{}\n{CASES}", config("ORIGIN"));
    recorded::compare(&question, |binary| play(binary, &cases));
}

/// nginx sends such a response as it is, whatever version the client speaks and although its connection goes
/// on; here it is the body of a response. The line of the log is the same.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn what_has_no_status_line_is_a_body() {
    let binary = Binary::under_test();
    let cases = cases(include_str!("headless.cases"));
    let said = "    [error] upstream sent no valid HTTP/1.0 header\n";
    let expected =
        cases.iter().map(|(title, bytes)| format!("{title}\n    200 {}\n{said}", bytes.escape_ascii()));
    assert_eq!(play(&binary, &cases), expected.collect::<String>());
}

/// nginx takes every interim response but 103 for the answer, and what follows it for its body.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn interim_responses_are_not_the_answer() {
    let binary = Binary::under_test();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let behind = |interim: &str| format!("{interim}{answer}").into_bytes();
    let cases = [
        ("keeps: Continue", behind("HTTP/1.1 100 Continue\r\n\r\n")),
        ("keeps: Processing", behind("HTTP/1.1 102 Processing\r\nContent-Length: 7\r\n\r\n")),
        ("keeps: several", behind("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\n\r\nHTTP/1.1 199 x\r\n\r\n")),
    ];
    let expected: String = cases.iter().map(|(title, _)| format!("{title}\n    200 hello\n")).collect();
    assert_eq!(play(&binary, &cases), expected);
}
