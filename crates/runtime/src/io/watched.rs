//! A descriptor, its place in the event table of its loop, and the way every operation on it goes: it is
//! tried first, and only one that would block has the descriptor registered (edge-triggered). Room for
//! writing is watched only after a write found none.
//!
//! One task reads and one writes at a time; they may register at the same moment, on different loops (rule 5
//! of slots.rs). A short read means that the next one would block, so it is not tried.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use clearway_os::epoll::EventFlags;

use crate::LoopRef;
use crate::io::first_reads::FirstRead;
use crate::io::slots::{
    ADDED, Added, Adding, Interest, READ, READ_CLOSED, Slot, Token, WRITE, WRITE_CLOSED, WRITE_WATCHED,
    may_read,
};
use crate::io::trickle::Trickle;
use crate::sync::{AtomicU64, Ordering};
use crate::task::coop;

const READING: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// A descriptor and its place in the event table of its loop.
pub(crate) struct Watched {
    fd: OwnedFd,
    home: LoopRef,
    origin: Origin,
    /// Names its slot; 0: it has none yet.
    token: AtomicU64,
    /// The slot's state at which all that there was has been read (rule 2 of slots.rs); the reader writes it.
    spent: AtomicU64,
    pub(crate) trickle: Trickle,
}

/// Where a descriptor comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From a listener: what its first read finds says something of others (first_reads.rs).
    Accepted,
    /// This side has made it.
    Own,
}

/// Whether a successful call has shown that the next one would block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Exhausted,
    More,
}

impl Watched {
    pub(crate) fn new(home: LoopRef, fd: OwnedFd, origin: Origin) -> Self {
        Self { fd, home, origin, token: AtomicU64::new(0), spent: AtomicU64::new(0), trickle: Trickle::new() }
    }

    pub(crate) fn home(&self) -> LoopRef {
        self.home
    }

    /// Its slot, with the state that it had just now, if epoll watches it.
    pub(crate) fn registered(&self) -> Option<(&'static Slot, u64)> {
        let token = self.token.load(Ordering::Acquire);
        if token == 0 {
            return None;
        }
        let slot = self.home.0.slots.find(Token(token))?;
        let state = slot.state();
        (state & ADDED != 0).then_some((slot, state))
    }

    pub(crate) fn may_read(&self, state: u64) -> bool {
        may_read(state, self.spent.load(Ordering::Relaxed))
    }

    /// Its slot once epoll watches it.
    #[inline]
    pub(crate) fn poll_registered(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
    ) -> Poll<io::Result<&'static Slot>> {
        match self.registered() {
            Some((slot, _)) => Poll::Ready(Ok(slot)),
            None => self.poll_register(cx, interest),
        }
    }

    /// Registers it, unless another task is about to.
    fn poll_register(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<&'static Slot>> {
        let (slot, mut turn) = self.attach(interest)?;
        if turn != Adding::Ours {
            let cell = match interest {
                Interest::Read => &slot.reader,
                Interest::Write => &slot.writer,
            };
            cell.register(cx.waker());
            turn = slot.begin_add(interest);
        }
        match turn {
            Adding::Ours => self.add(slot, interest)?,
            Adding::Theirs => return Poll::Pending,
            Adding::Done => {}
        }
        Poll::Ready(Ok(slot))
    }

    /// Registers it now, for tasks that wait for nothing yet: to be called where no other task has it.
    pub(crate) fn register(&self) -> io::Result<&'static Slot> {
        if let Some((slot, _)) = self.registered() {
            return Ok(slot);
        }
        let (slot, turn) = self.attach(Interest::Read)?;
        if turn == Adding::Ours || slot.begin_add(Interest::Read) == Adding::Ours {
            self.add(slot, Interest::Read)?;
        }
        Ok(slot)
    }

    fn attach(&self, interest: Interest) -> io::Result<(&'static Slot, Adding)> {
        self.home.0.slots.attach(&self.token, interest).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn add(&self, slot: &Slot, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read => READING,
            Interest::Write => READING | EventFlags::OUT,
        };
        let token = self.token.load(Ordering::Relaxed);
        let added = self.home.0.epoll.add(self.fd.as_fd(), token, flags);
        slot.end_add(if added.is_ok() { Added::Yes } else { Added::No });
        added
    }

    fn watch_writing(&self, slot: &Slot) -> io::Result<()> {
        if slot.state() & WRITE_WATCHED == 0 {
            slot.note_write_watched();
            let token = self.token.load(Ordering::Relaxed);
            let watched = self.home.0.epoll.modify(self.fd.as_fd(), token, READING | EventFlags::OUT);
            return watched.inspect_err(|_| slot.note_write_unwatched());
        }
        Ok(())
    }

    /// Has another loop watch it from the next registration on.
    pub(crate) fn move_to(&mut self, home: LoopRef) -> io::Result<()> {
        if self.registered().is_some() {
            self.home.0.epoll.delete(self.fd.as_fd())?;
        }
        self.detach();
        *self.spent.get_mut() = 0;
        self.home = home;
        Ok(())
    }

    fn detach(&mut self) {
        let token = std::mem::take(self.token.get_mut());
        if token != 0 {
            self.home.0.slots.release(Token(token));
        }
    }

    pub(crate) fn poll_reading(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> io::Result<(usize, After)>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_budget(cx));
        ready!(self.trickle.poll_read(cx));
        loop {
            let registered = self.registered();
            if let Some((slot, seen)) = registered
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
                    match registered {
                        Some((_, seen)) if after == After::Exhausted => {
                            self.spent.store(seen, Ordering::Relaxed);
                        }
                        Some(_) => {}
                        None => self.note_first_read(FirstRead::Found),
                    }
                    coop::spend(cx);
                    return Poll::Ready(Ok(size));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match registered {
                    // A closed direction that would block has an error for writing only.
                    Some((slot, seen)) => slot.clear(seen, READ | READ_CLOSED),
                    None => {
                        self.note_first_read(FirstRead::InVain);
                        ready!(self.poll_register(cx, Interest::Read))?;
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn note_first_read(&self, read: FirstRead) {
        if self.origin == Origin::Accepted {
            self.home.0.first_reads.note(read);
        }
    }

    pub(crate) fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_budget(cx));
        ready!(self.trickle.poll_write(cx));
        loop {
            let registered = self.registered();
            if let Some((slot, seen)) = registered
                && seen & (WRITE | WRITE_CLOSED) == 0
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
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match registered {
                    Some((slot, seen)) => slot.clear(seen, WRITE | WRITE_CLOSED),
                    None => {
                        ready!(self.poll_register(cx, Interest::Write))?;
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Ready when a write may succeed, a connection that was begun is made, or either has failed.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let slot = ready!(self.poll_registered(cx, Interest::Write))?;
        if slot.state() & (WRITE | WRITE_CLOSED) == 0 {
            slot.writer.register(cx.waker());
            self.watch_writing(slot)?;
            if slot.state() & (WRITE | WRITE_CLOSED) == 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.detach();
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
