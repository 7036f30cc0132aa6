//! Sends a file through filters that look at its bytes: it is read piece by piece, by the loop what is in
//! memory and by a pool what is not. Owned by the task of the response.
//!
//! As long as nothing was read nothing is sent, so that another answer can be given; once the response is
//! under way, a pool whose queue is full is waited for.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use clearway_runtime::LoopRef;
use clearway_site::Sending;

use crate::link::send_queue::SendFailure;
use crate::output::{Output, Unsent};
use crate::request::Request;
use crate::response::chunk::{Chunk, Mark};
use crate::response::file_part::{FileAccess, FilePart};
use crate::response::file_sender::{Begun, Fetched, Fetching, FileFailure, FileSender, Means, Way};

/// Bytes that a loop reads, and that filters are given at once.
const STEP_BYTES: u64 = 64 * 1024;
/// Bytes that filters are given before other tasks of the loop have their turn, however fast the client is.
const TURN_BYTES: u64 = 128 * 1024;

impl<'c> Output<'_, 'c> {
    /// Sends a part of a file as the rest of the body, through filters that look at bytes (where none does,
    /// a [`Chunk::File`] is cheaper).
    ///
    /// # Errors
    /// The rest cannot be sent; the handler should stop. The connection logs, and answers otherwise or
    /// closes.
    pub async fn send_bytes(&mut self, request: &Request<'c>, mut part: FilePart) -> Result<(), Unsent> {
        let pool = part.file().pool().cloned().or_else(|| request.file_pool());
        let mut files = FileSender::new(pool, Means::Read);
        let mut turn_bytes = 0;
        while !part.is_empty() {
            let sending = &request.location().core.sending;
            let data = match files.read(&part, sending, request.client.home).await {
                Ok(data) => Bytes::from(data),
                Err(failure) => {
                    self.state.fail_with(SendFailure::File(failure, Arc::clone(part.file())));
                    return Err(Unsent);
                }
            };
            debug_assert!(!data.is_empty(), "a read that brings nothing is a failure");
            assert!(data.len() as u64 <= part.len(), "no more is read than the part has");
            part.advance(data.len() as u64);
            let mut rest = data;
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(STEP_BYTES as usize));
                debug_assert!(!piece.is_empty(), "each turn gets somewhere");
                let is_last = part.is_empty() && rest.is_empty();
                let mark = if is_last { Mark::Last } else { Mark::More };
                turn_bytes += piece.len() as u64;
                let _ = self.write(request, Chunk::Shared(piece), mark);
                if !is_last {
                    self.ready(request).await?;
                }
                if turn_bytes >= TURN_BYTES {
                    turn_bytes = 0;
                    clearway_runtime::yield_now().await;
                }
            }
        }
        Ok(())
    }
}

impl FileSender {
    /// Some of the beginning of a part.
    async fn read(
        &mut self,
        part: &FilePart,
        sending: &Sending,
        home: LoopRef,
    ) -> Result<Vec<u8>, FileFailure> {
        loop {
            let mut data = Vec::new();
            let way = match part.file().access() {
                FileAccess::Cached => self.read_now(part, part.len().min(STEP_BYTES), &mut data)?,
                FileAccess::Direct { .. } => Way::Cold,
            };
            if let Way::Read(_) = way {
                self.begun = Begun::Yes;
                return Ok(data);
            }
            let wanted = Fetching { part, sending, home, begun: self.begun };
            if let Fetched::Data(data) = poll_fn(|cx| self.poll_fetch(&wanted, cx)).await? {
                self.begun = Begun::Yes;
                return Ok(data);
            }
        }
    }
}
