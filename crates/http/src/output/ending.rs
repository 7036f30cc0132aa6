//! How a response ends before it is complete: it cannot be sent, or its client leaves while it is made (a
//! pool reads, a filter is busy, subrequests go on). Owned by the request's task.

use std::task::{Context, Poll};

use super::{OutputState, Unsent};
use crate::connection::Conn;
use crate::link::send_queue::SendFailure;
use crate::request::Request;
use clearway_message::status::internal::CLIENT_CLOSED_REQUEST;

impl OutputState<'_> {
    pub(super) fn fail(&mut self, failure: SendFailure) -> Poll<Result<(), Unsent>> {
        self.fail_with(failure);
        Poll::Ready(Err(Unsent))
    }

    /// The rest of the response cannot be had.
    pub(crate) fn fail_with(&mut self, failure: SendFailure) {
        self.unusual().failure = Some(failure);
    }

    /// Ready, with the end of it all, when the client has left; for what has nothing to send now.
    pub(super) fn poll_left(
        &mut self,
        conn: &Conn,
        request: &Request<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        if !request.is_for_client() {
            return Poll::Pending;
        }
        match self.unusual().departure.poll(&conn.socket, &conn.deeds, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(left) => {
                self.note_left();
                self.fail(SendFailure::Left(left))
            }
        }
    }

    /// As in nginx the log has 499 unless the client was sent something.
    #[cold]
    pub(crate) fn note_left(&mut self) {
        if self.sent_bytes() == 0 {
            self.head.status = CLIENT_CLOSED_REQUEST;
        }
    }
}
