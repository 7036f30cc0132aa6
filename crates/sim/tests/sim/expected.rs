//! What may be answered to a request.

use clearway_sim::{Kind, Method, Peer, Request, pattern};

use crate::disks;
use crate::site::{FIXED, part};

/// The path of a request, which says what answers it.
pub(crate) fn path(request: &Request) -> String {
    let id = request.id;
    match request.kind {
        Kind::Bytes(length, piece, pause_ms, is_known) => {
            format!("/bytes/{id}/{length}/{piece}/{pause_ms}/{}", u8::from(is_known))
        }
        Kind::Echo => format!("/echo/{id}"),
        Kind::Fixed => format!("/fixed/{id}"),
        Kind::Slow(length) => format!("/slow/{id}/{length}/9000/0/1"),
        Kind::Around(length) => format!("/around/{id}/{length}/5000/0/1"),
        Kind::Missing => format!("/missing/{id}"),
        Kind::Passed(length, peer) => {
            let (number, pause_ms) = numbers_of(peer);
            format!("/passed/{id}/{length}/{number}/{pause_ms}")
        }
        Kind::Cached(object, length, peer) => {
            let (number, pause_ms) = numbers_of(peer);
            format!("/cached/{id}/{object}/{length}/{number}/{pause_ms}")
        }
    }
}

fn numbers_of(peer: Peer) -> (u64, u64) {
    match peer {
        Peer::Exact => (0, 0),
        Peer::Chunked => (1, 0),
        Peer::UntilClose => (2, 0),
        Peer::Slow(pause_ms) => (3, pause_ms),
        Peer::Silent => (4, 0),
        Peer::Dies => (5, 0),
        Peer::DiesWithin => (6, 0),
        Peer::DiesWithinChunk => (7, 0),
        Peer::TooMuch => (8, 0),
        Peer::Garbage => (9, 0),
    }
}

/// How another server behaves, as a path says it.
pub(crate) fn peer(number: u64, pause_ms: u64) -> Peer {
    match number {
        0 => Peer::Exact,
        1 => Peer::Chunked,
        2 => Peer::UntilClose,
        3 => Peer::Slow(pause_ms),
        4 => Peer::Silent,
        5 => Peer::Dies,
        6 => Peer::DiesWithin,
        7 => Peer::DiesWithinChunk,
        8 => Peer::TooMuch,
        _ => Peer::Garbage,
    }
}

/// A response as far as its client has it.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// `X-Path`, which each location adds.
    pub(crate) path: Option<String>,
    pub(crate) content_length: Option<u64>,
    pub(crate) body: Vec<u8>,
    /// How much of the body was compared.
    checked: usize,
}

impl Received {
    /// Compares what has come of the body since the last time.
    pub(crate) fn check_body(&mut self, request: &Request) -> Result<(), String> {
        let from = std::mem::replace(&mut self.checked, self.body.len());
        if self.status != 200 {
            return Ok(());
        }
        let wrong = self.body[from..]
            .iter()
            .zip(from as u64..)
            .find(|&(&byte, at)| byte_at(request, at) != Some(byte));
        match wrong {
            None => Ok(()),
            Some((byte, at)) => {
                let expected = byte_at(request, at);
                Err(format!("wrong byte: {byte} at {at} of request {}, not {expected:?}", request.id))
            }
        }
    }

    /// Compares a head.
    pub(crate) fn check_head(&self, request: &Request) -> Result<(), String> {
        let expected = path(request);
        if self.path.as_deref() != Some(&expected) {
            return Err(format!("an answer to {:?} where one to {expected} was due", self.path));
        }
        if !statuses(request).contains(&self.status) {
            return Err(format!("status {} for {request:?}", self.status));
        }
        Ok(())
    }

    /// Compares a response that is complete.
    pub(crate) fn check_whole(&self, request: &Request) -> Result<(), String> {
        if self.status != 200 || request.method == Method::Head {
            return Ok(());
        }
        let length = length(request);
        if self.body.len() as u64 == length && !never_whole(request) {
            return Ok(());
        }
        Err(format!("{} bytes are said to be all of {length} for {request:?}", self.body.len()))
    }
}

/// Whether a response cannot be complete.
fn never_whole(request: &Request) -> bool {
    matches!(peer_of(request), Some(Peer::DiesWithin | Peer::DiesWithinChunk))
}

/// Whether a response may end before it is complete, whatever the time. Where a disk fails, so do responses
/// that are read from it while they are stored, unless the server has the rest still.
pub(crate) fn may_break(request: &Request) -> bool {
    never_whole(request) || matches!(request.kind, Kind::Cached(..)) && disks::have_failed()
}

/// The other server that a request may come to.
fn peer_of(request: &Request) -> Option<Peer> {
    match request.kind {
        Kind::Passed(_, peer) | Kind::Cached(_, _, peer) => Some(peer),
        _ => None,
    }
}

fn statuses(request: &Request) -> &'static [u16] {
    match (request.kind, peer_of(request)) {
        (Kind::Missing, _) => &[404],
        (_, Some(Peer::Silent)) => &[504],
        (_, Some(Peer::Dies | Peer::Garbage)) => &[502, 504],
        (_, Some(_)) => &[200, 504],
        _ => &[200],
    }
}

/// How long a body is with status 200.
fn length(request: &Request) -> u64 {
    match request.kind {
        Kind::Bytes(length, ..) | Kind::Slow(length) => length,
        Kind::Passed(length, _) | Kind::Cached(_, length, _) => length,
        Kind::Echo => request.body.length(),
        Kind::Fixed => FIXED.len() as u64,
        Kind::Around(length) => length + (part(1).len() + part(2).len()) as u64,
        Kind::Missing => 0,
    }
}

/// A byte of that body; `None` beyond its end.
fn byte_at(request: &Request, at: u64) -> Option<u8> {
    if at >= length(request) {
        return None;
    }
    match request.kind {
        Kind::Fixed => FIXED.as_bytes().get(at as usize).copied(),
        Kind::Around(within) => {
            let (before, behind) = (part(1), part(2));
            match at.checked_sub(before.len() as u64) {
                None => before.get(at as usize).copied(),
                Some(at) if at < within => Some(pattern(request.id, at)),
                Some(at) => behind.get((at - within) as usize).copied(),
            }
        }
        Kind::Cached(object, ..) => Some(pattern(object, at)),
        _ => Some(pattern(request.id, at)),
    }
}

/// The bytes that a client sends as a body.
pub(crate) fn sent(request: &Request) -> Vec<u8> {
    (0..request.body.length()).map(|at| pattern(request.id, at)).collect()
}
