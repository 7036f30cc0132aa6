//! A connection as it carries one request after the other: its transport, a timer, and what was asked of
//! the socket. Owned by the connection's task, which lends it to the request that it runs.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use clearway_runtime::{LoopRef, Timer};
use clearway_site::CoreLocation;

use super::departure::Deeds;
use super::transport::Transport;
use crate::metrics::Stage;

/// TCP_NODELAY was switched on, so that small writes leave at once.
const NODELAY_ON: u8 = 1;
/// TCP_NODELAY was switched off.
const NODELAY_OFF: u8 = 2;

/// The parts of a connection that its HTTP/1 requests use, one after the other.
pub struct Http1Link {
    /// The transport of its bytes.
    pub transport: Transport,
    /// The timer for one wait at a time: for a request, a head, more of a body.
    pub timer: Timer,
    /// Requests so far, which are not counted beyond the largest number; written by the connection's task.
    served: AtomicU32,
    /// The state under which the connection is counted.
    pub stage: Stage,
    /// Whether small writes leave at once (TCP_NODELAY).
    nodelay: AtomicU8,
    pub(super) deeds: Deeds,
}

impl Drop for Http1Link {
    fn drop(&mut self) {
        self.stage.close(self.transport.home().index());
    }
}

impl Http1Link {
    /// On a transport.
    pub fn new(transport: Transport) -> Self {
        let home = transport.home();
        Self {
            transport,
            timer: Timer::new(home),
            served: AtomicU32::new(0),
            stage: Stage::new(home.index()),
            nodelay: AtomicU8::new(0),
            deeds: Deeds::default(),
        }
    }

    /// Has another loop watch it. Nobody may wait for it.
    ///
    /// # Errors
    /// It cannot be registered there; nothing has changed then.
    pub fn move_to(&mut self, there: LoopRef) -> io::Result<()> {
        let here = self.transport.home();
        self.transport.move_to(there)?;
        self.stage.moved(here.index(), there.index());
        self.timer = Timer::new(there);
        debug_assert!(!self.deeds.are_under_way(), "a connection moves between requests");
        debug_assert!(self.transport.home().index() == there.index(), "its socket is watched there");
        Ok(())
    }

    /// How many requests there were so far.
    pub fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// The number of the request that begins, from 1.
    pub fn count_request(&self) -> u64 {
        let number = self.served().saturating_add(1);
        self.served.store(number, Ordering::Relaxed);
        u64::from(number)
    }

    /// Makes small writes leave at once, unless the location does not want that (`tcp_nodelay`).
    pub fn send_at_once(&self, core: &CoreLocation) {
        if *core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_ON {
            self.nodelay.store(NODELAY_ON, Ordering::Relaxed);
            self.transport.set_nodelay();
        }
    }

    pub(super) fn begin_response(&self, core: &CoreLocation) {
        if !*core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_OFF {
            self.nodelay.store(NODELAY_OFF, Ordering::Relaxed);
            self.transport.clear_nodelay();
        }
    }
}
