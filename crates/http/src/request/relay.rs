//! Responses in the body of another one. What a response is made of stands in a queue from the first
//! subrequest on: chunks that may go on when everything before them has gone on, and subrequests, each of
//! which is a strand and fills a pipe of its own while it waits for its turn. Owned by the output of the
//! request.
//!
//! Memory is bounded: some subrequests at a time run ahead of their turn, each up to a full pipe, and who
//! makes the body is told to wait when the queue is long.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_base::log::Level;
use clearway_message::Text;
use clearway_runtime::{Entered, TaskCell};

use crate::request::Request;
use crate::request::strands::{StrandId, Strands};
use crate::request::subrequest::{Delivery, NotMade, Outcome, SUBREQUEST_CONF, Subrequest, Terminated};
use crate::request::tree::{Asked, Live};
use crate::response::chunk::{Chunk, Mark};
use crate::tables::Http;

/// What a pipe or a queue holds before who fills it has to wait, bytes.
const FULL_BYTES: usize = 64 * 1024;
/// How many subrequests of one parent run ahead of their turn.
const AHEAD_MAX: usize = 16;
/// How many run at a time in a request; beyond that only those whose turn it is among their siblings.
const LIVE_MAX: u32 = 64;

/// What answers subrequests: the engine, which stands above.
pub(crate) trait Answering {
    /// Answers one in a strand of its own.
    fn answer<'c>(parent: &Request<'c>, wanted: Subrequest, sink: Sink<'c>) -> StrandId;
}

/// Where the body of a subrequest goes.
#[derive(Default)]
pub(crate) struct Sink<'c> {
    /// To the parent.
    pipe: Option<Arc<Pipe<'c>>>,
    /// What takes it from there.
    taker: StrandId,
    outcome: Outcome,
    takes_files: bool,
    /// The parent's.
    content_type: Option<Text<'c>>,
}

impl Sink<'_> {
    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    pub(crate) fn content_type(&self) -> Option<&[u8]> {
        self.content_type.as_deref()
    }
}

/// What a subrequest has made and its parent not taken.
#[derive(Default)]
struct Pipe<'c>(TaskCell<PipeState<'c>>);

#[derive(Default)]
struct PipeState<'c> {
    chunks: VecDeque<Chunk<'c>>,
    /// In memory.
    bytes: usize,
    files: usize,
}

impl<'c> Pipe<'c> {
    fn state(&self) -> Entered<'_, PipeState<'c>> {
        self.0.enter()
    }

    fn push(&self, chunk: Chunk<'c>) {
        if chunk.is_empty() {
            return;
        }
        let mut state = self.state();
        state.bytes += chunk.bytes().len();
        state.files += usize::from(matches!(chunk, Chunk::File(_)));
        state.chunks.push_back(chunk);
    }

    fn pop(&self) -> Option<Chunk<'c>> {
        let mut state = self.state();
        let chunk = state.chunks.pop_front()?;
        state.bytes -= chunk.bytes().len();
        state.files -= usize::from(matches!(chunk, Chunk::File(_)));
        Some(chunk)
    }

    fn is_full(&self) -> bool {
        let state = self.state();
        state.bytes >= FULL_BYTES || state.files > 0
    }
}

/// What a response has to do with others of its request.
#[derive(Default)]
pub(crate) struct Relay<'c> {
    /// Of a subrequest: where its body goes.
    sink: Option<(Sink<'c>, Delivery)>,
    queue: VecDeque<Piece<'c>>,
    /// Subrequests in the queue. Only the first of them have begun, so nothing else is looked at: a document
    /// may have thousands.
    children: usize,
    queued_bytes: usize,
    /// What a filter waits for before it goes on.
    awaited: Option<Outcome>,
    /// Whether something of the body has passed.
    passed: Passed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passed {
    #[default]
    Nothing,
    Bytes,
}

enum Piece<'c> {
    Chunk(Chunk<'c>, Mark),
    Child(Child<'c>),
}

/// A subrequest in its place.
struct Child<'c> {
    stage: Stage,
    pipe: Arc<Pipe<'c>>,
    outcome: Outcome,
    _asked: Asked<'c>,
    /// Once it has begun.
    live: Option<Live<'c>>,
    strands: &'c Strands<'c>,
}

enum Stage {
    Wanted(Subrequest),
    Begun(StrandId),
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        if let Stage::Begun(strand) = self.stage
            && self.outcome.end().is_none()
        {
            self.strands.drop_strand(strand);
        }
    }
}

/// What the parent is to a subrequest that begins.
pub(crate) struct Parent<'a, 'c> {
    pub(crate) request: &'a Request<'c>,
    pub(crate) content_type: Option<&'a Text<'c>>,
    pub(crate) takes_files: bool,
}

impl<'c> Child<'c> {
    /// Begins, unless there are too many already.
    fn begin(&mut self, parent: &Parent<'_, 'c>, most_live: u32) {
        let Stage::Wanted(_) = &self.stage else { return };
        let Some(live) = parent.request.tree().begin(most_live) else { return };
        self.live = Some(live);
        // What stands here meanwhile is nobody's.
        let begun = Stage::Begun(StrandId::ROOT);
        let Stage::Wanted(wanted) = std::mem::replace(&mut self.stage, begun) else { return };
        let sink = Sink {
            pipe: Some(Arc::clone(&self.pipe)),
            taker: parent.request.strand(),
            outcome: self.outcome.clone(),
            takes_files: parent.takes_files,
            content_type: wanted.stub.as_ref().and(parent.content_type).cloned(),
        };
        self.stage = Stage::Begun(Http::answer(parent.request, wanted, sink));
    }

    /// Takes a piece of its body; if it has waited for room, it goes on.
    fn pop(&mut self) -> Option<Chunk<'c>> {
        let was_full = self.pipe.is_full();
        let chunk = self.pipe.pop()?;
        if was_full
            && let Stage::Begun(strand) = self.stage
            && self.outcome.end().is_none()
        {
            self.strands.notify(strand);
        }
        Some(chunk)
    }
}

/// What comes next of a queue.
pub(crate) enum Moved<'c> {
    /// This goes on.
    Chunk(Chunk<'c>, Mark),
    /// A subrequest is through.
    Child,
    /// Nothing yet.
    Waiting,
    /// There is nothing.
    Empty,
}

impl<'c> Relay<'c> {
    pub(crate) fn of_subrequest(sink: Sink<'c>, delivery: Delivery) -> Self {
        Self { sink: Some((sink, delivery)), ..Self::default() }
    }

    pub(crate) fn is_of_subrequest(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether the body of a subrequest is of no interest.
    pub(crate) fn is_head_only(&self) -> bool {
        matches!(self.sink, Some((_, Delivery::HeadOnly)))
    }

    /// Whether what the response goes to takes parts of files; none where it is no subrequest.
    pub(crate) fn sink_takes_files(&self) -> Option<bool> {
        self.sink.as_ref().map(|(sink, _)| sink.takes_files)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a filter waits for a subrequest.
    pub(crate) fn is_waiting(&self) -> bool {
        self.awaited.as_ref().is_some_and(|outcome| outcome.status().is_none())
    }

    /// Whether who makes the body should wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes >= FULL_BYTES || self.is_waiting() || self.is_sink_full()
    }

    /// Whether a subrequest has made more than its parent has taken.
    pub(crate) fn is_sink_full(&self) -> bool {
        self.sink.as_ref().and_then(|(sink, _)| sink.pipe.as_ref()).is_some_and(|pipe| pipe.is_full())
    }

    /// What waits for its turn, and what of a subrequest its parent has not taken, bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let pipe = self.sink.as_ref().and_then(|(sink, _)| sink.pipe.as_ref());
        self.queued_bytes + pipe.map_or(0, |pipe| pipe.state().bytes)
    }

    pub(crate) fn has_passed_bytes(&self) -> bool {
        self.passed == Passed::Bytes
    }

    /// Adds a chunk that has to wait.
    pub(crate) fn queue_chunk(&mut self, chunk: Chunk<'c>, mark: Mark) {
        self.queued_bytes += chunk.bytes().len();
        self.queue.push_back(Piece::Chunk(chunk, mark));
    }

    /// Adds a subrequest.
    pub(crate) fn queue_child(
        &mut self,
        request: &Request<'c>,
        wanted: Subrequest,
    ) -> Result<Outcome, NotMade> {
        let asked = request.ask(&wanted)?;
        let outcome = Outcome::default();
        self.queue.push_back(Piece::Child(Child {
            stage: Stage::Wanted(wanted),
            pipe: Arc::default(),
            outcome: outcome.clone(),
            _asked: asked,
            live: None,
            strands: request.strands(),
        }));
        self.children += 1;
        self.passed = Passed::Bytes;
        Ok(outcome)
    }

    /// Has who makes the body wait until a subrequest has ended.
    pub(crate) fn wait_for(&mut self, outcome: Outcome) {
        self.awaited = Some(outcome);
    }

    /// Begins subrequests: the first one, and some ahead of their turn. The error is that one of them
    /// has ended the whole request.
    pub(crate) fn begin_children(&mut self, parent: &Parent<'_, 'c>) -> Result<(), Terminated> {
        let mut most_live = u32::MAX;
        let first = self.first_children();
        let children = self.queue.iter_mut().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Chunk(..) => None,
        });
        for child in children.take(first) {
            match child.outcome.end() {
                Some(end) => drop(end?),
                None => child.begin(parent, most_live),
            }
            most_live = LIVE_MAX;
        }
        Ok(())
    }

    /// How many subrequests of the queue have begun, or are the next to begin.
    fn first_children(&self) -> usize {
        self.children.min(AHEAD_MAX)
    }

    /// Whether the last subrequest of the queue is one that may begin.
    pub(crate) fn may_last_begin(&self) -> bool {
        self.children <= AHEAD_MAX
    }

    /// Whether there are enough for the next ones to begin at any time.
    pub(crate) fn has_many_children(&self) -> bool {
        self.children > AHEAD_MAX
    }

    /// Whether one of those that have begun is going to be polled.
    pub(crate) fn is_child_due(&self, strands: &Strands<'c>) -> bool {
        let children = self.queue.iter().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Chunk(..) => None,
        });
        strands.is_any_notified(children.take(self.first_children()).filter_map(|child| match child.stage {
            Stage::Begun(strand) if child.outcome.end().is_none() => Some(strand),
            _ => None,
        }))
    }

    /// Takes what comes next.
    pub(crate) fn take_next(&mut self) -> Moved<'c> {
        match self.queue.front_mut() {
            None => Moved::Empty,
            Some(Piece::Chunk(..)) => {
                let Some(Piece::Chunk(chunk, mark)) = self.queue.pop_front() else {
                    unreachable!("it was just looked at")
                };
                self.queued_bytes -= chunk.bytes().len();
                Moved::Chunk(chunk, mark)
            }
            Some(Piece::Child(child)) => match child.pop() {
                Some(chunk) => Moved::Chunk(chunk, Mark::More),
                None if child.outcome.end().is_some() => {
                    self.queue.pop_front();
                    self.children -= 1;
                    Moved::Child
                }
                None => Moved::Waiting,
            },
        }
    }

    /// Gives the parent a piece of the body of a subrequest.
    /// As in nginx, what is kept in memory may not be longer than was announced, even if it was filtered.
    pub(crate) fn deliver(
        &mut self,
        request: &Request<'c>,
        chunk: Chunk<'c>,
        content_length: Option<u64>,
    ) -> Result<(), Terminated> {
        if !chunk.is_empty() {
            self.passed = Passed::Bytes;
        }
        let limit_bytes = *request.conf(&SUBREQUEST_CONF).output_buffer_bytes;
        let most_bytes = match content_length {
            Some(bytes) if bytes > limit_bytes => 0,
            Some(bytes) => bytes,
            None => limit_bytes,
        };
        match &self.sink {
            Some((Sink { pipe: Some(pipe), taker, .. }, Delivery::InOrder)) => {
                pipe.push(chunk);
                request.strands().notify(*taker);
            }
            Some((Sink { outcome, .. }, Delivery::InMemory)) if !outcome.keep(chunk.bytes(), most_bytes) => {
                let announced = content_length.filter(|&bytes| bytes > limit_bytes);
                let announced = announced.map(|bytes| format!(": {bytes}")).unwrap_or_default();
                request.log(Level::Error, format_args!("too big subrequest response{announced}"));
                return Err(Terminated(0));
            }
            _ => {}
        }
        Ok(())
    }
}
