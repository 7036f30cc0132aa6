//! Output with subrequests: what is behind one in the body waits in the queue of the `Relay`; and that of a
//! subrequest, which waits for its parent instead of the socket. Owned by the request's task.

use std::task::{Context, Poll};

use clearway_h1::Framing;

use super::{Next, OutputState, Progress, ResponseSource, Unsent, Urgency};
use crate::link::send_queue::SendFailure;
use crate::output::Input;
use crate::output::view::View;
use crate::request::Request;
use crate::request::relay::{Moved, Parent, Relay};
use crate::request::sink::Sink;
use crate::request::subrequest::{NotMade, Subrequest, SubrequestOutcome, Terminated};
use crate::response::chunk::{Chunk, Mark};
use clearway_message::status::internal::CLIENT_CLOSED_REQUEST;

/// How often what has its turn moves on before others of the loop have theirs.
const TURNS_MAX: u32 = 8;

/// How often filters that have put work off go on meanwhile, each time for a fraction of a millisecond.
const RESUMES_MAX: u32 = 2;

/// The state of a filter that had put work off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resumed {
    /// There is none, or it has nowhere to put it.
    Nothing,
    Something,
    /// The filter waits for something.
    Waits,
    /// The filter has used up its turns and goes on later.
    Later,
}

impl<'c> Next<'_, 'c> {
    /// The request.
    pub fn request(&self) -> &Request<'c> {
        self.request
    }

    /// The request as variables see it.
    pub fn view(&self) -> View<'_, 'c> {
        View::new(self.request, self.state)
    }

    /// Puts the response of a subrequest here; what is pushed from now on stands behind it.
    ///
    /// # Errors
    /// It could not be made; that is logged.
    pub fn subrequest(&mut self, wanted: Subrequest) -> Result<SubrequestOutcome, NotMade> {
        let relay = self.state.relay_mut();
        let outcome = relay.queue_child(self.request, wanted)?;
        if relay.may_last_begin() {
            // One that has ended the whole request is seen by what flushes the response.
            let _ = self.state.begin_children(self.request);
        }
        Ok(outcome)
    }

    /// Has the body's producer wait until a subrequest has ended. The filter keeps meanwhile what is pushed
    /// to it, and says afterwards that it is busy.
    pub fn wait_for(&mut self, outcome: &SubrequestOutcome) {
        self.state.relay_mut().wait_for(outcome.clone());
    }

    /// Ends the whole request: nothing more of the response is sent.
    pub fn terminate(&mut self) {
        let _ = self.state.fail(SendFailure::Terminated);
    }
}

impl<'c> OutputState<'c> {
    /// Whether something of it cannot be taken back.
    pub(super) fn has_passed_bytes(&self) -> bool {
        let has_had_children = || self.relay.as_ref().is_some_and(|relay| relay.has_had_children());
        self.sink.has_passed_bytes() || self.is_of_subrequest() && has_had_children()
    }

    /// Whether a subrequest has made nothing of a body.
    pub(crate) fn is_body_empty(&self) -> bool {
        !self.has_passed_bytes() && self.kept_bytes() == 0
    }

    /// Has it go on with a body, although it was empty.
    pub(crate) fn reopen(&mut self) {
        self.source = ResponseSource::Open;
        match self.progress {
            Progress::Complete => self.progress = Progress::Body,
            Progress::HeadHeld => self.reopen_kept(),
            Progress::HeadOpen | Progress::Body => {}
        }
    }

    fn relay_mut(&mut self) -> &mut Relay<'c> {
        self.relay.get_or_insert_default()
    }

    pub(super) fn is_of_subrequest(&self) -> bool {
        self.sink.is_of_subrequest()
    }

    /// How the body of a subrequest goes on: as it is, or not at all.
    pub(super) fn choose_subrequest_framing(&mut self, request: &Request<'c>) {
        if !matches!(self.sink, Sink::Nowhere) && !request.is_head() {
            self.framing = Framing::UntilClose;
        }
    }

    /// What has passed the filters before the place where bodies of subrequests come in.
    pub(super) fn postpone(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) {
        debug_assert!(self.progress == Progress::Body, "bodies of subrequests come in behind the head");
        let relay = self.relay_mut();
        if relay.is_empty() {
            self.pass_on(request, chunk, mark);
        } else {
            relay.queue_chunk(chunk, mark);
        }
    }

    /// What has its turn: through the filters behind, which a subrequest has none of.
    fn pass_on(&mut self, request: &Request<'c>, chunk: Chunk<'c>, mark: Mark) {
        debug_assert!(
            self.postpone_stage as usize <= self.filters().len(),
            "bodies of subrequests come in before a filter, or behind all"
        );
        if let Chunk::File(part) = &chunk {
            self.prepare_file(request, part);
        }
        self.push_behind(request, self.postpone_stage as usize, chunk, mark);
    }

    /// Completes once the response has gone on: to the socket or the parent, all of it if its end was made,
    /// otherwise so much that there is room for more.
    pub(super) fn poll_relayed(
        &mut self,
        request: &Request<'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let mut resumes_left = RESUMES_MAX;
        for _ in 0..TURNS_MAX {
            if let Err(Terminated(status)) = self.begin_children(request) {
                if status == CLIENT_CLOSED_REQUEST {
                    self.note_left();
                }
                return self.fail(SendFailure::Terminated);
            }
            if self.relay.as_ref().is_some_and(|relay| relay.is_child_due(request.strands())) {
                request.strands().notify(request.strand());
                return Poll::Pending;
            }
            let resumed = match resumes_left {
                0 if self.can_resume() => Resumed::Later,
                0 => Resumed::Nothing,
                _ => self.resume_relayed(request, cx),
            };
            resumes_left = resumes_left.saturating_sub(1);
            let has_moved =
                self.move_pieces(request) | matches!(resumed, Resumed::Something | Resumed::Later);
            if self.failure().is_some() {
                return Poll::Ready(Err(Unsent));
            }
            let is_relayed = self.is_relayed();
            let is_end = is_relayed && self.source == ResponseSource::Ended;
            let makes_room = !self.sink.is_empty() && (is_end || self.is_due(request));
            if makes_room && self.poll_empty(request, cx)?.is_pending() {
                return Poll::Pending;
            }
            if is_relayed {
                self.uncork(request.link);
                return Poll::Ready(Ok(()));
            }
            if !has_moved && !makes_room && resumed == Resumed::Waits {
                return self.poll_left(request, cx);
            }
            if !has_moved && !makes_room {
                // Its children look for the client while they wait, and have it go on (`Strands::notify`).
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        self.poll_left(request, cx)
    }

    /// Whether what there is should be sent, and not wait for more.
    fn is_due(&self, request: &Request<'c>) -> bool {
        let postponed_bytes = *request.location().core.sending.postpone_output_bytes;
        let is_much = self.sink.len() as u64 >= postponed_bytes || self.sink.is_full();
        is_much || self.urgency == Urgency::Flushed
    }

    fn is_relayed(&self) -> bool {
        if self.is_busy() {
            return false;
        }
        let is_empty = self.relay.as_ref().is_none_or(|relay| relay.is_empty());
        let is_waiting = self.relay.as_ref().is_some_and(|relay| relay.is_waiting());
        match self.source {
            ResponseSource::Ended => is_empty && !is_waiting,
            ResponseSource::Open if self.urgency == Urgency::Flushed => is_empty && !self.is_relay_full(),
            ResponseSource::Open => !self.is_relay_full(),
        }
    }

    /// Whether the body's producer should wait for subrequests in it, or for its parent.
    pub(super) fn is_relay_full(&self) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.is_full())
            || self.is_of_subrequest() && self.sink.is_full()
    }

    fn begin_children(&mut self, request: &Request<'c>) -> Result<(), Terminated> {
        let Some(mut relay) = self.relay.take() else { return Ok(()) };
        let behind = self.filters()[self.postpone_stage as usize..].iter().flatten();
        let takes_files =
            self.sink.takes_files() && behind.into_iter().all(|filter| filter.input() == Input::Anything);
        let content_type = self.head.content_type.as_ref();
        let begun = relay.begin_children(&Parent { request, content_type, takes_files });
        self.relay = Some(relay);
        begun
    }

    /// Moves what has its turn; whether anything had.
    fn move_pieces(&mut self, request: &Request<'c>) -> bool {
        let mut has_moved = false;
        while !self.sink.is_full() {
            let Some(relay) = &mut self.relay else { break };
            match relay.take_next() {
                Moved::Chunk(chunk, mark) => self.pass_on(request, chunk, mark),
                Moved::Child => {}
                Moved::Waiting | Moved::Empty => break,
            }
            has_moved = true;
        }
        has_moved
    }

    /// Has a filter go on that has put work off, if it can.
    fn resume_relayed(&mut self, request: &Request<'c>, cx: &mut Context<'_>) -> Resumed {
        if !self.can_resume() {
            return Resumed::Nothing;
        }
        match self.poll_resume(request, cx) {
            Poll::Ready(()) => Resumed::Something,
            Poll::Pending => Resumed::Waits,
        }
    }

    /// A filter that asks for subrequests goes on when few of them wait: a long document has few at a time.
    fn can_resume(&self) -> bool {
        let has_room = |stage| {
            let asks = stage < self.postpone_stage as usize;
            !asks || !self.relay.as_ref().is_some_and(|relay| relay.has_many_children())
        };
        self.last_busy().is_some_and(has_room) && !self.sink.is_full()
    }
}
