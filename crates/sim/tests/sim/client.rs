//! A client with one connection on a transport in memory, whatever it speaks.

use std::task::{Context, Poll, Waker};

use clearway_net::memory::MemoryEnd;
use clearway_sim::{Protocol, Request};

use crate::expected::Received;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::site::{READ_TIMEOUT_MS, SHORTEST_TIMEOUT_MS, Written};

/// What may be on its way to a client at first, bytes.
const ROOM_BYTES: usize = 64 * 1024;
/// What a server may hold of a body that its client does not take, beside what is on its way, bytes.
const HELD_MAX: u64 = 256 * 1024;

enum Speaks {
    Http1(Http1),
    Http2(Box<Http2>),
}

/// A client with one connection.
pub(crate) struct Client {
    /// Until it goes away.
    end: Option<MemoryEnd>,
    speaks: Speaks,
    /// Made and not sent.
    unsent: Vec<u8>,
    opened_ms: u64,
    /// When something was sent or received last.
    active_ms: u64,
    /// Since when something is there for it that it does not take.
    unread_since_ms: Option<u64>,
    /// Time has passed while something was sent in part.
    is_dribbling: bool,
    /// It has done nothing for so long that it may have been given up.
    has_lapsed: bool,
    life: Life,
    /// Requests of which nothing was sent, or not all: the first byte behind each, of all that is made.
    made: u64,
    sent: u64,
    asked: Vec<(u64, u64, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// It sends nothing more.
    Finished,
    /// The server has closed the connection.
    Ended,
    /// The client has gone away.
    Gone,
}

impl Client {
    pub(crate) fn new(end: MemoryEnd, protocol: Protocol, now_ms: u64) -> Self {
        let (speaks, hello) = match protocol {
            Protocol::Http1 => (Speaks::Http1(Http1::default()), Vec::new()),
            Protocol::Http2 => {
                let (http2, hello) = Http2::new();
                (Speaks::Http2(Box::new(http2)), hello)
            }
        };
        let made = hello.len() as u64;
        Self {
            end: Some(end),
            speaks,
            unsent: hello,
            opened_ms: now_ms,
            active_ms: now_ms,
            unread_since_ms: None,
            is_dribbling: false,
            has_lapsed: false,
            life: Life::Open,
            made,
            sent: 0,
            asked: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, request: &Request, now_ms: u64) {
        if self.life != Life::Open {
            return;
        }
        let bytes = match &mut self.speaks {
            Speaks::Http1(http1) => http1.ask(request),
            Speaks::Http2(http2) => http2.ask(request, now_ms),
        };
        let begin = self.made;
        self.make(&bytes);
        self.asked.push((begin, self.made, request.id));
    }

    fn make(&mut self, bytes: &[u8]) {
        self.made += bytes.len() as u64;
        self.unsent.extend_from_slice(bytes);
    }

    /// Sends so much, if there is as much and it is taken.
    pub(crate) fn send(&mut self, most: usize, now_ms: u64) {
        if self.life != Life::Open {
            return;
        }
        if let Speaks::Http2(http2) = &mut self.speaks
            && self.unsent.len() < ROOM_BYTES
        {
            let bodies = http2.bodies();
            self.make(&bodies);
        }
        let count = most.min(self.unsent.len());
        let mut cx = Context::from_waker(Waker::noop());
        let pieces = [std::io::IoSlice::new(&self.unsent[..count])];
        if count > 0
            && let Some(end) = &self.end
            && let Poll::Ready(Ok(count)) = end.poll_write_vectored(&mut cx, &pieces)
        {
            self.unsent.drain(..count);
            self.sent += count as u64;
            self.active_ms = now_ms;
        }
    }

    /// Receives so much, if there is as much.
    pub(crate) fn receive(&mut self, most: usize, now_ms: u64) -> Result<(), String> {
        let Some(end) = &self.end else { return Ok(()) };
        if self.life == Life::Ended {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(most);
        if most > 0
            && let Ok(1..) = end.try_read_vec(&mut bytes)
        {
            let has_unread = end.has_unread();
            self.take(&bytes, now_ms)?;
            // The server has been waiting since it sent this.
            let since_ms = if has_unread { self.unread_since_ms } else { self.unread_since_ms.take() };
            self.active_ms = self.active_ms.max(since_ms.unwrap_or(now_ms));
        }
        if self.end.as_ref().is_some_and(|end| end.has_ended() && !end.has_unread()) {
            let is_excused = self.is_excused(now_ms);
            self.life = Life::Ended;
            return match &mut self.speaks {
                Speaks::Http1(http1) => http1.end(is_excused),
                Speaks::Http2(http2) => http2.end(is_excused),
            };
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), String> {
        let is_excused = self.is_excused(now_ms);
        match &mut self.speaks {
            Speaks::Http1(http1) => http1.receive(bytes),
            Speaks::Http2(http2) => {
                let excuse =
                    |since_ms: u64| is_excused || since_ms > 0 && now_ms >= since_ms + READ_TIMEOUT_MS;
                let reply = http2.receive(bytes, excuse)?;
                self.make(&reply);
                Ok(())
            }
        }
    }

    /// Whether the server has a reason to end the connection.
    fn is_excused(&self, now_ms: u64) -> bool {
        self.life == Life::Finished
            || self.has_lapsed
            || self.is_dribbling && now_ms >= self.opened_ms + SHORTEST_TIMEOUT_MS
    }

    /// Time is about to pass.
    pub(crate) fn wait(&mut self, now_ms: u64, until_ms: u64) {
        if self.end.as_ref().is_some_and(MemoryEnd::has_unread) {
            self.unread_since_ms.get_or_insert(now_ms);
        }
        self.has_lapsed |= until_ms >= self.active_ms + READ_TIMEOUT_MS;
        self.is_dribbling |= !self.unsent.is_empty();
        if let Speaks::Http2(http2) = &self.speaks {
            // Bodies wait for windows, and all wait for what the client lets come.
            self.is_dribbling |= http2.goes_on();
        }
    }

    pub(crate) fn open(&mut self, by: u32) {
        if let Speaks::Http2(http2) = &mut self.speaks
            && self.life == Life::Open
        {
            let bytes = http2.open(by);
            self.make(&bytes);
        }
    }

    pub(crate) fn cancel(&mut self, back: usize) {
        if let Speaks::Http2(http2) = &mut self.speaks
            && self.life == Life::Open
        {
            let bytes = http2.cancel(back);
            self.make(&bytes);
        }
    }

    pub(crate) fn finish(&mut self) {
        if let (Life::Open, Some(end)) = (self.life, &self.end) {
            end.shutdown_write();
            self.life = Life::Finished;
        }
    }

    /// No more than so many bytes are on their way to it at once.
    pub(crate) fn narrow(&mut self, bytes: usize) {
        self.end.iter().for_each(|end| end.set_capacity(bytes));
    }

    pub(crate) fn reset(&mut self) {
        self.end.iter().for_each(MemoryEnd::reset);
        self.leave();
    }

    pub(crate) fn leave(&mut self) {
        self.end = None;
        self.life = Life::Gone;
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Gone)
    }

    /// Sends and receives all that it can, with room and windows as wide as they are wanted.
    pub(crate) fn settle(&mut self, now_ms: u64) -> Result<(), String> {
        self.narrow(ROOM_BYTES);
        if let Speaks::Http2(http2) = &mut self.speaks
            && self.life == Life::Open
            && self.unsent.is_empty()
            && http2.wants_window()
        {
            let bytes = http2.open(100_000);
            self.make(&bytes);
        }
        self.send(usize::MAX, now_ms);
        self.receive(ROOM_BYTES, now_ms)
    }

    /// Whether all is sent and answered that can be.
    pub(crate) fn check_answered(&self) -> Result<(), String> {
        match (&self.speaks, self.life) {
            (_, Life::Ended | Life::Gone | Life::Finished) => Ok(()),
            _ if !self.unsent.is_empty() => {
                Err(format!("{} bytes that the server does not take", self.unsent.len()))
            }
            (Speaks::Http1(http1), Life::Open) => http1.check_answered(),
            (Speaks::Http2(http2), Life::Open) => http2.check_answered(),
        }
    }

    /// What must be so all the time: the server makes no more than it may hold.
    pub(crate) fn check_held(&self, written: &Written) -> Result<(), String> {
        let under_way = match &self.speaks {
            Speaks::Http1(http1) => http1.under_way().into_iter().collect(),
            Speaks::Http2(http2) => http2.under_way(),
        };
        for (id, received) in under_way {
            let made = written.made.get(&id).copied().unwrap_or(0);
            if made > received + HELD_MAX {
                return Err(format!("{made} bytes of request {id} are made, {received} are received"));
            }
        }
        Ok(())
    }

    /// What must have been written down of its requests, when all is over.
    pub(crate) fn check_lines(&self, written: &Written) -> Result<(), String> {
        let answered: &[(Request, Received)] = match &self.speaks {
            Speaks::Http1(http1) => &http1.answered,
            Speaks::Http2(http2) => &http2.answered,
        };
        for (request, received) in answered {
            let lines = written.lines.get(&request.id).map_or(&[][..], Vec::as_slice);
            let &[(status, bytes)] = lines else {
                return Err(format!("{} lines about {request:?}: {lines:?}", lines.len()));
            };
            let is_counted = received.content_length.is_some();
            if status != received.status || is_counted && bytes != received.body.len() as u64 {
                let (had, come) = (received.status, received.body.len());
                return Err(format!("logged {status}, {bytes} bytes of {had}, {come} bytes: {request:?}"));
            }
        }
        for &(begin, _, id) in &self.asked {
            let lines = written.lines.get(&id).map_or(0, Vec::len);
            let has_begun = match &self.speaks {
                Speaks::Http1(http1) => http1.under_way().is_some_and(|(begun, _)| begun == id),
                Speaks::Http2(http2) => http2.has_begun(id),
            };
            if has_begun && lines == 0 {
                return Err(format!("no line about request {id}, whose response has begun"));
            }
            if lines > 1 || lines == 1 && self.sent <= begin {
                return Err(format!("{lines} lines about request {id}, {} bytes sent", self.sent));
            }
        }
        Ok(())
    }

    /// What came of it, for two runs to be compared.
    pub(crate) fn trace(&self) -> String {
        let answered = match &self.speaks {
            Speaks::Http1(http1) => &http1.answered,
            Speaks::Http2(http2) => &http2.answered,
        };
        let answered: Vec<String> = answered
            .iter()
            .map(|(request, received)| format!("{} {} {}", request.id, received.status, received.body.len()))
            .collect();
        format!("{:?} sent {} active {} {answered:?}", self.life, self.sent, self.active_ms - self.opened_ms)
    }
}
