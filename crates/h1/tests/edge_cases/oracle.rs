//! A real nginx that says what it made of each request.

#![expect(clippy::disallowed_methods, reason = "a test that waits for another process")]
#![expect(clippy::unwrap_used, reason = "a test, which fails where its surroundings do")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::server::Answer;

const CONFIGURATION: &str = r#"
daemon off;
master_process off;
pid PREFIX/nginx.pid;
error_log PREFIX/error.log info;
events {}
http {
    access_log off;
    client_body_temp_path PREFIX/body;
    server {
        listen 127.0.0.1:PORT;
        server_name none;
        lingering_close off;
        default_type text/plain;
        location / {
            return 200 "$request_method|$request_uri|$args|$host|$server_protocol|$request_length|$http_x\n";
        }
    }
}
"#;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer that is expected may be missing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to look for answers that are not expected.
const SILENCE: Duration = Duration::from_millis(50);

pub(crate) struct Nginx {
    child: Child,
    port: u16,
    prefix: PathBuf,
}

impl Nginx {
    pub(crate) fn start() -> Nginx {
        let program = std::env::var("NGINX_BIN").unwrap_or_else(|_| "nginx".to_owned());
        let port = clearway_testkit::ports::free_port();
        let prefix = std::env::temp_dir().join(format!("clearway-h1-oracle-{port}"));
        fs::create_dir_all(&prefix).unwrap();
        let text =
            CONFIGURATION.replace("PREFIX", prefix.to_str().unwrap()).replace("PORT", &port.to_string());
        let file = prefix.join("nginx.conf");
        fs::write(&file, text).unwrap();
        let child = Command::new(program).arg("-p").arg(&prefix).arg("-c").arg(&file).spawn().unwrap();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < START_TIMEOUT, "nginx does not start");
            std::thread::yield_now();
        }
        Nginx { child, port, prefix }
    }

    /// What nginx answers to `input`; `expected` says how many answers to wait for.
    pub(crate) fn answer(&self, input: &[u8], expected: usize) -> Vec<Answer> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // nginx may refuse and close before all was written.
        let _ = stream.write_all(input);
        let mut bytes = Vec::new();
        let mut block = [0; 65536];
        // A reset behind an answer, or silence, ends the answers as a close does.
        loop {
            let missing = parse(&bytes).len() < expected;
            let timeout = if missing { ANSWER_TIMEOUT } else { SILENCE };
            stream.set_read_timeout(Some(timeout)).unwrap();
            match stream.read(&mut block) {
                Ok(len @ 1..) => bytes.extend_from_slice(&block[..len]),
                _ => break,
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
        let mut answers = parse(&bytes);
        if let Some(message) = self.read_log()
            && let Some(last) = answers.last_mut()
            && last.spelled != "200"
        {
            last.body = message;
        }
        answers
    }

    /// The last complaint about the client in the error log, which is emptied.
    fn read_log(&self) -> Option<String> {
        let file = self.prefix.join("error.log");
        let log = latin(&fs::read(&file).unwrap());
        fs::write(&file, "").unwrap();
        let line = log.lines().rfind(|line| line.contains(" client ") && !line.contains("prematurely"))?;
        let message = line.split_once(" client ").map(|(_, message)| format!("client {message}"))?;
        let end = message.find(", client: ").unwrap_or(message.len());
        if message[..end].contains("too long header line: \"X\0") {
            // Where a buffer ends with a line, nginx shows that line, which it has cut up with NULs.
            return Some("client sent too long header line: \"...\"".to_owned());
        }
        let message = &message[..end];
        Some(message[..message.rfind(" while ").unwrap_or(message.len())].to_owned())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.prefix);
    }
}

fn parse(bytes: &[u8]) -> Vec<Answer> {
    let mut rest = bytes;
    let mut answers = Vec::new();
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix(b"HTTP/1.1 ") else {
            answers.push(headless(&latin(rest)));
            break;
        };
        let end = after.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(after.len());
        let head = latin(&after[..end]);
        let body = after.get(end + 4..).unwrap_or_default();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |value| value.parse::<usize>().unwrap())
            .min(body.len());
        let (body, next) = body.split_at(length);
        answers.push(with_head(&head[..3], &latin(body)));
        rest = next;
    }
    answers
}

fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn headless(body: &str) -> Answer {
    if body.starts_with("<html>") {
        return Answer { spelled: "0.9-400".to_owned(), body: String::new() };
    }
    Answer { spelled: "0.9".to_owned(), body: body.trim_end_matches('\n').to_owned() }
}

fn with_head(status: &str, body: &str) -> Answer {
    let (spelled, body) = match status {
        "200" => ("200", body.trim_end_matches('\n')),
        "400" if body.contains("Request Header Or Cookie Too Large") => ("494", ""),
        other => (other, ""),
    };
    Answer { spelled: spelled.to_owned(), body: body.to_owned() }
}
