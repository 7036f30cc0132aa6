//! epoll(7) and eventfd(2). `Epoll::wait` blocks; everything else does not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

pub use rustix::event::epoll::{Event, EventFlags};

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Creates one, close-on-exec.
    ///
    /// # Errors
    /// As epoll_create1(2): too many descriptors, no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds `fd`; its events carry `token`.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    #[inline]
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Changes what is waited for; with edge-triggering this also tells the present state once more.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    #[inline]
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Removes `fd`. Needed only for descriptors that stay open elsewhere: close(2) of the last one
    /// removes the rest.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0, fd)?)
    }

    /// Waits for events, at most `timeout_ms` milliseconds (`None`: for ever), and replaces the
    /// contents of `events` by at most its capacity of them. A signal counts as no event.
    /// **Blocks.**
    ///
    /// # Errors
    /// As epoll_wait(2), except EINTR.
    #[inline]
    pub fn wait(&self, events: &mut Vec<Event>, timeout_ms: Option<u64>) -> io::Result<()> {
        events.clear();
        let limit = timeout_ms.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
        });
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// An eventfd. Registered edge-triggered each write is one event, and nobody needs to read it; a watcher with
/// poll(2) takes what was written.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates one, nonblocking and close-on-exec.
    ///
    /// # Errors
    /// As eventfd(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes one event. The counter would overflow after 2^64 - 2 of them.
    pub fn signal(&self) {
        let written = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an eventfd takes a write of 8 bytes: {written:?}");
    }

    /// Takes the events that were made; `false` if there were none. From then on it is not readable.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_of_an_unread_eventfd_is_an_edge() {
        let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        epoll.add(event.as_fd(), 7, EventFlags::IN | EventFlags::ET).unwrap();
        let mut events = Vec::with_capacity(4);
        for _ in 0..3 {
            event.signal();
            epoll.wait(&mut events, Some(1000)).unwrap();
            assert_eq!(events.len(), 1);
            assert_eq!(events[0].data.u64(), 7);
            epoll.wait(&mut events, Some(0)).unwrap();
            assert!(events.is_empty());
        }
    }
}
