//! Stream sockets. How an operation waits is in watched.rs.
//!
//! close(2) takes the descriptor out of epoll, and an event that is on its way by then meets another
//! generation of the slot, so no EPOLL_CTL_DEL is paid per connection. Any task may hold a socket;
//! one task reads and one writes at a time.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker, ready};

use clearway_os::page_cache;
use clearway_os::socket as sys;

use crate::LoopRef;
use crate::io::slots::{Interest, Offer, READ_CLOSED, WRITE, WRITE_CLOSED};
use crate::io::watched::{After, Origin, Watched};
use crate::task::coop;

/// A nonblocking stream socket. Each success of a poll method costs one unit of the task's budget.
pub struct Socket {
    pub(crate) io: Watched,
}

/// The state of a socket for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Nothing: the peer waits.
    Quiet,
    /// Something.
    Unread,
    /// The end, or what broke the connection.
    Ended,
}

/// Why a socket that its task can do without is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A read may succeed.
    Readable,
    /// The socket is to be closed.
    Reclaimed,
}

impl Socket {
    /// Takes a nonblocking descriptor. It is registered at the first operation that would block.
    #[must_use]
    pub fn new(home: LoopRef, fd: OwnedFd) -> Self {
        Self { io: Watched::new(home, fd, Origin::Accepted) }
    }

    /// Whether a read is worth trying although nothing is known of its readiness: whether enough of those
    /// that were tried so on its loop have found something (first_reads.rs). Otherwise
    /// [`Socket::poll_readable`] is cheaper. To be asked once, of a new socket.
    pub fn may_have_data(&self) -> bool {
        self.io.home().0.first_reads.are_worth_it()
    }

    /// The loop that watches it.
    pub fn home(&self) -> LoopRef {
        self.io.home()
    }

    /// Ready when a read may succeed (data, end or error). A hint: it may still block, but not for want of
    /// budget, so a task that waits for this and then reads gets on.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(slot) = ready!(self.io.poll_registered(cx, Interest::Read)) else {
            // Reading will say what is wrong.
            return Poll::Ready(());
        };
        if !self.io.may_read(slot.state()) {
            slot.reader.register(cx.waker());
            if !self.io.may_read(slot.state()) {
                return Poll::Pending;
            }
        }
        coop::poll_budget(cx)
    }

    /// The same for a socket that its task can do without, from [`LoopRef::now_ms`] `from_ms` on:
    /// [`Woken::Reclaimed`] when the loop has no room for another one ([`LoopRef::reclaim`]). It is free
    /// again when the socket is dropped.
    pub fn poll_readable_or_reclaimed(&self, cx: &mut Context<'_>, from_ms: u64) -> Poll<Woken> {
        let Ok(slot) = ready!(self.io.poll_registered(cx, Interest::Read)) else {
            return Poll::Ready(Woken::Readable);
        };
        if !self.io.may_read(slot.state()) {
            slot.reader.register(cx.waker());
            if !self.io.may_read(slot.state()) {
                return match slot.offer(from_ms) {
                    Offer::Standing => Poll::Pending,
                    Offer::Accepted => Poll::Ready(Woken::Reclaimed),
                };
            }
        }
        slot.take_back_offer();
        coop::poll_budget(cx).map(|()| Woken::Readable)
    }

    /// Whether the loop watches it, and has learned of nothing since it was read to its end.
    pub fn is_quiet(&self) -> bool {
        self.io.registered().is_some_and(|(_, state)| !self.io.may_read(state))
    }

    /// Whether the loop has learned of something (data, the end) that has not been read. What has come since
    /// it looked last, or before it watched, it does not know.
    pub fn has_unread(&self) -> bool {
        self.io.registered().is_some_and(|(_, state)| self.io.may_read(state))
    }

    /// Whether the loop has learned that the peer has ended its direction, or that the connection broke.
    pub fn has_ended(&self) -> bool {
        self.io.registered().is_some_and(|(_, state)| state & READ_CLOSED != 0)
    }

    /// Whether the last write was taken, as far as the loop has learned, and does not wait for the peer.
    pub fn is_writable(&self) -> bool {
        self.io.registered().is_none_or(|(_, state)| state & (WRITE | WRITE_CLOSED) != 0)
    }

    /// Ready when the peer has ended its direction, or the connection broke: then with what broke it.
    /// Takes the place of a waiting reader; nothing is read.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = ready!(self.io.poll_registered(cx, Interest::Read))?;
        if slot.state() & READ_CLOSED == 0 {
            slot.reader.register(cx.waker());
            if slot.state() & READ_CLOSED == 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(sys::take_error(self.as_fd()))
    }

    /// recv(2) into the spare capacity of `buf`, which must not be empty; 0 is the end of the stream.
    ///
    /// # Errors
    /// As recv(2), or epoll_ctl(2) at the first wait.
    pub fn poll_read_vec(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = self.io.trickle.room(buf.capacity() - buf.len());
        self.io.poll_reading(cx, || {
            let size = self.io.trickle.recv_into(self.as_fd(), buf)?;
            Ok((size, if size < room { After::Exhausted } else { After::More }))
        })
    }

    /// readv(2) into several buffers, which must not all be empty; 0 is the end of the stream.
    ///
    /// # Errors
    /// As readv(2), or epoll_ctl(2) at the first wait.
    pub fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        debug_assert_ne!(room, 0, "no room would look like the end of the stream");
        let room = self.io.trickle.room(room);
        self.io.poll_reading(cx, || {
            let size = self.io.trickle.readv(self.as_fd(), bufs)?;
            Ok((size, if size < room { After::Exhausted } else { After::More }))
        })
    }

    /// recv(2) as [`Socket::poll_read_vec`], but at once, whatever is known of the socket's readiness: for
    /// a last look before it is closed.
    ///
    /// # Errors
    /// As recv(2).
    pub fn try_read_vec(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        sys::recv_into(self.as_fd(), buf)
    }

    /// send(2).
    ///
    /// # Errors
    /// As send(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_writing(cx, || self.io.trickle.send(self.as_fd(), buf))
    }

    /// send(2) of what something else follows at once, so that the last packet waits for that.
    ///
    /// # Errors
    /// As send(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write_more(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_writing(cx, || self.io.trickle.send_more(self.as_fd(), buf))
    }

    /// writev(2).
    ///
    /// # Errors
    /// As writev(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.io.poll_writing(cx, || self.io.trickle.writev(self.as_fd(), bufs))
    }

    /// sendfile(2) of up to `count` bytes of `file` from `offset`; 0 is the end of the file. What is not
    /// in memory of the file is waited for, so that has to be known before.
    ///
    /// # Errors
    /// As sendfile(2), or epoll_ctl(2) at the first wait.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.io.poll_writing(cx, || page_cache::send(self.as_fd(), file, offset, count))
    }

    /// Ends the writing direction.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn shutdown_write(&self) -> io::Result<()> {
        sys::shutdown_write(self.as_fd())
    }

    /// Has another loop watch it from now on. What has come and was not read is noticed there. Nobody may
    /// wait for it: to be called by the one task that holds it, which is about to hand it on.
    ///
    /// # Errors
    /// As epoll_ctl(2); its loop watches it as before.
    pub fn move_to(&mut self, home: LoopRef) -> io::Result<()> {
        self.io.move_to(home)
    }

    /// Has its loop watch it although nobody waits for it yet, so that [`Socket::has_ended`] and
    /// [`Socket::has_unread`] learn of what comes: to be done before it is put where others find it. No other
    /// task may have it.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn watch(&self) -> io::Result<()> {
        self.io.register().map(drop)
    }

    /// [`Socket::watch`], and has `waker` woken once when something comes, or the end: for a task that
    /// looks after many sockets. It is replaced by the task that waits to read next.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn watch_idle(&self, waker: &Waker) -> io::Result<()> {
        let slot = self.io.register()?;
        slot.reader.register(waker);
        // Bytes that came before the registration have woken no task.
        if self.has_unread() {
            waker.wake_by_ref();
        }
        Ok(())
    }

    /// From now on its loop may have it closed where it has no room for another one ([`LoopRef::reclaim`]):
    /// it wakes the waker of [`Socket::watch_idle`], and [`Socket::is_reclaimed`] says so. For a socket that
    /// is watched, and until [`Socket::take_back`].
    pub fn offer(&self) {
        if let Some((slot, _)) = self.io.registered() {
            slot.offer(self.home().now_ms());
        }
    }

    /// Whether it is to be closed for another one.
    pub fn is_reclaimed(&self) -> bool {
        self.io.registered().is_some_and(|(slot, _)| slot.is_reclaimed())
    }

    /// Ends the offer to do without it. `false`: it is to be closed, as another one waits for that.
    #[must_use]
    pub fn take_back(&self) -> bool {
        self.io.registered().is_none_or(|(slot, _)| slot.end_offer() == Offer::Standing)
    }

    /// Looks at what there is to read without reading it, whatever the loop knows: before a connection that
    /// was idle for a while is used for what cannot be asked twice.
    #[must_use]
    pub fn probe(&self) -> Probe {
        match sys::peek(self.as_fd()) {
            Ok(0) => Probe::Ended,
            Ok(_) => Probe::Unread,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Probe::Quiet
            }
            Err(_) => Probe::Ended,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
