//! What clients can write into the error log: no lines, and nothing that a terminal obeys. In nginx they can.

use clearway_testkit::{Answer, Binary, Setup};

const CONFIG: &str = "error_log logs/error.log info; \
    server { listen %%PORT%%; root html; \
    location /private/ { auth_basic x; auth_basic_user_file users; } \
    location /rewritten/ { rewrite_log on; error_log logs/error.log notice; \
    rewrite ^/rewritten/(.*)$ /$1; } }";

/// A user name of `a`, a line feed, and text that looks like a line.
const FORGED_USER: &str = "YQoyMDI2LzAxLzAxIDAwOjAwOjAwIFtlbWVyZ10gMSMxOiBmb3JnZWQ6cHc=";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn a_client_begins_no_line_and_commands_no_terminal() {
    let server = Setup::http(Binary::under_test(), CONFIG).file("users", "b:x\n").start();
    let forged = "%0a2026/01/01%2000:00:00%20[emerg]%201%231:%20forged";
    for request in [
        format!("GET /none{forged} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET /rewritten/x{forged} HTTP/1.1\r\nHost: a\r\n\r\n"),
        "GET /none%1b[2J%7f%09%c2%9b2J HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("GET /private/ HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {FORGED_USER}\r\n\r\n"),
        "GET /x HTTP/1.1\r\nHost: a\r\nBad\x1b: x\r\n\r\n".to_owned(),
        "GET /last HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        let mut connection = server.connect();
        connection.send(request.as_bytes());
        // Some are answered by closing the connection.
        let _ = connection.try_response(Answer::Whole);
    }
    let log = server.wait_log("logs/error.log", "/last\" failed");
    let is_line = |line: &str| line.as_bytes().first().is_some_and(u8::is_ascii_digit);
    assert!(!log.contains("\n2026/01/01 00:00:00 [emerg] 1#1"), "{log}");
    assert!(log.lines().all(is_line) && !log.contains(['\x1b', '\x7f', '\t', '\u{9b}']), "{log}");
    for said in [
        "/none\\x0A2026/01/01 00:00:00 [emerg] 1#1: forged\" failed (2",
        "does not match \"/rewritten/x\\x0A2026/01/01 00:00:00 [emerg] 1#1: forged\",",
        "/none\\x1B[2J\\x7F\\x09\\xC2\\x9B2J\" failed (2",
        "user \"a\\x0A2026/01/01 00\" was not found",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}
