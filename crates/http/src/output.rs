//! The response of a request, pushed by its handler: chunks pass the enabled header and body filters
//! synchronously (`filters`), are framed, and wait for the socket (`sending`), or go to the parent of a
//! subrequest. Owned by the request's task.
//!
//! The first chunk sends the head. `Full` asks the handler to wait with `ready`; nothing else waits.
//! A response is complete with the chunk that is marked `Last`; what a handler pushes afterwards, or
//! beyond the announced length, is dropped. So is what it pushes after a header filter has refused the
//! response: the engine then answers with a status instead.

mod duplex;
mod ending;
mod file_bytes;
mod filters;
mod head;
mod head_text;
mod held;
mod mending;
mod passed;
mod passing;
mod relaying;
mod sending;
pub(crate) mod view;

use clearway_h1::Framing;
use clearway_message::{HeaderLine, Headers, ResponseHead};
use clearway_runtime::Timer;

use crate::link::Link;
use crate::link::pace::Pace;
use crate::link::send_queue::{Completion, SendFailure, SendQueue};
use crate::link::stream::StreamHead;
use crate::output::view::View;
use crate::request::Request;
use crate::request::answer::Answer;
use crate::request::body::BodyState;
use crate::request::relay::Relay;
use crate::request::sink::Sink;
use crate::request::strands::Lookout;
use crate::response::chunk::{Chunk, Mark, Pushed};
use crate::response::file_part::FilePart;

pub use ending::TIMED_OUT;
use filters::Filters;
pub use filters::{BodyFilter, Compression, Filtering, HeaderFilter, Input, Next, Trailers};
use held::HeldHead;
pub use held::Hold;
use mending::Gap;
use passed::Passed;
pub use passed::split_content_type;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    HeadOpen,
    /// A filter waits for something, and has the head wait for it.
    HeadHeld,
    Body,
    Complete,
}

/// The state of one response.
pub(crate) struct OutputState<'c> {
    pub(crate) head: ResponseHead<'c>,
    sink: Sink<'c>,
    progress: Progress,
    framing: Framing,
    connection: Connection,
    /// Most responses have none.
    filters: Option<Box<Filters<'c>>>,
    /// Size of the head, bytes.
    head_bytes: u32,
    unusual: Option<Box<Unusual<'c>>>,
    urgency: Urgency,
    /// The timer of the wait for the socket; `None` while there is no wait.
    wait: Option<Timer>,
    trailers: Option<Box<TrailerState>>,
    source: ResponseSource,
    /// If its head comes from another server.
    passed: Option<Box<Passed>>,
    /// Once there was a subrequest in it.
    relay: Option<Box<Relay<'c>>>,
    /// The stage before which bodies of subrequests come in.
    postpone_stage: u32,
}

/// Whether the handler has more to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseSource {
    Open,
    /// The handler has pushed the end; filters may still have output.
    Ended,
}

/// The trailers behind the body.
#[derive(Default)]
struct TrailerState {
    trailers: Option<Trailers>,
    /// The finished lines, once the body has been made; behind lines that were passed on.
    lines: Headers,
}

/// State that most responses do not need.
#[derive(Default)]
struct Unusual<'c> {
    failure: Option<SendFailure>,
    pace: Option<Pace>,
    lookout: Option<Lookout<'c>>,
    /// The answer that a header filter wants instead.
    refusal: Option<Answer>,
    /// How many answers were refused before.
    refusals: u32,
    sequel: Sequel,
    /// Lines of the server's own that are not written: they were removed, or stand among the others. Of
    /// [`Known::bit`].
    replaced: u64,
    /// Lines that a script has added stay beside a head that is passed on.
    keeps_lines: bool,
    held: Option<Box<HeldHead<'c>>>,
    gap: Option<Box<Gap<'c>>>,
}

impl Unusual<'_> {
    fn allows_persistence(&self) -> bool {
        self.failure.is_none() && self.sequel == Sequel::Possible
    }
}

/// Whether the connection may go on, whatever the head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sequel {
    #[default]
    Possible,
    None,
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
    /// The output may wait for more (`postpone_output`).
    Postponed,
    Flushed,
}

/// The response as its handler sees it.
pub struct Output<'a, 'c> {
    pub(crate) state: &'a mut OutputState<'c>,
}

impl<'c> Output<'_, 'c> {
    /// The head, to be filled before the first chunk.
    pub fn head(&mut self) -> &mut ResponseHead<'c> {
        debug_assert!(!self.head_sent(), "a head that is sent cannot be changed");
        &mut self.state.head
    }

    /// Whether the head is beyond change by its handler.
    pub fn head_sent(&self) -> bool {
        self.state.progress != Progress::HeadOpen
    }

    /// Whether a header filter wants something else to be answered: what was sent is dropped, and the engine
    /// answers once the handler is done.
    pub fn is_refused(&self) -> bool {
        self.state.is_refused()
    }

    /// Whether the peer is to get a body, as far as is known; asked once the head is sent. A handler need not
    /// produce one otherwise.
    pub fn wants_body(&self) -> bool {
        match self.state.progress {
            Progress::HeadOpen => false,
            Progress::Complete => self.state.has_gap(),
            Progress::HeadHeld => true,
            Progress::Body => !self.state.is_bodiless(),
        }
    }

    /// Whether the body may have parts of files in it; asked once the head is sent. Otherwise there is, or
    /// may be, a filter that looks at bytes.
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
            request.link.send_at_once(&request.location().core);
        }
        self.state.flush(request).await
    }
}

/// The rest of a response cannot be sent any more; the reason is kept by the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent;

impl<'c> OutputState<'c> {
    /// A response to the client, which gathers in `buffer`.
    #[inline]
    pub(crate) fn to_client(buffer: Vec<u8>) -> Self {
        Self::new(Sink::Client(SendQueue::new(buffer)))
    }

    #[inline]
    pub(crate) fn new(sink: Sink<'c>) -> Self {
        Self {
            head: ResponseHead::default(),
            sink,
            progress: Progress::HeadOpen,
            framing: Framing::NoBody { content_length: None },
            connection: Connection::Close,
            filters: None,
            head_bytes: 0,
            unusual: None,
            urgency: Urgency::Postponed,
            wait: None,
            trailers: None,
            source: ResponseSource::Open,
            passed: None,
            relay: None,
            postpone_stage: 0,
        }
    }

    /// The buffer that it was given, once there is no more to send.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.sink.client_mut().map(SendQueue::take_buffer).unwrap_or_default()
    }

    /// Status code as logged: 0 while none was chosen.
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn head_sent(&self) -> bool {
        self.progress != Progress::HeadOpen
    }

    /// Bytes that the socket has taken (`$bytes_sent`).
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sink.sent_bytes()
    }

    /// Bytes that the socket has taken without the head (`$body_bytes_sent`). As in nginx that counts the
    /// framing of chunks and `100 Continue`.
    pub(crate) fn body_sent_bytes(&self) -> u64 {
        self.sink.sent_bytes().saturating_sub(u64::from(self.head_bytes))
    }

    /// Whether another request may follow on the connection.
    pub(crate) fn is_persistent(&self) -> bool {
        self.connection == Connection::KeepAlive
            && self.progress == Progress::Complete
            && self.unusual.as_ref().is_none_or(|unusual| unusual.allows_persistence())
    }

    /// Ends without a response, as one that has been sent: the request has none.
    pub(crate) fn skip(&mut self, request: &Request<'c>) {
        debug_assert!(!self.head_sent(), "there is a response already");
        self.head = ResponseHead::default();
        if self.is_of_subrequest() {
            // Its parent is told of the end of an empty one.
            return;
        }
        debug_assert!(self.source == ResponseSource::Open, "a response ends once");
        self.source = ResponseSource::Ended;
        self.progress = Progress::Complete;
        if request.is_persistent() {
            self.connection = Connection::KeepAlive;
        }
    }

    /// Whether the body is sent in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        self.framing == Framing::Chunked
    }

    /// Whether the response was made to its end, and taken by the socket.
    pub(crate) fn is_completed(&self) -> bool {
        match self.failure() {
            None => self.progress == Progress::Complete,
            Some(SendFailure::Behind(completion)) => *completion == Completion::Whole,
            Some(_) => false,
        }
    }

    /// Why the rest could not be sent.
    pub(crate) fn failure(&self) -> Option<&SendFailure> {
        self.unusual.as_ref()?.failure.as_ref()
    }

    /// Has a client that waits for `100 Continue` send its body: the line goes before the response, behind
    /// everything that is to be sent already. A client that got the head of the response is told nothing,
    /// as it would read the line as a part of the body. Whether there is something to send for it.
    pub(crate) fn invite(&mut self, link: Link<'_>, body: &mut BodyState) -> bool {
        let is_unsent = matches!(self.progress, Progress::HeadOpen | Progress::HeadHeld);
        let is_due = body.take_expectation() && is_unsent;
        match link {
            Link::Http1(_) if is_due => {
                if let Some(queue) = self.sink.client_mut() {
                    queue.put(clearway_h1::CONTINUE);
                }
            }
            Link::Stream(stream) if is_due => {
                stream.push_head(StreamHead { status: 100, block: Vec::new(), is_last: false });
            }
            _ => {}
        }
        is_due
    }

    /// The answer in place of the response that was made.
    #[inline]
    pub(crate) fn take_refusal(&mut self) -> Option<Answer> {
        let unusual = self.unusual.as_mut()?;
        let refusal = unusual.refusal.take()?;
        debug_assert!(self.progress == Progress::HeadOpen, "a response is refused before its head is sent");
        unusual.refusals += 1;
        match refusal {
            Answer::Status(416) => self.keep_passed_lines(),
            _ => self.drop_passed(),
        }
        self.head.clear_entity();
        Some(refusal)
    }

    /// How often filters have wanted something else to be answered.
    pub(crate) fn refusals(&self) -> u32 {
        self.unusual.as_ref().map_or(0, |unusual| unusual.refusals)
    }

    fn is_refused(&self) -> bool {
        self.unusual.as_ref().is_some_and(|unusual| unusual.refusal.is_some())
    }

    /// Whether a header filter does not want the others to see the head now.
    fn is_stopped(&self) -> bool {
        let is_stopped = |unusual: &Unusual<'c>| {
            unusual.refusal.is_some() || unusual.held.as_ref().is_some_and(|held| held.is_waiting())
        };
        self.unusual.as_deref().is_some_and(is_stopped)
    }

    fn unusual(&mut self) -> &mut Unusual<'c> {
        self.unusual.get_or_insert_default()
    }

    /// After a failure before anything was sent: forgets the response. The status to answer with.
    pub(crate) fn start_over(&mut self) -> Option<u16> {
        let Some(SendFailure::File(failure, _)) = self.failure() else { return None };
        let status = failure.status().filter(|_| !self.has_passed_bytes())?;
        debug_assert_eq!(self.sent_bytes(), 0, "nothing was sent of the response that is forgotten");
        let mut sink = std::mem::replace(&mut self.sink, Sink::Nowhere);
        sink.drop_rest();
        *self = Self::new(sink);
        Some(status)
    }

    pub(crate) fn write(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) -> Pushed {
        if self.source == ResponseSource::Ended {
            return if self.has_gap() { self.fill_gap(request, chunk, mark) } else { Pushed::Sent };
        }
        self.send_head(request);
        if let Chunk::File(part) = &chunk
            && !self.is_bodiless()
        {
            debug_assert!(self.takes_files(), "a handler that pushes files asks before");
            self.prepare_file(request, part);
        }
        if mark == Mark::Last {
            self.end_source(request);
        }
        self.push(request, 0, chunk, mark);
        if self.is_full() { Pushed::Full } else { Pushed::Sent }
    }

    /// Says which pool reads a file, before its first part goes on to the client.
    fn prepare_file(&mut self, request: &Request<'c>, part: &FilePart) {
        if let Some(queue) = self.sink.client_mut().filter(|queue| !queue.has_sent_files()) {
            let pool = part.file().pool().cloned().or_else(|| request.file_pool());
            queue.use_pool(pool, request.link);
        }
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
            || self.is_busy()
            || self.relay.as_ref().is_some_and(|relay| relay.is_full())
            || self.is_held_full()
    }

    /// Marks the response as complete if its handler has not.
    #[inline]
    pub(crate) fn finish(&mut self, request: &Request<'c>) {
        if self.source == ResponseSource::Open {
            self.send_head(request);
            self.end_source(request);
            self.push(request, 0, Chunk::EMPTY, Mark::Last);
            debug_assert!(
                self.source == ResponseSource::Ended || self.is_refused(),
                "a response that is not refused has an end"
            );
        } else if self.has_gap() {
            self.fail_with(SendFailure::Abandoned);
        }
    }

    #[inline]
    fn end_source(&mut self, request: &Request<'c>) {
        if !self.is_refused() {
            self.source = ResponseSource::Ended;
        }
        self.make_trailers(request);
    }

    /// Works trailers out, unless that has been done.
    #[inline]
    fn make_trailers(&mut self, request: &Request<'c>) {
        let Some(trailers) = self.trailers.as_ref().and_then(|state| state.trailers) else { return };
        if self.progress != Progress::Body || self.is_bodiless() {
            return;
        }
        for nth in 0.. {
            let Some((name, value)) = trailers(&View::new(request, self), nth) else { break };
            if let Some(state) = self.trailers.as_mut().filter(|_| !value.is_empty()) {
                state.lines.add(name, &value);
            }
        }
    }

    /// The trailers of the response.
    pub(crate) fn trailers(&self) -> impl Iterator<Item = HeaderLine<'_>> {
        self.trailers.iter().flat_map(|state| state.lines.iter())
    }

    fn is_bodiless(&self) -> bool {
        matches!(self.framing, Framing::NoBody { .. })
    }
}
