//! Heads that wait. A header filter that cannot say yet what it wants holds the head: nothing of the response
//! is sent, what is pushed meanwhile is kept in order, and its producer is told to wait where that becomes
//! much. What is waited for is asked by whatever sends the response, and once it has come the other filters
//! see the head. Owned by the request's task.
//!
//! While it is held the response can be replaced: by what the filter wants instead, or by an error of the
//! handler that makes it. A client that leaves is noticed.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use super::{BodyFilter, Filtering, HeaderFilter, OutputState, Progress, ResponseSource, Unsent};
use crate::request::Request;
use crate::request::sink::FULL_BYTES;
use crate::response::chunk::{Chunk, Mark};

/// The wait of a header filter.
pub trait Hold<'c>: Send {
    /// Pending until that has come, of which the context is woken; it may be asked again before. Then it does
    /// to the head what a header filter does, which may be to hold it once more.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        filtering: &mut Filtering<'_, 'c>,
    ) -> Poll<Option<Box<dyn BodyFilter + 'c>>>;
}

/// A head that is held, and what is to follow it.
#[derive(Default)]
pub(super) struct HeldHead<'c> {
    /// Away while it is asked, and gone when it has let the head go.
    until: Option<Box<dyn Hold<'c> + 'c>>,
    unasked: Unasked<'c>,
    chunks: VecDeque<(Chunk<'c>, Mark)>,
    /// In memory.
    kept_bytes: usize,
}

/// The filters that have not seen a head.
#[derive(Clone, Copy, Default)]
pub(super) enum Unasked<'c> {
    #[default]
    None,
    /// These, and then those behind the place where bodies of subrequests come in.
    Before(&'c [HeaderFilter], &'c [HeaderFilter]),
    /// These of those behind.
    Behind(&'c [HeaderFilter]),
}

impl<'c> HeldHead<'c> {
    pub(super) fn is_waiting(&self) -> bool {
        self.until.is_some()
    }
}

impl<'c> Filtering<'_, 'c> {
    /// Holds the head, and with it the response, until what the filter waits for has come. Filters behind it
    /// see the head then. Until then [`Output::takes_files`](super::Output::takes_files) says that bytes are
    /// wanted, since nobody knows which filter will look at them.
    pub fn hold(&mut self, until: impl Hold<'c> + 'c) {
        let held = self.output.unusual().held.get_or_insert_default();
        held.until = Some(Box::new(until));
    }
}

impl<'c> OutputState<'c> {
    fn held_mut(&mut self) -> Option<&mut HeldHead<'c>> {
        self.unusual.as_mut()?.held.as_deref_mut()
    }

    /// A filter has refused the response, or holds its head.
    #[cold]
    pub(super) fn stop_head(&mut self, unasked: Unasked<'c>) {
        if self.is_refused() {
            return self.drop_held();
        }
        debug_assert!(
            matches!(self.progress, Progress::HeadOpen | Progress::HeadHeld),
            "a head that is sent cannot be held"
        );
        self.progress = Progress::HeadHeld;
        if let Some(held) = self.held_mut() {
            held.unasked = unasked;
        }
    }

    /// Keeps what stands behind the head.
    #[cold]
    pub(super) fn keep_behind_head(&mut self, chunk: Chunk<'c>, mark: Mark) {
        debug_assert!(self.progress == Progress::HeadHeld, "what follows a head that is sent is not kept");
        debug_assert!(!matches!(chunk, Chunk::File(_)), "behind a head that is held bytes are wanted");
        let Some(held) = self.held_mut() else { return };
        held.kept_bytes += chunk.bytes().len();
        held.chunks.push_back((chunk, mark));
    }

    /// What is kept goes on although it had an end.
    #[cold]
    pub(super) fn reopen_kept(&mut self) {
        let Some(held) = self.held_mut() else { return };
        held.chunks.retain(|(_, mark)| *mark != Mark::Last);
    }

    /// Bytes that are kept behind a held head.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unusual.as_ref().and_then(|unusual| unusual.held.as_ref()).map_or(0, |held| held.kept_bytes)
    }

    /// Whether the body's producer should wait for the head.
    #[inline]
    pub(super) fn is_held_full(&self) -> bool {
        self.progress == Progress::HeadHeld && self.kept_bytes() >= FULL_BYTES
    }

    /// Forgets a response whose head is held: another one takes its place.
    #[inline]
    pub(crate) fn take_back(&mut self) {
        if self.progress == Progress::HeadHeld {
            self.drop_held();
        }
    }

    #[cold]
    pub(super) fn drop_held(&mut self) {
        (self.filters, self.postpone_stage) = (None, 0);
        (self.progress, self.source) = (Progress::HeadOpen, ResponseSource::Open);
        self.unusual().held = None;
    }

    /// Ready when the head is let go, and everything that was kept has followed it. The error is also that
    /// the filter wants something else to be answered.
    pub(super) fn poll_head(
        &mut self,
        request: &Request<'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        while let Some(mut until) = self.held_mut().and_then(|held| held.until.take()) {
            let Poll::Ready(filter) = until.poll(cx, &mut Filtering { request, output: self }) else {
                if let Some(held) = self.held_mut() {
                    held.until.get_or_insert(until);
                }
                // Hints, and that the client may send its body.
                if !self.sink.is_empty() {
                    ready!(self.poll_empty(request, cx))?;
                }
                return self.poll_left(request, cx);
            };
            self.add_filter(filter);
            let unasked = self.held_mut().map(|held| held.unasked).unwrap_or_default();
            if self.is_stopped() {
                self.stop_head(unasked);
            } else {
                self.ask_filters(request, unasked);
            }
            if self.progress == Progress::HeadOpen {
                return Poll::Ready(Err(Unsent));
            }
        }
        self.let_go(request);
        Poll::Ready(Ok(()))
    }

    /// The head is on its way: what was kept follows it.
    fn let_go(&mut self, request: &Request<'c>) {
        let Some(held) = self.unusual.as_mut().and_then(|unusual| unusual.held.take()) else { return };
        debug_assert!(!held.is_waiting(), "nothing waits that the head is held for");
        debug_assert!(self.progress != Progress::HeadHeld, "the head is on its way");
        if self.source == ResponseSource::Ended {
            self.make_trailers(request);
        }
        if request.is_main() {
            self.set_pace(request);
        }
        for (chunk, mark) in held.chunks {
            self.push(request, 0, chunk, mark);
        }
    }
}
