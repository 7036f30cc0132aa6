//! The requests whose functions count: what everyone asks for all day, on connections that stay and new ones.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often each connection asks for everything while it is counted.
pub(super) const ROUNDS: u32 = 100;

const CONNECTIONS: usize = 8;

/// What each is asked for; the last one closes the connection, as the server is told to.
const PATHS: [&str; 7] =
    ["/return", "/files/1k", "/files/10k", "/kept/1k", "/pattern/1k", "/logged/1k", "/closed"];

/// Valgrind takes its time to start.
const START_MAX: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
daemon off;
master_process off;
pid clearway.pid;
error_log error.log;
# Callgrind does not survive a signal that interrupts another one.
stall_report_after off;
events { }
http {
    types { text/plain txt; }
    access_log off;
    keepalive_requests 1000000;
    server {
        listen 127.0.0.1:PORT;
        location = /return { return 200 "hello, world\n"; }
        location = /closed { keepalive_timeout 0; return 200 "hello, world\n"; }
        location /files/ { root .; }
        location /kept/ { alias files/; open_file_cache max=100; }
        location ~ ^/pattern/(.*)$ { rewrite ^/pattern/(.*)$ /$1 break; root files; }
        location /logged/ { alias files/; access_log access.log; }
    }
}
"#;

/// # Errors
/// There is none.
pub(super) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.local_addr().map(|addr| addr.port()).map_err(|e| e.to_string())
}

/// Writes what is served into `dir`; the path of the configuration.
pub(super) fn write_files(dir: &Path, port: u16) -> Result<PathBuf, String> {
    let files = dir.join("files");
    let conf = dir.join("layout.conf");
    fs::create_dir_all(&files)
        .and_then(|()| fs::write(files.join("1k"), vec![b'x'; 1024]))
        .and_then(|()| fs::write(files.join("10k"), vec![b'x'; 10 * 1024]))
        .and_then(|()| fs::write(&conf, CONFIG.replace("PORT", &port.to_string())))
        .map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(conf)
}

/// Has each connection ask for everything so often; how many requests that were.
pub(super) fn run(port: u16, rounds: u32) -> Result<u32, String> {
    let mut connections: Vec<Option<TcpStream>> = (0..CONNECTIONS).map(|_| None).collect();
    let mut requests = 0;
    for _ in 0..rounds {
        for path in PATHS {
            for slot in &mut connections {
                let mut connection = slot.take().map_or_else(|| connect(port), Ok)?;
                let goes_on = ask(&mut connection, path).map_err(|e| format!("{path}: {e}"))?;
                *slot = goes_on.then_some(connection);
                requests += 1;
            }
        }
    }
    Ok(requests)
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(connection) => return Ok(connection),
            Err(e) if began.elapsed() > START_MAX => return Err(format!("the server does not answer: {e}")),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// One request; whether another may follow.
fn ask(connection: &mut TcpStream, path: &str) -> Result<bool, String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: layout\r\n\r\n");
    connection.write_all(head.as_bytes()).map_err(|e| e.to_string())?;
    let (mut received, mut part) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let size = connection.read(&mut part).map_err(|e| e.to_string())?;
        received.extend_from_slice(&part[..size]);
        let text = String::from_utf8_lossy(&received);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            if !head.starts_with("HTTP/1.1 200 ") {
                return Err(head.to_owned());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).ok_or("no length")?;
            if body.len() >= length {
                return Ok(!head.contains("Connection: close"));
            }
        }
        if size == 0 {
            return Err("the response ends early".to_owned());
        }
    }
}
