//! How a response ends before it is complete: it cannot be sent, or its client leaves while it is made (a
//! pool reads, a filter is busy, subrequests go on). Owned by the request's task.

use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::Level;

use super::{OutputState, ResponseSource, Unsent};
use crate::link::send_queue::{Completion, SendFailure, SendQueue};
use crate::request::Request;
use crate::request::sink::Sink;
use crate::response::file_part::OpenFile;
use crate::response::file_sender::FileFailure;
use clearway_base::log::Verbatim;
use clearway_message::ResponseHead;
use clearway_message::status::internal::CLIENT_CLOSED_REQUEST;

/// The line of the error log for a client that sent nothing, or took nothing, for too long.
pub const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

impl<'c> OutputState<'c> {
    /// What takes the place of this response, which is over, while the request does something more: it has
    /// the same head and the same counts, and nothing of it goes anywhere.
    pub(crate) fn begin_behind(&mut self, completion: Completion) -> Self {
        let mut queue = SendQueue::default();
        queue.count_sent(usize::try_from(self.sent_bytes()).unwrap_or(usize::MAX));
        let mut behind = Self::new(Sink::Client(queue));
        behind.head = std::mem::take(&mut self.head);
        behind.head_bytes = self.head_bytes;
        behind.source = ResponseSource::Ended;
        behind.fail_with(SendFailure::Behind(completion));
        debug_assert_eq!(behind.sent_bytes(), self.sent_bytes(), "what was sent counts on");
        debug_assert!(behind.is_behind(), "nothing of it goes anywhere");
        behind
    }

    /// The head alone.
    pub(crate) fn into_head(self) -> ResponseHead<'c> {
        self.head
    }

    /// Whether what is made is for nobody, since the response is over.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self.failure(), Some(SendFailure::Behind(_)))
    }

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
        request: &Request<'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        match self.unusual().lookout.get_or_insert_with(|| request.lookout()).poll(request.link, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(left) => {
                self.note_left();
                self.fail(SendFailure::Left(left))
            }
        }
    }

    /// Says why the rest cannot be sent.
    pub(crate) fn log_failure(&self, request: &Request<'_>) {
        match self.failure() {
            Some(SendFailure::TimedOut) => request.log(Level::Info, format_args!("{TIMED_OUT}")),
            Some(SendFailure::Broken(error)) => {
                request.log(Level::Info, format_args!("writev() failed {}", Errno(error)));
            }
            Some(SendFailure::Left(left)) => request.log_left(left),
            Some(SendFailure::File(failure, file)) => log_file_failure(failure, request, file),
            Some(SendFailure::Terminated | SendFailure::Abandoned | SendFailure::Behind(_)) | None => {}
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

/// Says in nginx's words what is wrong with a file.
fn log_file_failure(failure: &FileFailure, request: &Request<'_>, file: &OpenFile) {
    let path = Verbatim(file.path());
    match failure {
        FileFailure::Sendfile(error) => {
            request.log(Level::Info, format_args!("sendfile() failed {}", Errno(error)));
        }
        FileFailure::Read(error) => {
            request.log(Level::Crit, format_args!("pread() \"{path}\" failed {}", Errno(error)));
        }
        FileFailure::Truncated(at) => {
            let message = format_args!("sendfile() reported that \"{path}\" was truncated at {at}");
            request.log(Level::Alert, message);
        }
        FileFailure::Short { read, of } => {
            request.log(Level::Alert, format_args!("pread() read only {read} of {of} from \"{path}\""));
        }
        // The pool has said so already.
        FileFailure::NoThread => {}
        FileFailure::TimedOut => {
            let message = format_args!("pread() \"{path}\" timed out (110: Connection timed out)");
            request.log(Level::Error, message);
        }
    }
}
