//! The response of a request, pushed by its handler: chunks pass the enabled header and body filters
//! synchronously, are framed, and wait in a `Wire` for the socket. Owned by the request's task.
//!
//! The first chunk sends the head. `Full` asks the handler to wait with `ready`; nothing else waits.
//! A response is complete with the chunk that is marked `Last`; what a handler pushes afterwards, or
//! beyond the announced length, is dropped.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use clearway_h1::{ConnectionHeader, Framing};
use clearway_runtime::Timer;

use crate::chunk::{Chunk, Mark, Pushed};
use crate::connection::Conn;
use crate::request::Request;
use crate::response::{ResponseHead, write_head};
use crate::variables::View;
use crate::wire::Wire;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    HeadOpen,
    Body,
    Complete,
}

/// Changes a body on its way out. One instance serves one response.
pub trait BodyFilter: Send {
    /// Takes a chunk and passes on what is ready; it may hold data back until more comes, but with
    /// `Mark::Flush` it passes on everything, and with `Mark::Last` everything and the mark.
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>);
}

/// Looks at a response before its head is sent, may change the head, and may add a body filter.
pub type HeaderFilter = for<'c> fn(&mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>>;

/// A response in the hands of a header filter.
pub struct Filtering<'a, 'c> {
    /// The request.
    pub request: &'a Request<'c>,
    output: &'a mut OutputState<'c>,
}

impl<'c> Filtering<'_, 'c> {
    /// The head that is about to be sent.
    pub fn head(&mut self) -> &mut ResponseHead<'c> {
        &mut self.output.head
    }

    /// What variables are evaluated on.
    pub fn view(&self) -> View<'_, 'c> {
        View::new(self.request, self.output)
    }
}

/// Where a body filter passes chunks on.
pub struct Next<'a, 'c> {
    state: &'a mut OutputState<'c>,
    stage: usize,
}

impl<'c> Next<'_, 'c> {
    /// To the next filter, or to the peer.
    pub fn push(&mut self, chunk: Chunk<'c>, mark: Mark) {
        self.state.push(self.stage, chunk, mark);
    }
}

/// The state of one response.
pub(crate) struct OutputState<'c> {
    pub(crate) head: ResponseHead<'c>,
    wire: Wire<'c>,
    progress: Progress,
    framing: Framing,
    connection: ConnectionHeader,
    filters: Vec<Option<Box<dyn BodyFilter + 'c>>>,
    /// Size of the head, bytes.
    head_bytes: u64,
    failure: Option<SendFailure>,
}

/// Why the rest of a response was not sent.
#[derive(Debug)]
pub enum SendFailure {
    /// The socket took nothing for `send_timeout`.
    TimedOut,
    /// The connection broke.
    Broken(io::Error),
}

/// The response as its handler sees it.
pub struct Output<'a, 'c> {
    pub(crate) state: &'a mut OutputState<'c>,
    pub(crate) conn: &'c Conn,
}

impl<'c> Output<'_, 'c> {
    /// The head, to be filled before the first chunk.
    pub fn head(&mut self) -> &mut ResponseHead<'c> {
        debug_assert!(!self.head_sent(), "a head that is sent cannot be changed");
        &mut self.state.head
    }

    /// Whether the head is beyond change.
    pub fn head_sent(&self) -> bool {
        self.state.progress != Progress::HeadOpen
    }

    /// Whether the peer is to get a body; known once the head is sent. A handler need not produce one
    /// otherwise.
    pub fn wants_body(&self) -> bool {
        !self.state.is_bodiless() && self.state.progress != Progress::Complete
    }

    /// Sends the head now instead of with the first chunk.
    pub fn send_head(&mut self, request: &Request<'c>) {
        self.state.send_head(request);
    }

    /// Sends a chunk, and the head before the first one.
    pub fn write(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) -> Pushed {
        self.state.write(request, chunk, mark)
    }

    /// Completes once everything so far has left for the socket.
    ///
    /// # Errors
    /// The rest cannot be sent; the handler should stop. The connection logs and closes.
    pub async fn ready(&mut self, request: &Request<'c>) -> Result<(), Unsent> {
        self.conn.send_at_once();
        self.state.flush(self.conn, request).await
    }
}

/// The rest of a response cannot be sent any more; the reason is kept by the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent;

impl<'c> OutputState<'c> {
    /// A response that gathers in `buffer`.
    #[inline]
    pub(crate) fn new(buffer: Vec<u8>) -> Self {
        Self {
            head: ResponseHead::default(),
            wire: Wire::new(buffer),
            progress: Progress::HeadOpen,
            framing: Framing::NoBody { content_length: None },
            connection: ConnectionHeader::Close,
            filters: Vec::new(),
            head_bytes: 0,
            failure: None,
        }
    }

    /// The buffer that it was given, once there is no more to send.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.wire.take_buffer()
    }

    /// Status code as logged: 0 while none was chosen.
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn head_sent(&self) -> bool {
        self.progress != Progress::HeadOpen
    }

    /// What the socket took, bytes (`$bytes_sent`).
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.wire.sent_bytes()
    }

    /// What the socket took besides the head, bytes (`$body_bytes_sent`). As in nginx that counts the
    /// framing of chunks and `100 Continue`.
    pub(crate) fn body_sent_bytes(&self) -> u64 {
        self.wire.sent_bytes().saturating_sub(self.head_bytes)
    }

    /// Whether another request may follow on the connection.
    pub(crate) fn is_persistent(&self) -> bool {
        self.connection != ConnectionHeader::Close
            && self.progress == Progress::Complete
            && self.failure.is_none()
    }

    /// Whether the body is sent in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        self.framing == Framing::Chunked
    }

    /// Whether the response was made to its end, and taken by the socket.
    pub(crate) fn is_completed(&self) -> bool {
        self.progress == Progress::Complete && self.failure.is_none()
    }

    /// Why the rest could not be sent.
    pub(crate) fn failure(&self) -> Option<&SendFailure> {
        self.failure.as_ref()
    }

    /// Answers `Expect: 100-continue`, unless the answer itself has begun.
    pub(crate) fn send_continue(&mut self) {
        if !self.head_sent() {
            self.wire.put(clearway_h1::CONTINUE);
        }
    }

    pub(crate) fn write(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) -> Pushed {
        self.send_head(request);
        self.push(0, chunk, mark);
        if self.wire.is_full() { Pushed::Full } else { Pushed::Sent }
    }

    /// Marks the response as complete if its handler has not.
    pub(crate) fn finish(&mut self, request: &Request<'c>) {
        self.send_head(request);
        self.push(0, Chunk::EMPTY, Mark::Last);
    }

    pub(crate) fn send_head(&mut self, request: &Request<'c>) {
        if self.head_sent() {
            return;
        }
        self.progress = Progress::Body;
        request.amend(&mut self.head);
        for filter in request.location().header_filters() {
            let body_filter = filter(&mut Filtering { request, output: self });
            self.filters.extend(body_filter.map(Some));
        }
        if !matches!(self.head.status, 200 | 206 | 304) {
            self.head.last_modified = None;
        }
        if self.head.status == 204 {
            self.head.clear_entity();
        }
        self.framing = Framing::choose(
            request.method(),
            request.version(),
            self.head.status,
            self.head.content_length,
            *request.location().core.chunked_encoding,
        );
        if request.is_persistent() && self.framing.is_delimited() {
            self.connection = ConnectionHeader::KeepAlive(request.location().core.keepalive_header_s());
        }
        let before = self.wire.len();
        if request.version().has_response_head() {
            write_head(self.wire.front(), &self.head, request, self.framing, self.connection);
        }
        self.head_bytes = (self.wire.len() - before) as u64;
    }

    fn is_bodiless(&self) -> bool {
        matches!(self.framing, Framing::NoBody { .. })
    }

    /// Gives a chunk to the filter of a stage, or to the framing behind the last one.
    fn push(&mut self, stage: usize, chunk: Chunk<'c>, mark: Mark) {
        if self.progress == Progress::Complete || self.is_bodiless() {
            if mark == Mark::Last {
                self.progress = Progress::Complete;
            }
            return;
        }
        match self.filters.get_mut(stage).map(Option::take) {
            Some(filter) => {
                let mut filter = filter.expect("a filter passes chunks on to later stages only");
                filter.push(chunk, mark, &mut Next { state: self, stage: stage + 1 });
                self.filters[stage] = Some(filter);
            }
            None => self.frame(chunk, mark),
        }
    }

    fn frame(&mut self, mut chunk: Chunk<'c>, mark: Mark) {
        match &mut self.framing {
            Framing::NoBody { .. } => {}
            Framing::Length(left) => {
                chunk.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= chunk.len() as u64;
                if mark == Mark::Last && *left > 0 {
                    // The peer cannot tell where the next response begins.
                    self.connection = ConnectionHeader::Close;
                }
                self.wire.push(chunk);
            }
            Framing::Chunked => self.frame_chunked(chunk, mark),
            Framing::UntilClose => self.wire.push(chunk),
        }
        if mark == Mark::Last {
            self.progress = Progress::Complete;
        }
    }

    fn frame_chunked(&mut self, chunk: Chunk<'c>, mark: Mark) {
        if !chunk.is_empty() {
            let mut size = Vec::with_capacity(20);
            clearway_h1::push_chunk_size(&mut size, chunk.len() as u64);
            self.wire.put(&size);
            self.wire.push(chunk);
            self.wire.put(clearway_h1::CHUNK_END);
        }
        if mark == Mark::Last {
            self.wire.put(clearway_h1::LAST_CHUNK);
        }
    }

    /// Completes once the socket has taken everything.
    pub(crate) fn flush(
        &mut self,
        conn: &Conn,
        request: &Request<'c>,
    ) -> impl Future<Output = Result<(), Unsent>> {
        let send_timeout_ms = request.location().core.send_timeout_ms();
        let mut timer = None;
        poll_fn(move |cx| self.poll_flush(conn, send_timeout_ms, &mut timer, cx))
    }

    fn poll_flush(
        &mut self,
        conn: &Conn,
        send_timeout_ms: u64,
        timer: &mut Option<Timer>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        if self.failure.is_some() {
            return Poll::Ready(Err(Unsent));
        }
        let sent_bytes = self.wire.sent_bytes();
        let failure = match self.wire.poll_flush(&conn.socket, cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => SendFailure::Broken(error),
            Poll::Pending => {
                if timer.is_none() || self.wire.sent_bytes() > sent_bytes {
                    let timer = timer.get_or_insert_with(|| Timer::new(conn.home));
                    timer.arm(conn.home.now_ms() + send_timeout_ms);
                }
                match timer.as_ref().map(|timer| timer.poll_expired(cx)) {
                    Some(Poll::Ready(())) => SendFailure::TimedOut,
                    _ => return Poll::Pending,
                }
            }
        };
        self.failure = Some(failure);
        Poll::Ready(Err(Unsent))
    }
}
