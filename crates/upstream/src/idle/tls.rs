//! TLS between the bytes of requests and the socket of a connection to a server. Used by one request at a
//! time, or by nobody while the connection is idle.
//!
//! 1. What is written counts as taken when all records that hold it have left: until then a writer waits,
//!    and offers the same bytes again. So a server that takes nothing is seen as one.
//! 2. There is something to read when the socket is readable, or when bytes are left of what was received.
//! 3. What has to be answered to the server's own messages leaves with what is read or written next.
//! 4. While nothing is under way a connection keeps no buffer.

use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

use super::transport::is_silent;
use clearway_runtime::Socket;
use clearway_tls::engine::{Failure, Kept, LoadError, Opened, Session, Shown, Step};
use clearway_tls::stream::{End, Left, TlsError};

/// Bytes that are received at once: a record of the largest size.
const RECEIVE_BYTES: usize = 17 * 1024;
/// Bytes of content that are encrypted at once.
const FLIGHT_MAX_BYTES: usize = 64 * 1024;
/// Content of a record, bytes (RFC 8446 §5.1).
const RECORD_MAX_BYTES: usize = 16 * 1024;
/// The most bytes that a server may send in a handshake: certificates are the most of it.
const HANDSHAKE_MAX_BYTES: usize = 1024 * 1024;

/// A connection with a server over TLS.
pub struct TlsStream {
    pub(super) socket: Socket,
    session: Box<dyn Session>,
    input: Vec<u8>,
    left: Left,
    end: End,
    /// Records that the socket has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// How much content the records stand for that is not reported as taken yet, bytes.
    sealed: usize,
    /// Content that was taken, and what all records came to on the wire, bytes.
    taken: Sums,
    /// The sums when the present request began.
    before: Sums,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    content: u64,
    wire: u64,
}

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaken {
    /// The handshake is over.
    Done,
    /// The handshake waits for certificates ([`TlsStream::answer`]).
    Asked,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum HandshakeFault {
    /// The server ended it.
    Closed,
    /// The socket failed.
    Io(io::Error),
    /// One side has refused a message of the other.
    Failed(Failure),
}

impl fmt::Display for HandshakeFault {
    /// As nginx logs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("peer closed connection in SSL handshake"),
            Self::Io(error) => {
                let number = error.raw_os_error().unwrap_or_default();
                let text = error.to_string();
                let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
                write!(f, "peer closed connection in SSL handshake ({number}: {text})")
            }
            Self::Failed(failure) => write!(f, "SSL_do_handshake() failed {failure}"),
        }
    }
}

impl TlsStream {
    /// Before the handshake.
    #[must_use]
    pub fn new(socket: Socket, session: Box<dyn Session>) -> Box<Self> {
        Box::new(Self {
            socket,
            session,
            input: Vec::new(),
            left: Left::Perhaps,
            end: End::Open,
            output: Vec::new(),
            sent: 0,
            sealed: 0,
            taken: Sums::default(),
            before: Sums::default(),
        })
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &dyn Session {
        &*self.session
    }

    /// Sessions that the server has given since this was asked last.
    pub fn take_kept(&mut self) -> Vec<Kept> {
        self.session.take_kept()
    }

    /// Goes on with the handshake. The last message of this side may still wait for what is written first.
    ///
    /// # Errors
    /// See [`HandshakeFault`].
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeFault>> {
        match ready!(self.poll_until_asked(cx))? {
            Shaken::Done => Poll::Ready(Ok(())),
            // Nobody has said that questions are heard.
            Shaken::Asked => Poll::Ready(Err(HandshakeFault::Failed(Failure { reasons: Vec::new() }))),
        }
    }

    /// Says what the server is shown that has asked.
    ///
    /// # Errors
    /// See [`Session::answer`].
    pub fn answer(&mut self, shown: &Shown) -> Result<(), LoadError> {
        self.session.answer(shown)
    }

    /// As above, for a session that hears questions for certificates.
    ///
    /// # Errors
    /// See [`HandshakeFault`].
    pub fn poll_until_asked(&mut self, cx: &mut Context<'_>) -> Poll<Result<Shaken, HandshakeFault>> {
        let mut received = 0;
        loop {
            let mut rest = &self.input[..];
            let step = self.session.step(&mut rest, &mut self.output);
            let used = self.input.len() - rest.len();
            self.input.drain(..used);
            match step {
                Step::Done => return Poll::Ready(Ok(Shaken::Done)),
                Step::Asked => return Poll::Ready(Ok(Shaken::Asked)),
                Step::Closed => return Poll::Ready(Err(HandshakeFault::Closed)),
                Step::Failed(failure) => {
                    // An alert, as far as the socket takes it at once.
                    let _ = self.poll_flush(cx);
                    return Poll::Ready(Err(HandshakeFault::Failed(failure)));
                }
                Step::Need => {}
            }
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(HandshakeFault::Io(error)));
            }
            self.input.reserve(RECEIVE_BYTES);
            match ready!(self.socket.poll_read_vec(cx, &mut self.input)) {
                Ok(0) => return Poll::Ready(Err(HandshakeFault::Closed)),
                Ok(size) => received += size,
                Err(error) => return Poll::Ready(Err(HandshakeFault::Io(error))),
            }
            if received > HANDSHAKE_MAX_BYTES {
                return Poll::Ready(Err(HandshakeFault::Failed(Failure { reasons: Vec::new() })));
            }
        }
    }

    /// Says that nothing follows, as far as the socket takes it at once.
    pub fn close(&mut self) {
        if matches!(self.end, End::Failed(_)) {
            return;
        }
        self.session.close(&mut self.output);
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_buffered() { Poll::Ready(()) } else { self.socket.poll_readable(cx) }
    }

    pub(super) fn poll_read_vec(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if self.sealed == 0 {
            // Rule 3; where the socket is broken reading says so.
            let _ = self.poll_flush(cx);
        }
        let before = buf.len();
        loop {
            if self.has_buffered() {
                self.open(buf);
            }
            if buf.len() > before {
                return Poll::Ready(Ok(buf.len() - before));
            }
            match std::mem::replace(&mut self.end, End::Closed) {
                End::Open => self.end = End::Open,
                End::Closed => return Poll::Ready(Ok(0)),
                End::Failed(failure) => {
                    self.end = End::Failed(failure.clone());
                    return Poll::Ready(Err(TlsError::of("SSL_read()", failure)));
                }
            }
            self.input.reserve(RECEIVE_BYTES);
            let Poll::Ready(read) = self.socket.poll_read_vec(cx, &mut self.input) else {
                if self.input.is_empty() {
                    self.input = Vec::new();
                }
                return Poll::Pending;
            };
            // As nginx has it, a connection that ends without a word has ended all the same.
            if read? == 0 {
                self.end = End::Closed;
            }
        }
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sealed == 0 {
            self.seal(parts).map_err(|failure| TlsError::of("SSL_write()", failure))?;
        }
        ready!(self.poll_flush(cx))?;
        let taken = std::mem::take(&mut self.sealed);
        self.taken.content += taken as u64;
        Poll::Ready(Ok(taken))
    }

    /// Whether something is left of what was received: a part of a record counts.
    pub(super) fn has_buffered(&self) -> bool {
        self.left == Left::Perhaps || !self.input.is_empty() && matches!(self.end, End::Open)
    }

    /// Nobody uses it from here on, until a further request does. The last read may have filled its buffer
    /// just so: then it is found out whether anything is left.
    pub(super) fn note_idle(&mut self) {
        self.before = self.taken;
        if self.left == Left::Perhaps {
            let mut excess = Vec::with_capacity(1);
            self.open(&mut excess);
            if !excess.is_empty() {
                self.end = End::Closed;
            }
        }
    }

    /// Whether nothing has come, as far as the loop has learned, and nothing is left to be said.
    pub(super) fn is_quiet(&self) -> bool {
        let is_idle = self.left == Left::Nothing && self.input.is_empty() && self.output.is_empty();
        is_idle && matches!(self.end, End::Open) && is_silent(&self.socket)
    }

    /// How many bytes of content stand for `wire` bytes that were acknowledged since the connection was made.
    /// This is at least one more than the content of earlier requests if any of the bytes is of the present
    /// one.
    pub(super) fn content_of(&self, wire: u64) -> u64 {
        if wire <= self.before.wire { self.before.content.min(wire) } else { self.before.content + 1 }
    }

    fn open(&mut self, buf: &mut Vec<u8>) {
        let mut rest = &self.input[..];
        let opened = self.session.open(&mut rest, buf, &mut self.output);
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        self.left = Left::Nothing;
        match opened {
            Opened::Full => self.left = Left::Perhaps,
            Opened::Need => {}
            Opened::Closed => self.end = End::Closed,
            Opened::Failed(failure) => self.end = End::Failed(failure),
        }
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    /// Encrypts what is offered, up to a flight.
    fn seal(&mut self, parts: &[IoSlice<'_>]) -> Result<(), Failure> {
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        if offered <= FLIGHT_MAX_BYTES {
            self.session.seal(parts, RECORD_MAX_BYTES, &mut self.output)?;
            self.sealed = offered;
            return Ok(());
        }
        let mut room = FLIGHT_MAX_BYTES;
        let mut fitting = Vec::with_capacity(parts.len());
        for part in parts {
            let count = part.len().min(room);
            fitting.push(IoSlice::new(&part[..count]));
            room -= count;
        }
        self.session.seal(&fitting, RECORD_MAX_BYTES, &mut self.output)?;
        self.sealed = FLIGHT_MAX_BYTES;
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            let written = ready!(self.socket.poll_write(cx, &self.output[self.sent..]))?;
            self.sent += written;
            self.taken.wire += written as u64;
        }
        (self.output, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}
