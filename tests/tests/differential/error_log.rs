//! What the error log says of requests, to the byte: names and lines that are no UTF-8 stand there as they
//! came, but for control characters.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::compare;
use clearway_testkit::{Answer, Server, Setup, wait_until};

const CONFIG: &str = "error_log logs/error.log info;
    server { listen %%PORT%%; root html;
    location /regex { if ($uri ~ \"^(a+)+$\") { return 200; } return 404; }
    location /limited { limit_except GET { deny all; } } }
    server { listen %%PORT%%; server_name named; error_log logs/error.log info; }";

/// How much of a message is compared, escapes as they are written.
const COMPARED_CHARS: usize = 1500;

/// Requests after each of which a line about it is in the log.
fn requests() -> Vec<Vec<u8>> {
    let get = |target: &[u8]| [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    vec![
        get(b"/n\xff\xc3\xa9%01%80"),
        get("/caf\u{e9}/\u{10ff7f}\u{10ff80}\u{10ffff}\u{fffd}".as_bytes()),
        get(b"/%f4%8f%bf%80\xf4\x8f\xbf\xf4"),
        get(&[&b"/x"[..], &[0xfe; 900]].concat()),
        get(&[&b"/"[..], &"\u{10fffd}".repeat(400).into_bytes()].concat()),
        b"GET /r HTTP/1.1\r\nHost: a\r\nReferer: r\xfe\x80x\r\n\r\n".to_vec(),
        b"GET /x HTTP/1.1\r\nHost: a\r\nBad\x01: x\r\n\r\n".to_vec(),
        b"GET /x HTTP/1.1\r\nHost: a\r\nBad\xff: y\xfe\r\n\r\n".to_vec(),
        b"G\xff /x HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"TRACE /x HTTP/1.1\r\nHost: named\r\n\r\n".to_vec(),
        b"GET http://named/x HTTP/1.1\r\nBad\x01: x\r\n\r\n".to_vec(),
        b"GET /x HTTP/1.1\r\nBad\x01: x\r\nHost: named\r\n\r\n".to_vec(),
        b"GET /../x HTTP/1.1\r\nHost: named\r\n\r\n".to_vec(),
        b"POST /limited\xff HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_vec(),
        get(b"/last"),
    ]
}

/// With control characters as Clearway writes them; nginx writes them as they came.
fn escaped(line: &[u8]) -> Vec<u8> {
    let escaped = |&byte: &u8| match byte.is_ascii_control() {
        true => format!("\\x{byte:02X}").into_bytes(),
        false => vec![byte],
    };
    line.iter().flat_map(escaped).collect()
}

/// What is said of requests, with escapes for all that is no ASCII.
fn messages(server: &Server) -> Vec<String> {
    let mut lines = Vec::new();
    wait_until(PATIENCE, || {
        #[expect(clippy::disallowed_methods, reason = "a test")]
        let log = std::fs::read(server.prefix().join("logs/error.log")).unwrap_or_default();
        // A slow machine holds loops; that is told, and no matter here.
        let has = |line: &[u8], text: &[u8]| line.windows(text.len()).any(|part| part == text);
        let about_requests = |line: &&[u8]| has(line, b", request: ") && !has(line, b" stall ");
        let text = |line: &[u8]| server.with_keys(&escaped(line).escape_ascii().to_string());
        // Without the last one, which is empty or on its way.
        let whole = log.split(|&byte| byte == b'\n').rev().skip(1);
        lines = whole.filter(about_requests).map(text).collect();
        lines.reverse();
        lines.iter().any(|line: &String| line.contains("/last"))
    });
    // Behind the time, the process and the connection. Where a long line is cut depends on those.
    let message = |line: &str| line.split_once(": *")?.1.split_once(' ').map(|(_, text)| text.to_owned());
    lines
        .iter()
        .filter_map(|line| message(line))
        .map(|text| text.chars().take(COMPARED_CHARS).collect())
        .collect()
}

#[test]
fn bytes_are_logged_as_they_came() {
    let asked: Vec<String> = requests().iter().map(|request| request.escape_ascii().to_string()).collect();
    compare(&format!("{}\n{CONFIG}", asked.join("\n")), |binary| {
        let server = Setup::http(binary.clone(), CONFIG).start();
        for request in requests() {
            let mut connection = server.connect();
            connection.send(&request);
            // Some are answered by closing the connection.
            let _ = connection.try_response(Answer::Whole);
        }
        messages(&server).join("\n")
    });
}
