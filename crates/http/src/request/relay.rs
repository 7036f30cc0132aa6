//! Responses in the body of another one. What a response is made of stands in a queue from the first
//! subrequest on: chunks that may go on when everything before them has gone on, and subrequests, each of
//! which is a strand and fills a pipe of its own while it waits for its turn. Owned by the output of the
//! request.
//!
//! Memory is bounded: some subrequests at a time run ahead of their turn, each up to a full pipe, and the
//! body's producer is told to wait when the queue is long.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_message::Text;

use crate::request::Request;
use crate::request::sink::{FULL_BYTES, Pipe, PipeEnd, Sink};
use crate::request::strands::{StrandId, Strands};
use crate::request::subrequest::{Delivery, NotMade, Subrequest, SubrequestOutcome, Terminated};
use crate::request::tree::{Asked, Live};
use crate::response::chunk::{Chunk, Mark};
use crate::tables::Http;

/// How many subrequests of one parent run ahead of their turn.
const AHEAD_MAX: usize = 16;
/// How many run at a time in a request; beyond that only those whose turn it is among their siblings.
const LIVE_MAX: u32 = 64;

/// The answering of subrequests, by the engine in a higher folder.
pub(crate) trait Answering {
    /// Answers one in a strand of its own.
    fn answer<'c>(parent: &Request<'c>, wanted: Subrequest, to: Addressee<'c>) -> StrandId;
}

/// The filter or handler that has asked for a subrequest, and waits for it.
pub(crate) struct Addressee<'c> {
    pub(crate) sink: Sink<'c>,
    pub(crate) outcome: SubrequestOutcome,
    /// The type of its stub, if it has one.
    pub(crate) content_type: Option<Text<'c>>,
}

/// The relation of a response to others of its request: those in its body, and output that waits behind them.
#[derive(Default)]
pub(crate) struct Relay<'c> {
    queue: VecDeque<Piece<'c>>,
    /// Subrequests in the queue. Only the first of them have begun, so nothing else is looked at: a document
    /// may have thousands.
    children: usize,
    queued_bytes: usize,
    /// The subrequest that a filter waits for.
    awaited: Option<SubrequestOutcome>,
    past: Past,
}

/// Whether there ever were subrequests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Past {
    #[default]
    Nothing,
    Children,
}

enum Piece<'c> {
    Chunk(Chunk<'c>, Mark),
    Child(Child<'c>),
}

/// A subrequest in its place.
struct Child<'c> {
    stage: Stage,
    pipe: Arc<Pipe<'c>>,
    outcome: SubrequestOutcome,
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

/// The parent's facts for a subrequest that begins.
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
        debug_assert!(self.live.is_none(), "a subrequest begins once");
        self.live = Some(live);
        // What stands here meanwhile is nobody's.
        let begun = Stage::Begun(StrandId::ROOT);
        let Stage::Wanted(wanted) = std::mem::replace(&mut self.stage, begun) else { return };
        let sink = match wanted.delivery {
            Delivery::InOrder => Sink::Parent(PipeEnd {
                pipe: Arc::clone(&self.pipe),
                taker: parent.request.strand(),
                takes_files: parent.takes_files,
            }),
            Delivery::InMemory => Sink::Memory(self.outcome.clone()),
            Delivery::Captured { most_bytes } => Sink::Capture(self.outcome.clone(), most_bytes),
            Delivery::HeadOnly => Sink::Nowhere,
        };
        let content_type = wanted.stub.as_ref().and(parent.content_type).cloned();
        let to = Addressee { sink, outcome: self.outcome.clone(), content_type };
        self.stage = Stage::Begun(Http::answer(parent.request, wanted, to));
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

/// The next output of a queue.
pub(crate) enum Moved<'c> {
    /// The output goes on with this chunk.
    Chunk(Chunk<'c>, Mark),
    /// A subrequest is through.
    Child,
    /// No output yet.
    Waiting,
    /// There is nothing.
    Empty,
}

impl<'c> Relay<'c> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a filter waits for a subrequest.
    pub(crate) fn is_waiting(&self) -> bool {
        self.awaited.as_ref().is_some_and(|outcome| outcome.status().is_none())
    }

    /// Whether the body's producer should wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes >= FULL_BYTES || self.is_waiting()
    }

    /// Bytes in memory that wait for their turn.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn has_had_children(&self) -> bool {
        self.past == Past::Children
    }

    /// Adds a chunk that has to wait.
    pub(crate) fn queue_chunk(&mut self, chunk: Chunk<'c>, mark: Mark) {
        debug_assert!(!self.queue.is_empty(), "a chunk that nothing stands before goes on at once");
        self.queued_bytes += chunk.bytes().len();
        self.queue.push_back(Piece::Chunk(chunk, mark));
    }

    /// Adds a subrequest.
    pub(crate) fn queue_child(
        &mut self,
        request: &Request<'c>,
        wanted: Subrequest,
    ) -> Result<SubrequestOutcome, NotMade> {
        let asked = request.ask(&wanted)?;
        let outcome = SubrequestOutcome::default();
        self.queue.push_back(Piece::Child(Child {
            stage: Stage::Wanted(wanted),
            pipe: Arc::default(),
            outcome: outcome.clone(),
            _asked: asked,
            live: None,
            strands: request.strands(),
        }));
        self.children += 1;
        debug_assert!(self.children <= self.queue.len(), "each subrequest stands in the queue");
        self.past = Past::Children;
        Ok(outcome)
    }

    /// Has the body's producer wait until a subrequest has ended.
    pub(crate) fn wait_for(&mut self, outcome: SubrequestOutcome) {
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
        debug_assert!(self.children <= self.queue.len(), "each subrequest stands in the queue");
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
            None => {
                debug_assert!((self.children, self.queued_bytes) == (0, 0), "an empty queue counts nothing");
                Moved::Empty
            }
            Some(Piece::Chunk(..)) => {
                let Some(Piece::Chunk(chunk, mark)) = self.queue.pop_front() else {
                    unreachable!("it was just looked at")
                };
                assert!(chunk.bytes().len() <= self.queued_bytes, "the queue knows how much is in it");
                self.queued_bytes -= chunk.bytes().len();
                Moved::Chunk(chunk, mark)
            }
            Some(Piece::Child(child)) => match child.pop() {
                Some(chunk) => Moved::Chunk(chunk, Mark::More),
                None if child.outcome.end().is_some() => {
                    self.queue.pop_front();
                    assert!(self.children > 0, "a subrequest in the queue is counted");
                    self.children -= 1;
                    Moved::Child
                }
                None => Moved::Waiting,
            },
        }
    }
}
