//! The engine as protocols see it: to make a request of what was received, to have it answered, and what
//! remains of it when its response is sent. How heads are waited for, and whether another request follows on
//! the connection, is the protocol's to know. Runs in the request's task.

use std::fmt;
use std::task::{Context, Poll};

use clearway_base::log::Level;
use clearway_h1::{Fault, HeadProgress, Options};
use clearway_h2::request::HeadFault;
use clearway_message::BodyLength;
use clearway_message::Known;
use clearway_site::Part;

use crate::client::Way;
use crate::config::body_directives::BODY_CONF;
pub use crate::config::body_directives::LingeringClose;
use crate::link::parts::Parts;
use crate::link::send_queue::SendFailure;
use crate::link::stream::Stream;
use crate::link::tls::NotReceived;
use crate::output::OutputState;
use crate::phases::engine::Active;
use crate::request::answer::Answer;
use crate::request::body::BodyState;
use crate::request::body_source::BodyError;
use crate::request::strands::Strands;
use crate::request::{Origin, Request, RequestLine};

/// The action for the error log while a head is read whose first line is complete.
pub(crate) const READING_HEADERS: &str = "reading client request headers";

/// How often a filter that has held a head may want something else to be answered, before the connection is
/// closed: the page of an error, and what takes the place of that.
const REFUSALS_MAX: u32 = 4;

/// The location's settings for a connection that ends behind its response.
#[derive(Clone, Copy, Debug)]
pub struct Lingering {
    /// `lingering_close`
    pub close: LingeringClose,
    /// The longest time for which unneeded bytes are read, milliseconds (`lingering_time`).
    pub time_ms: u64,
    /// The longest wait for more of them, milliseconds (`lingering_timeout`).
    pub timeout_ms: u64,
}

/// The response cannot be given, or nobody is to get one: the connection, or the stream, is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

impl Drop for Active<'_> {
    /// One that is cut short, since its connection is closed at once, is logged like others, but not its
    /// subrequests. After a panic nothing more is done with it.
    fn drop(&mut self) {
        if self.request.is_main() {
            self.request.strands().clear();
        }
        let is_to_be_logged = self.request.is_main() && !self.request.is_logged();
        if is_to_be_logged && !std::thread::panicking() {
            self.request.link.cut_short(self.output.status());
            self.log();
        }
    }
}

/// The head.
impl<'c> Active<'c> {
    /// A request of which `parts` have the first bytes, from `start` on; it is the connection's `number`th.
    #[inline]
    pub fn new(
        way: Way<'c>,
        strands: &'c Strands<'c>,
        parts: &'c mut Parts,
        start: usize,
        number: u64,
    ) -> Self {
        let buffer = std::mem::take(&mut parts.output);
        let request = Request::new(way, strands, parts, start, number);
        // The last, so that it is made where it stays.
        Self { request, body: BodyState::default(), output: OutputState::to_client(buffer) }
    }

    /// Parses what was received of the head; `None` where that is not all of it.
    ///
    /// # Errors
    /// The mistake in it.
    #[inline]
    pub fn parse_head(&mut self) -> Option<Result<(), Fault>> {
        let request = &mut self.request;
        let parts = request.parts.own();
        debug_assert!(request.start <= parts.input.len(), "a request begins in what was received");
        let received = &parts.input[request.start..];
        match parts.parser.parse(&mut parts.head, received, &request.server.core.options) {
            Ok(HeadProgress::Complete) => Some(Ok(())),
            Ok(HeadProgress::Incomplete) => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    /// Where more of an incomplete head is to be read to: it has room for as much as may be read at once.
    pub fn more_of_head(&mut self) -> &mut Vec<u8> {
        let request = &mut self.request;
        let parts = request.parts.own();
        request.start += parts.parser.drop_empty_lines();
        if !parts.head.line.line.is_empty() {
            request.action = READING_HEADERS;
        }
        request.make_room(&request.setup.server_core().options);
        &mut self.request.parts.own().input
    }

    /// Ends what goes on beside the request, since its connection is to be closed at once.
    pub fn cut(&mut self) {
        self.request.strands().clear();
    }

    /// When the first byte came, on the clock of the loop.
    #[inline]
    pub fn started_ms(&self) -> u64 {
        self.request.started_ms
    }

    /// Whether what was received goes on behind the head, or may.
    pub fn is_followed(&self) -> bool {
        // A full buffer says that there was more to read.
        let buf = &self.request.parts.input;
        self.request.received().len() > self.request.parts.parser.len() || buf.len() == buf.capacity()
    }

    /// The head is complete, and came on a stream, which has the body, if there is one.
    pub fn begin_stream_body(&mut self, stream: &Stream) {
        if stream.is_internal() {
            self.request.node_mut().origin = Origin::Internal;
        }
        let request = &self.request;
        // All of a body may be here already.
        let is_bodiless = match request.is_http2() {
            true => request.parts.head.body == BodyLength::Empty,
            false => stream.is_bodiless(),
        };
        if !is_bodiless {
            debug_assert!(self.body.is_absent(), "a request has one body");
            self.body = BodyState::begin_stream(&request.parts.head, request.received());
        }
    }

    /// The head is complete. What follows it belongs to the body first, if there is one.
    #[inline]
    pub fn begin_body(&mut self) {
        let request = &mut self.request;
        let head = &request.parts.head;
        if head.body == BodyLength::Empty && !head.has(Known::Expect) {
            return;
        }
        let body_start = request.start + request.parts.parser.len();
        assert!(body_start <= request.parts.input.len(), "a head lies in what was received");
        debug_assert!(self.body.is_absent(), "a request has one body");
        let input = request.parts.own().input.split_off(body_start);
        self.body = BodyState::begin(&request.parts.head, &request.parts.input[request.start..], input);
    }
}

/// The response.
impl Active<'_> {
    /// Answers a request whose head is malformed.
    pub async fn refuse(&mut self, fault: Fault) {
        self.route_refused(fault);
        self.answer_refused(fault.page()).await;
    }

    async fn answer_refused(&mut self, status: u16) {
        if self.follow(Answer::Status(status)).await.is_err() {
            return;
        }
        self.output.finish(&self.request);
        if self.output.flush(&self.request).await.is_err() {
            // What is wrong with that is said.
            let _ = Box::pin(self.send_instead()).await;
        }
    }

    /// As [`refuse`](Self::refuse), for a fault in a head of HTTP/2.
    pub async fn refuse_head(&mut self, fault: HeadFault) {
        let request = &mut self.request;
        request.route_refused();
        request.action = READING_HEADERS;
        request.log_incomplete(Level::Info, format_args!("{fault}"));
        self.answer_refused(fault.page()).await;
    }

    fn route_refused(&mut self, fault: Fault) {
        let level = if fault.is_logged_as_error() { Level::Error } else { Level::Info };
        let request = &mut self.request;
        request.route_refused();
        let is_of_line = fault == Fault::InvalidHostInRequestLine;
        if !is_of_line && !request.parts.head.line.line.is_empty() {
            request.action = READING_HEADERS;
        }
        let message =
            request.parts.parser.describe(&request.parts.head, fault, request.received()).to_string();
        request.log_incomplete(level, format_args!("{message}"));
        if fault == Fault::UriTooLong {
            request.line = RequestLine::AsReceived;
        }
    }

    /// Gives a request up whose head is not complete. Nothing is sent; the status is for the access log.
    pub fn give_up(&mut self, status: u16, message: fmt::Arguments<'_>) {
        self.request.route_refused();
        self.request.log_incomplete(Level::Info, message);
        self.output.head.status = status;
    }

    /// Sends the rest of the response, and waits for what goes on in the background.
    ///
    /// # Errors
    /// It cannot be sent; that is logged.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    #[inline]
    pub fn send_rest(&mut self) -> impl Future<Output = Result<(), Cut>> + Send {
        async move {
            self.output.finish(&self.request);
            self.end_with_response();
            if self.output.flush(&self.request).await.is_err() {
                // Boxed, as nobody else should have to have room for it.
                Box::pin(self.send_instead()).await?;
            }
            // Background work has ended before the next request of the connection begins, unless it is apart.
            self.request.strands().finish_joined().await;
            Ok(())
        }
    }

    /// Has a client with TLS learn from the response itself that nothing follows, where nothing is to be done
    /// before it may: clients that read a log find their lines when the connection has ended.
    #[inline]
    fn end_with_response(&mut self) {
        if self.request.link.tls().is_some()
            && self.request.location().phases.part(Part::Log).is_empty()
            && self.request.setup.log_progress().behind().is_none()
            && let Some(bytes) = self.output.last_bytes()
        {
            self.request.link.end_behind(bytes);
        }
    }

    /// Goes on where a response could not be sent, with another one in its place: that its file cannot be
    /// read may be found out when it is sent, and what a filter wants instead that has held its head.
    pub(crate) async fn send_instead(&mut self) -> Result<(), Cut> {
        loop {
            let instead = self.instead().ok_or(Cut)?;
            self.follow(instead).await?;
            self.output.finish(&self.request);
            if self.output.flush(&self.request).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// The answer in place of a response that cannot be sent, if one can be sent.
    #[cold]
    fn instead(&mut self) -> Option<Answer> {
        if let Some(refusal) = self.output.take_refusal() {
            return (self.output.refusals() <= REFUSALS_MAX).then_some(refusal);
        }
        self.output.log_failure(&self.request);
        self.output.start_over().map(Answer::Status)
    }

    /// Whether the response was written to its end.
    pub fn is_complete(&self) -> bool {
        self.output.is_completed()
    }

    /// The status of the response, 0 while there is none.
    #[inline]
    pub fn status(&self) -> u16 {
        self.output.status()
    }

    /// Whether the response leaves the connection open for another request.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.output.is_persistent()
    }

    /// Whether the kernel is to keep nothing of the connection: it timed out, or is closed without an answer,
    /// and the location wants that (`reset_timedout_connection`).
    #[inline]
    pub fn is_to_be_reset(&self) -> bool {
        let is_unanswered = !self.output.head_sent() && matches!(self.output.status(), 408 | 444);
        let is_timed_out = is_unanswered || matches!(self.output.failure(), Some(SendFailure::TimedOut));
        is_timed_out && *self.request.location().core.sending.reset_timedout_connection
    }
}

/// The rest of the request behind its response.
impl<'c> Active<'c> {
    /// The request.
    #[inline]
    pub fn request(&self) -> &Request<'c> {
        &self.request
    }

    /// Whether all of the body was read, or dropped.
    #[inline]
    pub fn is_body_done(&self) -> bool {
        self.body.is_done()
    }

    /// Whether there is a body that somebody has read, or may read still.
    #[inline]
    pub fn is_body_wanted(&self) -> bool {
        self.body.is_wanted()
    }

    /// How the connection ends, if it does.
    pub fn lingering(&self) -> Lingering {
        let conf = self.request.conf(&BODY_CONF);
        Lingering {
            close: *conf.lingering_close,
            time_ms: *conf.lingering_time_ms,
            timeout_ms: *conf.lingering_timeout_ms,
        }
    }

    /// Drops what was received of the body, and says whether that is all of it.
    ///
    /// # Errors
    /// It is malformed, which is logged.
    pub fn discard_received(&mut self) -> Result<bool, Cut> {
        match self.body.discard_received() {
            Ok(()) => Ok(self.body.is_done()),
            Err(fault) => {
                self.request.log(Level::Error, format_args!("{fault}"));
                Err(Cut)
            }
        }
    }

    /// Reads more of the body, which is to be dropped.
    ///
    /// # Errors
    /// The connection ends or breaks; that is logged.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.body.poll_input(self.request.link, cx).map_err(|error| {
            if let BodyError::Broken(error) = error {
                self.request.log(Level::Info, format_args!("{}", NotReceived(&error)));
            }
            Cut
        })
    }

    /// Whether something was received that is not of this request.
    #[inline]
    pub fn has_rest(&self) -> bool {
        let head_end = self.request.start + self.request.parts.parser.len();
        self.body.has_rest() || self.request.parts.input.len() > head_end
    }

    /// Gives the buffers back. Where what was received of the next request begins, if anything was: what
    /// came behind a body is put where heads are read from.
    #[inline]
    pub fn end(&mut self) -> Option<usize> {
        let parts = self.request.parts.own();
        parts.output = self.output.take_buffer();
        let head_end = self.request.start + parts.parser.len();
        if self.body.has_rest() {
            debug_assert_eq!(parts.input.len(), head_end, "what follows a head with a body is the body's");
            self.body.put_rest_into(&mut parts.input);
        }
        (parts.input.len() > head_end).then_some(head_end)
    }

    /// Received bytes of the next request, from the position that [`end`](Self::end) returns.
    #[must_use]
    pub fn rest(&self, start: usize) -> &[u8] {
        &self.request.parts.input[start..]
    }

    /// Forgets the head, so that the buffers can be used for the next request.
    #[inline]
    pub fn clear_head(&mut self) {
        self.request.parts.own().clear_head();
    }
}

impl Request<'_> {
    /// Makes room for as much of the head as may be read at once.
    fn make_room(&mut self, options: &Options) {
        let parts = self.parts.own();
        if self.start > 0 {
            parts.input.drain(..self.start);
            self.start = 0;
        }
        let wanted = parts.parser.wanted(parts.input.len(), options).max(1);
        parts.input.reserve_exact(wanted);
    }
}
