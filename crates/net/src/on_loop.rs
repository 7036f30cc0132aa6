//! A listening socket on a real loop, as the accept task wants it.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use clearway_runtime::{Listener, Timer};

use crate::PeerAddr;
use crate::accept::{RECLAIM_MAX, RECLAIM_SHARE, Source};

/// See the file's head. The timer serves the pause after descriptors ran out.
pub struct LoopSource {
    listener: Listener,
    timer: Timer,
}

impl LoopSource {
    /// Accepts from `listener` on the loop that watches it.
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        let timer = Timer::new(listener.home());
        Self { listener, timer }
    }
}

impl Source for LoopSource {
    fn accept(&self) -> io::Result<(OwnedFd, PeerAddr)> {
        let (fd, peer) = self.listener.accept()?;
        Ok((fd, peer.into()))
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.listener.poll_acceptable(cx)
    }

    fn pause(&self) {
        self.listener.unwatch();
    }

    fn resume(&self) -> io::Result<()> {
        self.listener.watch()
    }

    fn reclaim(&self) -> usize {
        self.listener.home().reclaim(RECLAIM_SHARE, RECLAIM_MAX)
    }

    fn refuse_handshakes(&self) -> bool {
        self.listener.refuse_handshakes()
    }

    fn now_ms(&self) -> u64 {
        self.listener.home().now_ms()
    }

    fn poll_deadline(&self, cx: &mut Context<'_>, deadline_ms: u64) -> Poll<()> {
        self.timer.arm(deadline_ms);
        self.timer.poll_expired(cx)
    }
}
