//! The part of a response that the socket has not taken yet. Owned by the connection's task, which
//! alone sends it. Head and small chunks are gathered in one buffer so that they leave with one send(2),
//! and so is a small file behind them; large chunks are queued as they are and leave with writev(2) or
//! sendfile(2), uncopied. What a file is read into is that buffer again.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_offload::Pool;
use clearway_offload::files::{self, Guess, Operation};
use clearway_runtime::Timer;
use clearway_site::Sending;

use super::Link;
use crate::response::chunk::Chunk;
use crate::response::file_part::{FilePart, OpenFile};
use crate::response::file_sender::{
    Begun, Cork, Fetched, Fetching, FileFailure, FileSender, Means, Way, buffer_bytes,
};

/// Chunks up to this size are copied behind the head instead of being queued, bytes.
pub(crate) const GATHER_MAX_BYTES: usize = 4 * 1024;
/// From this size on a producer is told to wait, bytes.
const FULL_BYTES: usize = 64 * 1024;
/// Pieces given to one writev(2).
const IOVECS_MAX: usize = 16;
/// The most bytes that the kernel takes in one piece: a segment before it is cut (GSO).
const SEGMENT_MAX_BYTES: usize = 64 * 1024;

/// Output that the socket has not taken yet.
#[derive(Default)]
pub(crate) struct SendQueue<'c> {
    /// Head and small chunks, before everything in `queue`.
    front: Vec<u8>,
    /// How much of the very first piece is sent, bytes; none of a file, whose parts shrink instead.
    offset: usize,
    sent_bytes: u64,
    behind: Behind<'c>,
}

/// Output behind `front`, from the first chunk that is not gathered. Most responses have none. A small file,
/// or a page that is larger than `front` may be, is one chunk.
#[derive(Default)]
enum Behind<'c> {
    #[default]
    Nothing,
    /// In memory, and not empty.
    One(Chunk<'c>),
    Rest(Box<Rest<'c>>),
}

/// Any number of chunks.
#[derive(Default)]
struct Rest<'c> {
    queue: VecDeque<Chunk<'c>>,
    /// Bytes of the queue that are in memory.
    queued_bytes: usize,
    /// The parts behind the buffer, from the first part of a file on.
    files: Option<Box<FileSender>>,
}

/// The next output.
enum Next {
    /// Bytes in memory.
    Memory,
    /// So many bytes of a file, behind the buffer.
    Sendfile(usize),
    /// A part of a file that a pool has to read, behind the buffer.
    Cold,
}

/// How a response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The socket has taken all of it.
    Whole,
    /// The response was cut short.
    Cut,
}

/// Why the rest of a response was not sent.
#[derive(Debug)]
pub enum SendFailure {
    /// The socket took nothing for `send_timeout`.
    TimedOut,
    /// The connection broke.
    Broken(io::Error),
    /// The client has left while nothing could be sent, or was to be (`limit_rate`); perhaps with an error.
    Left(io::Result<()>),
    /// The body could not be read.
    File(FileFailure, Arc<OpenFile>),
    /// A subrequest, or what could not go on without one, has ended the whole request.
    Terminated,
    /// The handler has found that nobody reads it; it has said so itself.
    Abandoned,
    /// The response has ended with this; output that is made now is dropped (`post_action`).
    Behind(Completion),
}

impl SendFailure {
    /// What is to be told of it. A sender that waited for the socket (`wait` is there) and was woken because
    /// the client is gone reports that, and not the call that failed.
    pub(crate) fn behind(self, wait: &Option<Timer>, link: Link<'_>) -> Self {
        match self {
            Self::Broken(error) | Self::File(FileFailure::Sendfile(error), _)
                if wait.is_some() && link.has_ended() =>
            {
                Self::Left(Err(error))
            }
            other => other,
        }
    }
}

impl<'c> SendQueue<'c> {
    /// Gathers in `buffer`, which is empty.
    #[inline]
    pub(crate) fn new(buffer: Vec<u8>) -> Self {
        assert!(buffer.is_empty(), "nothing of another response is sent");
        Self { front: buffer, ..Self::default() }
    }

    /// Drops what was not sent.
    pub(crate) fn drop_rest(&mut self) {
        self.front.clear();
        (self.offset, self.behind) = (0, Behind::Nothing);
    }

    /// The front has been sent. What a pool thread has read of a file is not kept until the next response,
    /// which may be far away.
    #[inline]
    fn clear_front(&mut self) {
        self.front.clear();
        if self.front.capacity() > FULL_BYTES {
            files::give_back(std::mem::take(&mut self.front));
            if let Behind::Rest(rest) = &mut self.behind
                && let Some(files) = &mut rest.files
            {
                files.drop_copy();
            }
        }
    }

    /// The buffer that it was given, once there is no more to send.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.front)
    }

    /// Bytes that the socket has taken so far (`$bytes_sent`).
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// The link took so much past the queue, which is empty.
    pub(crate) fn count_sent(&mut self, count: usize) {
        debug_assert!(self.is_empty(), "it would have overtaken the queue");
        self.sent_bytes += count as u64;
    }

    /// Bytes in memory that wait for the socket.
    pub(crate) fn len(&self) -> usize {
        debug_assert!(
            self.offset <= self.front.len() + self.queued_bytes(),
            "no more was sent than there is"
        );
        self.front.len() + self.queued_bytes() - self.offset
    }

    /// Whether a producer should wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        if let Behind::Nothing = self.behind {
            return self.front.len() >= FULL_BYTES;
        }
        self.queued_bytes() + self.front.len() >= FULL_BYTES || self.has_files()
    }

    /// Whether parts of files wait for the socket.
    pub(crate) fn has_files(&self) -> bool {
        self.files().is_some() && self.queue().any(|chunk| matches!(chunk, Chunk::File(_)))
    }

    /// Whether everything was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.is_gathered()
    }

    /// Whether a pool is waited for, and not the socket.
    pub(crate) fn waits_for_pool(&self) -> bool {
        self.files().is_some_and(FileSender::is_waiting)
    }

    /// Whether there was a part of a file before.
    pub(crate) fn has_sent_files(&self) -> bool {
        self.files().is_some()
    }

    /// Whether there is nothing but `front`.
    fn is_gathered(&self) -> bool {
        match &self.behind {
            Behind::Nothing => true,
            Behind::One(_) => false,
            Behind::Rest(rest) => rest.queue.is_empty(),
        }
    }

    fn queued_bytes(&self) -> usize {
        match &self.behind {
            Behind::Nothing => 0,
            Behind::One(chunk) => chunk.bytes().len(),
            Behind::Rest(rest) => rest.queued_bytes,
        }
    }

    fn queue(&self) -> impl Iterator<Item = &Chunk<'c>> {
        let (one, rest) = match &self.behind {
            Behind::Nothing => (None, None),
            Behind::One(chunk) => (Some(chunk), None),
            Behind::Rest(rest) => (None, Some(&rest.queue)),
        };
        one.into_iter().chain(rest.into_iter().flatten())
    }

    fn rest(&mut self) -> Option<&mut Rest<'c>> {
        match &mut self.behind {
            Behind::Rest(rest) => Some(rest),
            Behind::Nothing | Behind::One(_) => None,
        }
    }

    /// Has room for any number of chunks.
    fn make_rest(&mut self) -> &mut Rest<'c> {
        if !matches!(self.behind, Behind::Rest(_)) {
            let mut rest = Box::<Rest<'c>>::default();
            if let Behind::One(chunk) = std::mem::take(&mut self.behind) {
                rest.queued_bytes = chunk.bytes().len();
                rest.queue.push_back(chunk);
            }
            self.behind = Behind::Rest(rest);
        }
        self.rest().expect("made just now")
    }

    fn files(&self) -> Option<&FileSender> {
        match &self.behind {
            Behind::Rest(rest) => rest.files.as_deref(),
            Behind::Nothing | Behind::One(_) => None,
        }
    }

    /// Takes out the part of a file that comes next in the queue, and what stands behind it.
    pub(crate) fn take_from_file(&mut self) -> Option<(FilePart, VecDeque<Chunk<'c>>)> {
        let rest = self.rest()?;
        let at = rest.queue.iter().position(|chunk| matches!(chunk, Chunk::File(_)))?;
        let mut behind = rest.queue.split_off(at);
        let Some(Chunk::File(part)) = behind.pop_front() else { return None };
        rest.queued_bytes = rest.queue.iter().map(|chunk| chunk.bytes().len()).sum();
        debug_assert!(behind.iter().all(|chunk| !chunk.is_empty()), "no empty piece is queued");
        // What it has begun to read nobody waits for.
        rest.files = None;
        Some((part, behind))
    }

    /// Sets the pool that reads where the loop would wait; called before the first part of a file.
    pub(crate) fn use_pool(&mut self, pool: Option<Arc<Pool>>, link: Link<'_>) {
        let means = if link.sends_files() { Means::Any } else { Means::Read };
        self.make_rest().files = Some(Box::new(FileSender::new(pool, means)));
    }

    /// The gathering buffer, to write a head into. Only while nothing larger is queued behind it.
    pub(crate) fn front(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.is_gathered(), "bytes written here would overtake the queue");
        &mut self.front
    }

    /// Adds bytes that do not outlive the call.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        // Pieces without bytes would be sent as nothing, which looks like a broken connection.
        if bytes.is_empty() {
            return;
        }
        if self.is_gathered() {
            self.front.extend_from_slice(bytes);
            return;
        }
        let rest = self.make_rest();
        rest.queued_bytes += bytes.len();
        match rest.queue.back_mut() {
            Some(Chunk::Owned(last)) if last.capacity() - last.len() >= bytes.len() => {
                last.extend_from_slice(bytes);
            }
            Some(Chunk::Pooled(last)) if last.room() >= bytes.len() => last.vec().extend_from_slice(bytes),
            _ => rest.queue.push_back(Chunk::Owned(bytes.to_vec())),
        }
    }

    /// Adds a chunk, copied if small.
    pub(crate) fn push(&mut self, chunk: Chunk<'c>) {
        if let Chunk::File(part) = &chunk {
            debug_assert!(self.has_sent_files(), "a pool was named before");
            if !part.is_empty() {
                self.make_rest().queue.push_back(chunk);
            }
        } else if chunk.bytes().len() <= GATHER_MAX_BYTES {
            self.put(chunk.bytes());
        } else if matches!(self.behind, Behind::Nothing) {
            self.behind = Behind::One(chunk);
        } else {
            let rest = self.make_rest();
            rest.queued_bytes += chunk.bytes().len();
            rest.queue.push_back(chunk);
        }
    }

    /// Gives the socket some of what there is, `limit` bytes at most. Each call that is ready has increased
    /// `sent_bytes`, or read what comes next.
    ///
    /// # Errors
    /// The rest cannot be sent.
    pub(crate) fn poll_send(
        &mut self,
        link: Link<'_>,
        sending: &Sending,
        limit: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFailure>> {
        debug_assert!(!self.is_empty(), "there is something to send");
        debug_assert!(limit > 0, "something may be sent");
        let next = self.find_next(sending)?;
        let has_front = !self.front.is_empty();
        let sent = match next {
            Next::Sendfile(count) if has_front && self.joins_file(count, sending) => {
                link.poll_write_more(cx, cut(&self.front, limit))
            }
            Next::Sendfile(_) if has_front => link.poll_write(cx, cut(&self.front, limit)),
            // A head waits for the first of its file: there may have to be another one.
            Next::Cold if has_front && self.begun() == Begun::Yes => {
                link.poll_write(cx, cut(&self.front, limit))
            }
            Next::Memory if self.is_gathered() => link.poll_write(cx, cut(&self.front[self.offset..], limit)),
            Next::Memory => self.poll_writev(link, limit, cx),
            Next::Sendfile(count) => return self.poll_sendfile(link, count, limit, cx),
            Next::Cold => return self.poll_fetch(sending, link, cx),
        };
        self.note_sent(ready!(sent))
    }

    /// Whether there never was more than one buffer and a chunk behind it, of which nothing is sent.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.offset == 0 && !matches!(self.behind, Behind::Rest(_))
    }

    /// Does what [`poll_send`](Self::poll_send) does where it [is plain](Self::is_plain), to be sent at any
    /// rate.
    #[inline]
    pub(crate) fn poll_send_plain(
        &mut self,
        link: Link<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFailure>> {
        debug_assert!(self.is_plain(), "looked at before");
        if let Behind::One(_) = self.behind {
            return self.poll_send_both(link, cx);
        }
        match link.poll_write(cx, &self.front) {
            Poll::Ready(Ok(sent)) if sent == self.front.len() && sent > 0 => {
                self.sent_bytes += sent as u64;
                self.clear_front();
                Poll::Ready(Ok(()))
            }
            sent => self.note_sent(ready!(sent)),
        }
    }

    /// Sends the buffer and the one chunk behind it.
    fn poll_send_both(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        let Behind::One(chunk) = &self.behind else { unreachable!("looked at before") };
        let pieces = [IoSlice::new(&self.front), IoSlice::new(chunk.bytes())];
        let len = self.front.len() + chunk.bytes().len();
        match link.poll_write_vectored(cx, &pieces) {
            Poll::Ready(Ok(sent)) if sent == len => {
                self.sent_bytes += sent as u64;
                self.clear_front();
                self.behind = Behind::Nothing;
                Poll::Ready(Ok(()))
            }
            sent => self.note_sent(ready!(sent)),
        }
    }

    /// Whether the buffer is to wait for so many bytes of a file. Together they fill packets better; what the
    /// kernel would cut anyway costs it a second piece so, and a wait between the two where it paces (BBR):
    /// that is for `tcp_nopush` alone.
    fn joins_file(&self, count: usize, sending: &Sending) -> bool {
        *sending.tcp_nopush || self.front.len() + count <= SEGMENT_MAX_BYTES
    }

    fn begun(&self) -> Begun {
        match self.files() {
            Some(files) if self.sent_bytes == 0 => files.begun,
            _ => Begun::Yes,
        }
    }

    fn note_sent(&mut self, sent: io::Result<usize>) -> Poll<Result<(), SendFailure>> {
        match sent {
            Ok(0) => Poll::Ready(Err(SendFailure::Broken(io::ErrorKind::WriteZero.into()))),
            Ok(sent) => {
                self.advance(sent);
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(SendFailure::Broken(error))),
        }
    }

    fn poll_writev(&self, link: Link<'_>, limit: u64, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
        let front = (!self.front.is_empty()).then_some(&self.front[..]);
        let in_memory = self.queue().take_while(|chunk| !matches!(chunk, Chunk::File(_)));
        let pieces = front.into_iter().chain(in_memory.map(Chunk::bytes));
        let (mut count, mut left) = (0, limit);
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            let sent = if count == 0 { self.offset } else { 0 };
            let piece = cut(&piece[sent..], left);
            *slice = IoSlice::new(piece);
            count += 1;
            left -= piece.len() as u64;
            if left == 0 {
                break;
            }
        }
        link.poll_write_vectored(cx, &slices[..count])
    }

    fn advance(&mut self, mut sent: usize) {
        self.sent_bytes += sent as u64;
        sent += self.offset;
        self.offset = 0;
        if matches!(self.behind, Behind::One(_)) {
            // Chunks go one after the other from the queue only.
            self.make_rest();
        }
        if sent < self.front.len() {
            self.offset = sent;
            return;
        }
        sent -= self.front.len();
        self.clear_front();
        while sent > 0
            && let Behind::Rest(rest) = &mut self.behind
            && let Some(first) = rest.queue.front()
        {
            let len = first.bytes().len();
            if sent < len {
                self.offset = sent;
                return;
            }
            sent -= len;
            assert!(len <= rest.queued_bytes, "the queue knows how much is in it");
            rest.queued_bytes -= len;
            rest.queue.pop_front();
        }
        assert_eq!(sent, 0, "the socket took no more than it was given");
    }
}

/// Files.
impl SendQueue<'_> {
    /// What can be sent next. What is to be read of files at the head of the queue is read behind the
    /// buffer, unless that has been sent in part.
    fn find_next(&mut self, sending: &Sending) -> Result<Next, SendFailure> {
        if self.front.len() as u64 >= buffer_bytes(sending) {
            return Ok(Next::Memory);
        }
        let Behind::Rest(rest) = &mut self.behind else { return Ok(Next::Memory) };
        while let (Some(Chunk::File(part)), 0) = (rest.queue.front_mut(), self.offset) {
            let files = rest.files.as_mut().expect("there since before the first file");
            match files.way(part, &mut self.front, sending) {
                Err(failure) => return Err(SendFailure::File(failure, Arc::clone(part.file()))),
                Ok(Way::Sendfile(count)) => return Ok(Next::Sendfile(count)),
                Ok(Way::Cold) => return Ok(Next::Cold),
                Ok(Way::Read(read)) => part.advance(read),
            }
            if !part.is_empty() {
                break;
            }
            rest.drop_sent_file();
        }
        Ok(Next::Memory)
    }

    fn poll_sendfile(
        &mut self,
        link: Link<'_>,
        count: usize,
        limit: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFailure>> {
        debug_assert!(self.front.is_empty() && self.offset == 0, "all before the file is sent");
        let Behind::Rest(rest) = &mut self.behind else { unreachable!("asked for a file") };
        let Some(Chunk::File(part)) = rest.queue.front_mut() else { unreachable!("asked for a file") };
        let (file, count) = (part.file().opened(), count.min(usize::try_from(limit).unwrap_or(usize::MAX)));
        let guess = Guess::new(Operation::Read);
        let sent = ready!(link.poll_sendfile(cx, file.as_fd(), part.start(), count));
        drop(guess);
        let failure = match sent {
            Ok(0) => FileFailure::Truncated(part.start()),
            Err(error) => FileFailure::Sendfile(error),
            Ok(sent) => {
                assert!(sent <= count, "sendfile(2) sends no more than it was asked for");
                self.sent_bytes += sent as u64;
                part.advance(sent as u64);
                if part.is_empty() {
                    rest.drop_sent_file();
                }
                return Poll::Ready(Ok(()));
            }
        };
        Poll::Ready(Err(SendFailure::File(failure, Arc::clone(part.file()))))
    }

    fn poll_fetch(
        &mut self,
        sending: &Sending,
        link: Link<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFailure>> {
        if self.front.is_empty() {
            // The bytes that were read before are sent; the next ones come with memory of their own.
            self.front = Vec::new();
        }
        debug_assert!(self.offset == 0, "what is read goes behind what is whole");
        let begun = self.begun();
        let Behind::Rest(rest) = &mut self.behind else { unreachable!("asked for a file") };
        let Some(Chunk::File(part)) = rest.queue.front_mut() else { unreachable!("asked for a file") };
        let files = rest.files.as_mut().expect("there since before the first file");
        match ready!(files.poll_fetch(&Fetching { part, sending, home: link.home(), begun }, cx)) {
            Ok(Fetched::Warm) => {}
            Ok(Fetched::Data(mut data)) => {
                files.begun = Begun::Yes;
                part.advance(data.len() as u64);
                // If the bytes that were read, the larger part, have room for the front, no other buffer is
                // needed.
                if self.front.len() <= data.capacity() - data.len() {
                    data.splice(0..0, self.front.drain(..));
                    self.front = data;
                } else {
                    self.front.extend_from_slice(&data);
                    files::give_back(data);
                }
                if part.is_empty() {
                    rest.drop_sent_file();
                }
            }
            Err(failure) => {
                return Poll::Ready(Err(SendFailure::File(failure, Arc::clone(part.file()))));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Has a file that takes several calls of sendfile(2) leave in full packets (`tcp_nopush`).
    pub(crate) fn cork_large_file(&mut self, link: Link<'_>, sending: &Sending) {
        if !*sending.tcp_nopush || !*sending.sendfile {
            return;
        }
        let chunk_bytes = *sending.sendfile_max_chunk_bytes;
        if let Some(rest) = self.rest()
            && let (Some(Chunk::File(part)), Some(files)) = (rest.queue.front(), &mut rest.files)
            && part.len() > chunk_bytes
            && files.cork == Cork::Out
        {
            files.cork = Cork::In;
            link.cork();
        }
    }

    /// Everything is sent.
    pub(crate) fn uncork(&mut self, link: Link<'_>) {
        if let Some(rest) = self.rest()
            && let Some(files) = &mut rest.files
            && files.cork == Cork::In
        {
            files.cork = Cork::Out;
            link.uncork();
        }
    }
}

impl Rest<'_> {
    /// The part at the head of the queue is done.
    fn drop_sent_file(&mut self) {
        let done = self.queue.pop_front();
        debug_assert!(done.as_ref().is_some_and(Chunk::is_empty), "all of it is sent");
        if let (Some(Chunk::File(done)), Some(files)) = (done, &mut self.files) {
            match self.queue.iter().find(|chunk| matches!(chunk, Chunk::File(_))) {
                Some(Chunk::File(next)) if Arc::ptr_eq(next.file(), done.file()) => {}
                _ => files.forget(),
            }
        }
    }
}

/// The first `limit` bytes.
fn cut(bytes: &[u8], limit: u64) -> &[u8] {
    &bytes[..usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(wire: &SendQueue<'_>) -> Vec<u8> {
        let mut all = wire.front.clone();
        wire.queue().for_each(|chunk| all.extend_from_slice(chunk.bytes()));
        all.split_off(wire.offset)
    }

    #[test]
    fn keeps_the_order_of_small_and_large_pieces_at_every_split() {
        let large = vec![b'L'; GATHER_MAX_BYTES + 1];
        let build = || {
            let mut wire = SendQueue::new(Vec::new());
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
            assert_eq!((wire.sent_bytes(), wire.queued_bytes()), (expected.len() as u64, 0));
        }
    }

    /// Filters push empty pieces, and a call that sends none says that none were taken.
    #[test]
    fn nothing_is_queued_for_nothing() {
        let large = vec![b'L'; GATHER_MAX_BYTES + 1];
        let mut wire = SendQueue::new(Vec::new());
        wire.push(Chunk::Borrowed(&large));
        (0..2 * IOVECS_MAX).for_each(|_| wire.push(Chunk::EMPTY));
        assert_eq!(wire.queue().count(), 1);
        wire.advance(large.len());
        assert!(wire.is_empty());
    }

    /// What is sent most has no queue, whichever way it is sent.
    #[test]
    fn one_large_chunk_takes_the_short_way_until_another_one_comes() {
        let large = vec![b'L'; GATHER_MAX_BYTES + 1];
        let mut wire = SendQueue::new(Vec::new());
        wire.put(b"head");
        assert!(wire.is_plain() && !wire.is_empty());
        wire.push(Chunk::Borrowed(&large));
        assert!(wire.is_plain() && matches!(wire.behind, Behind::One(_)));
        assert_eq!((wire.len(), wire.queued_bytes()), (4 + large.len(), large.len()));
        wire.push(Chunk::Owned(b"more".to_vec()));
        assert!(!wire.is_plain());
        let expected = [b"head", &large[..], b"more"].concat();
        assert_eq!((contents(&wire), wire.len()), (expected.clone(), expected.len()));

        let mut wire = SendQueue::new(Vec::new());
        wire.push(Chunk::Borrowed(&large));
        wire.advance(1);
        assert!(!wire.is_plain(), "what was sent in part is timed");
        wire.advance(large.len() - 1);
        assert!(wire.is_empty());
        assert_eq!((wire.sent_bytes(), wire.len()), (large.len() as u64, 0));
    }

    #[test]
    fn says_full_by_bytes() {
        let mut wire = SendQueue::default();
        wire.push(Chunk::Owned(vec![0; FULL_BYTES - 1]));
        assert!(!wire.is_full());
        wire.put(b"x");
        assert!(wire.is_full());
    }
}
