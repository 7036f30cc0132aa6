//! The request on its way to the server: its head with what is in memory of its body, then the rest, from a
//! file or from the client.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clearway_gateway::fastcgi;
use clearway_h1::{CHUNK_END, push_chunk_size, push_last_chunk};
use clearway_http::{Answer, Exchange};

use crate::engine::asked::{AskedBody, Framing};
use crate::engine::by_code::Timeout;
use crate::engine::protocol::Protocol;
use crate::engine::session::{SENDING, Session};

/// How much of a body that lies in a file is read at once, bytes.
const FILE_PIECE_BYTES: usize = 64 * 1024;

/// The size for a body that goes in records: a multiple of eight, below the limit of a record.
const RECORD_PIECE_BYTES: usize = 60 * 1024;

/// How much of a body is taken from the client at once, bytes.
const CLIENT_PIECE_BYTES: usize = 16 * 1024;

/// A piece of a file that is being read.
type Reading = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// How far a request is sent.
#[derive(Default)]
pub(super) struct Sending {
    /// Bytes of the head that were sent.
    head_at: usize,
    /// Bytes of the body that were taken to be sent.
    body_at: u64,
    /// A piece of the body that is being sent.
    piece: Piece,
    reading: Option<Reading>,
    progress: Progress,
    /// Bytes that the socket has taken.
    pub(super) sent_bytes: u64,
    /// How the connection broke, if it did while something was sent.
    broken: Option<io::ErrorKind>,
}

/// Bytes that are being sent.
#[derive(Default)]
struct Piece {
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    UnderWay,
    /// Everything is in pieces.
    Taken,
    Sent,
}

/// Why a request could not be sent.
pub(super) enum Unsent {
    /// The connection to the server is broken.
    Server(io::Error),
    /// The body cannot be had: what is answered.
    Body(Answer),
}

impl Sending {
    /// Whether a server may know of the request.
    pub(super) fn has_begun(&self) -> bool {
        self.sent_bytes > 0
    }

    pub(super) fn is_done(&self) -> bool {
        self.progress == Progress::Sent
    }

    /// Whether all of it is still there, to be sent once more.
    pub(super) fn is_whole(&self, body: &AskedBody) -> bool {
        self.body_at == 0 || !matches!(body, AskedBody::Stream)
    }

    /// Whether a reset was met. It takes the place of the end that may have come before, and hides it.
    pub(super) fn was_reset(&self) -> bool {
        self.broken == Some(io::ErrorKind::ConnectionReset)
    }

    /// Whether it is the client that is waited for.
    pub(super) fn reads_client(&self, body: &AskedBody) -> bool {
        matches!(body, AskedBody::Stream) && self.progress == Progress::UnderWay
    }
}

impl<'c, P: Protocol> Session<'c, P> {
    /// Sends what can be sent. Ready when all of it was.
    pub(super) fn poll_send(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        while !self.sending.is_done() {
            exchange.request.set_action(SENDING);
            if self.sending.piece.bytes.is_empty() && self.sending.progress == Progress::UnderWay {
                // A head leaves at once, whatever becomes of the body behind it.
                match self.poll_piece(exchange, cx) {
                    Poll::Ready(taken) => taken?,
                    Poll::Pending if self.sending.head_at < self.asked.head.len() => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
            match self.poll_write(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.sending.broken = Some(error.kind());
                    return Poll::Ready(Err(Unsent::Server(error)));
                }
                Poll::Pending => {
                    if self.clocks.send_until_ms.is_none() {
                        let until_ms = self.home.now_ms() + self.timeout_ms(Timeout::Send);
                        self.clocks.send_until_ms = Some(until_ms);
                    }
                    return Poll::Pending;
                }
            }
            self.clocks.send_until_ms = None;
            let is_empty =
                self.sending.head_at == self.asked.head.len() && self.sending.piece.bytes.is_empty();
            if is_empty && self.sending.progress == Progress::Taken {
                debug_assert!(self.sending.reading.is_none(), "nothing of the body is being read");
                debug_assert!(
                    self.sending.sent_bytes >= self.asked.head.len() as u64,
                    "what was sent has the head in it"
                );
                self.sending.progress = Progress::Sent;
                let elapsed_ms = self.elapsed_ms();
                self.attempt(exchange).send_ms = Some(elapsed_ms);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the next piece of the body, or sees that there is no more.
    fn poll_piece(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let sending = &mut self.sending;
        debug_assert!(sending.piece.bytes.is_empty(), "one piece is sent before the next is taken");
        debug_assert!(sending.progress == Progress::UnderWay, "nothing follows the end of a body");
        match &self.asked.body {
            AskedBody::None => sending.progress = Progress::Taken,
            AskedBody::Stored(body) => {
                if sending.body_at == body.len() {
                    sending.progress = Progress::Taken;
                    return Poll::Ready(Ok(()));
                }
                let most = match self.asked.framing {
                    Framing::Records => RECORD_PIECE_BYTES,
                    Framing::Plain | Framing::Line | Framing::Chunked => FILE_PIECE_BYTES,
                };
                let bytes = match body.in_memory() {
                    Some(bytes) => bytes.clone(),
                    None => {
                        let (body, at) = (Arc::clone(body), sending.body_at);
                        let read = move || async move { body.read(at, most).await };
                        let reading = sending.reading.get_or_insert_with(|| Box::pin(read()));
                        let read = ready!(reading.as_mut().poll(cx));
                        sending.reading = None;
                        read.map_err(|_| Unsent::Body(Answer::Status(500)))?
                    }
                };
                debug_assert!(
                    !bytes.is_empty() || body.is_empty(),
                    "a body is as long as it was when it was stored"
                );
                sending.body_at += bytes.len() as u64;
                assert!(sending.body_at <= body.len(), "no more is sent than the head announces");
                let is_last = sending.body_at == body.len();
                sending.piece.bytes = match self.asked.framing {
                    Framing::Records => records_of(&bytes, is_last.then_some(fastcgi::END_OF_STDIN)),
                    Framing::Line if is_last => [&bytes[..], b"\r\n"].concat().into(),
                    Framing::Plain | Framing::Line | Framing::Chunked => bytes,
                };
            }
            AskedBody::Stream => return self.poll_client(exchange, cx),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_client(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let mut data = Vec::with_capacity(CLIENT_PIECE_BYTES);
        ready!(exchange.poll_body(&mut data, cx)).map_err(Unsent::Body)?;
        // The end goes with the last piece where it is known.
        let is_last = data.is_empty() || exchange.body.is_taken();
        let sending = &mut self.sending;
        sending.body_at += data.len() as u64;
        sending.piece.bytes = match self.asked.framing {
            Framing::Plain | Framing::Line => data.into(),
            Framing::Chunked if is_last && !data.is_empty() => {
                [&chunk_of(&data)[..], &chunk_of(b"")].concat().into()
            }
            Framing::Chunked => chunk_of(&data),
            Framing::Records => records_of(&data, is_last.then_some(fastcgi::END_OF_STDIN)),
        };
        if is_last {
            sending.progress = Progress::Taken;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the rest of the head, and the piece behind it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(transport) = self.outbound.as_mut().map(|outbound| &mut outbound.transport) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let sending = &mut self.sending;
        let head = &self.asked.head[sending.head_at..];
        let piece = &mut sending.piece.bytes;
        let written = match (head.is_empty(), piece.is_empty()) {
            (true, true) => return Poll::Ready(Ok(())),
            (false, true) => ready!(transport.poll_write(cx, head))?,
            (true, false) => ready!(transport.poll_write(cx, piece))?,
            (false, false) => {
                ready!(transport.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(piece)]))?
            }
        };
        assert!(written <= head.len() + piece.len(), "a socket takes no more than it is given");
        sending.sent_bytes += written as u64;
        let of_head = written.min(head.len());
        sending.head_at += of_head;
        debug_assert!(sending.head_at <= self.asked.head.len(), "no more of the head is sent than there is");
        bytes::Buf::advance(piece, written - of_head);
        Poll::Ready(Ok(()))
    }
}

/// A piece as a chunk; nothing as the last one.
fn chunk_of(data: &[u8]) -> Bytes {
    let mut framed = Vec::with_capacity(data.len() + 32);
    if data.is_empty() {
        push_last_chunk(&mut framed, []);
    } else {
        push_chunk_size(&mut framed, data.len() as u64);
        framed.extend_from_slice(data);
        framed.extend_from_slice(CHUNK_END);
    }
    framed.into()
}

/// A piece in FastCGI records, with what ends the body, if this is the last one.
fn records_of(data: &[u8], end: Option<[u8; 8]>) -> Bytes {
    let mut framed = Vec::with_capacity(data.len() + 32);
    for part in data.chunks(fastcgi::STDIN_MAX_BYTES) {
        debug_assert!(!part.is_empty(), "an empty record would end the body");
        let padding = fastcgi::push_stdin(&mut framed, part.len());
        framed.extend_from_slice(part);
        framed.resize(framed.len() + padding, 0);
    }
    debug_assert_eq!(framed.len() % 8, 0, "records end where the next one may begin");
    framed.extend(end.into_iter().flatten());
    framed.into()
}
