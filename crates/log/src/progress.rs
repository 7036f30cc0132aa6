//! `Progress`: how far the writer is, for tasks that end a connection. A client that reads the log when its
//! connection has ended finds there what was logged of it, as it does where a server writes its lines itself.
//! Nobody waits while many lines come or a destination hangs.

use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_offload::{Receipt, is_quiet};

use crate::writer::Shared;

/// Tasks that may wait at the same time; others do not. They wait where little is logged, so they are few.
pub(crate) const WAITING_MAX: usize = 64;

/// How far the writer is. Without a writer there is nothing to wait for.
#[derive(Clone, Debug, Default)]
pub struct Progress(Option<Arc<Shared>>);

/// A place in the sequence of lines.
#[derive(Clone, Copy, Debug)]
pub struct LogPosition(Receipt);

impl Progress {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Some(Arc::clone(shared)))
    }

    /// A place behind all lines that this thread has handed over, if something may be before it that is worth
    /// waiting for: it is not written yet, but will be in a moment. Three loads, where there is nothing.
    #[must_use]
    pub fn behind(&self) -> Option<LogPosition> {
        let shared = self.0.as_deref()?;
        if !shared.receipts.is_prompt() || is_quiet(&shared.queue, &shared.bell) {
            return None;
        }
        Some(LogPosition(shared.ask_to_flush()))
    }

    /// Waits until lines before the place are written, but for what buffers hold, or until that may take a
    /// while. Never blocks.
    pub fn poll(&self, place: LogPosition, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_ref().map_or(Poll::Ready(()), |shared| shared.receipts.poll(place.0, cx))
    }
}
