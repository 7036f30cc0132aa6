//! Clients that leave while their request waits: for a handler, a pool, a filter or a subrequest. Polled by
//! the request's task; nothing is watched while nothing waits.
//!
//! A connection that broke is noticed at once. A client that has ended its direction may have left, or may
//! have said all that it has to say and read on: only an attempt to send tells the two apart, since a client
//! that has left answers it with a reset. So one that has ended its direction, and to which nothing was sent
//! for [`PATIENCE_MS`] although the socket would have taken it, is taken to have left.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use clearway_runtime::Timer;

use super::Link;

/// The time for which a response is prepared for a client that has ended its direction while nothing is sent
/// to it, milliseconds.
const PATIENCE_MS: u64 = 1_000;

/// Watches for one client to leave.
#[derive(Default)]
pub(crate) struct Departure(Option<Timer>);

impl Departure {
    /// Ready when the client has left; with an error if the connection broke.
    pub(crate) fn poll(&mut self, link: Link<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let home = link.home();
        let timer = match &self.0 {
            Some(timer) => timer,
            None => {
                match ready!(link.poll_closed(cx)) {
                    Err(error) if is_unwatched(&error) => return Poll::Pending,
                    ended => ended?,
                }
                let timer = self.0.insert(Timer::new(home));
                timer.arm(home.now_ms() + PATIENCE_MS);
                timer
            }
        };
        loop {
            ready!(timer.poll_expired(cx));
            if let Poll::Ready(Err(broken)) = link.poll_closed(cx) {
                return Poll::Ready(Err(broken));
            }
            if link.is_writable() && silent_ms(link) >= PATIENCE_MS && !link.deeds().are_under_way() {
                return Poll::Ready(Ok(()));
            }
            timer.arm(home.now_ms() + PATIENCE_MS);
        }
    }
}

/// Whether a loop that has no room to watch the socket says so, which is not the client's doing.
fn is_unwatched(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull)
}

/// The time for which nothing was sent, as far as that is known.
fn silent_ms(link: Link<'_>) -> u64 {
    link.tcp_info().map_or(u64::MAX, |info| u64::from(info.last_sent_ms))
}

/// Jobs of a connection's requests that have begun to change something: they are waited for even if the
/// client leaves, so that their outcome is logged.
#[derive(Default)]
pub(crate) struct Deeds(AtomicU8);

impl Deeds {
    /// Counts one until the result is dropped.
    pub(crate) fn begin(&self) -> Deed<'_> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before < u8::MAX, "so many deeds can be counted");
        Deed(&self.0)
    }

    pub(super) fn are_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// One of [`Deeds`].
pub(crate) struct Deed<'c>(&'c AtomicU8);

impl Drop for Deed<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each deed ends once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_cannot_watch_is_no_client_that_has_left() {
        let is_unwatched = |code: i32| is_unwatched(&io::Error::from_raw_os_error(code));
        // ENOMEM and ENOSPC of epoll_ctl(2); ECONNRESET and EPIPE of a socket.
        assert_eq!([12, 28, 104, 32].map(is_unwatched), [true, true, false, false]);
    }
}
