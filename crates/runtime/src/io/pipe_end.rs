//! Ends of pipes to programs beside the server, and the descriptors that tell of their end. How an operation
//! waits is in watched.rs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use clearway_os::child::Exit;
use clearway_os::piped as sys;

use crate::LoopRef;
use crate::io::watched::{After, Origin, Watched};

/// A nonblocking end of a pipe, or what stands for a process. Each success of a poll method costs one unit of
/// the task's budget; one task waits for it at a time.
pub struct PipeEnd {
    io: Watched,
}

impl PipeEnd {
    /// Takes a nonblocking descriptor. It is registered at the first operation that would block.
    #[must_use]
    pub fn new(home: LoopRef, fd: OwnedFd) -> Self {
        Self { io: Watched::new(home, fd, Origin::Own) }
    }

    /// read(2): 0 when nothing writes any more.
    ///
    /// # Errors
    /// As read(2), or epoll_ctl(2) at the first wait.
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_reading(cx, || sys::read(self.as_fd(), buf).map(|size| (size, After::More)))
    }

    /// write(2).
    ///
    /// # Errors
    /// As write(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_writing(cx, || sys::write(self.as_fd(), buf))
    }

    /// The end of the process that it stands for, which is forgotten with that.
    ///
    /// # Errors
    /// As waitid(2), or epoll_ctl(2) at the first wait.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<Exit>> {
        let mut exit = Exit::Code(0);
        let ended = self.io.poll_reading(cx, || match sys::end_of(self.as_fd())? {
            Some(how) => {
                exit = how;
                Ok((0, After::More))
            }
            None => Err(io::ErrorKind::WouldBlock.into()),
        });
        ended.map_ok(|_| exit)
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
