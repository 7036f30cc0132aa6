//! A request that is held back for a while, by a handler that wants it to wait. Runs in the request's
//! task, which meanwhile waits for a timer of its own and, where the client is to get something of it, for
//! the client to leave.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use clearway_runtime::Timer;

use crate::phases::Exchange;
use crate::request::answer::Answer;
use clearway_message::status::internal::CLIENT_CLOSED_REQUEST;

impl Exchange<'_, '_> {
    /// Waits so long, milliseconds.
    ///
    /// # Errors
    /// The answer to give instead: the client has closed the connection. That is logged.
    pub async fn pause(&mut self, delay_ms: u64) -> Result<(), Answer> {
        let (request, home) = (&*self.request, self.request.client.home);
        let timer = Timer::new(home);
        timer.arm(home.now_ms().saturating_add(delay_ms));
        let end = poll_fn(|cx| match request.poll_closed(cx) {
            Poll::Ready(closed) => Poll::Ready(End::Closed(closed)),
            Poll::Pending => timer.poll_expired(cx).map(|()| End::Over),
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
