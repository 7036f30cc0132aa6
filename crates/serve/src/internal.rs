//! Requests that no client has made: those of timers and of the configuration, and those that renew a cached
//! response after it was sent. Each has a stream of its own, whose other end is here. The access phase is
//! skipped, and access logs have a line only where `log_subrequest` is on.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_http::{Client, Listener, Stream, StreamOutput};
use clearway_net::PeerAddr;
use clearway_runtime::LoopRef;

use crate::stream::serve_stream;

/// The response to an internal request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternalAnswer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// An internal request has no answer that could be used: it is incomplete, or longer than was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// Answers a request that no client has made, as one that arrives at `listener` would be: in the generation
/// that is published there. `head` is written as HTTP/1 writes it, and no body follows. To be polled on
/// `home`, by whatever wants the answer; it ends early where it is dropped.
///
/// # Errors
/// [`Unanswered`], also where the body is longer than `body_max_bytes`.
pub async fn answer_internal(
    listener: Arc<Listener>,
    home: LoopRef,
    head: &[u8],
    body_max_bytes: usize,
) -> Result<InternalAnswer, Unanswered> {
    let setup = listener.published(|| None);
    let client = Arc::new(Client::new(listener, home, PeerAddr::Unix));
    let stream = Arc::new(Stream::internal(home));
    let mut parts = client.take_parts(&setup);
    parts.input.extend_from_slice(head);
    let mut request = pin!(serve_stream(client, setup, Arc::clone(&stream), parts, 1));
    let mut gathering = Gathering { answer: InternalAnswer::default(), body_max_bytes };
    let mut is_over = false;
    poll_fn(|cx| {
        is_over = is_over || request.as_mut().poll(cx).is_ready();
        let gathered = gathering.poll(&stream, cx);
        // A request whose answer is not wanted any more ends at its next poll.
        if matches!(gathered, Poll::Ready(Err(Unanswered))) || is_over { gathered } else { Poll::Pending }
    })
    .await?;
    Ok(gathering.answer)
}

/// The part of a response that has been received.
struct Gathering {
    answer: InternalAnswer,
    body_max_bytes: usize,
}

impl Gathering {
    /// Ready when the response is complete.
    fn poll(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        loop {
            match stream.poll_output(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(StreamOutput::Head(head)) => self.answer.status = head.status,
                Poll::Ready(StreamOutput::Data(bytes)) => {
                    if self.answer.body.len() + bytes.len() > self.body_max_bytes {
                        return Poll::Ready(Err(Unanswered));
                    }
                    self.answer.body.extend_from_slice(&bytes);
                }
                Poll::Ready(StreamOutput::End(_)) => return Poll::Ready(Ok(())),
                Poll::Ready(StreamOutput::Reset(_)) => return Poll::Ready(Err(Unanswered)),
            }
        }
    }
}
