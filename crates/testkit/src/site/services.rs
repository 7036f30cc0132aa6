//! The services behind the site: an application, PHP, and a Redis that counts.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_base::base64;
use sha1::{Digest, Sha1};

/// The length of what is asked for in parts, bytes.
pub const VIDEO_BYTES: usize = 300_000;

/// The length that an object has less than, bytes.
const OBJECT_MAX_BYTES: usize = 150_000;

/// A server on a port of its own; each of its connections is served by a thread.
pub fn serve(connection: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let connection = Arc::new(connection);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = Arc::clone(&connection);
            std::thread::spawn(move || connection(stream));
        }
    });
    port
}

/// Byte `at` of what is asked for in parts.
pub fn video_byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// The behaviour of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It answers.
    #[default]
    Well,
    /// It takes them and says nothing.
    Silent,
    /// It closes connections as soon as they are used.
    Gone,
}

/// The application: what it was asked for, and how often.
#[derive(Debug, Default)]
pub struct Application {
    /// Its behaviour.
    pub mood: Mutex<Mood>,
    /// Fetches of what can be kept.
    pub fetched: AtomicUsize,
    /// Targets of requests, in their order.
    pub asked: Mutex<Vec<String>>,
}

/// The body of an object that can be kept: it follows from its target.
#[must_use]
pub fn object(target: &str) -> Vec<u8> {
    let sum = target.bytes().fold(7_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 1_000_003);
    (0..sum % OBJECT_MAX_BYTES).map(|at| ((sum + at * at) % 249) as u8).collect()
}

/// A request as the application has it.
struct Request {
    method: String,
    target: String,
    head: String,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

impl Application {
    /// Serves a connection until its client leaves.
    pub fn serve(&self, mut stream: TcpStream) {
        let mut input = Vec::new();
        while let Some(request) = next_request(&mut stream, &mut input) {
            let mood = *self.mood.lock().expect("no thread has failed");
            match mood {
                Mood::Well => {}
                Mood::Silent => {
                    while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
                    return;
                }
                Mood::Gone => return,
            }
            self.asked.lock().expect("no thread has failed").push(request.target.clone());
            if self.answer(&mut stream, &request, &mut input).is_err() {
                return;
            }
        }
    }

    fn answer(&self, stream: &mut TcpStream, request: &Request, input: &mut Vec<u8>) -> std::io::Result<()> {
        let path = request.target.split('?').next().unwrap_or_default();
        match path {
            "/app/large" => {
                let body: Vec<u8> = (0..1 << 20).map(|at| b'a' + (at % 23) as u8).collect();
                reply(stream, "200 OK", "", &body)
            }
            "/app/missing" => reply(stream, "404 Not Found", "", b"no such page\n"),
            "/app/breaks" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?;
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            "/app/late" => {
                std::thread::sleep(Duration::from_millis(700));
                reply(stream, "200 OK", "", b"late\n")
            }
            "/socket" => match request.header("sec-websocket-key") {
                Some(key) => web_socket(stream, key, input),
                None => talk(stream, input),
            },
            "/hints" => hint(stream, ""),
            "/cached/hints" => hint(stream, "Cache-Control: max-age=600\r\n"),
            "/trailers" => stream.write_all(
                b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                  7\r\nparted\n\r\n0\r\nX-Sum: 42\r\n\r\n",
            ),
            "/allowed" => match request.header("cookie") {
                Some("user=ada") => reply(stream, "204 No Content", "X-User: ada\r\n", b""),
                _ => reply(stream, "401 Unauthorized", "", b""),
            },
            "/download/large" => reply(stream, "200 OK", "X-Accel-Redirect: /files/large.txt\r\n", b""),
            _ if path.starts_with("/cached/object") => {
                self.fetched.fetch_add(1, Ordering::SeqCst);
                reply(stream, "200 OK", "Cache-Control: max-age=600\r\n", &object(&request.target))
            }
            _ if path.starts_with("/cached/") => {
                let nth = self.fetched.fetch_add(1, Ordering::SeqCst) + 1;
                let headers =
                    format!("Accept-Ranges: bytes\r\nCache-Control: max-age=600\r\nETag: \"{nth}\"\r\n");
                reply(
                    stream,
                    "200 OK",
                    &headers,
                    format!("{} {}\n", request.target, "x".repeat(300)).as_bytes(),
                )
            }
            _ if path.starts_with("/video/") => part_of_video(stream, request),
            _ => {
                let body = format!(
                    "{} {} from {} over {} user {} with {} bytes, sum {}\n",
                    request.method,
                    request.target,
                    request.header("host").unwrap_or("nowhere"),
                    request.header("x-forwarded-proto").unwrap_or("nothing"),
                    request.header("x-user").unwrap_or("nobody"),
                    request.body.len(),
                    request.body.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                );
                reply(stream, "200 OK", "", body.as_bytes())
            }
        }
    }
}

fn reply(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let length = match status.starts_with("204") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}{headers}\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// An answer that begins before it is there.
fn hint(stream: &mut TcpStream, headers: &str) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")?;
    reply(stream, "200 OK", headers, b"hinted\n")
}

/// The protocol behind an upgrade: each byte comes back.
fn talk(stream: &mut TcpStream, input: &mut Vec<u8>) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")?;
    stream.write_all(&std::mem::take(input))?;
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            len => stream.write_all(&piece[..len])?,
        }
    }
}

/// A WebSocket whose messages come back (RFC 6455). They are short.
fn web_socket(stream: &mut TcpStream, key: &str, input: &mut Vec<u8>) -> std::io::Result<()> {
    let sum = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    let accept = String::from_utf8(base64::encode(&sum)).expect("it is ASCII");
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n";
    stream.write_all(format!("{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").as_bytes())?;
    let mut piece = [0; 4096];
    loop {
        while let Some(frame) = take_masked(input) {
            stream.write_all(&frame)?;
        }
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            len => input.extend_from_slice(&piece[..len]),
        }
    }
}

/// Takes a frame of a client's off what has come, if it is whole: as a server sends it, without its mask.
fn take_masked(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    const MASK_BYTES: usize = 4;
    let [kind, length, ..] = input[..] else { return None };
    let start = 2 + MASK_BYTES;
    let end = start + usize::from(length & 0x7f);
    let mask = input.get(2..start)?.to_vec();
    let masked = input.get(start..end)?.iter().enumerate();
    let mut frame = vec![kind, length & 0x7f];
    frame.extend(masked.map(|(at, byte)| byte ^ mask[at % MASK_BYTES]));
    input.drain(..end);
    Some(frame)
}

fn part_of_video(stream: &mut TcpStream, request: &Request) -> std::io::Result<()> {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let (first, last) = range.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let first: usize = first.parse().unwrap_or(0);
    let last = last.parse().unwrap_or(usize::MAX).min(VIDEO_BYTES - 1);
    let body: Vec<u8> = (first..=last).map(video_byte).collect();
    let headers = format!("Content-Range: bytes {first}-{last}/{VIDEO_BYTES}\r\nETag: \"film\"\r\n");
    reply(stream, "206 Partial Content", &headers, &body)
}

/// The next request of a connection; nothing once its client has left.
fn next_request(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Request> {
    let mut piece = [0; 65_536];
    loop {
        if let Some(request) = take_request(input) {
            return Some(request);
        }
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return None,
        }
    }
}

/// Takes a request off what has come, if it is whole. The site sends bodies with their length.
fn take_request(input: &mut Vec<u8>) -> Option<Request> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let mut words = head.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request { method, target, head, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().expect("a number"));
    if input.len() < end + length {
        return None;
    }
    request.body = input[end..end + length].to_vec();
    input.drain(..end + length);
    Some(request)
}

/// A server that speaks FastCGI and says what it is asked; each answer ends its request alone.
pub fn serve_fastcgi(mut stream: TcpStream) {
    const END_OF_INPUT: &[u8] = &[1, 5, 0, 1, 0, 0, 0, 0];
    let mut input = Vec::new();
    let mut piece = [0; 65_536];
    loop {
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return,
        }
        if !input.ends_with(END_OF_INPUT) {
            continue;
        }
        input.clear();
        let said = b"Content-Type: text/plain\r\n\r\nfrom PHP\n";
        let mut answer = vec![1, 6, 0, 1, 0, said.len() as u8, 0, 0];
        answer.extend_from_slice(said);
        answer.extend_from_slice(&[1, 6, 0, 1, 0, 0, 0, 0, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// The counters of a Redis.
#[derive(Debug, Default)]
pub struct Counts {
    /// Its behaviour.
    pub mood: Mutex<Mood>,
    of: Mutex<HashMap<Vec<u8>, u64>>,
}

/// A server that counts, as Redis does it with INCR.
pub fn serve_counts(mut stream: TcpStream, counts: &Counts) {
    let mut input = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return,
        }
        if *counts.mood.lock().expect("no thread has failed") != Mood::Well {
            return;
        }
        // "*2", "$4", "INCR", the key's length, the key.
        let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let [_, _, _, _, key, _] = lines[..] else { continue };
        let key = key.to_vec();
        input.clear();
        let count = {
            let mut of = counts.of.lock().expect("no thread has failed");
            let count = of.entry(key).or_default();
            *count += 1;
            *count
        };
        if stream.write_all(format!(":{count}\r\n").as_bytes()).is_err() {
            return;
        }
    }
}
