//! The bytes of a response that the socket has not taken yet. Owned by the connection's task, which
//! alone flushes it. Head and small chunks are gathered in one buffer so that they leave with one
//! send(2); large chunks are queued as they are and leave with writev(2), uncopied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use clearway_runtime::Socket;

use crate::chunk::Chunk;

/// Chunks up to this size are copied behind the head instead of being queued, bytes.
const GATHER_MAX_BYTES: usize = 4 * 1024;
/// From here on a producer is told to wait, bytes.
const FULL_BYTES: usize = 64 * 1024;
/// Pieces given to one writev(2).
const IOVECS_MAX: usize = 16;

/// What the socket has not taken yet.
#[derive(Default)]
pub(crate) struct Wire<'c> {
    /// Head and small chunks, before everything in `queue`.
    front: Vec<u8>,
    /// How much of the very first piece is sent, bytes.
    offset: usize,
    queue: VecDeque<Chunk<'c>>,
    queued_bytes: usize,
    sent_bytes: u64,
}

impl<'c> Wire<'c> {
    /// Gathers in `buffer`, which is empty.
    #[inline]
    pub(crate) fn new(buffer: Vec<u8>) -> Self {
        debug_assert!(buffer.is_empty());
        Self { front: buffer, ..Self::default() }
    }

    /// The buffer that it was given, once there is no more to send.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.front)
    }

    /// What the socket took so far, bytes (`$bytes_sent`).
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// What waits for the socket, bytes.
    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.queued_bytes - self.offset
    }

    /// Whether a producer should wait.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes + self.front.len() >= FULL_BYTES
    }

    /// Whether everything was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.queue.is_empty()
    }

    /// The gathering buffer, to write a head into. Only while nothing larger is queued behind it.
    pub(crate) fn front(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.queue.is_empty(), "bytes written here would overtake the queue");
        &mut self.front
    }

    /// Adds bytes that do not outlive the call.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.queue.is_empty() {
            self.front.extend_from_slice(bytes);
            return;
        }
        self.queued_bytes += bytes.len();
        match self.queue.back_mut() {
            Some(Chunk::Owned(last)) if last.capacity() - last.len() >= bytes.len() => {
                last.extend_from_slice(bytes);
            }
            _ => self.queue.push_back(Chunk::Owned(bytes.to_vec())),
        }
    }

    /// Adds a chunk, copied if small.
    pub(crate) fn push(&mut self, chunk: Chunk<'c>) {
        if chunk.len() <= GATHER_MAX_BYTES {
            self.put(chunk.bytes());
        } else {
            self.queued_bytes += chunk.len();
            self.queue.push_back(chunk);
        }
    }

    /// Gives the socket what it takes; ready when nothing is left. Each call that got anywhere
    /// increases `sent_bytes`.
    ///
    /// # Errors
    /// As send(2): the peer is gone.
    pub(crate) fn poll_flush(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let result = if self.queue.is_empty() {
                socket.poll_write(cx, &self.front[self.offset..])
            } else {
                self.poll_writev(socket, cx)
            };
            match result {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => self.advance(sent),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_writev(&self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
        let front = (!self.front.is_empty()).then_some(&self.front[..]);
        let pieces = front.into_iter().chain(self.queue.iter().map(Chunk::bytes));
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            let sent = if count == 0 { self.offset } else { 0 };
            *slice = IoSlice::new(&piece[sent..]);
            count += 1;
        }
        socket.poll_write_vectored(cx, &slices[..count])
    }

    fn advance(&mut self, mut sent: usize) {
        self.sent_bytes += sent as u64;
        sent += self.offset;
        self.offset = 0;
        if sent < self.front.len() {
            self.offset = sent;
            return;
        }
        sent -= self.front.len();
        self.front.clear();
        while let Some(first) = self.queue.front() {
            if sent < first.len() {
                self.offset = sent;
                return;
            }
            sent -= first.len();
            self.queued_bytes -= first.len();
            self.queue.pop_front();
        }
        debug_assert_eq!(sent, 0, "the socket took no more than it was given");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(wire: &Wire<'_>) -> Vec<u8> {
        let mut all = wire.front.clone();
        wire.queue.iter().for_each(|chunk| all.extend_from_slice(chunk.bytes()));
        all.split_off(wire.offset)
    }

    #[test]
    fn keeps_the_order_of_small_and_large_pieces_at_every_split() {
        let large = vec![b'L'; GATHER_MAX_BYTES + 1];
        let build = || {
            let mut wire = Wire::new(Vec::new());
            wire.put(b"head");
            wire.push(Chunk::Borrowed(b"small"));
            wire.push(Chunk::Borrowed(&large));
            wire.put(b"\r\n");
            wire.push(Chunk::Owned(large.clone()));
            wire
        };
        let expected = contents(&build());
        assert!(expected.starts_with(b"headsmallLLL"));
        assert_eq!(expected.len(), 9 + 2 * large.len() + 2);
        for step in [1, 3, 8, 9, 10, 4000, 4106, 4109, expected.len()] {
            let mut wire = build();
            let mut at = 0;
            while !wire.is_empty() {
                let sent = step.min(expected.len() - at);
                at += sent;
                wire.advance(sent);
                assert_eq!(contents(&wire), expected[at..], "steps of {step}, after {at}");
            }
            assert_eq!((wire.sent_bytes(), wire.queued_bytes), (expected.len() as u64, 0));
        }
    }

    #[test]
    fn says_full_by_bytes() {
        let mut wire = Wire::default();
        wire.push(Chunk::Owned(vec![0; FULL_BYTES - 1]));
        assert!(!wire.is_full());
        wire.put(b"x");
        assert!(wire.is_full());
    }
}
