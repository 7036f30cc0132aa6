//! The other server, to which requests are passed on: it behaves as each path says. It listens on a socket of
//! the local domain, where what is sent is there at once, so that a run is the same each time.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use clearway_sim::{Peer, pattern};

use crate::expected::peer;
use crate::site::numbers;

/// A piece of a response that comes slowly, bytes.
const SLOW_PIECES: usize = 4;

/// See the file's head.
pub(crate) struct Other {
    listener: UnixListener,
    connections: Vec<Connection>,
}

struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    /// What is to be written, from when on.
    output: Vec<(u64, Vec<u8>)>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The connection stays for the next request.
    Stays,
    /// It is closed when all is written.
    Closes,
}

impl Other {
    pub(crate) fn listen(at: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, connections: Vec::new() })
    }

    /// Does all that can be done at this time.
    pub(crate) fn go_on(&mut self, now_ms: u64) -> Result<(), String> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).map_err(|error| error.to_string())?;
            self.connections.push(Connection {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                end: End::Stays,
            });
        }
        let mut fault = Ok(());
        self.connections.retain_mut(|connection| match connection.go_on(now_ms) {
            Ok(stays) => stays,
            Err(why) => {
                fault = Err(why);
                false
            }
        });
        fault
    }

    /// When there is something to do that waits for the time.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.connections.iter().filter_map(|connection| connection.output.first()).map(|(at, _)| *at).min()
    }
}

impl Connection {
    /// Whether it stays.
    fn go_on(&mut self, now_ms: u64) -> Result<bool, String> {
        let mut buf = [0; 32 * 1024];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => return Ok(false),
                Ok(count) => self.input.extend_from_slice(&buf[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Ok(false),
            }
        }
        if self.output.is_empty() && self.end == End::Stays && !self.answer(now_ms)? {
            return Ok(false);
        }
        self.write(now_ms)
    }

    fn write(&mut self, now_ms: u64) -> Result<bool, String> {
        while let Some((at, bytes)) = self.output.first_mut() {
            if *at > now_ms {
                return Ok(true);
            }
            match self.stream.write(bytes) {
                Ok(count) => drop(bytes.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Ok(false),
            }
            if bytes.is_empty() {
                self.output.remove(0);
            }
        }
        Ok(self.end == End::Stays)
    }

    /// Answers the request that has come, if all of it is there. Whether the connection stays.
    fn answer(&mut self, now_ms: u64) -> Result<bool, String> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(true) };
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap_or(0));
        if self.input.len() < end + 4 + length {
            return Ok(true);
        }
        let body: Vec<u8> = self.input.drain(..end + 4 + length).skip(end + 4).collect();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let &[id, length, number, pause_ms] = &numbers(path.as_bytes())[..] else {
            return Err(format!("the path {path} is passed on"));
        };
        let id = u32::try_from(id).map_err(|_| format!("the path {path} is passed on"))?;
        if let Some(at) = body.iter().zip(0..).position(|(&byte, at)| byte != pattern(id, at)) {
            return Err(format!("a wrong byte at {at} of the body of request {id} that is passed on"));
        }
        let peer = peer(number, pause_ms);
        if matches!(
            peer,
            Peer::UntilClose | Peer::DiesWithin | Peer::DiesWithinChunk | Peer::Garbage | Peer::TooMuch
        ) {
            self.end = End::Closes;
        }
        let is_head = head.starts_with("HEAD ");
        let rest = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
        let response = match rest.and_then(|rest| rest.split_once('-')) {
            Some((first, last)) if matches!(peer, Peer::Exact | Peer::Slow(_)) => {
                part(id, length, (first, last))?
            }
            _ => response(peer, id, length, is_head),
        };
        self.output = response
            .into_iter()
            .zip(0..)
            .map(|(bytes, at)| {
                let pause_ms = if let Peer::Slow(pause_ms) = peer { pause_ms } else { 0 };
                (now_ms + at * pause_ms, bytes)
            })
            .collect();
        Ok(peer != Peer::Dies)
    }
}

/// The rest of an object that a disk has lost.
fn part(id: u32, length: u64, (first, last): (&str, &str)) -> Result<Vec<Vec<u8>>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("the range {text:?}"));
    let (first, last) = (number(first)?, number(last)?);
    if first > last || last >= length {
        return Err(format!("bytes {first} to {last} of {length} are asked for"));
    }
    let body: Vec<u8> = (first..=last).map(|at| pattern(id, at)).collect();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nETag: \"{id}\"\r\nContent-Range: bytes {first}-{last}/{length}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    Ok(vec![[head.into_bytes(), body].concat()])
}

/// The pieces of a response.
fn response(peer: Peer, id: u32, length: u64, is_head: bool) -> Vec<Vec<u8>> {
    let body: Vec<u8> = (0..length).map(|at| pattern(id, at)).collect();
    let known = format!("HTTP/1.1 200 OK\r\nETag: \"{id}\"\r\nContent-Length: {length}\r\n\r\n");
    let known = known.into_bytes();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    if is_head && matches!(peer, Peer::Exact | Peer::Slow(_) | Peer::DiesWithin | Peer::TooMuch) {
        return vec![known];
    }
    if is_head && matches!(peer, Peer::Chunked | Peer::DiesWithinChunk) {
        return vec![chunked];
    }
    match peer {
        Peer::Exact => vec![[known, body].concat()],
        Peer::Slow(_) => {
            let piece = body.len().div_ceil(SLOW_PIECES).max(1);
            std::iter::once(known).chain(body.chunks(piece).map(<[u8]>::to_vec)).collect()
        }
        Peer::Chunked => {
            let chunks = body.chunks(7777).flat_map(|chunk| {
                [format!("{:x}\r\n", chunk.len()).into_bytes(), chunk.to_vec(), b"\r\n".to_vec()].concat()
            });
            vec![chunked.into_iter().chain(chunks).chain(*b"0\r\n\r\n").collect()]
        }
        Peer::UntilClose => vec![[b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec(), body].concat()],
        Peer::DiesWithin => {
            let half = &body[..body.len() / 2];
            vec![
                [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length + 1).as_bytes(), half]
                    .concat(),
            ]
        }
        Peer::DiesWithinChunk => {
            let half = &body[..body.len() / 2];
            vec![[&chunked[..], format!("{:x}\r\n", length + 1).as_bytes(), half].concat()]
        }
        Peer::TooMuch => vec![[known, body, b"and more".repeat(9)].concat()],
        Peer::Garbage => vec![b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n".to_vec()],
        Peer::Silent | Peer::Dies => Vec::new(),
    }
}
