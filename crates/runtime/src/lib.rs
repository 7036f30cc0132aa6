//! Event loops that can be lent, and what runs on them. (Interface under construction.)

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

/// A handle to a loop. `Copy`; loops are never freed.
#[derive(Clone, Copy)]
pub struct LoopRef(&'static ());

impl LoopRef {
    /// Starts a task on this loop (its home for life). From any thread.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(self, _tag: Tag, _future: F) {}
    /// Monotonic milliseconds, read once per loop turn.
    pub fn now_ms(self) -> u64 { 0 }
    /// Wall clock, milliseconds since the epoch, read once per loop turn.
    pub fn unix_ms(self) -> u64 { 0 }
    /// 0-based number of the loop.
    pub fn index(self) -> usize { 0 }
    /// The loop's identity thread (`$pid`, `PID#TID`).
    pub fn identity(self) -> u32 { 0 }
}

/// What blocked lately is remembered by tag: a hash of location and phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u32);

impl Tag {
    /// Nothing in particular (connection handling itself).
    pub const NONE: Tag = Tag(0);
    /// The tag of a name; different names may share one.
    pub fn of(_name: &[u8]) -> Tag { Tag(0) }
}

/// To be awaited by a task before code that may block (a phase handler): names what runs from here on.
/// Completes at once, unless `tag` is a suspect and no spare carrier is to be had.
pub async fn enter(_tag: Tag) {}

/// Lets the other ready tasks of the loop run first.
pub async fn yield_now() {}

/// A nonblocking stream socket whose readiness a loop watches. Also tokio::io::AsyncRead + AsyncWrite.
/// All methods take `&self`; one task reads and one writes at a time. Each success costs poll budget.
pub struct Socket(());

impl Socket {
    /// Takes a nonblocking descriptor; registered with epoll at the first WouldBlock only.
    pub fn new(_home: LoopRef, _fd: OwnedFd) -> Self { Self(()) }
    /// Ready when a read may succeed (data, end, error). A hint: the read may still say WouldBlock.
    pub fn poll_readable(&self, _cx: &mut Context<'_>) -> Poll<()> { Poll::Pending }
    /// recv(2) into the spare capacity of `buf` (which must not be empty); 0 is the end of the stream.
    pub fn poll_read_vec(&self, _cx: &mut Context<'_>, _buf: &mut Vec<u8>) -> Poll<io::Result<usize>> { Poll::Pending }
    /// send(2).
    pub fn poll_write(&self, _cx: &mut Context<'_>, _buf: &[u8]) -> Poll<io::Result<usize>> { Poll::Pending }
    /// writev(2).
    pub fn poll_write_vectored(&self, _cx: &mut Context<'_>, _bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> { Poll::Pending }
    /// sendfile(2); advances `offset`.
    pub fn poll_sendfile(&self, _cx: &mut Context<'_>, _file: BorrowedFd<'_>, _offset: &mut u64, _count: usize) -> Poll<io::Result<usize>> { Poll::Pending }
    /// shutdown(SHUT_WR).
    pub fn shutdown_write(&self) -> io::Result<()> { Ok(()) }
}

/// A timer owned by one task. Arming again is cheap (a store); dropping it cancels.
pub struct Timer(());

impl Timer {
    /// A disarmed timer on that loop's wheel (1 ms).
    pub fn new(_home: LoopRef) -> Self { Self(()) }
    /// Fires at `deadline_ms` on the clock of `LoopRef::now_ms`. Replaces an earlier deadline.
    pub fn arm(&self, _deadline_ms: u64) {}
    /// Never fires until armed again.
    pub fn disarm(&self) {}
    /// Ready once the deadline has passed (and stays so until armed again).
    pub fn poll_expired(&self, _cx: &mut Context<'_>) -> Poll<()> { Poll::Pending }
}
