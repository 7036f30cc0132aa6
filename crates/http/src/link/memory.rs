//! A transport in memory, for tests: two ends, of which each reads what the other one has written. Bounded
//! as a socket's buffers are.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use clearway_runtime::LoopRef;

/// What is on its way in one direction before the writer has to wait, bytes.
const CAPACITY_BYTES: usize = 64 * 1024;

/// One end.
pub struct MemoryEnd {
    home: LoopRef,
    input: Arc<Pipe>,
    output: Arc<Pipe>,
}

/// Two ends that are joined, both at home on a loop.
#[must_use]
pub fn memory_pair(home: LoopRef) -> (MemoryEnd, MemoryEnd) {
    let pipes = [Arc::<Pipe>::default(), Arc::default()];
    let end = |input: usize| MemoryEnd {
        home,
        input: Arc::clone(&pipes[input]),
        output: Arc::clone(&pipes[1 - input]),
    };
    (end(0), end(1))
}

#[derive(Default)]
struct Pipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    end: End,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Whether something may follow what is in a pipe.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Closed,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().expect("nothing panics in here")
    }

    fn close(&self) {
        let mut state = self.state();
        state.end = End::Closed;
        state.wake();
    }
}

impl PipeState {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        self.input.close();
        self.output.close();
    }
}

/// As a socket's.
#[expect(missing_docs, reason = "they are the socket's")]
impl MemoryEnd {
    pub fn home(&self) -> LoopRef {
        self.home
    }

    pub fn move_to(&mut self, there: LoopRef) {
        self.home = there;
    }

    pub fn try_read_vec(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let mut state = self.input.state();
        let room = buf.capacity() - buf.len();
        let count = state.bytes.len().min(room);
        if count == 0 && state.end == End::Open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buf.extend(state.bytes.drain(..count));
        state.wake();
        Ok(count)
    }

    pub fn poll_read_vec(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        self.input.state().reader = Some(cx.waker().clone());
        match self.try_read_vec(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        }
    }

    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.input.state();
        if !state.bytes.is_empty() || state.end == End::Closed {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub fn has_unread(&self) -> bool {
        !self.input.state().bytes.is_empty()
    }

    pub fn has_ended(&self) -> bool {
        self.input.state().end == End::Closed
    }

    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.input.state();
        if state.end == End::Closed {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub fn is_writable(&self) -> bool {
        self.output.state().bytes.len() < CAPACITY_BYTES
    }

    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.output.state();
        if state.end == End::Closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut written = 0;
        for piece in pieces {
            let count = piece.len().min(CAPACITY_BYTES - state.bytes.len());
            state.bytes.extend(&piece[..count]);
            written += count;
        }
        debug_assert!(state.bytes.len() <= CAPACITY_BYTES, "no more is on its way than there is room for");
        if written == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(written))
    }

    pub fn shutdown_write(&self) {
        self.output.close();
    }
}
