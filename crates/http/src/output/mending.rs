//! Bytes of a file that could not be read while it was sent: what comes from elsewhere takes their place, and
//! what stands behind them goes on then. Owned by the request's task.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Output, OutputState};
use crate::link::send_queue::SendFailure;
use crate::request::Request;
use crate::request::sink::Sink;
use crate::response::chunk::{Chunk, Mark, Pushed};

/// A missing part of a response of which all else is there.
pub(super) struct Gap<'c> {
    /// How much is missing still, bytes.
    left: u64,
    /// The chunks behind it.
    behind: VecDeque<Chunk<'c>>,
}

impl<'c> Output<'_, 'c> {
    /// After a failure to send: the bytes of the file, counted from its beginning, that could not be read, if
    /// that was what has failed; it is logged. What is written from now on, up to `Mark::Last`, is sent in
    /// their place as it is, past all filters, and then what stands behind them. A handler that ends before
    /// has the response cut. `None` where something else has failed, or filters look at the bytes.
    pub fn begin_mending(&mut self, request: &Request<'c>) -> Option<Range<u64>> {
        self.state.begin_mending(request)
    }
}

impl<'c> OutputState<'c> {
    fn begin_mending(&mut self, request: &Request<'c>) -> Option<Range<u64>> {
        let is_of_file =
            matches!(self.failure(), Some(SendFailure::File(failure, _)) if failure.is_of_file());
        if !is_of_file {
            return None;
        }
        self.uncork(request.link);
        let Sink::Client(queue) = &mut self.sink else { return None };
        let (part, behind) = queue.take_from_file()?;
        self.log_failure(request);
        let unusual = self.unusual();
        debug_assert!(unusual.gap.is_none(), "one gap at a time is mended");
        unusual.failure = None;
        unusual.gap = Some(Box::new(Gap { left: part.len(), behind }));
        Some(part.start()..part.start() + part.len())
    }

    /// Whether something is missing in the middle.
    pub(super) fn has_gap(&self) -> bool {
        self.unusual.as_ref().is_some_and(|unusual| unusual.gap.is_some())
    }

    /// Takes what is missing.
    #[cold]
    pub(super) fn fill_gap(&mut self, request: &Request<'c>, mut chunk: Chunk<'c>, mark: Mark) -> Pushed {
        let Some(gap) = &mut self.unusual().gap else { return Pushed::Sent };
        chunk.truncate(gap.left);
        assert!(chunk.len() <= gap.left, "no more is mended than is missing");
        gap.left -= chunk.len();
        let is_filled = gap.left == 0 && mark == Mark::Last;
        if let Sink::Client(queue) = &mut self.sink {
            queue.push(chunk);
        }
        let filled = if is_filled { self.unusual().gap.take() } else { None };
        for chunk in filled.into_iter().flat_map(|gap| gap.behind) {
            if let Chunk::File(part) = &chunk {
                self.prepare_file(request, part);
            }
            if let Sink::Client(queue) = &mut self.sink {
                queue.push(chunk);
            }
        }
        if self.is_full() { Pushed::Full } else { Pushed::Sent }
    }
}
