//! Datagram sockets, UDP and unix: what resolvers and syslog speak. How an operation waits is in watched.rs.
//! What an ICMP message said of a datagram (nobody listens there) is the error of the next call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use clearway_os::outgoing;
use clearway_os::socket as sys;

use crate::LoopRef;
use crate::io::watched::{After, Origin, Watched};

/// A nonblocking datagram socket. Each success of a poll method costs one unit of the task's budget; one task
/// receives and one sends at a time.
pub struct Datagrams {
    io: Watched,
}

impl Datagrams {
    /// Takes a nonblocking descriptor, bound or connected where that is wanted. It is registered at the first
    /// operation that would block.
    #[must_use]
    pub fn new(home: LoopRef, fd: OwnedFd) -> Self {
        Self { io: Watched::new(home, fd, Origin::Own) }
    }

    /// The loop that watches it.
    pub fn home(&self) -> LoopRef {
        self.io.home()
    }

    /// recvfrom(2): the length of a datagram, which is more than that of `buf` where its end was lost, and
    /// its sender, where that has an internet address. A length of 0 is a datagram as well.
    ///
    /// # Errors
    /// As recvfrom(2), or epoll_ctl(2) at the first wait.
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<SocketAddr>)>> {
        let mut sender = None;
        let received = self.io.poll_reading(cx, || {
            let (size, from) = outgoing::receive(self.as_fd(), buf)?;
            sender = from;
            Ok((size, After::More))
        });
        received.map_ok(|size| (size, sender))
    }

    /// send(2) of one datagram to where the socket is connected.
    ///
    /// # Errors
    /// As send(2), or epoll_ctl(2) at the first wait.
    pub fn poll_send(&self, cx: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        self.io.poll_writing(cx, || sys::send(self.as_fd(), datagram)).map_ok(drop)
    }

    /// sendto(2) of one datagram.
    ///
    /// # Errors
    /// As sendto(2), or epoll_ctl(2) at the first wait.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        datagram: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<()>> {
        self.io.poll_writing(cx, || outgoing::send_to(self.as_fd(), datagram, to)).map_ok(drop)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
