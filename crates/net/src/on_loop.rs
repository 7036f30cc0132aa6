//! Listening sockets on a real loop, as the accept task wants them: the loop's own, and where each loop has
//! one (`reuseport`) those of others too, of which the kernel tells when their own loop is busy.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use clearway_runtime::{Listener, Timer};

use crate::PeerAddr;
use crate::accept::{ConnectionSource, RECLAIM_MAX, RECLAIM_SHARE};

/// How many sockets of other loops a loop watches at most. Each connection that comes while its own loop is
/// busy has the kernel look at so many.
pub const OTHERS_MAX: usize = 7;

/// The listening sockets of one loop. The timer serves the pause after descriptors ran out.
pub struct LoopSource {
    /// The loop's own socket first.
    listeners: Vec<Listener>,
    /// A bit for each socket that has connections waiting, as far as is known.
    ready: AtomicU64,
    turns: Turns,
    timer: Timer,
}

/// Whether loops take turns to be told of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// The same loop is told first each time.
    No,
    /// All loops share the socket, and the loop that was told of a connection goes to the end of the queue.
    Yes,
}

impl LoopSource {
    /// Accepts from `listener` on the loop that watches it.
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        let timer = Timer::new(listener.home());
        Self { listeners: vec![listener], ready: AtomicU64::new(0), turns: Turns::No, timer }
    }

    /// Accepts from the sockets of other loops as well, [`OTHERS_MAX`] of them at most. They are to be
    /// watched by this loop after their own ones watch them, so that those come first.
    #[must_use]
    pub fn with_others(mut self, others: Vec<Listener>) -> Self {
        debug_assert!(others.len() <= OTHERS_MAX, "a bit for each");
        self.listeners.extend(others);
        self
    }

    /// Shares its socket with other loops, which the kernel is to wake in turn.
    #[must_use]
    pub fn taking_turns(mut self) -> Self {
        self.turns = Turns::Yes;
        self
    }

    fn own(&self) -> &Listener {
        &self.listeners[0]
    }

    /// The socket with the most waiting connections, by its number. If that one is always served, all queues
    /// become equally long, and no client waits longer because of its queue.
    fn longest(&self, ready: u64) -> usize {
        if ready.count_ones() == 1 {
            return ready.trailing_zeros() as usize;
        }
        let candidates = (0..self.listeners.len()).filter(|at| ready & 1 << at != 0).rev();
        candidates.max_by_key(|&at| self.listeners[at].waiting()).unwrap_or(0)
    }
}

impl ConnectionSource for LoopSource {
    fn accept(&self) -> io::Result<(OwnedFd, PeerAddr)> {
        let mut ready = self.ready.load(Ordering::Relaxed);
        loop {
            let at = if ready == 0 { 0 } else { self.longest(ready) };
            match self.listeners[at].accept() {
                Ok((fd, peer)) => return Ok((fd, peer.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && ready & !(1 << at) != 0 => {
                    // Its own loop was faster.
                    ready &= !(1 << at);
                    self.ready.store(ready, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = 0;
        for (at, listener) in self.listeners.iter().enumerate() {
            ready |= u64::from(listener.poll_acceptable(cx).is_ready()) << at;
        }
        self.ready.store(ready, Ordering::Relaxed);
        if ready == 0 { Poll::Pending } else { Poll::Ready(()) }
    }

    fn pause(&self) {
        self.listeners.iter().for_each(Listener::unwatch);
    }

    fn resume(&self) -> io::Result<()> {
        self.listeners.iter().try_for_each(Listener::watch)
    }

    fn reclaim(&self, at: usize) -> usize {
        self.own().home().sibling(at).reclaim(RECLAIM_SHARE, RECLAIM_MAX)
    }

    fn backlog(&self, at: usize) -> u32 {
        self.own().home().sibling(at).backlog(self.now_ms())
    }

    fn let_others_first(&self) -> bool {
        // A busy loop is passed over by the kernel anyway.
        let is_idle = || self.own().home().backlog(self.now_ms()) == 0;
        self.turns == Turns::No || !is_idle() || self.own().let_others_first().is_ok()
    }

    fn leave_others(&mut self) {
        self.listeners.truncate(1);
        self.ready.store(0, Ordering::Relaxed);
    }

    fn refuse_handshakes(&self) -> bool {
        self.own().refuse_handshakes()
    }

    fn now_ms(&self) -> u64 {
        self.own().home().now_ms()
    }

    fn poll_deadline(&self, cx: &mut Context<'_>, deadline_ms: u64) -> Poll<()> {
        self.timer.arm(deadline_ms);
        self.timer.poll_expired(cx)
    }
}
