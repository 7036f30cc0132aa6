//! epoll, level-triggered and for reading only: what the load generators wait with, to the microsecond.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

const EVENTS_AT_ONCE: usize = 256;

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_AT_ONCE) })
    }

    /// `index` is what [`Poller::wait`] returns for it. Closing the descriptor removes it.
    pub(crate) fn add(&self, fd: impl AsFd, index: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(index as u64), EventFlags::IN)?)
    }

    /// The indexes of what can be read, or nothing after `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<impl Iterator<Item = usize> + '_> {
        let timeout = Timespec::try_from(limit).expect("limits are seconds");
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(self.events.iter().map(|event| event.data.u64() as usize))
    }
}
