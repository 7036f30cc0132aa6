//! The response of a request, pushed by its handler: chunks pass the enabled header and body filters
//! synchronously, are framed, and wait in a `Wire` for the socket. Owned by the request's task.
//!
//! The first chunk sends the head. `Full` asks the handler to wait with `ready`; nothing else waits.
//! A response is complete with the chunk that is marked `Last`; what a handler pushes afterwards, or
//! beyond the announced length, is dropped. So is what it pushes after a header filter has refused the
//! response: the engine then answers with a status instead.

mod ending;
mod relaying;

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use clearway_h1::{ChunkedEncoding, ConnectionHeader, Framing};
use clearway_message::{ResponseHead, Text, Version};
use clearway_runtime::Timer;

use crate::connection::departure::Departure;
use crate::connection::pace::Pace;
use crate::connection::wire::{SendFailure, Wire};
use crate::connection::{Conn, account};
use crate::phases::Answer;
use crate::request::body::BodyState;
use crate::request::relay::Relay;
use crate::request::{LimitRate, Request};
use crate::response::chunk::{Chunk, Mark, Pushed};
use crate::response::write_head;
use crate::variables::{View, eval_size};
use clearway_site::Sending;

/// What one response may send before others of the loop have their turn, bytes.
const TURN_BYTES: u64 = 2 << 20;
/// What is sent of a body while a filter is still busy with the rest, bytes.
const BUSY_SEND_BYTES: usize = 16 * 1024;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    HeadOpen,
    Body,
    Complete,
}

/// What a body filter wants to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes, to look at or to change.
    Bytes,
    /// Whatever comes, parts of files too: it counts and cuts, and looks at nothing.
    Anything,
}

/// Changes a body on its way out. One instance serves one response.
pub trait BodyFilter: Send {
    /// What it wants to be given.
    fn input(&self) -> Input {
        Input::Bytes
    }

    /// Takes a chunk and passes on what is ready; it may hold data back until more comes, but with
    /// `Mark::Flush` it passes on everything, and with `Mark::Last` everything and the mark.
    /// What would keep the loop for long it puts off (`is_busy`).
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>);

    /// Whether it has put work off. It keeps then what is pushed to it meanwhile, and is resumed when others
    /// of the loop have had their turn and the socket has taken what was made before.
    fn is_busy(&self) -> bool {
        false
    }

    /// Goes on with what it has put off, for a fraction of a millisecond.
    fn resume(&mut self, _: &mut Next<'_, '_>) {}

    /// What it has made of what, if it compresses.
    fn compression(&self) -> Option<Compression> {
        None
    }
}

/// What a compressed body came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Bytes that were to be compressed.
    pub taken_bytes: u64,
    /// Bytes that came out.
    pub made_bytes: u64,
}

/// Looks at a response before its head is sent, may change the head, and may add a body filter.
pub type HeaderFilter = for<'c> fn(&mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>>;

/// Names and values of what follows a body that is sent in chunks, as a module works them out when the
/// body has come to its end.
pub type Trailers = for<'c> fn(&View<'_, 'c>) -> Vec<(Text<'c>, Text<'c>)>;

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

    /// Whether the body filters so far take parts of files.
    pub fn takes_files(&self) -> bool {
        self.output.takes_files()
    }

    /// Has trailers sent behind the body, which is sent in chunks for that where the client understands
    /// them.
    pub fn expect_trailers(&mut self, trailers: Trailers) {
        self.output.trailers = Some(Box::new(TrailerState { trailers, lines: Vec::new() }));
    }

    /// Has the engine answer with a status instead of this response; no other filter sees it.
    pub fn refuse(&mut self, status: u16) {
        self.output.unusual().refusal = Some(Answer::Status(status));
    }

    /// Has the engine close the connection instead; the status of this response is for the log.
    pub fn abandon(&mut self) {
        self.output.unusual().refusal = Some(Answer::Abandon(self.output.head.status));
    }
}

/// Where a body filter passes chunks on.
pub struct Next<'a, 'c> {
    state: &'a mut OutputState<'c>,
    request: &'a Request<'c>,
    stage: usize,
}

impl<'c> Next<'_, 'c> {
    /// To the next filter, or to the peer.
    pub fn push(&mut self, chunk: Chunk<'c>, mark: Mark) {
        self.state.push(self.request, self.stage, chunk, mark);
    }
}

/// The state of one response.
pub(crate) struct OutputState<'c> {
    pub(crate) head: ResponseHead<'c>,
    wire: Wire<'c>,
    progress: Progress,
    framing: Framing,
    connection: Connection,
    /// Most responses have none.
    filters: Option<Box<Filters<'c>>>,
    /// Size of the head, bytes.
    head_bytes: u32,
    unusual: Option<Box<Unusual>>,
    urgency: Urgency,
    trailers: Option<Box<TrailerState<'c>>>,
    source: Source,
    /// Once there was a subrequest, or if it is of one.
    relay: Option<Box<Relay<'c>>>,
    /// The stage before which bodies of subrequests come in.
    postpone_stage: u32,
}

/// The body filters of a response in their order; each is away while it is at work.
#[derive(Default)]
struct Filters<'c>(Vec<Option<Box<dyn BodyFilter + 'c>>>);

/// Whether the handler has more to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Open,
    /// It has pushed the end, which filters may not have come to yet.
    Ended,
}

/// What follows the body.
struct TrailerState<'c> {
    trailers: Trailers,
    /// What they have come to, once the body has been made.
    lines: Vec<(Text<'c>, Text<'c>)>,
}

/// What most responses have nothing of.
#[derive(Default)]
struct Unusual {
    failure: Option<SendFailure>,
    pace: Option<Pace>,
    departure: Departure,
    /// What a header filter wants to be answered instead.
    refusal: Option<Answer>,
}

/// Whether another request may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Close,
    KeepAlive,
}

/// Whether what is there is to leave although it is little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// It may wait for more (`postpone_output`).
    Postponed,
    Flushed,
}

/// What became of an attempt to send.
enum Step {
    /// It got somewhere.
    Sent,
    /// A pool reads.
    Reading,
    /// The rate is used up.
    Resting,
    /// The socket takes no more.
    Blocked,
    Failed(SendFailure),
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
        self.state.progress == Progress::Body && !self.state.is_bodiless()
    }

    /// Whether the body may have parts of files in it; known once the head is sent. Otherwise there is
    /// a filter that looks at bytes.
    pub fn takes_files(&self) -> bool {
        self.state.takes_files()
    }

    /// Sends the head now instead of with the first chunk.
    pub fn send_head(&mut self, request: &Request<'c>) {
        self.state.send_head(request);
    }

    /// Sends a chunk, and the head before the first one.
    pub fn write(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) -> Pushed {
        self.state.write(request, chunk, mark)
    }

    /// Completes once everything so far has left for the socket, or is so little that it may wait for
    /// more (`postpone_output`).
    ///
    /// # Errors
    /// The rest cannot be sent; the handler should stop. The connection logs and closes.
    pub async fn ready(&mut self, request: &Request<'c>) -> Result<(), Unsent> {
        if self.state.may_wait(request) {
            return Ok(());
        }
        if request.is_main() {
            self.conn.send_at_once(&request.location().core);
        }
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
            connection: Connection::Close,
            filters: None,
            head_bytes: 0,
            unusual: None,
            urgency: Urgency::Postponed,
            trailers: None,
            source: Source::Open,
            relay: None,
            postpone_stage: 0,
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
        self.wire.sent_bytes().saturating_sub(u64::from(self.head_bytes))
    }

    /// Whether another request may follow on the connection.
    pub(crate) fn is_persistent(&self) -> bool {
        self.connection == Connection::KeepAlive
            && self.progress == Progress::Complete
            && self.failure().is_none()
    }

    /// Whether the body is sent in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        self.framing == Framing::Chunked
    }

    /// Whether the response was made to its end, and taken by the socket.
    pub(crate) fn is_completed(&self) -> bool {
        self.progress == Progress::Complete && self.failure().is_none()
    }

    /// Why the rest could not be sent.
    pub(crate) fn failure(&self) -> Option<&SendFailure> {
        self.unusual.as_ref()?.failure.as_ref()
    }

    /// Has a client that waits for `100 Continue` send its body: the line goes before the response, behind
    /// everything that is to be sent already. A client that got the head of the response is told nothing,
    /// as it would read the line as a part of the body. Whether there is something to send for it.
    pub(crate) fn invite(&mut self, body: &mut BodyState) -> bool {
        let is_due = body.take_expectation() && !self.head_sent();
        if is_due {
            self.wire.put(clearway_h1::CONTINUE);
        }
        is_due
    }

    /// What to answer instead of the response that was made.
    #[inline]
    pub(crate) fn take_refusal(&mut self) -> Option<Answer> {
        let refusal = self.unusual.as_mut()?.refusal.take()?;
        self.head.clear_entity();
        Some(refusal)
    }

    fn is_refused(&self) -> bool {
        self.unusual.as_ref().is_some_and(|unusual| unusual.refusal.is_some())
    }

    fn unusual(&mut self) -> &mut Unusual {
        self.unusual.get_or_insert_default()
    }

    /// After a failure before anything was sent: forgets the response. The status to answer with.
    pub(crate) fn start_over(&mut self) -> Option<u16> {
        let Some(SendFailure::File(failure, _)) = self.failure() else { return None };
        let nothing_sent =
            self.wire.sent_bytes() == 0 && !(self.is_of_subrequest() && self.has_passed_bytes());
        let status = failure.status().filter(|_| nothing_sent)?;
        self.wire.clear();
        let (buffer, relay) = (self.wire.take_buffer(), self.take_sink());
        *self = Self { relay, ..Self::new(buffer) };
        Some(status)
    }

    fn takes_files(&self) -> bool {
        let all_take = self.filters().iter().flatten().all(|filter| filter.input() == Input::Anything);
        all_take && self.sink_takes_files()
    }

    pub(crate) fn write(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) -> Pushed {
        if self.source == Source::Ended {
            return Pushed::Sent;
        }
        self.send_head(request);
        if matches!(chunk, Chunk::File(_)) && !self.is_bodiless() && !self.wire.has_sent_files() {
            debug_assert!(self.takes_files(), "who pushes files asks before");
            if request.is_main() {
                self.wire.use_pool(request.file_pool());
            }
        }
        if mark == Mark::Last {
            self.end_source(request);
        }
        self.push(request, 0, chunk, mark);
        let is_full =
            self.wire.is_full() || self.is_busy() || self.relay.as_ref().is_some_and(|relay| relay.is_full());
        if is_full { Pushed::Full } else { Pushed::Sent }
    }

    /// Marks the response as complete if its handler has not.
    #[inline]
    pub(crate) fn finish(&mut self, request: &Request<'c>) {
        if self.source == Source::Open {
            self.send_head(request);
            self.end_source(request);
            self.push(request, 0, Chunk::EMPTY, Mark::Last);
        }
    }

    #[inline]
    fn end_source(&mut self, request: &Request<'c>) {
        if !self.is_refused() {
            self.source = Source::Ended;
        }
        self.make_trailers(request);
    }

    fn filters(&self) -> &[Option<Box<dyn BodyFilter + 'c>>] {
        self.filters.as_ref().map_or(&[], |filters| &filters.0)
    }

    fn filters_mut(&mut self) -> &mut [Option<Box<dyn BodyFilter + 'c>>] {
        self.filters.as_mut().map_or(&mut [], |filters| &mut filters.0)
    }

    /// Whether a filter has put work off.
    fn is_busy(&self) -> bool {
        self.filters().iter().flatten().any(|filter| filter.is_busy())
    }

    /// What the filter that compresses the body has made of it.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.filters().iter().flatten().find_map(|filter| filter.compression())
    }

    /// Has the last filter that has put work off go on with it: what those before it make has nowhere to go
    /// yet.
    fn resume(&mut self, request: &Request<'c>) {
        let is_busy =
            |filter: &Option<Box<dyn BodyFilter + 'c>>| filter.as_ref().is_some_and(|f| f.is_busy());
        let Some(stage) = self.filters().iter().rposition(is_busy) else { return };
        let mut filter = self.filters_mut()[stage].take().expect("it is busy");
        filter.resume(&mut Next { state: self, request, stage: stage + 1 });
        self.filters_mut()[stage] = Some(filter);
    }

    /// Works trailers out, unless that has been done.
    #[inline]
    fn make_trailers(&mut self, request: &Request<'c>) {
        let Some(trailers) = self.trailers.as_ref().map(|state| state.trailers) else { return };
        if self.progress != Progress::Body || self.is_bodiless() {
            return;
        }
        let lines = trailers(&View::new(request, self));
        if let Some(state) = &mut self.trailers {
            state.lines = lines;
        }
    }

    /// The trailers of the response.
    pub(crate) fn trailers(&self) -> &[(Text<'c>, Text<'c>)] {
        self.trailers.as_ref().map_or(&[], |state| &state.lines)
    }

    pub(crate) fn send_head(&mut self, request: &Request<'c>) {
        if self.head_sent() || self.is_refused() {
            return;
        }
        request.amend(&mut self.head);
        let (before, behind) = request.location().header_filters();
        self.run_filters(request, before);
        self.postpone_stage = self.filters().len() as u32;
        if request.is_main() && !self.is_refused() {
            self.run_filters(request, behind);
        }
        if self.is_refused() {
            self.filters = None;
            return;
        }
        self.progress = Progress::Body;
        if !matches!(self.head.status, 200 | 206 | 304) {
            self.head.last_modified = None;
        }
        if self.head.status == 204 {
            self.head.clear_entity();
        }
        if request.is_main() {
            self.write_head(request);
        } else {
            self.choose_subrequest_framing(request);
        }
    }

    /// Runs header filters, up to one that refuses the response.
    fn run_filters(&mut self, request: &Request<'c>, filters: &[HeaderFilter]) {
        for filter in filters {
            if let Some(body_filter) = filter(&mut Filtering { request, output: self }) {
                self.filters.get_or_insert_default().0.push(Some(body_filter));
            }
            if self.is_refused() {
                return;
            }
        }
    }

    fn write_head(&mut self, request: &Request<'c>) {
        let encoding = *request.location().core.chunked_encoding;
        let is_chunkable = encoding == ChunkedEncoding::On && request.version() >= Version::HTTP_11;
        if self.trailers.is_some() && is_chunkable && !request.is_head() {
            self.head.content_length = None;
        }
        self.framing = Framing::choose(
            request.method(),
            request.version(),
            self.head.status,
            self.head.content_length,
            encoding,
        );
        if request.is_persistent() && self.framing.is_delimited() {
            self.connection = Connection::KeepAlive;
        }
        let before = self.wire.len();
        if request.version().has_response_head() {
            let connection = match self.connection {
                Connection::Close => ConnectionHeader::Close,
                Connection::KeepAlive => {
                    ConnectionHeader::KeepAlive(request.location().core.keepalive_header_s())
                }
            };
            write_head(self.wire.front(), &self.head, request, self.framing, connection);
        }
        self.head_bytes = (self.wire.len() - before) as u32;
    }

    fn is_bodiless(&self) -> bool {
        matches!(self.framing, Framing::NoBody { .. })
    }

    /// Gives a chunk to the filter of a stage, or to the framing behind the last one.
    fn push(&mut self, request: &Request<'c>, stage: usize, chunk: Chunk<'c>, mark: Mark) {
        if self.progress != Progress::Body || self.is_bodiless() {
            if mark == Mark::Last && !self.is_refused() {
                self.progress = Progress::Complete;
            }
            return;
        }
        if self.filters.is_none() && self.relay.is_none() {
            self.frame(chunk, mark);
        } else if self.relay.is_some() && stage == self.postpone_stage as usize {
            self.postpone(request, chunk, mark);
        } else {
            self.push_behind(request, stage, chunk, mark);
        }
    }

    fn push_behind(&mut self, request: &Request<'c>, stage: usize, chunk: Chunk<'c>, mark: Mark) {
        match self.filters_mut().get_mut(stage).map(Option::take) {
            Some(filter) => {
                let mut filter = filter.expect("a filter passes chunks on to later stages only");
                filter.push(chunk, mark, &mut Next { state: self, request, stage: stage + 1 });
                self.filters_mut()[stage] = Some(filter);
            }
            None => self.frame(chunk, mark),
        }
    }

    #[inline]
    fn frame(&mut self, mut chunk: Chunk<'c>, mark: Mark) {
        match &mut self.framing {
            Framing::NoBody { .. } => {}
            Framing::Length(left) => {
                if chunk.len() > *left {
                    chunk.truncate(*left);
                }
                *left -= chunk.len();
                if mark == Mark::Last && *left > 0 {
                    // The peer cannot tell where the next response begins.
                    self.connection = Connection::Close;
                }
                self.wire.push(chunk);
            }
            Framing::Chunked => self.frame_chunked(chunk, mark),
            Framing::UntilClose => self.wire.push(chunk),
        }
        match mark {
            Mark::More => {}
            Mark::Flush => self.urgency = Urgency::Flushed,
            Mark::Last => self.progress = Progress::Complete,
        }
    }

    fn frame_chunked(&mut self, chunk: Chunk<'c>, mark: Mark) {
        if !chunk.is_empty() {
            let mut size = Vec::with_capacity(20);
            clearway_h1::push_chunk_size(&mut size, chunk.len());
            self.wire.put(&size);
            self.wire.push(chunk);
            self.wire.put(clearway_h1::CHUNK_END);
        }
        if mark == Mark::Last && self.trailers().is_empty() {
            self.wire.put(clearway_h1::LAST_CHUNK);
        } else if mark == Mark::Last {
            let mut end = Vec::new();
            let lines = self.trailers().iter().map(|(name, value)| (&**name, &**value));
            clearway_h1::push_last_chunk(&mut end, lines);
            self.wire.put(&end);
        }
    }

    /// Whether what there is may wait for more.
    fn may_wait(&self, request: &Request<'c>) -> bool {
        if let Some(relay) = &self.relay {
            return relay.is_empty() && !relay.is_full() && relay.is_of_subrequest() && !self.is_busy();
        }
        self.progress == Progress::Body
            && self.urgency == Urgency::Postponed
            && !self.wire.has_files()
            && !self.is_busy()
            && (self.wire.len() as u64) < *request.location().core.sending.postpone_output_bytes
    }

    /// Completes once the socket has taken everything.
    pub(crate) fn flush(
        &mut self,
        conn: &Conn,
        request: &Request<'c>,
    ) -> impl Future<Output = Result<(), Unsent>> {
        let mut timer = None;
        if request.is_main() {
            conn.begin_response(&request.location().core);
            self.set_pace(conn, request);
        }
        poll_fn(move |cx| {
            let flushed = self.poll_flush(conn, request, &mut timer, cx);
            request.account(account::SENDING_RESPONSE);
            if flushed.is_ready() {
                self.urgency = Urgency::Postponed;
            }
            flushed
        })
    }

    /// Finds out once how fast this response may be sent.
    #[inline]
    fn set_pace(&mut self, conn: &Conn, request: &Request<'c>) {
        let sending = &request.location().core.sending;
        let own = request.context::<LimitRate>();
        if own.is_none() && !sending.limit_rate.is_set() {
            return;
        }
        if self.unusual.as_ref().is_some_and(|unusual| unusual.pace.is_some()) {
            return;
        }
        let view = View::new(request, self);
        let rate = own.map_or_else(|| eval_size(&sending.limit_rate, &view), |rate| rate.0);
        if rate > 0 {
            let after = eval_size(&sending.limit_rate_after, &view);
            self.unusual().pace = Some(Pace::new(conn.home, rate, after, request.started_ms));
        }
    }

    fn poll_flush(
        &mut self,
        conn: &Conn,
        request: &Request<'c>,
        timer: &mut Option<Timer>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        if self.is_plain() {
            match self.wire.is_empty() {
                true => return Poll::Ready(Ok(())),
                false => match self.wire.poll_send_plain(&conn.socket, cx) {
                    Poll::Ready(Ok(())) if self.wire.is_empty() => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(failure)) => return self.fail(failure.behind(timer, &conn.socket)),
                    // Some of it, or nothing: who waits is timed.
                    _ => {}
                },
            }
        }
        if self.failure().is_some() {
            return Poll::Ready(Err(Unsent));
        }
        if self.relay.is_some() {
            return self.poll_relayed(conn, request, timer, cx);
        }
        let mut turns_left = 1;
        loop {
            let is_busy = self.is_busy();
            if !is_busy || self.urgency == Urgency::Flushed || self.wire.len() >= BUSY_SEND_BYTES {
                ready!(self.poll_empty(conn, request, timer, cx))?;
            }
            if !is_busy {
                self.wire.uncork(&conn.socket);
                return Poll::Ready(Ok(()));
            }
            if turns_left == 0 {
                cx.waker().wake_by_ref();
                return self.poll_left(conn, request, cx);
            }
            turns_left -= 1;
            self.resume(request);
        }
    }

    /// Whether there is nothing but one buffer to send, and nobody who has a say in that.
    #[inline]
    fn is_plain(&self) -> bool {
        self.wire.is_plain() && self.filters.is_none() && self.unusual.is_none() && self.relay.is_none()
    }

    /// Completes once the socket has taken what there is now.
    fn poll_empty(
        &mut self,
        conn: &Conn,
        request: &Request<'c>,
        timer: &mut Option<Timer>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let sending = &request.location().core.sending;
        let start = self.wire.sent_bytes();
        while !self.wire.is_empty() {
            if self.wire.sent_bytes() - start >= TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.wire.cork_large_file(&conn.socket, sending);
            match self.poll_step(conn, sending, cx) {
                Step::Sent => {}
                Step::Failed(failure) => return self.fail(failure.behind(timer, &conn.socket)),
                Step::Resting => {
                    *timer = None;
                    return Poll::Pending;
                }
                Step::Reading => {
                    *timer = None;
                    return self.poll_left(conn, request, cx);
                }
                Step::Blocked => {
                    if timer.is_none() || self.wire.sent_bytes() > start {
                        let timer = timer.get_or_insert_with(|| Timer::new(conn.home));
                        timer.arm(conn.home.now_ms() + *sending.send_timeout_ms);
                    }
                    let timer = timer.as_ref().expect("armed at the first wait");
                    ready!(timer.poll_expired(cx));
                    return self.fail(SendFailure::TimedOut);
                }
            }
        }
        *timer = None;
        Poll::Ready(Ok(()))
    }

    fn poll_step(&mut self, conn: &Conn, sending: &Sending, cx: &mut Context<'_>) -> Step {
        let before = self.wire.sent_bytes();
        let allowance = match self.pace() {
            Some(pace) => pace.poll_allowance(conn.home, before, cx),
            None => Poll::Ready(u64::MAX),
        };
        let Poll::Ready(limit) = allowance else {
            return match self.pace().map(|pace| pace.poll_left(&conn.socket, cx)) {
                Some(Poll::Ready(left)) => Step::Failed(SendFailure::Left(left)),
                _ => Step::Resting,
            };
        };
        let sent = self.wire.poll_send(&conn.socket, sending, limit, cx);
        let sent_bytes = self.wire.sent_bytes();
        if let Some(pace) = self.pace() {
            pace.note_sent(conn.home, before, sent_bytes);
        }
        match sent {
            Poll::Ready(Ok(())) => Step::Sent,
            Poll::Ready(Err(failure)) => Step::Failed(failure),
            Poll::Pending if self.wire.waits_for_pool() => Step::Reading,
            Poll::Pending => Step::Blocked,
        }
    }

    fn pace(&mut self) -> Option<&mut Pace> {
        self.unusual.as_mut()?.pace.as_mut()
    }
}
