//! Where a response goes behind its filters: that of a client is framed and waits in a queue for what carries
//! the request, HTTP/1 or a stream; that of a subrequest goes as it is into a pipe that its parent empties,
//! or into memory. Owned by the output of the request.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_base::log::Level;
use clearway_runtime::{Entered, TaskCell};

use crate::link::send_queue::SendQueue;
use crate::request::Request;
use crate::request::strands::StrandId;
use crate::request::subrequest::{SUBREQUEST_CONF, SubrequestOutcome, Terminated};
use crate::response::chunk::Chunk;

/// Bytes that a pipe holds before its filler has to wait.
pub(crate) const FULL_BYTES: usize = 64 * 1024;

/// Where a response goes behind its filters.
pub(crate) enum Sink<'c> {
    /// The output goes to the client.
    Client(SendQueue<'c>),
    /// The output goes to its place in the body of the parent.
    Parent(PipeEnd<'c>),
    /// Nowhere: the asking request finds it here.
    Memory(SubrequestOutcome),
    /// In memory, with a limit of its own, bytes.
    Capture(SubrequestOutcome, u64),
    /// The response has no body.
    Nowhere,
}

/// Functions of all sinks.
impl<'c> Sink<'c> {
    /// Takes a chunk that needs no framing.
    #[inline]
    pub(crate) fn push(
        &mut self,
        request: &Request<'c>,
        chunk: Chunk<'c>,
        content_length: Option<u64>,
    ) -> Result<(), Terminated> {
        match self {
            Self::Client(queue) => queue.push(chunk),
            Self::Parent(end) => end.push(request, chunk),
            Self::Memory(outcome) => return keep(outcome, request, &chunk, content_length),
            Self::Capture(outcome, most_bytes) => {
                if !outcome.keep(chunk.bytes(), *most_bytes) {
                    let line = format_args!("too big captured response, more than {most_bytes} bytes");
                    request.log(Level::Error, line);
                    return Err(Terminated(0));
                }
            }
            Self::Nowhere => {}
        }
        Ok(())
    }

    /// Whether a producer should wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Client(queue) => queue.is_full(),
            Self::Parent(end) => end.pipe.is_full(),
            Self::Memory(_) | Self::Capture(..) | Self::Nowhere => false,
        }
    }

    /// Whether nothing waits to be sent by the response itself.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Client(queue) => queue.is_empty(),
            Self::Parent(_) | Self::Memory(_) | Self::Capture(..) | Self::Nowhere => true,
        }
    }

    /// Bytes in memory that wait for the client, or the parent.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Client(queue) => queue.len(),
            Self::Parent(end) => end.pipe.state().bytes,
            Self::Memory(_) | Self::Capture(..) | Self::Nowhere => 0,
        }
    }

    /// Bytes that the link has taken so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.client().map_or(0, SendQueue::sent_bytes)
    }

    /// Whether parts of files can go on.
    pub(crate) fn takes_files(&self) -> bool {
        match self {
            Self::Client(_) | Self::Nowhere => true,
            Self::Parent(end) => end.takes_files,
            Self::Memory(_) | Self::Capture(..) => false,
        }
    }

    /// Whether something has come here that cannot be taken back.
    pub(crate) fn has_passed_bytes(&self) -> bool {
        match self {
            Self::Client(queue) => queue.sent_bytes() > 0,
            Self::Parent(end) => end.pipe.state().passed == Passed::Bytes,
            Self::Memory(outcome) | Self::Capture(outcome, _) => outcome.has_body(),
            Self::Nowhere => false,
        }
    }

    /// Drops what has not gone on; a parent may have taken it.
    pub(crate) fn drop_rest(&mut self) {
        if let Self::Client(queue) = self {
            queue.drop_rest();
        }
    }

    pub(crate) fn is_of_subrequest(&self) -> bool {
        !matches!(self, Self::Client(_))
    }

    /// The queue for what is framed, if there is one.
    #[inline]
    pub(crate) fn client(&self) -> Option<&SendQueue<'c>> {
        match self {
            Self::Client(queue) => Some(queue),
            Self::Parent(_) | Self::Memory(_) | Self::Capture(..) | Self::Nowhere => None,
        }
    }

    /// The client's queue, to be changed.
    #[inline]
    pub(crate) fn client_mut(&mut self) -> Option<&mut SendQueue<'c>> {
        match self {
            Self::Client(queue) => Some(queue),
            Self::Parent(_) | Self::Memory(_) | Self::Capture(..) | Self::Nowhere => None,
        }
    }
}

/// As in nginx, what is kept in memory may not be longer than was announced, even if it was filtered.
fn keep(
    outcome: &SubrequestOutcome,
    request: &Request<'_>,
    chunk: &Chunk<'_>,
    content_length: Option<u64>,
) -> Result<(), Terminated> {
    let limit_bytes = *request.conf(&SUBREQUEST_CONF).output_buffer_bytes;
    let most_bytes = match content_length {
        Some(bytes) if bytes > limit_bytes => 0,
        Some(bytes) => bytes,
        None => limit_bytes,
    };
    if outcome.keep(chunk.bytes(), most_bytes) {
        return Ok(());
    }
    let announced = content_length.filter(|&bytes| bytes > limit_bytes);
    let announced = announced.map(|bytes| format!(": {bytes}")).unwrap_or_default();
    request.log(Level::Error, format_args!("too big subrequest response{announced}"));
    Err(Terminated(0))
}

/// Output of a subrequest that its parent has not taken yet.
#[derive(Default)]
pub(crate) struct Pipe<'c>(TaskCell<PipeState<'c>>);

#[derive(Default)]
struct PipeState<'c> {
    chunks: VecDeque<Chunk<'c>>,
    /// In memory.
    bytes: usize,
    files: usize,
    passed: Passed,
}

/// Whether anything was ever pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Passed {
    #[default]
    Nothing,
    Bytes,
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
        state.passed = Passed::Bytes;
        state.chunks.push_back(chunk);
    }

    pub(crate) fn pop(&self) -> Option<Chunk<'c>> {
        let mut state = self.state();
        let chunk = state.chunks.pop_front()?;
        assert!(chunk.bytes().len() <= state.bytes, "a pipe knows how much is in it");
        state.bytes -= chunk.bytes().len();
        state.files -= usize::from(matches!(chunk, Chunk::File(_)));
        debug_assert!(
            !state.chunks.is_empty() || (state.bytes, state.files) == (0, 0),
            "an empty pipe counts nothing"
        );
        Some(chunk)
    }

    pub(crate) fn is_full(&self) -> bool {
        let state = self.state();
        state.bytes >= FULL_BYTES || state.files > 0
    }
}

/// The end of a pipe that a subrequest fills.
pub(crate) struct PipeEnd<'c> {
    pub(crate) pipe: Arc<Pipe<'c>>,
    /// The strand that empties it.
    pub(crate) taker: StrandId,
    /// Whether that takes parts of files.
    pub(crate) takes_files: bool,
}

impl<'c> PipeEnd<'c> {
    fn push(&self, request: &Request<'c>, chunk: Chunk<'c>) {
        debug_assert!(
            self.takes_files || !matches!(chunk, Chunk::File(_)),
            "a parent that looks at bytes gets no parts of files"
        );
        self.pipe.push(chunk);
        request.strands().notify(self.taker);
    }
}
