//! The layer between a socket and the bytes of a connection with TLS. Used by the connection's task, and by
//! the one request that it runs: one of them at a time, so the lock is never waited for.
//!
//! 1. There is something to read when the socket is readable or when bytes are left of what was received.
//! 2. What is written was taken when its records have left: a write of which the socket took a part reports
//!    that part, and what is offered next begins behind it. So a slow client is seen as one.
//! 3. While nothing is under way a connection keeps no buffer: those of a loop go from one to the other.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_runtime::Socket;
use clearway_tls::engine::{Failure, Info, Opened, Secrets, Session, Step};
use clearway_tls::hello::Hello;
use clearway_tls::stream::{End, Left, TlsError};
use crossbeam_utils::atomic::AtomicCell;

use crate::metrics;

/// Bytes that are received at once: a record of the largest size.
const RECEIVE_BYTES: usize = 17 * 1024;
/// The same while more comes than that, bytes.
const RECEIVE_MUCH_BYTES: usize = 64 * 1024;
/// Bytes that are encrypted at once for a client about which nothing is known.
const FLIGHT_BYTES: usize = 64 * 1024;
/// The same for one that has taken all of it each time, bytes.
const FLIGHT_MAX_BYTES: usize = 256 * 1024;
/// The most bytes of a record in addition to its content.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// Content of a record, bytes (RFC 8446 §5.1).
const RECORD_MAX_BYTES: usize = 16 * 1024;
/// Content of the first records after a silence: a client can use each when it has come, bytes.
const FIRST_RECORD_BYTES: usize = 4 * 1024;
/// How much is sent in such records, bytes.
const FIRST_RECORDS_BYTES: usize = 16 * 1024;
/// The most bytes that may wait for a response, to leave with it.
const HELD_BACK_MAX_BYTES: usize = 2 * 1024;
/// Loops beyond this number share buffers.
const SHELVES_MAX: usize = 16;
/// A buffer that has grown beyond this is not left to the next connection, bytes.
const KEPT_BUFFER_BYTES: usize = RECEIVE_BYTES + RECEIVE_MUCH_BYTES;
/// The time without output that counts as silence, milliseconds.
const SILENCE_MS: u64 = 1_000;

/// How long records are (`ssl_buffer_size`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordSize {
    /// The size of records follows from the bytes that were sent before.
    #[default]
    Adaptive,
    /// Bytes.
    Fixed(usize),
}

/// State that handshake code keeps of a client from one phase to the next, and for its requests; its form is
/// up to the code.
pub type Remembered = Arc<dyn Any + Send + Sync>;

/// The client's hello, as variables show it.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The host that it asked for (SNI), as it was written.
    pub server_name: Option<Box<[u8]>>,
    /// The same as it is compared with that of requests, if a server has it.
    pub host: Option<Box<[u8]>>,
    /// Cipher suites by number.
    pub suites: Box<[u16]>,
    /// Groups by number.
    pub groups: Box<[u16]>,
    /// Signature algorithms by number.
    pub signatures: Box<[u16]>,
    /// State that handshake code keeps for requests.
    pub remembered: Option<Remembered>,
}

impl Offer {
    /// The offer in a hello, with the host that a server has.
    #[must_use]
    pub fn of(hello: &Hello, host: Option<Box<[u8]>>) -> Self {
        Self {
            host,
            server_name: hello.server_name().map(Box::from),
            suites: hello.suites().collect(),
            groups: hello.groups().collect(),
            signatures: hello.signatures().collect(),
            remembered: None,
        }
    }
}

/// TLS on a connection, from the end of the handshake on.
pub struct Tls {
    /// The client's hello.
    pub offer: Offer,
    records: RecordSize,
    side: Side,
}

/// What a value has of the session.
enum Side {
    /// The session itself.
    Session(Mutex<TlsState>),
    /// Facts about the session, for requests that do not read and write it.
    Told(Box<Told>),
}

/// Facts about a session.
struct Told {
    info: Info,
    peer_certificate: Option<Vec<u8>>,
    is_early: bool,
    secrets: Secrets,
    suites: Vec<u16>,
}

struct TlsState {
    session: Box<dyn Session>,
    /// Received bytes that were not used yet.
    input: Option<Box<Input>>,
    left: Left,
    end: End,
    /// Records that the socket has not taken, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    flight: Flight,
    flight_bytes: usize,
    /// When something was sent last, on the clock of the loop.
    sent_ms: u64,
    /// Bytes that were sent since the last silence.
    sent_since_silence: usize,
    farewell: Farewell,
}

/// Received bytes, and how many of them were used.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    used: usize,
}

/// Where connections of a loop find a buffer to receive in, which all of them leave empty.
type Shelf = AtomicCell<Option<Box<Input>>>;

static SHELVES: [Shelf; SHELVES_MAX] = [const { AtomicCell::new(None) }; SHELVES_MAX];

fn shelf_of(socket: &Socket) -> &'static Shelf {
    &SHELVES[socket.home().index() % SHELVES_MAX]
}

/// Leaves a buffer for the next one, if it is as large as those are.
fn put_back(mut input: Box<Input>, shelf: &Shelf) {
    if (RECEIVE_BYTES..=KEPT_BUFFER_BYTES).contains(&input.bytes.capacity()) {
        input.bytes.clear();
        input.used = 0;
        shelf.store(Some(input));
    }
}

/// The state of the alert that ends the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Farewell {
    Unsaid,
    /// The bytes leave with those that are encrypted next, if these are so long, bytes.
    Behind(usize),
    Said,
}

/// The last encrypted output: its content, how much of that was reported as sent, and where its records are.
#[derive(Clone, Copy, Default)]
struct Flight {
    bytes: usize,
    reported: usize,
    start: usize,
    end: usize,
}

impl Flight {
    /// How much of the content has left with the output up to `sent`.
    fn gone(self, sent: usize) -> usize {
        debug_assert!(self.start <= self.end, "records do not end before they begin");
        let (sent, length) = (sent.saturating_sub(self.start), self.end - self.start);
        if sent >= length { self.bytes } else { (self.bytes as u64 * sent as u64 / length as u64) as usize }
    }
}

/// Why nothing was received, as nginx logs it.
pub struct NotReceived<'a>(pub &'a io::Error);

impl fmt::Display for NotReceived<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TlsError::find(self.0) {
            Some(error) => error.fmt(f),
            None => write!(f, "recv() failed {}", Errno(self.0)),
        }
    }
}

/// The level at which nginx logs failures that clients provoke.
#[must_use]
pub fn failure_level(failure: &Failure) -> Level {
    match failure.reasons.last() {
        Some(reason) if reason.is_of_peer() => Level::Info,
        _ => Level::Crit,
    }
}

impl Tls {
    /// Behind a handshake: `input` is what was received behind it, `output` what is still to be sent.
    pub fn new(
        session: Box<dyn Session>,
        offer: Offer,
        records: RecordSize,
        input: Vec<u8>,
        output: Vec<u8>,
    ) -> Self {
        let state = TlsState {
            session,
            input: (!input.is_empty()).then(|| Box::new(Input { bytes: input, used: 0 })),
            left: Left::Perhaps,
            end: End::Open,
            output,
            sent: 0,
            flight: Flight::default(),
            flight_bytes: FLIGHT_BYTES,
            sent_ms: 0,
            sent_since_silence: 0,
            farewell: Farewell::Unsaid,
        };
        Self { offer, records, side: Side::Session(Mutex::new(state)) }
    }

    /// The facts about the session at this moment, for requests that run beside its connection; the result
    /// cannot read or write.
    #[must_use]
    pub fn told(&self) -> Self {
        let (info, peer_certificate) = (self.info(), self.peer_certificate());
        let (secrets, suites) = (self.secrets(), self.suites());
        let told = Told { info, peer_certificate, is_early: self.is_early(), secrets, suites };
        Self { offer: self.offer.clone(), records: self.records, side: Side::Told(Box::new(told)) }
    }

    /// The TLS of a client of which only the hello is known, for variables: nothing is sent or received over
    /// it.
    pub(crate) fn unbegun(offer: Offer) -> Self {
        Self::new(Box::new(Unbegun), offer, RecordSize::default(), Vec::new(), Vec::new())
    }

    /// The client's hello.
    pub(crate) fn into_offer(self) -> Offer {
        self.offer
    }

    /// Facts about the session.
    pub fn info(&self) -> Info {
        match &self.side {
            Side::Session(_) => self.state().session.info(),
            Side::Told(told) => told.info.clone(),
        }
    }

    /// The client's certificate in DER, if it has sent one.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        match &self.side {
            Side::Session(_) => self.state().session.peer_certificate(),
            Side::Told(told) => told.peer_certificate.clone(),
        }
    }

    /// Whether the client's last message of the handshake is still to come.
    pub fn is_early(&self) -> bool {
        match &self.side {
            Side::Session(_) => self.state().session.is_early(),
            Side::Told(told) => told.is_early,
        }
    }

    /// What client and server have in common.
    pub fn secrets(&self) -> Secrets {
        match &self.side {
            Side::Session(_) => self.state().session.secrets(),
            Side::Told(told) => told.secrets.clone(),
        }
    }

    /// Numbers of the cipher suites that the server speaks, in its order.
    pub fn suites(&self) -> Vec<u16> {
        match &self.side {
            Side::Session(_) => self.state().session.suites(),
            Side::Told(told) => told.suites.clone(),
        }
    }

    /// Those of them that the client has offered.
    pub fn shared_suites(&self) -> Vec<u16> {
        let mut suites = self.suites();
        suites.retain(|suite| self.offer.suites.contains(suite));
        suites
    }

    /// So many bytes that client and server can derive, for a purpose that `label` names; `None` also of
    /// requests that run beside their connection, which has the session.
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, bytes: usize) -> Option<Vec<u8>> {
        match &self.side {
            Side::Session(_) => self.state().session.export(label, context, bytes),
            Side::Told(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, TlsState> {
        let Side::Session(state) = &self.side else { unreachable!("what was told has no session") };
        state.try_lock().expect("one task uses a connection, and does not panic in here")
    }

    /// Whether there is something to read whatever the socket has.
    pub(super) fn has_buffered(&self) -> bool {
        self.state().has_buffered()
    }

    pub(super) fn poll_read_vec(
        &self,
        socket: &Socket,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        let read = state.poll_read(buf, shelf_of(socket), |input| socket.poll_read_vec(cx, input));
        let is_read = matches!(read, Poll::Ready(Ok(count)) if count > 0);
        if !(is_read && state.can_hold_back()) {
            // What is to be answered (an update of keys) leaves now, or with what is sent next.
            let _ = state.poll_flush(socket, cx);
        }
        read
    }

    pub(super) fn try_read_vec(&self, socket: &Socket, buf: &mut Vec<u8>) -> io::Result<usize> {
        let receive = |input: &mut Vec<u8>| match socket.try_read_vec(input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        };
        match self.state().poll_read(buf, shelf_of(socket), receive) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn poll_write(
        &self,
        socket: &Socket,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        if offered == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut state = self.state();
        if state.has_answers_only() {
            state.seal_parts(parts, self.records, socket)?;
        }
        loop {
            let flushed = state.poll_flush(socket, cx);
            let gone = state.take_gone(offered);
            if gone > 0 {
                return Poll::Ready(Ok(gone));
            }
            ready!(flushed)?;
            state.seal_parts(parts, self.records, socket)?;
        }
    }

    /// Announces that the next write, if it has so many bytes, is the last one: the closing alert leaves with
    /// it.
    pub(super) fn end_behind(&self, bytes: usize) {
        let mut state = self.state();
        debug_assert!(state.farewell != Farewell::Said, "nothing follows the end");
        state.farewell = Farewell::Behind(bytes);
    }

    /// Says that nothing follows, as far as the socket takes it at once.
    pub(super) fn close(&self, socket: &Socket) {
        let mut state = self.state();
        if matches!(state.end, End::Failed(_)) {
            return;
        }
        state.say_farewell();
        // A client that does not take it learns of the end all the same.
        let _ = state.poll_flush(socket, &mut Context::from_waker(Waker::noop()));
    }
}

/// No session yet.
struct Unbegun;

impl Session for Unbegun {
    fn step(&mut self, _: &mut &[u8], _: &mut Vec<u8>) -> Step {
        Step::Closed
    }

    fn open(&mut self, _: &mut &[u8], _: &mut Vec<u8>, _: &mut Vec<u8>) -> Opened {
        Opened::Closed
    }

    fn seal(&mut self, _: &[IoSlice<'_>], _: usize, _: &mut Vec<u8>) -> Result<(), Failure> {
        Err(Failure { reasons: Vec::new() })
    }

    fn close(&mut self, _: &mut Vec<u8>) {}

    fn info(&self) -> Info {
        Info::default()
    }
}

impl TlsState {
    fn has_buffered(&self) -> bool {
        self.left == Left::Perhaps || self.input.is_some()
    }

    fn poll_read(
        &mut self,
        buf: &mut Vec<u8>,
        shelf: &Shelf,
        mut receive: impl FnMut(&mut Vec<u8>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let before = buf.len();
        let mut wanted = RECEIVE_BYTES;
        loop {
            if self.has_buffered() {
                self.open(buf, shelf);
            }
            debug_assert!(buf.len() >= before, "what is decrypted is appended");
            if buf.len() > before {
                return Poll::Ready(Ok(buf.len() - before));
            }
            match &self.end {
                End::Open => {}
                End::Closed => return Poll::Ready(Ok(0)),
                End::Failed(failure) => {
                    return Poll::Ready(Err(TlsError::of("SSL_read()", failure.clone())));
                }
            }
            // If there is room, all bytes that were received have been used.
            let mut input = self.input.take().or_else(|| shelf.take()).unwrap_or_default();
            input.bytes.reserve_exact(wanted);
            let received = receive(&mut input.bytes);
            if input.used < input.bytes.len() {
                self.input = Some(input);
            } else {
                put_back(input, shelf);
            }
            match received {
                Poll::Ready(Ok(0)) => self.end = End::Closed,
                Poll::Ready(Ok(count)) if count >= wanted => wanted = RECEIVE_MUCH_BYTES,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Decrypts as much as `buf` has room for.
    fn open(&mut self, buf: &mut Vec<u8>, shelf: &Shelf) {
        let Self { session, input, output, .. } = self;
        let mut rest = input.as_ref().map_or(&[][..], |input| &input.bytes[input.used..]);
        let opened = session.open(&mut rest, buf, output);
        let left = rest.len();
        self.left = if opened == Opened::Full { Left::Perhaps } else { Left::Nothing };
        match opened {
            Opened::Need | Opened::Full => {}
            Opened::Closed => self.end = End::Closed,
            Opened::Failed(failure) => {
                metrics::TLS_BROKEN.increment();
                self.end = End::Failed(failure);
            }
        }
        if let Some(mut input) = self.input.take() {
            assert!(
                left <= input.bytes.len() - input.used,
                "a session takes from the front of what has come"
            );
            input.used = input.bytes.len() - left;
            if left > 0 && matches!(self.end, End::Open) {
                self.input = Some(input);
            } else {
                put_back(input, shelf);
            }
        }
    }

    /// Bytes that have left and were not reported yet, of as many as the caller knows of.
    fn take_gone(&mut self, offered: usize) -> usize {
        let sent = if self.output.is_empty() { usize::MAX } else { self.sent };
        let gone = self.flight.gone(sent);
        debug_assert!(self.flight.reported <= gone, "no more was reported than has left");
        let gone = (gone - self.flight.reported).min(offered);
        self.flight.reported += gone;
        assert!(self.flight.reported <= self.flight.bytes, "no more is reported than was encrypted");
        gone
    }

    fn poll_flush(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            let rest = &self.output[self.sent..];
            let count = rest.len();
            let sent = match socket.poll_write(cx, rest) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => {
                    self.flight_bytes = FLIGHT_BYTES;
                    return Poll::Pending;
                }
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
            assert!(self.sent <= self.output.len(), "a socket takes no more than it is given");
            if sent == count && count > self.flight_bytes {
                self.flight_bytes = (self.flight_bytes * 2).min(FLIGHT_MAX_BYTES);
            }
        }
        (self.output, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Whether what there is to send can leave with the response to what was read: tickets, whose client does
    /// not wait for them. One that has sent early data waits for the rest of the handshake.
    fn can_hold_back(&self) -> bool {
        self.output.len() <= HELD_BACK_MAX_BYTES && !self.session.is_early()
    }

    /// Whether the output is something else than what was written, and nothing of it has left.
    fn has_answers_only(&self) -> bool {
        !self.output.is_empty() && self.sent == 0 && self.flight.reported == self.flight.bytes
    }

    fn say_farewell(&mut self) {
        // Before the last message of its handshake has come a client cannot be told.
        if self.farewell != Farewell::Said && !self.session.is_early() {
            self.session.close(&mut self.output);
            self.farewell = Farewell::Said;
        }
    }

    fn seal_parts(&mut self, parts: &[IoSlice<'_>], size: RecordSize, socket: &Socket) -> io::Result<()> {
        let record = self.record_bytes(size, socket.home().now_ms());
        self.seal(parts, record).map_err(|failure| TlsError::of("SSL_write()", failure))
    }

    /// Encrypts as much of the parts as is sent at once, behind answers that have not left; nothing is left
    /// of what was encrypted before.
    fn seal(&mut self, parts: &[IoSlice<'_>], record: usize) -> Result<(), Failure> {
        debug_assert!(self.sent == 0 && self.flight.reported == self.flight.bytes);
        let mut room = self.flight_bytes;
        let mut chosen = Vec::with_capacity(parts.len());
        for part in parts {
            let part = &part[..part.len().min(room)];
            room -= part.len();
            if !part.is_empty() {
                chosen.push(IoSlice::new(part));
            }
        }
        let bytes = self.flight_bytes - room;
        self.output.reserve_exact(bytes + bytes.div_ceil(record) * RECORD_OVERHEAD_BYTES);
        let start = self.output.len();
        self.session.seal(&chosen, record, &mut self.output)?;
        self.flight = Flight { bytes, reported: 0, start, end: self.output.len() };
        self.sent_since_silence += bytes;
        if self.farewell == Farewell::Behind(bytes) {
            self.say_farewell();
        }
        Ok(())
    }

    fn record_bytes(&mut self, size: RecordSize, now_ms: u64) -> usize {
        if let RecordSize::Fixed(bytes) = size {
            return bytes.clamp(1, RECORD_MAX_BYTES);
        }
        if now_ms.saturating_sub(self.sent_ms) >= SILENCE_MS {
            self.sent_since_silence = 0;
        }
        self.sent_ms = now_ms;
        if self.sent_since_silence < FIRST_RECORDS_BYTES { FIRST_RECORD_BYTES } else { RECORD_MAX_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a record of one byte more than its content.
    struct Plain;

    impl Session for Plain {
        fn step(&mut self, _: &mut &[u8], _: &mut Vec<u8>) -> Step {
            Step::Done
        }

        fn open(&mut self, input: &mut &[u8], plain: &mut Vec<u8>, _: &mut Vec<u8>) -> Opened {
            let count = input.len().min(plain.capacity() - plain.len());
            plain.extend_from_slice(input.split_off(..count).expect("so many are there"));
            if plain.len() == plain.capacity() { Opened::Full } else { Opened::Need }
        }

        fn seal(&mut self, parts: &[IoSlice<'_>], _: usize, output: &mut Vec<u8>) -> Result<(), Failure> {
            output.push(b'!');
            parts.iter().for_each(|part| output.extend_from_slice(part));
            Ok(())
        }

        fn close(&mut self, output: &mut Vec<u8>) {
            output.push(b'.');
        }

        fn info(&self) -> Info {
            Info::default()
        }
    }

    #[test]
    fn a_buffer_goes_on_when_it_is_empty() {
        let hello = b"he".to_vec();
        let tls = Tls::new(Box::new(Plain), Offer::default(), RecordSize::default(), hello, Vec::new());
        let (mut state, shelf) = (tls.state(), Shelf::new(None));
        let mut got = Vec::with_capacity(64);
        assert!(matches!(state.poll_read(&mut got, &shelf, |_| Poll::Pending), Poll::Ready(Ok(2))));
        assert!(state.input.is_none() && shelf.take().is_none(), "that of the handshake is no other's");
        let receive = |input: &mut Vec<u8>| {
            input.extend_from_slice(b"llo");
            Poll::Ready(Ok(3))
        };
        assert!(matches!(state.poll_read(&mut got, &shelf, receive), Poll::Ready(Ok(3))));
        assert!(state.input.is_none() && !state.has_buffered());
        let left = shelf.take().expect("it is left to the next");
        assert!(left.bytes.is_empty() && left.used == 0);
        shelf.store(Some(left));
        assert!(state.poll_read(&mut got, &shelf, |_| Poll::Pending).is_pending());
        assert!(state.input.is_none() && shelf.take().is_some(), "nor does one that waits keep it");
        let mut short = Vec::with_capacity(8);
        short.resize(short.capacity() - 1, 0);
        assert!(matches!(state.poll_read(&mut short, &shelf, receive), Poll::Ready(Ok(1))));
        assert!(state.has_buffered() && shelf.take().is_none(), "what is not used stays");
        assert!(matches!(state.poll_read(&mut got, &shelf, |_| Poll::Pending), Poll::Ready(Ok(2))));
        assert_eq!(got, b"hellolo");
        assert!(!state.has_buffered() && shelf.take().is_some());
    }

    #[test]
    fn the_end_is_said_behind_the_last_that_is_written() {
        let tls = Tls::new(Box::new(Plain), Offer::default(), RecordSize::default(), Vec::new(), Vec::new());
        tls.end_behind(4);
        let mut state = tls.state();
        for (written, output) in [("he", "!he"), ("last", "!last."), ("more", "!more")] {
            state.seal(&[IoSlice::new(written.as_bytes())], RECORD_MAX_BYTES).unwrap();
            assert_eq!(state.output, output.as_bytes());
            // All of the response has left when its records have, whatever is behind them.
            state.sent = 1 + written.len();
            assert_eq!(state.take_gone(written.len()), written.len());
            (state.output, state.sent) = (Vec::new(), 0);
        }
        state.say_farewell();
        assert_eq!(state.output, b"", "it is said once");
    }

    #[test]
    fn what_is_written_leaves_behind_tickets() {
        let tickets = b"tickets".to_vec();
        let tls = Tls::new(Box::new(Plain), Offer::default(), RecordSize::default(), Vec::new(), tickets);
        let mut state = tls.state();
        assert!(state.can_hold_back() && state.has_answers_only());
        state.seal(&[IoSlice::new(b"he"), IoSlice::new(b"ad")], RECORD_MAX_BYTES).unwrap();
        assert_eq!(state.output, b"tickets!head");
        assert!(!state.has_answers_only(), "nothing is encrypted twice");
        // Bytes of the response that have left, without the tickets in front of them.
        for (sent, gone) in [(3, 0), (7, 0), (8, 0), (10, 2), (12, 2), (12, 0)] {
            state.sent = sent;
            assert_eq!(state.take_gone(4), gone, "{sent}");
        }
        assert!(!state.has_answers_only());
    }
}
