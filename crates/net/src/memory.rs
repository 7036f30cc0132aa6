//! Connections in memory, for tests: two ends, of which each reads what the other one has written. Bounded
//! as a socket's buffers are.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use clearway_runtime::{LoopRef, Probe};
use rustix::io::Errno;

/// Bytes on their way in one direction before the writer has to wait, unless the reader sets less.
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
    let (near, far) = memory_call(home);
    far.accept();
    (near, far)
}

/// A connection in memory that its second end has still to [accept](MemoryEnd::accept) or
/// [refuse](MemoryEnd::refuse).
#[must_use]
pub fn memory_call(home: LoopRef) -> (MemoryEnd, MemoryEnd) {
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

struct PipeState {
    bytes: VecDeque<u8>,
    /// The capacity, bytes.
    capacity: usize,
    end: End,
    call: Call,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// How the call of the end that reads was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Waits,
    Accepted,
    Refused,
}

impl Default for PipeState {
    fn default() -> Self {
        let (bytes, capacity, end) = (VecDeque::new(), CAPACITY_BYTES, End::Open);
        Self { bytes, capacity, end, call: Call::Waits, reader: None, writer: None }
    }
}

/// Whether something may follow what is in a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Closed,
    /// A reset: bytes on their way are lost.
    Reset,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().expect("nothing panics in here")
    }

    /// The first end stays.
    fn close(&self, how: End) {
        let mut state = self.state();
        if state.end == End::Open {
            state.end = how;
        }
        if how == End::Reset {
            (state.end, state.bytes) = (End::Reset, VecDeque::new());
        }
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
        self.input.close(End::Closed);
        self.output.close(End::Closed);
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
        match state.end {
            End::Open if count == 0 => return Err(io::ErrorKind::WouldBlock.into()),
            End::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => {}
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
        if !state.bytes.is_empty() || state.end != End::Open {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub fn has_unread(&self) -> bool {
        !self.input.state().bytes.is_empty()
    }

    pub fn has_ended(&self) -> bool {
        self.input.state().end != End::Open
    }

    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.input.state();
        match state.end {
            End::Open => {}
            End::Closed => return Poll::Ready(Ok(())),
            End::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    pub fn is_writable(&self) -> bool {
        let state = self.output.state();
        state.bytes.len() < state.capacity || state.end != End::Open
    }

    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.output.state();
        match state.end {
            End::Open => {}
            End::Closed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            End::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        let mut written = 0;
        for piece in pieces {
            let count = piece.len().min(state.capacity.saturating_sub(state.bytes.len()));
            state.bytes.extend(&piece[..count]);
            written += count;
        }
        if written == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        debug_assert!(state.bytes.len() <= state.capacity, "no more is on its way than there is room for");
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(written))
    }

    pub fn shutdown_write(&self) {
        self.output.close(End::Closed);
    }

    /// Ready when the other end has taken or refused the connection.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.input.state();
        match state.call {
            Call::Waits => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Call::Accepted => Poll::Ready(Ok(())),
            Call::Refused => Poll::Ready(Err(Errno::CONNREFUSED.into())),
        }
    }

    pub fn probe(&self) -> Probe {
        let state = self.input.state();
        match (state.bytes.is_empty(), state.end) {
            (false, End::Open | End::Closed) => Probe::Unread,
            (true, End::Open) => Probe::Quiet,
            _ => Probe::Ended,
        }
    }

    pub fn watch_idle(&self, waker: &Waker) {
        let mut state = self.input.state();
        if state.bytes.is_empty() && state.end == End::Open {
            state.reader = Some(waker.clone());
        } else {
            waker.wake_by_ref();
        }
    }
}

/// Functions for tests.
impl MemoryEnd {
    /// Takes a call.
    pub fn accept(&self) {
        self.answer(Call::Accepted);
    }

    /// There is no connection.
    pub fn refuse(&self) {
        self.answer(Call::Refused);
    }

    fn answer(&self, call: Call) {
        let mut state = self.output.state();
        state.call = call;
        state.wake();
    }

    /// Lets so many bytes be on their way to this end, for a writer that is to wait, or to write in pieces.
    pub fn set_capacity(&self, bytes: usize) {
        let mut state = self.input.state();
        state.capacity = bytes;
        state.wake();
    }

    /// Ends both directions at once; what is on its way is lost.
    pub fn reset(&self) {
        self.input.close(End::Reset);
        self.output.close(End::Reset);
    }
}
