//! Output for a handler that receives at the same time: nothing in here waits by itself, so one poll can send
//! to a slow client and read from elsewhere. Owned by the request's task.

use std::task::{Context, Poll};

use clearway_h1::HeadWriter;
use clearway_message::{Headers, Piece, Version};

use super::{Connection, Output, OutputState, Progress, ResponseSource, Unsent};
use crate::link::Link;
use crate::link::send_queue::SendFailure;
use crate::output::head_text::encode_interim;
use crate::request::Request;
use crate::response::chunk::{Chunk, Mark};

impl<'c> Output<'_, 'c> {
    /// Does what [`ready`](Self::ready) does in one step: sends what the client takes now. Ready once
    /// everything so far has left for the socket, or may wait for more. Pending, it has the context woken
    /// when it can go on; for how long the client is waited for (`send_timeout`) it knows from one call to
    /// the next.
    ///
    /// # Errors
    /// The rest cannot be sent.
    pub fn poll_ready(&mut self, request: &Request<'c>, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        if self.is_abandoned() || self.state.may_wait(request) {
            return Poll::Ready(Ok(()));
        }
        if request.is_main() {
            request.link.send_at_once(&request.location().core);
        }
        self.state.begin_flush(request);
        self.state.poll_flushed(request, cx)
    }

    /// Bytes of the response that are in memory and wait for the client, or for their turn among the bodies
    /// of subrequests. Bytes that filters hold back are not known.
    pub fn queued_bytes(&self) -> usize {
        let relayed = self.state.relay.as_ref().map_or(0, |relay| relay.queued_bytes());
        self.state.sink.len() + relayed + self.state.kept_bytes()
    }

    /// Whether the handler is to wait before it pushes more: what the last [`write`](Self::write) said, as
    /// of now.
    pub fn is_full(&self) -> bool {
        self.state.is_full()
    }

    /// The client has left, and the handler goes on for other reasons: everything that is still held is
    /// dropped, and so is what is pushed from now on. The connection is closed when the handler is done. The
    /// log has 499, or the status of which something was sent.
    pub fn abandon(&mut self, request: &Request<'c>) {
        if !self.is_abandoned() {
            self.state.abandon(request);
        }
    }

    /// Whether nothing of the response goes anywhere any more.
    pub fn is_abandoned(&self) -> bool {
        matches!(self.state.failure(), Some(SendFailure::Abandoned | SendFailure::Behind(_)))
    }

    /// Whether the client has taken nothing for so long that it is sent no more (`send_timeout`).
    pub fn has_timed_out(&self) -> bool {
        matches!(self.state.failure(), Some(SendFailure::TimedOut))
    }

    /// Sends an interim response (RFC 9110 §15.2), such as 103, to a client that understands it and has not
    /// been sent a head. One without lines is not sent, as it would say nothing.
    pub fn interim(&mut self, request: &Request<'c>, status: u16, lines: &Headers) {
        debug_assert!((102..200).contains(&status), "`100 Continue` is said by what reads the body");
        let is_understood = request.is_main() && request.version() >= Version::HTTP_11;
        if is_understood && !lines.is_empty() && !self.head_sent() && !self.is_abandoned() {
            self.state.put_interim(request.link, status, lines);
        }
    }

    /// Has lines sent behind the body, if that is sent in chunks; before the end of the body is pushed. Those
    /// of the configuration (`add_trailer`) follow them.
    pub fn pass_trailers(&mut self, lines: &Headers) {
        let own = &mut self.state.trailers.get_or_insert_default().lines;
        lines.iter().for_each(|line| own.add(line.name, line.value));
    }
}

impl<'c> OutputState<'c> {
    fn abandon(&mut self, request: &Request<'c>) {
        self.take_back();
        self.log_failure(request);
        self.note_left();
        self.sink.drop_rest();
        (self.filters, self.relay) = (None, None);
        self.wait = None;
        self.source = ResponseSource::Ended;
        debug_assert!(self.sink.is_empty(), "nothing that is abandoned is sent");
        self.fail_with(SendFailure::Abandoned);
    }

    /// What follows the head is not pushed, but written past the framing.
    pub(crate) fn end_in_tunnel(&mut self) {
        self.source = ResponseSource::Ended;
        match self.progress {
            // When it goes there is nothing that would follow it.
            Progress::HeadHeld => self.keep_behind_head(Chunk::EMPTY, Mark::Last),
            _ => (self.progress, self.connection) = (Progress::Complete, Connection::Close),
        }
    }

    /// Ends the raw bytes: nothing more is pushed, not even a head.
    pub(crate) fn end_raw(&mut self) {
        debug_assert!(self.progress != Progress::HeadHeld, "no head waits that would be lost");
        self.source = ResponseSource::Ended;
        (self.progress, self.connection) = (Progress::Complete, Connection::Close);
    }

    /// Whether the socket has taken everything.
    pub(crate) fn is_sent(&self) -> bool {
        self.sink.is_empty() && self.progress != Progress::HeadHeld
    }

    /// The link took so many bytes of a tunnel.
    pub(crate) fn note_tunnelled(&mut self, count: usize) {
        if let Some(queue) = self.sink.client_mut() {
            queue.count_sent(count);
        }
    }

    fn put_interim(&mut self, link: Link<'_>, status: u16, lines: &Headers) {
        match link {
            Link::Http1(_) => {
                let Some(queue) = self.sink.client_mut() else { return };
                let reason = if status == 103 { "Early Hints" } else { "" };
                let mut writer = HeadWriter::new(queue.front(), status, reason);
                for piece in lines.pieces() {
                    writer = match piece {
                        Piece::Lines(lines) => writer.lines(lines),
                        Piece::Line(name, value) => writer.header(name, value),
                    };
                }
                writer.finish();
            }
            Link::Stream(stream) => stream.push_interim(encode_interim(status, lines)),
        }
    }
}
