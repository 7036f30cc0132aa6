//! The requests of a connection from the first byte of one until the connection is idle again or
//! ends: reading heads, running each request, sending the rest of its response, dropping what is left
//! of its body. One boxed future; the requests of a pipeline share it.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use clearway_base::log::Level;

use crate::client::Way;
use crate::config::body_directives::{BODY_CONF, LingeringClose};
use crate::connection::{Conn, TIMED_OUT};
use crate::link::Link;
use crate::link::parts::Parts;
use crate::link::send_queue::SendFailure;
use crate::output::{OutputState, log_file_failure};
use crate::phases::Answer;
use crate::phases::engine::Active;
use crate::request::body::{BodyError, BodyState};
use crate::request::redirect::Onward;
use crate::request::{Request, RequestLine};
use clearway_base::Errno;
use clearway_h1::{BodyLength, Fault, HeadProgress};
use clearway_message::Known;

/// Serves what has arrived: `parts`, which are there, have the first bytes.
#[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
pub fn serve_requests(conn: &Conn, mut parts: Option<Box<Parts>>) -> impl Future<Output = After> + Send {
    async move {
        let mut start = 0;
        let end = loop {
            // Stays where it is, so that nothing has to remember whether it was moved.
            let parts = parts.as_mut().expect("they are given and not taken yet");
            // Lives and ends in place: it is large.
            let mut active = Active::new(conn, parts, start);
            let (outcome, linger) = active.serve(conn).await;
            // Also one of which nothing came but empty lines.
            let code = Some(active.output.status());
            match linger {
                Linger::Yes => conn.link.stage.linger(conn.client.home.index(), code),
                Linger::No => conn.link.stage.end(conn.client.home.index(), code),
            }
            active.log();
            let rest_start = active.end();
            if outcome == Outcome::Close {
                active.reset_if_timed_out(conn);
                break End::Known(match linger {
                    Linger::Yes => After::Linger(active.lingering_limits()),
                    Linger::No => After::Close,
                });
            }
            let core = &active.request.location().core;
            Link::Http1(&conn.link).send_at_once(core);
            let timeout_ms = core.keepalive_timeout.timeout_ms;
            let min_timeout_ms = u32::try_from(*core.keepalive_min_timeout_ms).unwrap_or(u32::MAX);
            match rest_start {
                None => break End::Known(After::Idle { timeout_ms, min_timeout_ms }),
                Some(at) if conn.setup.is_outdated(conn.client.listener()) => break End::Outdated(at),
                Some(at) => start = at,
            }
            active.request.parts.own().head.clear();
        };
        let mut parts = parts.take().expect("they are given and not taken yet");
        match end {
            End::Known(after) => {
                conn.client.put_back(parts);
                after
            }
            End::Outdated(at) => {
                parts.head.clear();
                parts.input.drain(..at);
                After::Outdated(parts)
            }
        }
    }
}

/// What a connection does after requests.
pub enum After {
    /// Waits for the next request.
    Idle {
        /// For how long, milliseconds.
        timeout_ms: u64,
        /// For how long also while the server stops or needs room, milliseconds.
        min_timeout_ms: u32,
    },
    /// Goes on with what was received of the next request, in the generation that is published.
    Outdated(Box<Parts>),
    /// Ends, once the client has done so.
    Linger(LingeringLimits),
    /// Ends.
    Close,
}

/// What follows a connection's requests.
enum End {
    Known(After),
    /// What was received of the next one, from this byte on, is for another generation.
    Outdated(usize),
}

/// Whether a connection goes on after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    KeepAlive,
    Close,
}

/// Whether a connection that ends is read from for a while, so that a client which is still sending
/// gets to read the response before it learns that nobody listens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linger {
    Yes,
    No,
}

/// For how long what nobody wants is read, milliseconds.
#[derive(Clone, Copy)]
pub struct LingeringLimits {
    /// Altogether (`lingering_time`).
    pub time_ms: u64,
    /// For more of it (`lingering_timeout`).
    pub timeout_ms: u64,
}

/// Whether the client seems to be sending still.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    Something,
    Nothing,
}

/// Why there is no complete head.
enum Unheaded {
    Refused(Fault),
    TimedOut,
    Closed,
    Broken(io::Error),
}

impl Drop for Active<'_> {
    /// One that is cut short, since its connection is closed at once, is logged like others, but not its
    /// subrequests. After a panic nothing more is done with it.
    fn drop(&mut self) {
        let is_to_be_logged = self.request.is_main() && !self.request.is_logged();
        if is_to_be_logged && !std::thread::panicking() {
            self.request.link.cut_short(self.output.status());
            self.log();
        }
    }
}

impl<'c> Active<'c> {
    #[inline]
    fn new(conn: &'c Conn, parts: &'c mut Parts, start: usize) -> Self {
        let buffer = std::mem::take(&mut parts.output);
        let way = Way { client: &conn.client, setup: &conn.setup, link: Link::Http1(&conn.link) };
        let request = Request::new(way, parts, start, conn.link.count_request());
        // The last, so that it is made where it stays.
        Self { request, body: BodyState::default(), output: OutputState::new(buffer) }
    }

    /// Reads and answers one request, up to its last byte on the way out and in.
    #[expect(clippy::manual_async_fn, reason = "an argument of an async function is kept twice")]
    fn serve(&mut self, conn: &'c Conn) -> impl Future<Output = (Outcome, Linger)> + Send {
        async move {
            let headed = match self.parse_head() {
                Some(Ok(())) => {
                    conn.link.stage.begin_headed(conn.client.home.index());
                    Ok(())
                }
                parsed => match self.read_head(conn, parsed).await {
                    Ok(()) => Ok(()),
                    Err(unheaded) => Err(self.refusal(unheaded)),
                },
            };
            match headed {
                Ok(()) => {
                    self.begin_body();
                    match self.run().await {
                        Onward::Close => (Outcome::Close, Linger::No),
                        _ => self.conclude(conn).await,
                    }
                }
                Err(Some(fault)) => {
                    self.refuse(fault).await;
                    (Outcome::Close, self.lingers_after(fault))
                }
                Err(None) => (Outcome::Close, Linger::No),
            }
        }
    }

    /// What is to be told to a client whose request has no complete head; nothing as a rule.
    fn refusal(&mut self, unheaded: Unheaded) -> Option<Fault> {
        match unheaded {
            Unheaded::Refused(fault) => return Some(fault),
            Unheaded::TimedOut => self.give_up(408, format_args!("{TIMED_OUT}")),
            Unheaded::Closed => self.give_up(400, format_args!("client prematurely closed connection")),
            Unheaded::Broken(error) => self.give_up(400, format_args!("recv() failed {}", Errno(&error))),
        }
        None
    }

    /// Whether a refused client may still be sending.
    fn lingers_after(&self, fault: Fault) -> Linger {
        // A full buffer says that there was more to read.
        let buf = &self.request.parts.input;
        let has_more =
            self.request.received().len() > self.request.parts.head.len() || buf.len() == buf.capacity();
        self.linger(if fault.lingers() || has_more { Unread::Something } else { Unread::Nothing })
    }

    /// Parses what was received of the head; `None` where that is not all of it.
    #[inline]
    fn parse_head(&mut self) -> Option<Result<(), Unheaded>> {
        let request = &mut self.request;
        let parts = request.parts.own();
        let received = &parts.input[request.start..];
        match parts.head.parse(received, &request.server.core.options) {
            Ok(HeadProgress::Complete) => Some(Ok(())),
            Ok(HeadProgress::Incomplete) => None,
            Err(fault) => Some(Err(Unheaded::Refused(fault))),
        }
    }

    /// Reads until the head is complete, of which the beginning came to `parsed`.
    async fn read_head(
        &mut self,
        conn: &'c Conn,
        mut parsed: Option<Result<(), Unheaded>>,
    ) -> Result<(), Unheaded> {
        let core = conn.setup.server_core();
        conn.link.stage.begin(conn.client.home.index());
        let mut armed = false;
        loop {
            match parsed {
                Some(Ok(())) => {
                    conn.link.stage.head_is_complete(conn.client.home.index());
                    return Ok(());
                }
                Some(refused) => return refused,
                None => {}
            }
            let request = &mut self.request;
            let parts = request.parts.own();
            request.start += parts.head.drop_empty_lines();
            if !parts.head.request_line().is_empty() {
                request.action = "reading client request headers";
            }
            request.make_room(&core.options);
            if !std::mem::replace(&mut armed, true) {
                conn.link.timer.arm(request.started_ms + *core.client_header_timeout_ms);
            }
            match poll_fn(|cx| conn.poll_read(&mut request.parts.own().input, cx)).await {
                Some(Ok(0)) => return Err(Unheaded::Closed),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Unheaded::Broken(error)),
                None => return Err(Unheaded::TimedOut),
            }
            parsed = self.parse_head();
        }
    }

    /// What follows the head belongs to the body first, if there is one.
    #[inline]
    fn begin_body(&mut self) {
        let request = &mut self.request;
        let head = &request.parts.head;
        if head.body_length() == BodyLength::Empty && !head.has(Known::Expect) {
            return;
        }
        let body_start = request.start + request.parts.head.len();
        let input = request.parts.own().input.split_off(body_start);
        self.body = BodyState::begin(&request.parts.head, &request.parts.input[request.start..], input);
    }

    async fn refuse(&mut self, fault: Fault) {
        self.route_refused(fault);
        if self.follow(Answer::Status(fault.page())).await == Onward::Close {
            return;
        }
        self.output.finish(&self.request);
        if self.output.flush(&self.request).await.is_err() {
            self.log_send_failure();
        }
    }

    fn route_refused(&mut self, fault: Fault) {
        let level = if fault.is_logged_as_error() { Level::Error } else { Level::Info };
        let request = &mut self.request;
        request.route_refused();
        let is_of_line = fault == Fault::InvalidHostInRequestLine;
        if !is_of_line && !request.parts.head.request_line().is_empty() {
            request.action = "reading client request headers";
        }
        let message = request.parts.head.describe(fault, request.received()).to_string();
        request.log_incomplete(level, format_args!("{message}"));
        if fault == Fault::UriTooLong {
            request.line = RequestLine::AsReceived;
        }
    }

    /// Nothing is sent; the status is for the access log.
    fn give_up(&mut self, status: u16, message: std::fmt::Arguments<'_>) {
        self.request.route_refused();
        self.request.log_incomplete(Level::Info, message);
        self.output.head.status = status;
    }

    /// Sends the rest of the response, and drops the rest of the body.
    async fn conclude(&mut self, conn: &'c Conn) -> (Outcome, Linger) {
        self.output.finish(&self.request);
        while self.output.flush(&self.request).await.is_err() {
            self.log_send_failure();
            let Some(code) = self.output.start_over() else { return (Outcome::Close, Linger::No) };
            if self.follow(Answer::Status(code)).await == Onward::Close {
                return (Outcome::Close, Linger::No);
            }
            self.output.finish(&self.request);
        }
        if let Some(background) = self.output.background() {
            // Boxed, as nobody else should have to have room for it.
            Box::pin(background.finish()).await;
        }
        if !self.output.is_persistent() {
            // Who has sent a body that was wanted may have sent more: nginx does not look.
            let has_more = !self.body.is_done()
                || self.body.is_wanted()
                || self.has_rest()
                || conn.link.transport.has_unread();
            let linger = self.linger(if has_more { Unread::Something } else { Unread::Nothing });
            if linger == Linger::No && !self.body.is_done() {
                // Dropping a body is not lingering: it goes on even where that is off.
                self.discard_rest(conn).await;
            }
            return (Outcome::Close, linger);
        }
        if self.body.is_done() {
            return (Outcome::KeepAlive, Linger::No);
        }
        (self.discard_rest(conn).await, Linger::No)
    }

    /// Whether the connection lingers (`lingering_close`).
    fn linger(&self, unread: Unread) -> Linger {
        match (*self.request.conf(&BODY_CONF).lingering_close, unread) {
            (LingeringClose::Off, _) | (LingeringClose::On, Unread::Nothing) => Linger::No,
            (LingeringClose::On, Unread::Something) | (LingeringClose::Always, _) => Linger::Yes,
        }
    }

    fn lingering_limits(&self) -> LingeringLimits {
        let conf = self.request.conf(&BODY_CONF);
        LingeringLimits { time_ms: *conf.lingering_time_ms, timeout_ms: *conf.lingering_timeout_ms }
    }

    /// Reads the rest of the body, which nobody wants, and says whether another request may follow it.
    async fn discard_rest(&mut self, conn: &'c Conn) -> Outcome {
        match self.read_rest(conn).await {
            Ok(()) => return Outcome::KeepAlive,
            Err(BodyError::Broken(error)) => {
                self.request.log(Level::Info, format_args!("recv() failed {}", Errno(&error)));
            }
            Err(BodyError::Refused(fault)) => self.request.log(Level::Error, format_args!("{fault}")),
            Err(BodyError::TimedOut | BodyError::Closed) => {}
        }
        Outcome::Close
    }

    async fn read_rest(&mut self, conn: &'c Conn) -> Result<(), BodyError> {
        let give_up_ms = conn.client.home.now_ms() + self.lingering_limits().time_ms;
        loop {
            self.body.discard_received().map_err(BodyError::Refused)?;
            if self.body.is_done() {
                return Ok(());
            }
            conn.link
                .timer
                .arm(give_up_ms.min(conn.client.home.now_ms() + self.lingering_limits().timeout_ms));
            poll_fn(|cx| match self.body.poll_input(Link::Http1(&conn.link), cx) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| Err(BodyError::TimedOut)),
            })
            .await?;
        }
    }

    /// Has the kernel keep nothing of a connection that timed out, or that is closed without an answer, where
    /// the location wants that (`reset_timedout_connection`).
    fn reset_if_timed_out(&self, conn: &Conn) {
        let is_unanswered = !self.output.head_sent() && matches!(self.output.status(), 408 | 444);
        let is_timed_out = is_unanswered || matches!(self.output.failure(), Some(SendFailure::TimedOut));
        if is_timed_out && *self.request.location().core.sending.reset_timedout_connection {
            conn.link.transport.reset_on_close();
        }
    }

    pub(crate) fn log_send_failure(&mut self) {
        match self.output.failure() {
            Some(SendFailure::TimedOut) => self.request.log(Level::Info, format_args!("{TIMED_OUT}")),
            Some(SendFailure::Broken(error)) => {
                self.request.log(Level::Info, format_args!("writev() failed {}", Errno(error)));
            }
            Some(SendFailure::Left(left)) => self.request.log_left(left),
            Some(SendFailure::File(failure, file)) => log_file_failure(failure, &self.request, file),
            Some(SendFailure::Terminated) | None => {}
        }
    }

    /// Whether something was received that is not of this request.
    fn has_rest(&self) -> bool {
        let head_end = self.request.start + self.request.parts.head.len();
        self.body.has_rest() || self.request.parts.input.len() > head_end
    }

    /// Gives the buffers back. Where what was received of the next request begins, if anything was: what
    /// came behind a body is put where heads are read from.
    #[inline]
    fn end(&mut self) -> Option<usize> {
        let parts = self.request.parts.own();
        parts.output = self.output.take_buffer();
        let head_end = self.request.start + parts.head.len();
        if self.body.has_rest() {
            debug_assert_eq!(parts.input.len(), head_end, "what follows a head with a body is the body's");
            self.body.put_rest_into(&mut parts.input);
        }
        (parts.input.len() > head_end).then_some(head_end)
    }
}

impl Request<'_> {
    /// Makes room for as much of the head as may be read at once.
    fn make_room(&mut self, options: &clearway_h1::Options) {
        let parts = self.parts.own();
        if self.start > 0 {
            parts.input.drain(..self.start);
            self.start = 0;
        }
        let wanted = parts.head.wanted(parts.input.len(), options).max(1);
        parts.input.reserve_exact(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<F>(_: fn(&'static Conn, Option<Box<Parts>>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_request_part_is_a_small_allocation() {
        // Beyond 1,024 bytes the allocator takes several times as long.
        let bytes = future_bytes(serve_requests);
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
