//! Where a response goes behind its filters: framed into the queue of the connection, and from there to the
//! socket, as fast as it may. Owned by the request's task.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use clearway_h1::Framing;
use clearway_message::Headers;
use clearway_runtime::Timer;
use clearway_site::Sending;

use super::{Connection, OutputState, Progress, Unsent, Urgency};
use crate::link::Link;
use crate::link::pace::Pace;
use crate::link::send_queue::{SendFailure, SendQueue};
use crate::link::stream::Stream;
use crate::output::view::{View, eval_size};
use crate::request::account;
use crate::request::sink::Sink;
use crate::request::subrequest::Terminated;
use crate::request::{LIMIT_RATE, Request};
use crate::response::chunk::{Chunk, Mark};

/// Bytes that one response may send before other tasks of the loop have their turn.
const TURN_BYTES: u64 = 2 << 20;
/// Bytes of a body that are sent while a filter is still busy with the rest.
const BUSY_SEND_BYTES: usize = 16 * 1024;

/// The result of an attempt to send.
enum Step {
    /// Something was sent.
    Sent,
    /// A pool reads.
    Reading,
    /// The rate is used up.
    Resting,
    /// The socket takes no more.
    Blocked,
    Failed(SendFailure),
}

impl<'c> OutputState<'c> {
    #[inline]
    pub(super) fn frame(&mut self, request: &Request<'c>, mut chunk: Chunk<'c>, mark: Mark) {
        debug_assert!(self.progress == Progress::Body, "a body stands between its head and its end");
        match &mut self.framing {
            Framing::NoBody { .. } => {}
            Framing::Length(left) => {
                if chunk.len() > *left {
                    chunk.truncate(*left);
                }
                assert!(chunk.len() <= *left, "no more is sent than the head has said");
                *left -= chunk.len();
                if mark == Mark::Last && *left > 0 {
                    // The peer cannot tell where the next response begins.
                    self.connection = Connection::Close;
                }
                if let Sink::Client(queue) = &mut self.sink {
                    queue.push(chunk);
                }
            }
            Framing::Chunked => self.frame_chunked(chunk, mark),
            Framing::UntilClose => {
                let pushed = self.sink.push(request, chunk, self.head.content_length);
                if let Err(Terminated(_)) = pushed {
                    self.fail_with(SendFailure::Terminated);
                }
            }
        }
        match mark {
            Mark::More => {}
            Mark::Flush => self.urgency = Urgency::Flushed,
            Mark::Last => {
                self.progress = Progress::Complete;
                if let (Some(_), Link::Stream(stream)) = (&self.trailers, request.link) {
                    self.hand_trailers(request, stream);
                }
            }
        }
    }

    /// Trailers follow what the stream is given of the body.
    #[cold]
    fn hand_trailers(&self, request: &Request<'c>, stream: &Stream) {
        if !request.is_main() || self.is_bodiless() {
            return;
        }
        let mut lines = Headers::default();
        self.trailers().for_each(|line| lines.add(line.name, line.value));
        stream.put_trailers(lines);
    }

    fn frame_chunked(&mut self, chunk: Chunk<'c>, mark: Mark) {
        let has_trailers = self.trailers().next().is_some();
        let Sink::Client(queue) = &mut self.sink else { return };
        if !chunk.is_empty() {
            let mut size = [0; clearway_h1::CHUNK_SIZE_MAX_BYTES];
            queue.put(clearway_h1::chunk_size(&mut size, chunk.len()));
            queue.push(chunk);
            queue.put(clearway_h1::CHUNK_END);
        }
        if mark == Mark::Last && !has_trailers {
            queue.put(clearway_h1::LAST_CHUNK);
        } else if mark == Mark::Last {
            let mut end = Vec::new();
            let lines = self.trailers.iter().flat_map(|state| state.lines.iter());
            clearway_h1::push_last_chunk(&mut end, lines.map(|line| (line.name, line.value)));
            queue.put(&end);
        }
    }

    /// Whether what there is may wait for more.
    pub(super) fn may_wait(&self, request: &Request<'c>) -> bool {
        let Sink::Client(queue) = &self.sink else {
            let is_queue_empty = self.relay.as_ref().is_none_or(|relay| relay.is_empty());
            let is_free = self.progress != Progress::HeadHeld && !self.is_busy();
            return is_queue_empty && is_free && !self.is_relay_full();
        };
        self.relay.is_none()
            && self.progress == Progress::Body
            && self.urgency == Urgency::Postponed
            && !queue.has_files()
            && !self.is_busy()
            && (queue.len() as u64) < *request.location().core.sending.postpone_output_bytes
    }

    /// Completes once the socket has taken everything.
    pub(crate) fn flush(&mut self, request: &Request<'c>) -> impl Future<Output = Result<(), Unsent>> {
        self.wait = None;
        self.begin_flush(request);
        poll_fn(move |cx| self.poll_flushed(request, cx))
    }

    #[inline]
    pub(super) fn begin_flush(&mut self, request: &Request<'c>) {
        if request.is_main() {
            request.link.begin_response(&request.location().core);
            self.set_pace(request);
        }
    }

    #[inline]
    pub(super) fn poll_flushed(
        &mut self,
        request: &Request<'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let flushed = self.poll_flush(request, cx);
        request.account(account::SENDING_RESPONSE);
        if flushed.is_ready() {
            self.urgency = Urgency::Postponed;
        }
        flushed
    }

    /// Finds out once how fast this response may be sent.
    #[inline]
    pub(super) fn set_pace(&mut self, request: &Request<'c>) {
        let sending = &request.location().core.sending;
        let own = request.context(&LIMIT_RATE).copied();
        if own.is_none() && !sending.limit_rate.is_set() {
            return;
        }
        let is_known = self.unusual.as_ref().is_some_and(|unusual| unusual.pace.is_some());
        if is_known || self.progress == Progress::HeadHeld {
            return;
        }
        let view = View::new(request, self);
        let rate = own.unwrap_or_else(|| eval_size(&sending.limit_rate, &view));
        if rate > 0 {
            let after = eval_size(&sending.limit_rate_after, &view);
            self.unusual().pace = Some(Pace::new(request.client.home, rate, after, request.started_ms));
        }
    }

    fn poll_flush(&mut self, request: &Request<'c>, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        if let Some(queue) = self.plain() {
            match queue.is_empty() {
                true => return Poll::Ready(Ok(())),
                false => match queue.poll_send_plain(request.link, cx) {
                    Poll::Ready(Ok(())) if queue.is_empty() => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(failure)) => return self.fail(failure.behind(&self.wait, request.link)),
                    // Some of it, or nothing: the wait is timed.
                    _ => {}
                },
            }
        }
        if self.failure().is_some() {
            return Poll::Ready(Err(Unsent));
        }
        if self.progress == Progress::HeadHeld {
            ready!(self.poll_head(request, cx))?;
        }
        if self.relay.is_some() || self.is_of_subrequest() {
            return self.poll_relayed(request, cx);
        }
        let mut turns_left = 1;
        loop {
            let is_busy = self.is_busy();
            if !is_busy || self.urgency == Urgency::Flushed || self.sink.len() >= BUSY_SEND_BYTES {
                ready!(self.poll_empty(request, cx))?;
            }
            if !is_busy {
                self.uncork(request.link);
                return Poll::Ready(Ok(()));
            }
            if turns_left == 0 {
                cx.waker().wake_by_ref();
                return self.poll_left(request, cx);
            }
            turns_left -= 1;
            if self.poll_resume(request, cx).is_pending() {
                return self.poll_left(request, cx);
            }
            if self.relay.is_some() {
                // What it has made led to a subrequest.
                return self.poll_relayed(request, cx);
            }
        }
    }

    /// The queue to send, if it is one buffer at most and no filter has a say in it.
    #[inline]
    fn plain(&mut self) -> Option<&mut SendQueue<'c>> {
        let Sink::Client(queue) = &mut self.sink else { return None };
        let is_plain = queue.is_plain()
            && self.filters.is_none()
            && self.unusual.is_none()
            && self.relay.is_none()
            && self.wait.is_none();
        is_plain.then_some(queue)
    }

    /// The bytes to send, if that is all of the response and closes the connection.
    pub(crate) fn last_bytes(&mut self) -> Option<usize> {
        let closes = self.connection == Connection::Close && self.progress == Progress::Complete;
        let bytes = self.plain().filter(|_| closes)?.len();
        (bytes > 0).then_some(bytes)
    }

    /// Everything is sent.
    pub(super) fn uncork(&mut self, link: Link<'_>) {
        if let Sink::Client(queue) = &mut self.sink {
            queue.uncork(link);
        }
    }

    /// Completes once the socket has taken what there is now.
    pub(super) fn poll_empty(
        &mut self,
        request: &Request<'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let sending = &request.location().core.sending;
        let start = self.sink.sent_bytes();
        while let Sink::Client(queue) = &mut self.sink
            && !queue.is_empty()
        {
            debug_assert!(start <= queue.sent_bytes(), "what was sent never shrinks");
            if queue.sent_bytes() - start >= TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            queue.cork_large_file(request.link, sending);
            match self.poll_step(request.link, sending, cx) {
                Step::Sent => {}
                Step::Failed(failure) => return self.fail(failure.behind(&self.wait, request.link)),
                Step::Resting => {
                    self.wait = None;
                    return Poll::Pending;
                }
                Step::Reading => {
                    self.wait = None;
                    return self.poll_left(request, cx);
                }
                Step::Blocked => {
                    if self.wait.is_none() || self.sink.sent_bytes() > start {
                        let timer = self.wait.get_or_insert_with(|| Timer::new(request.client.home));
                        timer.arm(request.client.home.now_ms() + *sending.send_timeout_ms);
                    }
                    let timer = self.wait.as_ref().expect("armed at the first wait");
                    ready!(timer.poll_expired(cx));
                    return self.fail(SendFailure::TimedOut);
                }
            }
        }
        self.wait = None;
        Poll::Ready(Ok(()))
    }

    fn poll_step(&mut self, link: Link<'_>, sending: &Sending, cx: &mut Context<'_>) -> Step {
        let Sink::Client(queue) = &mut self.sink else { unreachable!("nothing else is sent") };
        let mut pace = self.unusual.as_mut().and_then(|unusual| unusual.pace.as_mut());
        let before = queue.sent_bytes();
        let allowance = match &mut pace {
            Some(pace) => pace.poll_allowance(link.home(), before, cx),
            None => Poll::Ready(u64::MAX),
        };
        let Poll::Ready(limit) = allowance else {
            return match pace.map(|pace| pace.poll_left(link, cx)) {
                Some(Poll::Ready(left)) => Step::Failed(SendFailure::Left(left)),
                _ => Step::Resting,
            };
        };
        debug_assert!(limit > 0, "a pace that allows nothing rests");
        let sent = queue.poll_send(link, sending, limit, cx);
        if let Some(pace) = pace {
            pace.note_sent(link.home(), before, queue.sent_bytes());
        }
        match sent {
            Poll::Ready(Ok(())) => Step::Sent,
            Poll::Ready(Err(failure)) => Step::Failed(failure),
            Poll::Pending if queue.waits_for_pool() => Step::Reading,
            Poll::Pending => Step::Blocked,
        }
    }
}
