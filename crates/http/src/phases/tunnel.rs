//! Connections that are handed over: behind a head that says so (101, or the answer to CONNECT) their bytes
//! are no requests any more, and a handler carries them both ways. The request lives as long, and with it
//! the generation that it began in; so it is logged when the tunnel ends. Polled by the request's task.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use clearway_base::log::Level;
use clearway_h1::Fault;
use clearway_message::{BodyLength, Version};
use clearway_site::Connect;

use crate::link::Link;
use crate::output::{Output, Unsent};
use crate::phases::protocol::READING_HEADERS;
use crate::phases::{Exchange, Step};
use crate::request::Request;
use crate::request::answer::Answer;
use crate::request::body::Body;
use crate::request::body_source::BodyError;

/// A client's connection in the hands of a handler.
pub struct Tunnel<'a, 'c> {
    request: &'a mut Request<'c>,
    body: Body<'a>,
    output: Output<'a, 'c>,
    /// Bytes that have arrived behind the head and were not read.
    received: Vec<u8>,
}

impl<'a, 'c> Exchange<'a, 'c> {
    /// Hands the client's connection over, whose head was pushed, and leaves soon. `None` for a subrequest,
    /// which has no client.
    pub fn into_tunnel(mut self) -> Option<Tunnel<'a, 'c>> {
        debug_assert!(self.output.head_sent(), "the client has to be told");
        if !self.request.is_main() {
            return None;
        }
        self.output.state.end_in_tunnel();
        let received = take_unread(self.request, &mut self.body);
        self.request.parts.own().input.shrink_to_fit();
        Some(Tunnel { request: self.request, body: self.body, output: self.output, received })
    }
}

/// Takes the bytes that have arrived behind the head and were not read. Output leaves at once from now on.
fn take_unread(request: &mut Request<'_>, body: &mut Body<'_>) -> Vec<u8> {
    let Link::Http1(link) = request.link else { return Vec::new() };
    link.send_at_once(&request.location().core);
    let head_end = request.start + request.parts.parser.len();
    debug_assert!(head_end <= request.parts.input.len(), "a head lies in what was received");
    let mut received = request.parts.own().input.split_off(head_end);
    body.state.put_rest_into(&mut received);
    received
}

/// Functions for a handler that reads and writes the client's bytes itself, while it keeps the request.
impl Exchange<'_, '_> {
    /// Whether [`take_raw`](Self::take_raw) can do it, now: the client has one connection for each request,
    /// and everything that was sent so far has left.
    pub fn may_take_raw(&self) -> bool {
        let is_here = matches!(self.request.link, Link::Http1(_)) && self.request.is_main();
        is_here && (!self.output.head_sent() || self.output.state.is_sent())
    }

    /// The client's socket, where the connection carries one request at a time.
    pub fn client_fd(&self) -> Option<BorrowedFd<'_>> {
        self.request.link.socket_fd()
    }

    /// Takes the client's bytes out of the server's hands: nothing is read or written from now on but by the
    /// two functions below, no head is sent any more, and the connection is to be closed
    /// ([`Answer::Close`]). What has come behind the head of the request and was not read.
    pub fn take_raw(&mut self) -> Vec<u8> {
        debug_assert!(self.may_take_raw(), "what waits to be sent would be lost");
        self.output.state.end_raw();
        take_unread(self.request, &mut self.body)
    }

    /// Reads from the client into the spare room of `data`, which there is; 0 when it has ended its
    /// direction.
    ///
    /// # Errors
    /// The connection broke.
    pub fn poll_raw_read(&mut self, cx: &mut Context<'_>, data: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        debug_assert!(data.len() < data.capacity(), "no room would look like the end");
        match self.request.link {
            Link::Http1(link) => link.transport.poll_read_vec(cx, data),
            Link::Stream(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Writes to the client; how much it was.
    ///
    /// # Errors
    /// The client is gone.
    pub fn poll_raw_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.request.link.poll_write(cx, bytes));
        if let Ok(count) = written {
            self.output.state.note_tunnelled(count);
        }
        Poll::Ready(written)
    }
}

impl<'c> Tunnel<'_, 'c> {
    /// The request that has led to it.
    pub fn request(&mut self) -> &mut Request<'c> {
        self.request
    }

    /// Bytes that were sent to the client so far.
    pub fn sent_bytes(&self) -> u64 {
        self.output.state.sent_bytes()
    }

    /// Ready when the head, and what was pushed behind it, has left.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        self.output.poll_ready(self.request, cx)
    }

    /// Writes to the client, once the head has left; how much it was.
    ///
    /// # Errors
    /// The client is gone.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.output.state.is_sent() && ready!(self.poll_begun(cx)).is_err() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(self.request.link.poll_write(cx, bytes));
        if let Ok(count) = written {
            self.output.state.note_tunnelled(count);
        }
        Poll::Ready(written)
    }

    /// Reads from the client into the spare room of `data`, which there is; 0 when it has ended its
    /// direction.
    ///
    /// # Errors
    /// The connection broke.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, data: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        debug_assert!(data.len() < data.capacity(), "no room would look like the end");
        if !self.received.is_empty() {
            let count = self.received.len().min(data.capacity() - data.len());
            data.extend(self.received.drain(..count));
            if self.received.is_empty() {
                self.received = Vec::new();
            }
            return Poll::Ready(Ok(count));
        }
        match self.request.link {
            Link::Http1(link) => link.transport.poll_read_vec(cx, data),
            Link::Stream(_) => {
                let Some(receiving) = self.body.state.receiving() else { return Poll::Ready(Ok(0)) };
                let from = data.len();
                let read = receiving.poll_read_into(self.request.link, data, cx);
                read.map(|read| read.map(|_| data.len() - from).map_err(broken))
            }
        }
    }

    /// Ready when a read may find something: for a tunnel that has no buffer while nothing comes.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.request.link {
            Link::Http1(link) if self.received.is_empty() => link.transport.poll_readable(cx),
            // A stream's buffers are its own.
            Link::Http1(_) | Link::Stream(_) => Poll::Ready(()),
        }
    }

    /// Tells the client that nothing more is sent, and leaves the other direction open.
    ///
    /// # Errors
    /// The connection broke.
    pub fn end_writing(&mut self) -> io::Result<()> {
        match self.request.link {
            Link::Http1(link) => link.transport.shutdown_write(),
            Link::Stream(stream) => {
                stream.end_output();
                Ok(())
            }
        }
    }

    /// Waits until the head has left.
    ///
    /// # Errors
    /// It cannot be sent.
    pub async fn begin(&mut self) -> Result<(), Unsent> {
        poll_fn(|cx| self.poll_begun(cx)).await
    }

    /// The tunnel is over: the connection is closed, and nothing is waited for.
    pub fn close(self) -> Step<'static> {
        Step::Respond(Answer::Close)
    }
}

impl Request<'_> {
    /// Lets a request for a tunnel (CONNECT) in where its server has tunnels.
    ///
    /// # Errors
    /// The status to answer with; the log says why.
    #[cold]
    pub(crate) fn admit_connect(&mut self) -> Result<(), u16> {
        let has_tunnels = *self.server.core.connect == Connect::Allowed;
        let fault = match self.parts.head.body {
            _ if !has_tunnels || self.version() != Version::HTTP_11 => Fault::Connect,
            BodyLength::Empty | BodyLength::Length(0) => return Ok(()),
            BodyLength::Length(_) | BodyLength::Chunked => Fault::ConnectWithBody,
        };
        self.action = READING_HEADERS;
        self.log(Level::Info, format_args!("{fault}"));
        Err(fault.page())
    }
}

fn broken(error: BodyError) -> io::Error {
    match error {
        BodyError::Broken(error) => error,
        BodyError::Closed => io::ErrorKind::UnexpectedEof.into(),
        BodyError::Refused(_) | BodyError::BeyondLength | BodyError::BelowLength | BodyError::TimedOut => {
            io::ErrorKind::InvalidData.into()
        }
    }
}
