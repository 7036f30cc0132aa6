//! The filters by which modules change a response on its way out: header filters, which see the head before
//! it is sent, and the chain of body filters that they add. Owned by the request's task.

use std::task::{Context, Poll};

use clearway_message::{Known, Ranges, ResponseHead, Text};

use super::{OutputState, Progress, Sequel, Urgency};
use crate::link::Link;
use crate::output::view::View;
use crate::request::Request;
use crate::request::answer::Answer;
use crate::response::chunk::{Chunk, Mark};

/// The input that a body filter wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes, to look at or to change.
    Bytes,
    /// Whatever comes, parts of files too: it counts and cuts, and looks at nothing.
    Anything,
}

/// Changes a body on its way out. One instance serves one response.
pub trait BodyFilter: Send {
    /// The input that it wants.
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

    /// The same for a filter that waits for something: pending until that has come, of which the context is
    /// woken, and not asked again before. It [is busy](Self::is_busy) meanwhile.
    fn poll_resume(&mut self, _: &mut Context<'_>, next: &mut Next<'_, '_>) -> Poll<()> {
        self.resume(next);
        Poll::Ready(())
    }

    /// The sizes before and after compression, if it compresses.
    fn compression(&self) -> Option<Compression> {
        None
    }
}

/// The size of a compressed body so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Bytes that were to be compressed.
    pub taken_bytes: u64,
    /// Bytes that came out.
    pub made_bytes: u64,
}

/// Looks at a response before its head is sent, may change the head, and may add a body filter.
pub type HeaderFilter = for<'c> fn(&mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>>;

/// One of the lines that follow a body that is sent in chunks, by its number, as a module works it out when
/// the body has come to its end and those before it are among what variables see. One without a value is not
/// sent; `None`: there are no more.
pub type Trailers = for<'c> fn(&View<'_, 'c>, usize) -> Option<(&'c [u8], Text<'c>)>;

/// A response in the hands of a header filter.
pub struct Filtering<'a, 'c> {
    /// The request.
    pub request: &'a Request<'c>,
    pub(super) output: &'a mut OutputState<'c>,
}

impl<'c> Filtering<'_, 'c> {
    /// The head that is about to be sent.
    pub fn head(&mut self) -> &mut ResponseHead<'c> {
        &mut self.output.head
    }

    /// The request as variables see it.
    pub fn view(&self) -> View<'_, 'c> {
        View::new(self.request, self.output)
    }

    /// Has `Server` or `Date` not be written but where it stands among the other lines.
    pub fn replace_own_line(&mut self, known: Known) {
        self.output.unusual().replaced |= known.bit();
    }

    /// Whether the body filters so far take parts of files.
    pub fn takes_files(&self) -> bool {
        self.output.takes_files()
    }

    /// Has trailers sent behind the body, which is sent in chunks for that where the client understands
    /// them.
    pub fn expect_trailers(&mut self, trailers: Trailers) {
        self.output.trailers.get_or_insert_default().trailers = Some(trailers);
    }

    /// Has the engine answer with a status instead of this response; no other filter sees it.
    pub fn refuse(&mut self, status: u16) {
        self.output.unusual().refusal = Some(Answer::Status(status));
    }

    /// The same, and closes the connection behind the answer, which does not say so: what nginx does after
    /// a 412. One that carries several requests at once goes on.
    pub fn refuse_and_close(&mut self, status: u16) {
        self.refuse(status);
        if matches!(self.request.link, Link::Http1(_)) {
            self.output.unusual().sequel = Sequel::None;
        }
    }

    /// Has the engine close the connection instead; the status of this response is for the log.
    pub fn abandon(&mut self) {
        self.output.unusual().refusal = Some(Answer::Abandon(self.output.head.status));
    }
}

/// Where a body filter passes chunks on.
pub struct Next<'a, 'c> {
    pub(super) state: &'a mut OutputState<'c>,
    pub(super) request: &'a Request<'c>,
    stage: usize,
}

impl<'c> Next<'_, 'c> {
    /// To the next filter, or to the peer.
    pub fn push(&mut self, chunk: Chunk<'c>, mark: Mark) {
        self.state.push(self.request, self.stage, chunk, mark);
    }

    /// Says that what is pushed from now on begins at this byte of the body. What stands before it and was
    /// not pushed is left out: filters that cut parts out count on from there.
    pub fn skip_to(&mut self, byte: u64) {
        self.state.head.ranges = Ranges::OneFrom(byte);
    }

    /// The head, as all header filters have left it.
    pub fn head(&self) -> &ResponseHead<'c> {
        &self.state.head
    }
}

/// The body filters of a response in their order; each is away while it is at work.
#[derive(Default)]
pub(super) struct Filters<'c>(pub(super) Vec<Option<Box<dyn BodyFilter + 'c>>>);

impl<'c> OutputState<'c> {
    pub(super) fn takes_files(&self) -> bool {
        let all_take = self.filters().iter().flatten().all(|filter| filter.input() == Input::Anything);
        all_take && self.sink.takes_files() && self.progress != Progress::HeadHeld
    }

    pub(super) fn filters(&self) -> &[Option<Box<dyn BodyFilter + 'c>>] {
        self.filters.as_ref().map_or(&[], |filters| &filters.0)
    }

    pub(super) fn filters_mut(&mut self) -> &mut [Option<Box<dyn BodyFilter + 'c>>] {
        self.filters.as_mut().map_or(&mut [], |filters| &mut filters.0)
    }

    /// Whether a filter has put work off.
    pub(super) fn is_busy(&self) -> bool {
        self.filters().iter().flatten().any(|filter| filter.is_busy())
    }

    /// The stage of the last filter that has put work off.
    pub(super) fn last_busy(&self) -> Option<usize> {
        self.filters().iter().rposition(|filter| filter.as_ref().is_some_and(|filter| filter.is_busy()))
    }

    /// The sizes before and after compression.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.filters().iter().flatten().find_map(|filter| filter.compression())
    }

    /// Has the last filter that has put work off go on with it: what those before it make has nowhere to go
    /// yet. Pending where it waits for something.
    pub(super) fn poll_resume(&mut self, request: &Request<'c>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stage) = self.last_busy() else { return Poll::Ready(()) };
        let mut filter = self.filters_mut()[stage].take().expect("it is busy");
        let resumed = filter.poll_resume(cx, &mut Next { state: self, request, stage: stage + 1 });
        debug_assert!(self.filters()[stage].is_none(), "the place of a filter at work stays free");
        self.filters_mut()[stage] = Some(filter);
        resumed
    }

    pub(super) fn add_filter(&mut self, filter: Option<Box<dyn BodyFilter + 'c>>) {
        debug_assert!(
            filter.is_none() || matches!(self.progress, Progress::HeadOpen | Progress::HeadHeld),
            "filters come before the body"
        );
        if let Some(filter) = filter {
            self.filters.get_or_insert_default().0.push(Some(filter));
        }
    }

    /// Gives a chunk to the filter of a stage, or to the framing behind the last one.
    pub(super) fn push(&mut self, request: &Request<'c>, stage: usize, chunk: Chunk<'c>, mark: Mark) {
        if self.progress != Progress::Body || self.is_bodiless() {
            if self.progress == Progress::HeadHeld {
                return self.keep_behind_head(chunk, mark);
            }
            match mark {
                Mark::Last if !self.is_refused() => self.progress = Progress::Complete,
                // A head that has no body leaves all the same.
                Mark::Flush if self.progress == Progress::Body => self.urgency = Urgency::Flushed,
                _ => {}
            }
            return;
        }
        if self.filters.is_none() && self.relay.is_none() {
            self.frame(request, chunk, mark);
        } else if self.relay.is_some() && stage == self.postpone_stage as usize {
            self.postpone(request, chunk, mark);
        } else {
            self.push_behind(request, stage, chunk, mark);
        }
    }

    pub(super) fn push_behind(&mut self, request: &Request<'c>, stage: usize, chunk: Chunk<'c>, mark: Mark) {
        match self.filters_mut().get_mut(stage).map(Option::take) {
            Some(filter) => {
                let mut filter = filter.expect("a filter passes chunks on to later stages only");
                filter.push(chunk, mark, &mut Next { state: self, request, stage: stage + 1 });
                debug_assert!(self.filters()[stage].is_none(), "the place of a filter at work stays free");
                self.filters_mut()[stage] = Some(filter);
            }
            None => self.frame(request, chunk, mark),
        }
    }
}
