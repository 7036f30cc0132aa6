//! Sockets whose readiness a loop watches. An operation is tried first; only one that would block
//! registers the descriptor (edge-triggered), and room for writing is watched only after a write
//! found none. A short read means that the next one would block, so it is not tried.
//!
//! close(2) takes the descriptor out of epoll, and an event that is on its way by then meets another
//! generation of the slot, so no EPOLL_CTL_DEL is paid per connection. Any task may hold a socket;
//! one task reads and one writes at a time.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use clearway_os::accept_queue;
use clearway_os::epoll::EventFlags;
use clearway_os::filter;
use clearway_os::page_cache;
use clearway_os::socket::{self as sys, Peer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::LoopRef;
use crate::io::slots::{Offer, READ, READ_CLOSED, Slot, Token, WRITE, WRITE_CLOSED, WRITE_WATCHED, may_read};
use crate::task::coop;

const READING: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// A nonblocking stream socket. Each success of a poll method costs one unit of the task's budget.
pub struct Socket {
    fd: OwnedFd,
    home: LoopRef,
    /// The registration's token; 0: none yet.
    token: AtomicU64,
    /// The slot's state at which all that there was has been read (rule 2 of slots.rs); written by who reads.
    spent: AtomicU64,
}

/// Whether a successful call has shown that the next one would block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Exhausted,
    More,
}

/// Why a socket that its task can do without is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A read may succeed.
    Readable,
    /// It is to be closed.
    Reclaimed,
}

impl Socket {
    /// Takes a nonblocking descriptor. It is registered at the first operation that would block.
    #[must_use]
    pub fn new(home: LoopRef, fd: OwnedFd) -> Self {
        Self { fd, home, token: AtomicU64::new(0), spent: AtomicU64::new(0) }
    }

    /// Whether a read is worth trying although nothing is known of its readiness: whether enough of those
    /// that were tried so on its loop have found something (first_reads.rs). Otherwise
    /// [`Socket::poll_readable`] is cheaper. To be asked once, of a new socket.
    pub fn may_have_data(&self) -> bool {
        self.home.0.first_reads.are_worth_it()
    }

    /// The loop that watches it.
    pub fn home(&self) -> LoopRef {
        self.home
    }

    /// Ready when a read may succeed (data, end or error). A hint: it may still block, but not for want of
    /// budget, so who waits for this and then reads gets on.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.slot().or_else(|| self.register().ok()) else {
            // Reading will say what is wrong.
            return Poll::Ready(());
        };
        if !self.may_read(slot.state()) {
            slot.reader.register(cx.waker());
            if !self.may_read(slot.state()) {
                return Poll::Pending;
            }
        }
        coop::poll_budget(cx)
    }

    /// The same for a socket that its task can do without, from [`LoopRef::now_ms`] `from_ms` on:
    /// [`Woken::Reclaimed`] when the loop has no room for another one ([`LoopRef::reclaim`]). It is free
    /// again when the socket is dropped.
    pub fn poll_readable_or_reclaimed(&self, cx: &mut Context<'_>, from_ms: u64) -> Poll<Woken> {
        let Some(slot) = self.slot().or_else(|| self.register().ok()) else {
            return Poll::Ready(Woken::Readable);
        };
        if !self.may_read(slot.state()) {
            slot.reader.register(cx.waker());
            if !self.may_read(slot.state()) {
                return match slot.offer(from_ms) {
                    Offer::Standing => Poll::Pending,
                    Offer::Accepted => Poll::Ready(Woken::Reclaimed),
                };
            }
        }
        slot.take_back_offer();
        coop::poll_budget(cx).map(|()| Woken::Readable)
    }

    /// Whether the loop has learned of something (data, the end) that has not been read. What has come since
    /// it looked last, or before it watched, it does not know.
    pub fn has_unread(&self) -> bool {
        self.slot().is_some_and(|slot| self.may_read(slot.state()))
    }

    /// Whether the loop has learned that the peer has ended its direction, or that the connection broke.
    pub fn has_ended(&self) -> bool {
        self.slot().is_some_and(|slot| slot.state() & READ_CLOSED != 0)
    }

    /// Ready when the peer has ended its direction, or the connection broke: then with what broke it.
    /// Takes the place of whoever waits to read; nothing is read.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = match self.slot() {
            Some(slot) => slot,
            None => self.register()?,
        };
        if slot.state() & READ_CLOSED == 0 {
            slot.reader.register(cx.waker());
            if slot.state() & READ_CLOSED == 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(sys::take_error(self.fd.as_fd()))
    }

    /// recv(2) into the spare capacity of `buf`, which must not be empty; 0 is the end of the stream.
    ///
    /// # Errors
    /// As recv(2), or epoll_ctl(2) at the first wait.
    pub fn poll_read_vec(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buf.capacity() - buf.len();
        self.poll_reading(cx, || {
            let size = sys::recv_into(self.fd.as_fd(), buf)?;
            Ok((size, if size < room { After::Exhausted } else { After::More }))
        })
    }

    /// recv(2) as [`Socket::poll_read_vec`], but at once, whatever is known of the socket's readiness: for
    /// a last look before it is closed.
    ///
    /// # Errors
    /// As recv(2).
    pub fn try_read_vec(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        sys::recv_into(self.fd.as_fd(), buf)
    }

    /// send(2).
    ///
    /// # Errors
    /// As send(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, || sys::send(self.fd.as_fd(), buf))
    }

    /// send(2) of what something else follows at once, so that the last packet waits for that.
    ///
    /// # Errors
    /// As send(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write_more(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, || sys::send_more(self.fd.as_fd(), buf))
    }

    /// writev(2).
    ///
    /// # Errors
    /// As writev(2), or epoll_ctl(2) at the first wait.
    pub fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, || sys::writev(self.fd.as_fd(), bufs))
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
        self.poll_writing(cx, || page_cache::send(self.fd.as_fd(), file, offset, count))
    }

    /// Ends the writing direction.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn shutdown_write(&self) -> io::Result<()> {
        sys::shutdown_write(self.fd.as_fd())
    }

    /// Has another loop watch it from now on. What has come and was not read is noticed there. Nobody may
    /// wait for it: to be called by the one task that holds it, which is about to hand it on.
    ///
    /// # Errors
    /// As epoll_ctl(2); its loop watches it as before.
    pub fn move_to(&mut self, home: LoopRef) -> io::Result<()> {
        let token = *self.token.get_mut();
        if token != 0 {
            self.home.0.epoll.delete(self.fd.as_fd())?;
            self.home.0.slots.release(Token(token));
            *self.token.get_mut() = 0;
            *self.spent.get_mut() = 0;
        }
        self.home = home;
        Ok(())
    }

    fn slot(&self) -> Option<&'static Slot> {
        match self.token.load(Ordering::Acquire) {
            0 => None,
            token => self.home.0.slots.find(Token(token)),
        }
    }

    fn may_read(&self, state: u64) -> bool {
        may_read(state, self.spent.load(Ordering::Relaxed))
    }

    /// Has the loop watch the descriptor for reading.
    fn register(&self) -> io::Result<&'static Slot> {
        let slots = &self.home.0.slots;
        let (token, slot) = slots.take().ok_or(io::ErrorKind::OutOfMemory)?;
        let first = self.token.compare_exchange(0, token.0, Ordering::AcqRel, Ordering::Acquire);
        if let Err(present) = first {
            // The other direction was faster.
            slots.release(token);
            return slots.find(Token(present)).ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        self.home.0.epoll.add(self.fd.as_fd(), token.0, READING)?;
        Ok(slot)
    }

    fn watch_writing(&self, slot: &Slot) -> io::Result<()> {
        if slot.state() & WRITE_WATCHED == 0 {
            slot.note_write_watched();
            let token = self.token.load(Ordering::Relaxed);
            self.home.0.epoll.modify(self.fd.as_fd(), token, READING | EventFlags::OUT)?;
        }
        Ok(())
    }

    fn poll_reading(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> io::Result<(usize, After)>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_budget(cx));
        loop {
            let slot = self.slot();
            let seen = slot.map_or(READ, Slot::state);
            if let Some(slot) = slot
                && !self.may_read(seen)
            {
                slot.reader.register(cx.waker());
                if !self.may_read(slot.state()) {
                    return Poll::Pending;
                }
                continue;
            }
            match read() {
                Ok((size, after)) => {
                    match slot {
                        Some(_) if after == After::Exhausted => self.spent.store(seen, Ordering::Relaxed),
                        Some(_) => {}
                        None => self.home.0.first_reads.note(true),
                    }
                    coop::spend(cx);
                    return Poll::Ready(Ok(size));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match slot {
                    // A closed direction that would block has an error for writing only.
                    Some(slot) => slot.clear(seen, READ | READ_CLOSED),
                    None => {
                        self.home.0.first_reads.note(false);
                        self.register()?;
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_budget(cx));
        loop {
            let slot = self.slot();
            let seen = slot.map_or(WRITE, Slot::state);
            if seen & (WRITE | WRITE_CLOSED) == 0
                && let Some(slot) = slot
            {
                slot.writer.register(cx.waker());
                self.watch_writing(slot)?;
                if slot.state() & (WRITE | WRITE_CLOSED) == 0 {
                    return Poll::Pending;
                }
                continue;
            }
            match write() {
                Ok(size) => {
                    coop::spend(cx);
                    return Poll::Ready(Ok(size));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match slot {
                    Some(slot) => slot.clear(seen, WRITE | WRITE_CLOSED),
                    None => {
                        let slot = self.register()?;
                        slot.clear(slot.state(), WRITE);
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let token = *self.token.get_mut();
        if token != 0 {
            self.home.0.slots.release(Token(token));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        let size = ready!(self.poll_reading(cx, || {
            let size = sys::recv(self.fd.as_fd(), buf.initialize_unfilled())?;
            Ok((size, if size < room { After::Exhausted } else { After::More }))
        }))?;
        buf.advance(size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(&self, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }
}

/// A listening socket as one loop sees it: several loops may watch the same one, and a connection
/// wakes one of them (`EPOLLEXCLUSIVE`). Level-triggered, since asking accept4(2) in vain is dear: it
/// makes a socket before it finds that nobody waits.
pub struct Listener {
    fd: Arc<OwnedFd>,
    home: LoopRef,
    token: Token,
    watched: AtomicBool,
}

impl Listener {
    /// Has `home` watch a nonblocking listening socket.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn new(home: LoopRef, fd: Arc<OwnedFd>) -> io::Result<Self> {
        let (token, _) = home.0.slots.take().ok_or(io::ErrorKind::OutOfMemory)?;
        let new = Self { fd, home, token, watched: AtomicBool::new(false) };
        new.watch()?;
        Ok(new)
    }

    /// The loop that watches it.
    pub fn home(&self) -> LoopRef {
        self.home
    }

    /// Takes one connection.
    ///
    /// # Errors
    /// As accept4(2).
    pub fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        sys::accept(self.fd.as_fd())
    }

    /// Ready once for each turn of the loop in which connections wait.
    pub fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.home.0.slots.find(self.token) else { return Poll::Pending };
        if slot.state() & READ == 0 {
            slot.reader.register(cx.waker());
            if slot.state() & READ == 0 {
                return Poll::Pending;
            }
        }
        // An event that comes between the two is told again at the next turn.
        slot.clear(slot.state(), READ);
        Poll::Ready(())
    }

    /// Has the kernel begin no more handshakes, for all loops that listen on the socket; those that have
    /// begun go on. `false`: it is no TCP socket, or the kernel refuses.
    #[must_use]
    pub fn refuse_handshakes(&self) -> bool {
        sys::local_address(&self.fd).is_some() && filter::refuse_handshakes(&self.fd).is_ok()
    }

    /// Has the kernel wake the other loops that watch the socket before this one when the next connections
    /// come.
    ///
    /// # Errors
    /// As epoll_ctl(2); the loop does not watch it then.
    pub fn let_others_first(&self) -> io::Result<()> {
        if self.watched.load(Ordering::Acquire) {
            self.unwatch();
            self.watch()?;
        }
        Ok(())
    }

    /// Connections that wait to be accepted; 0 where that cannot be known.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        accept_queue::waiting(&self.fd)
    }

    /// Has the loop watch it again after [`Listener::unwatch`].
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn watch(&self) -> io::Result<()> {
        if !self.watched.swap(true, Ordering::AcqRel) {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            self.home.0.epoll.add(self.fd.as_fd(), self.token.0, flags)?;
        }
        Ok(())
    }

    /// Has the loop not watch it: connections wait in the kernel's queue, or another loop takes them.
    pub fn unwatch(&self) {
        if self.watched.swap(false, Ordering::AcqRel) {
            // The descriptor may stay open for other loops, so it does not leave epoll by itself.
            let deleted = self.home.0.epoll.delete(self.fd.as_fd());
            debug_assert!(deleted.is_ok(), "it was added: {deleted:?}");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unwatch();
        self.home.0.slots.release(self.token);
    }
}
