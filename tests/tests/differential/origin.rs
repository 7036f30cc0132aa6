//! Origins for tests of the proxy: one that writes down what arrives and takes nothing that has two readings,
//! and one that answers whatever its script says. Each in threads of its own, until it is dropped.

#![expect(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a connection is kept that says nothing.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The most bytes that an origin keeps of what arrives on one connection.
const ARRIVED_MAX_BYTES: usize = 1024 * 1024;

/// A listener whose connections are served by `serve`, each in a thread.
pub(crate) struct Origin {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Origin {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (stopped, serve) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let seen = Arc::clone(&stopped);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(SILENCE_MAX)).expect("a time");
                    serve(stream);
                });
            }
        });
        Self { address, stopped }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // The accepting thread notices.
        drop(TcpStream::connect(self.address));
    }
}

/// What has arrived at an origin.
#[derive(Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<Vec<String>>>);

impl Arrivals {
    /// Takes out what has arrived since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("nobody panics"))
    }

    fn add(&self, what: String) {
        self.0.lock().expect("nobody panics").push(what);
    }

    /// Serves a connection: each request that has one reading is written down and answered, one that has not
    /// is written down as a fault and ends the connection.
    pub(crate) fn serve(&self, mut stream: TcpStream) {
        let (mut input, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match take_request(&input) {
                Ok(Some(len)) => {
                    let request: Vec<u8> = input.drain(..len).collect();
                    self.add(counted(&request).escape_ascii().to_string());
                    let body: &[u8] = if request.starts_with(b"HEAD ") { b"" } else { b"ok" };
                    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
                    if stream.write_all(&[head, body].concat()).is_err() {
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(why) => {
                    self.add(format!("FAULT {why}: {}", input.escape_ascii()));
                    return;
                }
            }
            match stream.read(&mut piece) {
                Ok(len @ 1..) if input.len() < ARRIVED_MAX_BYTES => input.extend_from_slice(&piece[..len]),
                _ => return,
            }
        }
    }
}

/// How long the request is that stands first; nothing where it is incomplete.
///
/// # Errors
/// Why it could be read in two ways.
fn take_request(input: &[u8]) -> Result<Option<usize>, &'static str> {
    let Some(end) = find(input, b"\r\n\r\n") else { return Ok(None) };
    let (head, body) = (&input[..end], &input[end + 4..]);
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    let lines: Vec<&[u8]> = split_lines(head);
    if lines[0].iter().filter(|&&byte| byte == b' ').count() != 2 {
        return Err("request line");
    }
    for line in &lines[1..] {
        let colon = line.iter().position(|&byte| byte == b':').ok_or("no colon")?;
        let name = line[..colon].to_ascii_lowercase();
        if name.is_empty() || name.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err("name");
        }
        if line.iter().any(|byte| b"\r\n\0".contains(byte)) {
            return Err("control byte");
        }
        match &name[..] {
            b"content-length" => lengths.push(line[colon + 1..].trim_ascii()),
            b"transfer-encoding" => codings.push(line[colon + 1..].trim_ascii()),
            _ => {}
        }
    }
    let body_len = match (&lengths[..], &codings[..]) {
        ([], []) => Some(0),
        ([digits], []) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            Some(length.filter(|&length: &usize| length < ARRIVED_MAX_BYTES).ok_or("length")?)
        }
        ([], [b"chunked"]) => chunks_len(body)?,
        _ => return Err("framing"),
    };
    Ok(body_len.filter(|&len| len <= body.len()).map(|len| end + 4 + len))
}

fn chunks_len(body: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut at = 0;
    loop {
        let Some(end) = find(&body[at..], b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(&body[at..at + end]).map_err(|_| "chunk")?;
        if size.is_empty() || !size.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("chunk");
        }
        let size = usize::from_str_radix(size, 16).map_err(|_| "chunk")?;
        at += end + 2;
        if size == 0 {
            // No trailers: a proxy sends none.
            return match &body[at..] {
                [b'\r', b'\n', ..] => Ok(Some(at + 2)),
                rest if rest.len() < 2 => Ok(None),
                _ => Err("trailer"),
            };
        }
        match body.get(at + size..at + size + 2) {
            None => return Ok(None),
            Some(b"\r\n") => at += size + 2,
            Some(_) => return Err("chunk"),
        }
    }
}

/// A request with its body in one piece: whether it is passed on in chunks or with its length depends on
/// when it came.
fn counted(request: &[u8]) -> Vec<u8> {
    const CHUNKED: &[u8] = b"\r\nTransfer-Encoding: chunked\r\n";
    let (Some(at), Some(end)) = (find(request, CHUNKED), find(request, b"\r\n\r\n")) else {
        return request.to_vec();
    };
    let (mut body, mut rest) = (Vec::new(), &request[end + 4..]);
    while let Some(line) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or_default();
        let Some(chunk) = rest.get(line + 2..line + 2 + size).filter(|_| size > 0) else { break };
        body.extend_from_slice(chunk);
        rest = &rest[line + 2 + size + 2..];
    }
    let length = format!("\r\nContent-Length: {}\r\n", body.len());
    let (before, after) = (&request[..at], &request[at + CHUNKED.len()..end + 4]);
    [before, length.as_bytes(), after, &body].concat()
}

fn split_lines(head: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), head);
    while let Some(end) = find(rest, b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    lines
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// The cases of a file: a title, a bar, bytes with `\r`, `\n`, `\t`, `\\`, `\xHH` for what a text file cannot
/// have, and `\{NUMBER*TEXT}` for so many times this.
pub(crate) fn cases(text: &'static str) -> Vec<(&'static str, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (title, bytes) = line.split_once(" | ").unwrap_or_else(|| panic!("no bar: {line}"));
            (title, unescape(bytes))
        })
        .collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let (mark, after) = after.split_at(1);
        rest = after;
        match mark {
            "r" => out.push(b'\r'),
            "n" => out.push(b'\n'),
            "t" => out.push(b'\t'),
            "x" => {
                out.push(u8::from_str_radix(&rest[..2], 16).expect("two digits"));
                rest = &rest[2..];
            }
            "{" => {
                let (repeated, after) = rest.split_once('}').expect("a brace ends it");
                let (number, text) = repeated.split_once('*').expect("a number and a text");
                out.extend(unescape(text).repeat(number.parse().expect("a number")));
                rest = after;
            }
            other => out.extend_from_slice(other.as_bytes()),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// What the origin that plays a script does behind its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Closes the connection.
    Close,
    /// Waits for the next request.
    Keep,
    /// Has the kernel say that the connection is broken.
    Reset,
    /// Sends the last line of the script again and again, up to [`FLOOD_MAX_BYTES`].
    Flood,
}

/// What a peer gets at most that does not stop reading.
const FLOOD_MAX_BYTES: usize = 1 << 30;

/// Serves a connection: a request for `/NUMBER` is answered with the bytes of that script.
pub(crate) fn play_script(mut stream: TcpStream, scripts: &[(Behind, Vec<u8>)]) {
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Ok(Some(len)) = take_request(&input) {
            let request: Vec<u8> = input.drain(..len).collect();
            let text = String::from_utf8_lossy(&request);
            let number = text.split(['/', ' ', '?']).find_map(|part| part.parse::<usize>().ok());
            let Some((behind, bytes)) = number.and_then(|number| scripts.get(number)) else { return };
            if stream.write_all(bytes).is_err() {
                return;
            }
            match behind {
                Behind::Keep => {}
                Behind::Close => return,
                Behind::Flood => {
                    flood(&mut stream, bytes);
                    return;
                }
                Behind::Reset => {
                    // Unread bytes, or this, make the kernel send a reset.
                    std::thread::sleep(Duration::from_millis(20));
                    let linger = Some(Duration::ZERO);
                    let _ = rustix::net::sockopt::set_socket_linger(&stream, linger);
                    return;
                }
            }
        }
        match stream.read(&mut piece) {
            Ok(len @ 1..) if input.len() < ARRIVED_MAX_BYTES => input.extend_from_slice(&piece[..len]),
            _ => return,
        }
    }
}

fn flood(stream: &mut TcpStream, script: &[u8]) {
    let line = script.split_inclusive(|&byte| byte == b'\n').next_back().unwrap_or_default();
    let lines = line.repeat(64 * 1024 / line.len());
    let mut sent = 0;
    while sent < FLOOD_MAX_BYTES && stream.write_all(&lines).is_ok() {
        sent += lines.len();
    }
}
