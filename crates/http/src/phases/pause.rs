//! A request that is held back for a while, by a handler that wants it to wait. Runs in the request's
//! task, which meanwhile waits for a timer of its own and, where the client is to get something of it, for
//! the client to leave.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use clearway_runtime::Timer;

use crate::link::Link;
use crate::phases::Exchange;
use crate::request::answer::Answer;
use crate::request::strands::StrandId;
use clearway_message::status::internal::CLIENT_CLOSED_REQUEST;

impl Exchange<'_, '_> {
    /// Waits so long, milliseconds.
    ///
    /// # Errors
    /// The answer to give instead: the client has closed the connection. That is logged.
    pub async fn pause(&mut self, delay_ms: u64) -> Result<(), Answer> {
        let (link, home) = (self.request.link, self.request.client.home);
        let timer = Timer::new(home);
        timer.arm(home.now_ms().saturating_add(delay_ms));
        let is_for_client = self.request.is_for_client();
        let (strands, strand) = (self.request.strands(), self.request.strand());
        let end = poll_fn(|cx| {
            if !is_for_client {
                return timer.poll_expired(cx).map(|()| End::Over);
            }
            match strand {
                StrandId::ROOT => poll_end(link, &timer, cx),
                _ => match strands.poll_closed(link) {
                    Poll::Ready(left) => Poll::Ready(End::Closed(left)),
                    Poll::Pending => timer.poll_expired(cx).map(|()| End::Over),
                },
            }
        })
        .await;
        let End::Closed(left) = end else { return Ok(()) };
        self.request.log_left(&left);
        Err(Answer::Status(CLIENT_CLOSED_REQUEST))
    }
}

/// Why a pause ends.
enum End {
    Over,
    Closed(io::Result<()>),
}

fn poll_end(link: Link<'_>, timer: &Timer, cx: &mut Context<'_>) -> Poll<End> {
    if let Poll::Ready(closed) = link.poll_closed(cx) {
        return Poll::Ready(End::Closed(closed));
    }
    timer.poll_expired(cx).map(|()| End::Over)
}
