//! A listening socket as one loop sees it: several loops may watch the same one, and a connection
//! wakes one of them (`EPOLLEXCLUSIVE`). Level-triggered, since asking accept4(2) in vain is dear: it
//! makes a socket before it finds that nobody waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use clearway_os::accept_queue;
use clearway_os::epoll::EventFlags;
use clearway_os::filter;
use clearway_os::socket::{self as sys, Peer};

use crate::LoopRef;
use crate::io::slots::{Interest, READ, Token};

/// A listening socket of one loop. One task uses it at a time.
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
        let (token, _) = home.0.slots.take(Interest::Read).ok_or(io::ErrorKind::OutOfMemory)?;
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

    /// Has the loop watch it again after [`Listener::unwatch`], or after this has failed.
    ///
    /// # Errors
    /// As epoll_ctl(2); the loop does not watch it then.
    pub fn watch(&self) -> io::Result<()> {
        if !self.watched.load(Ordering::Acquire) {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            self.home.0.epoll.add(self.fd.as_fd(), self.token.0, flags)?;
            self.watched.store(true, Ordering::Release);
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
