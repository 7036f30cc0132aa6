//! What may be answered to a request.

use clearway_sim::{Body, Kind, Method, Peer, Request, never_ends, pattern, stops};

use crate::disks::{self, Faults};
use crate::site::{FIXED, part, written};

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
            // Of each body that is announced one in two goes on as it comes.
            let streams = matches!(request.body, Body::Known(_)) && id.is_multiple_of(2);
            let name = if streams { "streamed" } else { "passed" };
            format!("/{name}/{id}/{length}/{number}/{pause_ms}")
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
        Peer::DiesSlowly(pause_ms) => (10, pause_ms),
        Peer::DiesBetweenChunks(pause_ms) => (11, pause_ms),
        Peer::Resets(after_ms) => (12, after_ms),
        Peer::BadChunk => (13, 0),
        Peer::CutHead => (14, 0),
        Peer::TwoLengths => (15, 0),
        Peer::Unasked(after_ms) => (16, after_ms),
        Peer::Announced => (17, 0),
        Peer::Early => (18, 0),
    }
}

/// How another server behaves, as a path says it.
pub(crate) fn peer(number: u64, ms: u64) -> Peer {
    match number {
        0 => Peer::Exact,
        1 => Peer::Chunked,
        2 => Peer::UntilClose,
        3 => Peer::Slow(ms),
        4 => Peer::Silent,
        5 => Peer::Dies,
        6 => Peer::DiesWithin,
        7 => Peer::DiesWithinChunk,
        8 => Peer::TooMuch,
        9 => Peer::Garbage,
        10 => Peer::DiesSlowly(ms),
        11 => Peer::DiesBetweenChunks(ms),
        12 => Peer::Resets(ms),
        13 => Peer::BadChunk,
        14 => Peer::CutHead,
        15 => Peer::TwoLengths,
        16 => Peer::Unasked(ms),
        17 => Peer::Announced,
        _ => Peer::Early,
    }
}

/// A request that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    /// Calls on disks that had failed by then.
    faults: Faults,
}

impl Asked {
    pub(crate) fn now(request: &Request) -> Self {
        Self { request: request.clone(), faults: disks::faults_before() }
    }

    /// Whether its response may end before it is complete, whatever the time: the other server does not send
    /// all of it; or calls failed, since it was asked, on the disk that its object lies on, unless the server
    /// has the rest still.
    pub(crate) fn may_break(&self) -> bool {
        let Some(peer) = peer_of(&self.request) else { return false };
        never_ends(peer)
            || stops(peer)
            || self.cache_key().is_some_and(|key| disks::have_failed(&key, self.faults))
    }

    /// The key of its object in the cache.
    fn cache_key(&self) -> Option<String> {
        let Kind::Cached(object, length, peer) = self.request.kind else { return None };
        let (number, pause_ms) = numbers_of(peer);
        Some(format!("{object}/{length}/{number}/{pause_ms}"))
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
        if !is_due(self.status, request) {
            return Err(format!("status {} for {request:?}", self.status));
        }
        Ok(())
    }

    /// Compares a response that is complete: the other server has sent all of it at least once.
    pub(crate) fn check_whole(&self, request: &Request) -> Result<(), String> {
        if self.status != 200 || request.method == Method::Head {
            return Ok(());
        }
        let length = length(request);
        let is_sent = match peer_of(request) {
            None => true,
            Some(peer) if stops(peer) && length == 0 => true,
            Some(_) => written().sent_whole.contains(&source_of(request)),
        };
        if self.body.len() as u64 == length && is_sent {
            return Ok(());
        }
        let came = self.body.len();
        Err(format!("{came} bytes are said to be all of {length}, sent in full: {is_sent}, for {request:?}"))
    }
}

/// The other server that a request may come to.
fn peer_of(request: &Request) -> Option<Peer> {
    match request.kind {
        Kind::Passed(_, peer) | Kind::Cached(_, _, peer) => Some(peer),
        _ => None,
    }
}

/// The number that the other server knows its response by.
fn source_of(request: &Request) -> u32 {
    if let Kind::Cached(object, ..) = request.kind { object } else { request.id }
}

/// Whether such a response may come.
fn is_due(status: u16, request: &Request) -> bool {
    let Some(peer) = peer_of(request) else {
        return status == if request.kind == Kind::Missing { 404 } else { 200 };
    };
    let is_headless = matches!(peer, Peer::Dies | Peer::Garbage | Peer::CutHead | Peer::TwoLengths);
    match status {
        200 => !is_headless && peer != Peer::Silent,
        502 => is_headless || matches!(peer, Peer::Resets(_)) || written().has_refused,
        // All may take too long, until they are asked again.
        504 => true,
        _ => false,
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
