//! A connection that carries HTTP/2: one task, which alone reads and writes the socket and moves frames
//! between it and the streams of its requests. A request is a task of its own, which the loop polls behind
//! the connection's poll: one that holds its thread holds neither the connection nor, once it is handed over,
//! the loop.
//!
//! 1. One read is taken apart to its end before anything is sent; what all streams have then leaves together.
//! 2. Nothing is read while more than [`OUTPUT_MAX_BYTES`] wait for the client, or too many control frames.
//! 3. What a client makes the server keep is bounded: its input by one frame, each body by its window, the
//!    output by [`OUTPUT_MAX_BYTES`] and what streams hold back.
//! 4. A client that takes nothing of what there is for it is given up after `send_timeout`, whatever its
//!    other streams do.

mod counting;
mod farewell;
mod streams;
mod timing;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_h2::connection::{Connection as Protocol, Event, Failure};
use clearway_h2::frame::{ErrorCode, PREFACE, Rest};
use clearway_h2::request::HeadReader;
use clearway_http::{
    Client, CoreLocation, Front, Lingering, LingeringClose, NotReceived, Parts, Stream, TIMED_OUT, Tls,
};
use clearway_runtime::Tag;
use clearway_site::Server;

use crate::conn::Conn;
use crate::connection::{Connection, Ending, Idle, Waiting, read_idle};
use crate::metrics;
use crate::stream::{Arrived, serve_arrived};
use counting::{count_failure, count_note};
use streams::Streams;
use timing::Deadlines;

/// The action under way, for the error log.
const PROCESSING: &str = "processing HTTP/2 connection";
/// Room for what is read while little comes, bytes.
const INPUT_BYTES: usize = 16 * 1024;
/// The most bytes that are made and not taken by the socket: beyond this nothing more is made.
const OUTPUT_MAX_BYTES: usize = 128 * 1024;
/// The time for which an idle connection keeps its memory for requests, milliseconds: the next requests often
/// come soon.
const REST_AFTER_MS: u64 = 1000;
/// Requests that one poll begins before others of the loop have their turn.
const HEADS_PER_POLL: usize = 32;
/// Reads of one poll.
const READS_PER_POLL: usize = 4;

/// Looks whether a connection without TLS begins as HTTP/2 does. If not, what has come of its first request
/// is left to be answered.
pub(crate) async fn begins_with_preface(connection: &mut Connection) -> Result<bool, Ending> {
    let timeout_ms = *connection.conn.setup.server_core().client_header_timeout_ms;
    connection.conn.link.timer.arm(connection.conn.client.start_ms + timeout_ms);
    let rest = connection.conn.client.front.as_mut().and_then(|front| front.take_rest());
    let mut parts = rest.unwrap_or_else(|| connection.conn.take_parts());
    let mut idle = Idle::New;
    loop {
        let length = parts.input.len().min(PREFACE.len());
        let is_preface = parts.input[..length] == PREFACE[..length];
        if length == PREFACE.len() || !is_preface {
            put_front(&mut connection.conn, parts);
            return Ok(is_preface);
        }
        match poll_fn(|cx| Poll::Ready(read_idle(&connection.conn, idle, &mut parts.input, cx))).await {
            Poll::Ready(Ok(1..)) => continue,
            Poll::Pending if idle != Idle::Leaving => {}
            Poll::Pending => return Err(Ending),
            Poll::Ready(result) => {
                connection.conn.log_closed("waiting for request", result);
                return Err(Ending);
            }
        }
        idle = poll_fn(|cx| connection.poll_idle(cx)).await;
        idle = connection.go_on_idle(idle, "waiting for request")?;
    }
}

fn put_front(conn: &mut Conn, parts: Box<Parts>) {
    let front = conn.client.front.get_or_insert_with(|| Box::new(Front::new(None, None)));
    front.put_rest(parts);
}

/// Whether client and server have agreed on HTTP/2 in the handshake.
pub(crate) fn is_agreed(conn: &Conn) -> bool {
    conn.link.transport.tls().is_some_and(|tls| tls.info().protocol.as_deref() == Some(b"h2"))
}

/// The server that was chosen in the handshake.
fn server_of(conn: &Conn) -> &Server {
    conn.setup.server_of(conn.link.transport.tls().and_then(|tls| tls.offer.host.as_deref()))
}

/// The location whose settings hold while none is known.
fn location(conn: &Conn) -> &CoreLocation {
    conn.setup.location_of(server_of(conn))
}

/// Serves a connection until it ends.
pub(crate) async fn serve(connection: &mut Connection) {
    let mut frames = Frames::new(&mut connection.conn);
    let end = loop {
        match poll_fn(|cx| frames.poll(&connection.conn, cx)).await {
            Turn::End(end) => break end,
            Turn::Idle => {}
        }
        let now_ms = connection.conn.client.home.now_ms();
        connection.waiting = Waiting::since(&connection.conn, location(&connection.conn));
        let until_ms = frames.deadlines.idle_until_ms(now_ms);
        connection.conn.link.timer.arm(until_ms.min(now_ms + REST_AFTER_MS));
        let mut keeping = Keeping::Memory;
        let idle = poll_fn(|cx| {
            match connection.poll_idle(cx) {
                // A server that stops has its own time for it.
                Poll::Ready(Idle::TimedOut)
                    if keeping == Keeping::Memory
                        && until_ms > now_ms + REST_AFTER_MS
                        && connection.conn.client.listener().is_as_of(frames.generation) =>
                {
                    keeping = Keeping::Nothing;
                    frames.rest();
                    connection.conn.link.timer.arm(until_ms);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                // It was looked for another generation.
                Poll::Pending if connection.conn.setup.generation() != frames.generation => {
                    Poll::Ready(Idle::Leaving)
                }
                idle => idle,
            }
        });
        match idle.await {
            Idle::New | Idle::Readable | Idle::Leaving => {}
            Idle::Closed => break End::Said(ErrorCode::NoError),
            Idle::TimedOut if connection.conn.link.served() > 0 => break End::Said(ErrorCode::NoError),
            Idle::TimedOut => {
                connection.conn.log(Level::Info, PROCESSING, format_args!("{TIMED_OUT}"));
                break End::Said(ErrorCode::ProtocolError);
            }
        }
        frames.deadlines.begin(&connection.conn);
    };
    let lingering = frames.end(&connection.conn, end).await;
    let farewell = farewell::see_off(&connection.conn, lingering, frames.take_left());
    drop(frames);
    if let Some(farewell) = farewell {
        farewell.await;
    }
}

/// The parts of its memory that an idle connection keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Memory,
    Nothing,
}

/// The next action of a connection.
enum Turn {
    /// The connection has nothing to do until something is received.
    Idle,
    End(End),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client is gone.
    Gone,
    /// The client is told why.
    Said(ErrorCode),
}

/// The connection's own state.
struct Frames {
    client: Arc<Client>,
    local: Option<SocketAddr>,
    /// The facts about TLS for requests, once one has come since the connection was idle.
    tls: Option<Arc<Tls>>,
    receive_bytes: usize,
    protocol: Protocol,
    /// The reader of heads; `None` in an idle connection.
    reader: Option<Box<HeadReader>>,
    streams: Streams,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output is sent.
    sent: usize,
    /// When something was received last, nanoseconds of the monotonic clock.
    received_ns: u64,
    deadlines: Deadlines,
    /// The generation in which the connection has begun: one does not go on in another.
    generation: u64,
}

impl Frames {
    fn new(conn: &mut Conn) -> Self {
        let http2 = conn.setup.http2(server_of(conn));
        let rest = conn.client.front.as_mut().and_then(|front| front.take_rest());
        let mut input = Vec::new();
        if let Some(mut parts) = rest {
            input.append(&mut parts.input);
            conn.client.put_back(parts);
        }
        let deadlines = Deadlines::new(conn, location(conn));
        Self {
            client: Arc::new(conn.client.share()),
            local: conn.link.transport.local_address(),
            tls: None,
            receive_bytes: http2.receive_bytes,
            protocol: Protocol::new(http2.limits),
            reader: None,
            streams: Streams::new(http2.limits.window_bytes),
            input,
            output: Vec::new(),
            sent: 0,
            received_ns: conn.client.home.clock_ns(),
            deadlines,
            generation: conn.setup.generation(),
        }
    }

    /// Gives memory back while nothing comes.
    fn rest(&mut self) {
        debug_assert!(self.output.is_empty() && self.input.is_empty(), "an idle connection has nothing");
        (self.input, self.output) = (Vec::new(), Vec::new());
        self.tls = None;
        self.reader = None;
        self.streams.rest();
        self.protocol.rest();
    }

    /// Reads, hands on, gathers and sends, as long as one of them gets somewhere.
    fn poll(&mut self, conn: &Conn, cx: &mut Context<'_>) -> Poll<Turn> {
        if conn.client.listener().closes(conn.setup.generation()) {
            return Poll::Ready(Turn::End(End::Gone));
        }
        self.see_to_farewell(conn);
        self.streams.begin_poll();
        let mut budget = HEADS_PER_POLL;
        for _ in 0..READS_PER_POLL {
            let read = match self.read(conn, cx, &mut budget) {
                Ok(read) => read,
                Err(end) => return Poll::Ready(Turn::End(end)),
            };
            self.streams.feed(&mut self.protocol);
            let has_sent = match self.send(conn, cx) {
                Ok(has_sent) => has_sent,
                Err(end) => return Poll::Ready(Turn::End(end)),
            };
            if budget == 0 {
                break;
            }
            if read == Read::Nothing && !has_sent && self.streams.poll_ready(cx).is_pending() {
                return self.poll_waiting(conn, cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// When the connection is to end: what the client has sent before it knows that is still answered.
    fn see_to_farewell(&mut self, conn: &Conn) {
        if !self.is_to_leave(conn) {
            return;
        }
        self.protocol.announce_leave();
        if self.deadlines.is_farewell_over(conn.client.home.now_ms()) {
            self.protocol.go_away(ErrorCode::NoError);
        }
    }

    /// Whether the server stops, or has another configuration.
    fn is_to_leave(&self, conn: &Conn) -> bool {
        !conn.client.listener().is_as_of(self.generation)
    }

    /// Polls for the next event when no work can be done now.
    fn poll_waiting(&mut self, conn: &Conn, cx: &mut Context<'_>) -> Poll<Turn> {
        let has_output = self.sent < self.output.len() || self.protocol.has_control();
        if !has_output && self.protocol.open_streams() == 0 {
            if self.protocol.is_leaving() {
                return Poll::Ready(Turn::End(End::Said(ErrorCode::NoError)));
            }
            let is_between = self.input.is_empty() && !self.protocol.is_in_block();
            if is_between && self.deadlines.farewell_by_ms().is_none() {
                return Poll::Ready(Turn::Idle);
            }
        }
        let now_ms = conn.client.home.now_ms();
        let is_partial = !self.input.is_empty() || self.protocol.is_in_block();
        match is_partial {
            true => self.deadlines.await_input(now_ms),
            false => self.deadlines.note_input(),
        }
        match has_output {
            true => self.deadlines.await_output(now_ms),
            false => self.deadlines.note_sent(),
        }
        let farewell_by_ms = self.deadlines.farewell_by_ms().filter(|_| !self.protocol.is_leaving());
        let Some(deadline_ms) = self.deadlines.first(self.streams.first_stall_ms(), farewell_by_ms) else {
            return Poll::Pending;
        };
        conn.link.timer.arm(deadline_ms);
        if conn.link.timer.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
        if farewell_by_ms.is_some_and(|by_ms| now_ms >= by_ms) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let since_ms = now_ms.saturating_sub(self.deadlines.send_timeout_ms());
        if self.streams.cut_stalled(&mut self.protocol, since_ms) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        conn.log(Level::Info, PROCESSING, format_args!("{TIMED_OUT}"));
        if is_partial {
            match self.protocol.give_up_head(&self.input) {
                Ok(true) => {
                    metrics::HEADS_LATE.increment();
                    // The connection goes on, and the rest of the head has as long as an idle one.
                    self.deadlines.give_up_head(now_ms);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(false) => {}
                Err(failure) => return Poll::Ready(Turn::End(fail(conn, failure))),
            }
        }
        let end = if is_partial { End::Said(ErrorCode::ProtocolError) } else { End::Gone };
        Poll::Ready(Turn::End(end))
    }

    /// Reads once, and takes apart what has come.
    fn read(&mut self, conn: &Conn, cx: &mut Context<'_>, budget: &mut usize) -> Result<Read, End> {
        debug_assert!(self.sent <= self.output.len(), "no more is sent than was made");
        let is_full = self.output.len() - self.sent >= OUTPUT_MAX_BYTES || self.protocol.is_congested();
        if is_full {
            return Ok(Read::Nothing);
        }
        // Bytes that were received before come first: by the poll before or behind the handshake.
        let mut read = self.take_input(conn, budget)?;
        if *budget == 0 {
            return Ok(read);
        }
        let room = if read == Read::Something { self.receive_bytes } else { INPUT_BYTES };
        self.input.reserve(room.min(self.receive_bytes).max(INPUT_BYTES));
        match conn.link.transport.poll_read_vec(cx, &mut self.input) {
            Poll::Pending => {}
            Poll::Ready(Ok(0)) => {
                if !self.input.is_empty() || self.protocol.open_streams() > 0 {
                    let message = format_args!("client prematurely closed connection");
                    conn.log(Level::Info, PROCESSING, message);
                }
                return Err(End::Gone);
            }
            Poll::Ready(Ok(count)) => {
                self.received_ns = conn.client.home.clock_ns();
                debug_assert!(count <= self.input.len(), "what was read stands in the input");
                self.protocol.begin_read(count).map_err(|failure| fail(conn, failure))?;
                self.take_input(conn, budget)?;
                read = Read::Something;
            }
            Poll::Ready(Err(error)) => {
                conn.log(Level::Info, PROCESSING, format_args!("{}", NotReceived(&error)));
                return Err(End::Gone);
            }
        }
        if self.input.is_empty() && read == Read::Nothing {
            self.input = Vec::new();
        }
        Ok(read)
    }

    fn take_input(&mut self, conn: &Conn, budget: &mut usize) -> Result<Read, End> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        let taken = self.take_frames(conn, &mut rest, budget);
        let left = rest.len();
        let has_taken = left < input.len();
        if has_taken {
            self.deadlines.note_input();
        }
        self.input = input;
        debug_assert!(left <= self.input.len(), "frames are taken from the front of what has come");
        self.input.drain(..self.input.len() - left);
        taken.map_err(|failure| fail(conn, failure))?;
        Ok(if has_taken { Read::Something } else { Read::Nothing })
    }

    fn take_frames(&mut self, conn: &Conn, rest: &mut &[u8], budget: &mut usize) -> Result<(), Failure> {
        while *budget > 0 {
            if self.protocol.is_congested() {
                metrics::CONTROL_FULL.increment();
                return Ok(());
            }
            match self.protocol.receive(rest)? {
                Event::Need => return Ok(()),
                Event::Head(stream, end) => {
                    *budget -= 1;
                    self.begin(conn, stream, end)?;
                }
                Event::Data(stream, bytes, end) => self.streams.take_data(stream, bytes, end),
                Event::End(stream) => self.streams.take_data(stream, b"", Rest::Ended),
                Event::Reset(stream, code) => {
                    log_reset(conn, stream, code);
                    self.streams.reset(stream);
                }
                Event::Cut(stream, note) => {
                    count_note(&note);
                    conn.log(Level::Info, PROCESSING, format_args!("{note}"));
                    self.streams.reset(stream);
                }
                Event::Opened => self.streams.note_opened(),
            }
        }
        Ok(())
    }

    /// Begins a request, in the generation that is published.
    fn begin(&mut self, conn: &Conn, id: u32, rest: Rest) -> Result<(), Failure> {
        let setup = conn.client.listener().published(|| self.local);
        let mut parts = conn.client.take_parts(&setup);
        let arrived = match parts.take_head(&mut self.protocol, self.reader.get_or_insert_default(), rest)? {
            None => Arrived::Head,
            Some(fault) => Arrived::Fault(fault),
        };
        let number = conn.link.count_request();
        let stream = Stream::new(conn.client.home, self.local).secured(self.told(conn));
        let stream = self.streams.open(id, rest, stream.arrived(self.received_ns), self.protocol.window(id));
        let client = Arc::clone(&self.client);
        let answer = || serve_arrived(client, setup, stream, parts, (number, arrived));
        conn.client.home.spawn_with(Tag::NONE, answer);
        if self.deadlines.is_last_request(number, conn.client.home.now_ms()) {
            self.protocol.go_away(ErrorCode::NoError);
        }
        Ok(())
    }

    /// The facts about TLS for a request that begins. One that comes behind the end of the handshake is no
    /// early one, whatever came before it.
    fn told(&mut self, conn: &Conn) -> Option<Arc<Tls>> {
        let tls = conn.link.transport.tls()?;
        if self.tls.as_ref().is_none_or(|told| told.is_early() && !tls.is_early()) {
            self.tls = Some(Arc::new(tls.told()));
        }
        self.tls.clone()
    }

    /// Gathers what streams have, and sends it. Whether something was sent.
    fn send(&mut self, conn: &Conn, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut has_sent = false;
        loop {
            self.protocol.take_control(&mut self.output);
            let room = OUTPUT_MAX_BYTES.saturating_sub(self.output.len() - self.sent);
            let now_ms = conn.client.home.now_ms();
            self.streams.gather(&mut self.protocol, &mut self.output, room, now_ms);
            // Control frames from the ends of streams.
            self.protocol.take_control(&mut self.output);
            if self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
                return Ok(has_sent);
            }
            match conn.link.transport.poll_write(cx, &self.output[self.sent..]) {
                Poll::Pending => return Ok(has_sent),
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    assert!(self.sent <= self.output.len(), "a socket takes no more than it is given");
                    self.deadlines.note_sent();
                    has_sent = true;
                }
                Poll::Ready(Err(error)) => {
                    conn.log(Level::Info, PROCESSING, format_args!("{}", Unsent(&error)));
                    return Err(End::Gone);
                }
            }
            if self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
            } else if self.sent >= OUTPUT_MAX_BYTES {
                self.output.drain(..self.sent);
                self.sent = 0;
            }
        }
    }

    /// The streams whose requests go on though their connection ends, if there are any.
    fn take_left(&mut self) -> Option<Streams> {
        (!self.streams.is_empty()).then(|| std::mem::replace(&mut self.streams, Streams::new(0)))
    }

    /// Ends the requests and tells the client; for how long to read what it still sends, if at all.
    async fn end(&mut self, conn: &Conn, end: End) -> Option<Lingering> {
        self.streams.reset_all();
        let End::Said(code) = end else { return None };
        self.protocol.go_away(code);
        self.protocol.take_control(&mut self.output);
        let timeout_ms = *location(conn).sending.send_timeout_ms;
        conn.link.timer.arm(conn.client.home.now_ms() + timeout_ms);
        while self.sent < self.output.len() {
            let written = poll_fn(|cx| match conn.link.transport.poll_write(cx, &self.output[self.sent..]) {
                Poll::Ready(written) => Poll::Ready(written.ok()),
                Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| None),
            });
            match written.await {
                Some(count @ 1..) => {
                    self.sent += count;
                    debug_assert!(self.sent <= self.output.len(), "a socket takes no more than it is given");
                }
                _ => return None,
            }
        }
        let lingering = conn.setup.lingering(server_of(conn));
        (lingering.close != LingeringClose::Off).then_some(lingering)
    }
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    Something,
}

/// Says why a connection has to end.
fn fail(conn: &Conn, failure: Failure) -> End {
    count_failure(&failure);
    conn.log(Level::Info, PROCESSING, format_args!("{failure}"));
    End::Said(failure.code)
}

/// Says that a client has given up a stream, as nginx does.
fn log_reset(conn: &Conn, stream: u32, code: u32) {
    const CANCEL: u32 = ErrorCode::Cancel as u32;
    const INTERNAL_ERROR: u32 = ErrorCode::InternalError as u32;
    match code {
        CANCEL => conn.log(Level::Info, PROCESSING, format_args!("client canceled stream {stream}")),
        INTERNAL_ERROR => {
            let message = format_args!("client terminated stream {stream} due to internal error");
            conn.log(Level::Info, PROCESSING, message);
        }
        _ => {
            let message = format_args!("client terminated stream {stream} with status {code}");
            conn.log(Level::Info, PROCESSING, message);
        }
    }
}

/// Why nothing was sent, as nginx logs it.
struct Unsent<'e>(&'e std::io::Error);

impl std::fmt::Display for Unsent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match clearway_tls::stream::TlsError::find(self.0) {
            Some(error) => error.fmt(f),
            None => write!(f, "writev() failed {}", clearway_base::Errno(self.0)),
        }
    }
}
