//! The other server, to which requests are passed on: it behaves as each path says, on connections in memory,
//! which it takes as the program says.

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use clearway_net::memory::{MemoryEnd, memory_call};
use clearway_runtime::LoopRef;
use clearway_sim::{Others, Peer, never_ends, pattern, stops};

use crate::expected::peer;
use crate::site::{numbers, written};

/// Pieces of a response that comes slowly.
const SLOW_PIECES: usize = 4;
/// A response that nobody has asked for.
const UNASKED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong";

/// Connections that were begun, and not seen by the other server yet.
static CALLS: Mutex<Vec<MemoryEnd>> = Mutex::new(Vec::new());

fn calls() -> MutexGuard<'static, Vec<MemoryEnd>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stands for connect(2).
pub(crate) fn call(home: LoopRef) -> MemoryEnd {
    let (near, far) = memory_call(home);
    calls().push(far);
    near
}

/// The other server.
pub(crate) struct Other {
    how: Others,
    /// Calls that it has not taken, and when they came.
    waiting: Vec<(u64, MemoryEnd)>,
    connections: Vec<Connection>,
}

struct Connection {
    end: MemoryEnd,
    input: Vec<u8>,
    /// The part of a request's body that follows though it is answered: whose, from where on, how much.
    owed: Option<(u32, u64, u64)>,
    /// What is to be written, from when on.
    output: Vec<(u64, Vec<u8>)>,
    /// When something comes that nobody has asked for; it has when there is nothing to wait for.
    unasked: Unasked,
    then: Then,
    /// The object that is whole when all is written.
    completes: Option<u32>,
}

/// The end of a connection when all is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It stays for the next request.
    Stays,
    /// It is closed.
    Closes,
    /// It is reset.
    Resets,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unasked {
    No,
    At(u64),
    Sent,
}

impl Other {
    pub(crate) fn new() -> Self {
        calls().clear();
        Self { how: Others::Quick, waiting: Vec::new(), connections: Vec::new() }
    }

    pub(crate) fn become_so(&mut self, how: Others) {
        self.how = how;
        let capacity = if let Others::Narrow(bytes) = how { bytes } else { 64 * 1024 };
        self.connections.iter().for_each(|connection| connection.end.set_capacity(capacity));
    }

    /// Does all that can be done at this time.
    pub(crate) fn go_on(&mut self, now_ms: u64) -> Result<(), String> {
        self.waiting.extend(calls().drain(..).map(|end| (now_ms, end)));
        self.take_calls(now_ms);
        let most = if let Others::Dribbling(bytes) = self.how { bytes } else { usize::MAX };
        let mut fault = Ok(());
        self.connections.retain_mut(|connection| match connection.go_on(now_ms, most) {
            Ok(stays) => stays,
            Err(why) => {
                fault = Err(why);
                false
            }
        });
        fault
    }

    fn take_calls(&mut self, now_ms: u64) {
        let how = self.how;
        let is_due = |since_ms: u64| match how {
            Others::Deaf => false,
            Others::Late(ms) => now_ms >= since_ms + ms,
            _ => true,
        };
        for (_, end) in self.waiting.extract_if(.., |(since_ms, _)| is_due(*since_ms)) {
            if how == Others::Refusing {
                written().has_refused = true;
                end.refuse();
                continue;
            }
            if let Others::Narrow(bytes) = how {
                end.set_capacity(bytes);
            }
            end.accept();
            self.connections.push(Connection::new(end));
        }
    }

    /// When there is something to do that waits for the time.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let late = if let Others::Late(ms) = self.how { ms } else { 0 };
        let calls = self.waiting.iter().map(|(since_ms, _)| since_ms + late);
        let pieces = self.connections.iter().filter_map(|connection| connection.output.first());
        let unasked = self.connections.iter().filter_map(|connection| match connection.unasked {
            Unasked::At(at_ms) if connection.output.is_empty() => Some(at_ms),
            _ => None,
        });
        pieces.map(|(at, _)| *at).chain(calls).chain(unasked).min()
    }
}

impl Connection {
    fn new(end: MemoryEnd) -> Self {
        Self {
            end,
            input: Vec::new(),
            owed: None,
            output: Vec::new(),
            unasked: Unasked::No,
            then: Then::Stays,
            completes: None,
        }
    }

    /// Whether it stays.
    fn go_on(&mut self, now_ms: u64, most: usize) -> Result<bool, String> {
        loop {
            self.input.reserve(32 * 1024);
            match self.end.try_read_vec(&mut self.input) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return Ok(false),
            }
        }
        self.take_owed()?;
        if !self.input.is_empty() && self.unasked == Unasked::Sent {
            return Err("a request on a connection on which something unasked has come".to_owned());
        }
        if !self.input.is_empty() {
            self.unasked = Unasked::No;
        }
        let is_free = self.output.is_empty() && self.owed.is_none() && self.then == Then::Stays;
        if is_free && !self.answer(now_ms)? {
            return Ok(false);
        }
        self.write(now_ms, most)
    }

    fn write(&mut self, now_ms: u64, most: usize) -> Result<bool, String> {
        let mut left = most;
        let mut cx = Context::from_waker(Waker::noop());
        while let Some((at, bytes)) = self.output.first_mut() {
            if *at > now_ms || left == 0 {
                return Ok(true);
            }
            let count = bytes.len().min(left);
            match self.end.poll_write_vectored(&mut cx, &[IoSlice::new(&bytes[..count])]) {
                _ if bytes.is_empty() => {}
                Poll::Ready(Ok(count)) => {
                    left -= count;
                    drop(bytes.drain(..count));
                }
                Poll::Pending => return Ok(true),
                Poll::Ready(Err(_)) => return Ok(false),
            }
            if bytes.is_empty() {
                self.output.remove(0);
            }
        }
        if let Some(id) = self.completes.take() {
            written().sent_whole.insert(id);
        }
        if matches!(self.unasked, Unasked::At(at_ms) if at_ms <= now_ms) {
            self.unasked = Unasked::Sent;
            // All of it is there before the next turn: a connection that is taken then is to be let go of.
            return Ok(matches!(
                self.end.poll_write_vectored(&mut cx, &[IoSlice::new(UNASKED)]),
                Poll::Ready(Ok(_))
            ));
        }
        if self.then == Then::Resets {
            self.end.reset();
        }
        Ok(self.then == Then::Stays)
    }

    /// Takes more of a body whose request is answered.
    fn take_owed(&mut self) -> Result<(), String> {
        let Some((id, from, left)) = self.owed else { return Ok(()) };
        let count = (left as usize).min(self.input.len());
        let body: Vec<u8> = self.input.drain(..count).collect();
        check_body(id, from, &body)?;
        let left = left - count as u64;
        self.owed = (left > 0).then_some((id, from + count as u64, left));
        Ok(())
    }

    /// Answers the request that has come, if all of it is there. Whether the connection stays.
    fn answer(&mut self, now_ms: u64) -> Result<bool, String> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(true) };
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        let sent = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let sent: usize = sent.map_or(0, |length| length.parse().unwrap_or(0));
        let path = head.split(' ').nth(1).unwrap_or_default();
        let &[id, length, number, pause_ms] = &numbers(path.as_bytes())[..] else {
            return Err(format!("the path {path} is passed on"));
        };
        let id = u32::try_from(id).map_err(|_| format!("the path {path} is passed on"))?;
        let peer = peer(number, pause_ms);
        if self.input.len() < end + 4 + sent && peer != Peer::Early {
            return Ok(true);
        }
        self.input.drain(..end + 4);
        self.owed = (sent > 0).then_some((id, 0, sent as u64));
        self.take_owed()?;
        let rest = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
        let rest = rest.and_then(|rest| rest.split_once('-'));
        // It can say the rest in one piece. Without a body the head is whole: behind it the connection stays.
        let is_head = head.starts_with("HEAD ");
        let has_no_body = is_head || length == 0;
        let peer = if rest.is_some() || has_no_body && stops(peer) { Peer::Exact } else { peer };
        self.then = match peer {
            Peer::Resets(_) => Then::Resets,
            _ if never_ends(peer) || stops(peer) || closes(peer) => Then::Closes,
            _ => Then::Stays,
        };
        let response = match rest {
            Some(rest) => part(id, length, rest)?,
            None => response(peer, id, length, is_head),
        };
        let is_whole = rest.is_some() || !never_ends(peer) && (!stops(peer) || length == 0);
        self.completes = (is_whole && !is_head).then_some(id);
        let (apart_ms, last_ms) = match peer {
            Peer::Slow(ms) | Peer::DiesSlowly(ms) | Peer::DiesBetweenChunks(ms) => (ms, None),
            Peer::Resets(ms) => (0, Some(ms)),
            Peer::Unasked(ms) => {
                self.unasked = Unasked::At(now_ms + ms);
                (0, None)
            }
            _ => (0, None),
        };
        self.output = (0..).zip(response).map(|(at, bytes)| (now_ms + at * apart_ms, bytes)).collect();
        self.output.extend(last_ms.map(|ms| (now_ms + ms, Vec::new())));
        Ok(peer != Peer::Dies)
    }
}

fn check_body(id: u32, from: u64, body: &[u8]) -> Result<(), String> {
    match body.iter().zip(from..).find(|&(&byte, at)| byte != pattern(id, at)) {
        None => Ok(()),
        Some((_, at)) => Err(format!("a wrong byte at {at} of the body of request {id} that is passed on")),
    }
}

/// Those that end their response, and the connection.
fn closes(peer: Peer) -> bool {
    matches!(peer, Peer::UntilClose | Peer::Garbage | Peer::TooMuch | Peer::CutHead | Peer::TwoLengths)
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
    let half = &body[..body.len() / 2];
    let pieces = |body: &[u8]| -> Vec<Vec<u8>> {
        body.chunks(body.len().div_ceil(SLOW_PIECES).max(1)).map(<[u8]>::to_vec).collect()
    };
    let head = match peer {
        Peer::Chunked | Peer::DiesWithinChunk | Peer::DiesBetweenChunks(_) | Peer::BadChunk => chunked,
        Peer::UntilClose => b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec(),
        Peer::Garbage => b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n".to_vec(),
        Peer::CutHead => b"HTTP/1.1 200 OK\r\nContent-Len".to_vec(),
        Peer::TwoLengths => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
        }
        Peer::Announced => {
            let before = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            [&before[..], &known].concat()
        }
        Peer::Silent | Peer::Dies => return Vec::new(),
        // Without a tag the rest cannot be asked for.
        Peer::DiesWithin => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length + 1).into_bytes(),
        _ => known,
    };
    if is_head {
        return vec![head];
    }
    let whole = |body: &[u8]| vec![[&head[..], body].concat()];
    match peer {
        Peer::Slow(_) => std::iter::once(head).chain(pieces(&body)).collect(),
        Peer::Chunked => {
            let chunks: Vec<u8> = body.chunks(7777).flat_map(chunk).collect();
            whole(&[&chunks[..], b"0\r\n\r\n"].concat())
        }
        Peer::DiesWithin | Peer::Resets(_) => whole(half),
        Peer::DiesSlowly(_) => std::iter::once(head).chain(pieces(half)).collect(),
        Peer::DiesBetweenChunks(_) => {
            std::iter::once(head).chain(pieces(half).iter().map(|piece| chunk(piece))).collect()
        }
        Peer::DiesWithinChunk => whole(&[format!("{:x}\r\n", length + 1).as_bytes(), half].concat()),
        Peer::BadChunk => whole(&[&chunk_or_none(half)[..], b"a size\r\n"].concat()),
        Peer::TooMuch => whole(&[&body[..], &b"and more".repeat(9)].concat()),
        Peer::Garbage | Peer::CutHead | Peer::TwoLengths => vec![head],
        _ => whole(&body),
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).into_bytes(), bytes.to_vec(), b"\r\n".to_vec()].concat()
}

/// A chunk of nothing would be the last one.
fn chunk_or_none(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() { Vec::new() } else { chunk(bytes) }
}
