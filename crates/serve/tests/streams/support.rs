//! A protocol with stream numbers, as small as one can be: frames of a stream's number, what they are, and a
//! length. Its connection is a task on a transport in memory, beside which each request is a task of its own.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clearway_h2::hpack::{Decoder, Field};
use clearway_http::{Client, Listener, Stream, StreamHead, StreamOutput, Transport, WindowExceeded};
use clearway_net::PeerAddr;
use clearway_net::memory::{MemoryEnd, memory_pair};
use clearway_runtime::{LoopRef, Tag};
use clearway_serve::serve_stream;
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

/// A head that a body follows; of a request as HTTP/1 writes it, of a response `STATUS NAME: VALUE…`.
const HEAD: u8 = 0;
/// A head that nothing follows.
const LAST_HEAD: u8 = 1;
const BODY: u8 = 2;
const END: u8 = 3;
const RESET: u8 = 4;

const FRAME_HEAD_BYTES: usize = 4;
/// What a connection has read and not taken apart, and made and not sent, at most, bytes.
const BUFFER_BYTES: usize = 128 * 1024;

fn put_frame(out: &mut Vec<u8>, stream: u8, kind: u8, payload: &[u8]) {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[stream, kind, length[0], length[1]]);
    out.extend_from_slice(payload);
}

/// Takes the first frame, once all of it is there.
fn take_frame(input: &mut Vec<u8>) -> Option<(u8, u8, Vec<u8>)> {
    let head = input.first_chunk::<FRAME_HEAD_BYTES>().copied()?;
    let end = FRAME_HEAD_BYTES + usize::from(u16::from_be_bytes([head[2], head[3]]));
    let payload = input.get(FRAME_HEAD_BYTES..end)?.to_vec();
    input.drain(..end);
    Some((head[0], head[1], payload))
}

/// The server's side of a connection.
struct Frames {
    client: Arc<Client>,
    listener: Arc<Listener>,
    transport: Transport,
    streams: BTreeMap<u8, Arc<Stream>>,
    served: u64,
    held: Option<(u8, u8, Vec<u8>)>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Frames {
    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
        self.streams.values().for_each(|stream| stream.reset());
    }

    /// Ready when the client has left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let read = match self.held {
                Some(_) => Poll::Pending,
                None => {
                    self.input.reserve(BUFFER_BYTES);
                    self.transport.poll_read_vec(cx, &mut self.input)
                }
            };
            if matches!(read, Poll::Ready(Ok(0) | Err(_))) {
                return Poll::Ready(());
            }
            self.take_frames(cx);
            let has_made = self.gather(cx);
            let has_sent = self.send(cx);
            if read.is_pending() && !has_made && !has_sent {
                return Poll::Pending;
            }
        }
    }

    /// Hands frames on to their streams, up to a body that has no room there: so the client waits.
    fn take_frames(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some((number, kind, payload)) = self.held.take().or_else(|| take_frame(&mut self.input))
            else {
                return;
            };
            if kind == BODY
                && let Some(stream) = self.streams.get(&number)
                && stream.poll_window(cx, payload.len()).is_pending()
            {
                self.held = Some((number, kind, payload));
                return;
            }
            self.take(number, kind, payload);
        }
    }

    fn take(&mut self, number: u8, kind: u8, payload: Vec<u8>) {
        if let HEAD | LAST_HEAD = kind {
            return self.begin(number, kind, &payload);
        }
        let Some(stream) = self.streams.get(&number) else { return };
        match kind {
            BODY if stream.push_body(Bytes::from(payload)) == Err(WindowExceeded) => stream.reset(),
            BODY => {}
            END => stream.end_body(),
            RESET => stream.reset(),
            _ => panic!("frame of kind {kind}"),
        }
    }

    /// Each request has the generation that is published when it begins, and a task.
    fn begin(&mut self, number: u8, kind: u8, head: &[u8]) {
        let setup = self.listener.published(|| None);
        let stream = Arc::new(Stream::new(self.client.home, None));
        if kind == LAST_HEAD {
            stream.end_body();
        }
        let mut parts = self.client.take_parts(&setup);
        parts.input.extend_from_slice(head);
        self.served += 1;
        let answer = serve_stream(Arc::clone(&self.client), setup, Arc::clone(&stream), parts, self.served);
        self.client.home.spawn(Tag::NONE, answer);
        assert!(self.streams.insert(number, stream).is_none(), "a number is used once");
    }

    /// Makes frames of what the streams have; whether there was something.
    fn gather(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.output.len();
        let mut ended = Vec::new();
        for (&number, stream) in &self.streams {
            while self.output.len() < BUFFER_BYTES
                && let Poll::Ready(made) = stream.poll_output(cx)
            {
                match made {
                    StreamOutput::Head(head) => put_frame(&mut self.output, number, HEAD, &text(&head)),
                    StreamOutput::Data(data) => put_frame(&mut self.output, number, BODY, &data),
                    StreamOutput::End(_) => put_frame(&mut self.output, number, END, b""),
                    StreamOutput::Reset(_) => put_frame(&mut self.output, number, RESET, b""),
                }
                if matches!(self.output[self.output.len() - FRAME_HEAD_BYTES..], [_, END | RESET, 0, 0]) {
                    ended.push(number);
                    break;
                }
            }
        }
        ended.iter().for_each(|number| drop(self.streams.remove(number)));
        self.output.len() > before
    }

    /// Whether something was sent.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        if self.output.is_empty() {
            return false;
        }
        match self.transport.poll_write(cx, &self.output) {
            Poll::Ready(Ok(count)) => {
                self.output.drain(..count);
                true
            }
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }
}

fn text(head: &StreamHead) -> Vec<u8> {
    let mut text = head.status.to_string().into_bytes();
    let mut take = |field: Field<'_>| {
        text.extend([b"\n", field.name, b": ", field.value].concat());
        ControlFlow::Continue(())
    };
    Decoder::new(0).decode(&head.block, &mut take).expect("fields");
    text
}

/// What a client has been given of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    /// In their order, `100` too.
    pub(crate) heads: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    Reset,
}

impl Answered {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn status(&self) -> &str {
        self.heads.last().map_or("", |head| head.lines().next().unwrap_or_default())
    }
}

/// A client with one connection.
pub(crate) struct Peer {
    end: MemoryEnd,
    input: Vec<u8>,
    answers: BTreeMap<u8, Answered>,
}

impl Peer {
    /// Connects to a listener on one of its loops.
    pub(crate) fn connect(listener: &Arc<Listener>, home: LoopRef) -> Self {
        let (end, other) = memory_pair(home);
        let client = Client::new(Arc::clone(listener), home, PeerAddr::V4(Ipv4Addr::LOCALHOST, 4711));
        let frames = Frames {
            client: Arc::new(client),
            listener: Arc::clone(listener),
            transport: Transport::Memory(other),
            streams: BTreeMap::new(),
            served: 0,
            held: None,
            input: Vec::new(),
            output: Vec::new(),
        };
        home.spawn(Tag::NONE, frames.run());
        Self { end, input: Vec::new(), answers: BTreeMap::new() }
    }

    /// Asks for a path, without a body.
    pub(crate) fn get(&self, stream: u8, path: &str) {
        self.send(stream, LAST_HEAD, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }

    /// Begins to send a body to a path; `lines` are header lines of its own.
    pub(crate) fn post(&self, stream: u8, path: &str, lines: &str) {
        self.send(stream, HEAD, format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes());
    }

    pub(crate) fn body(&self, stream: u8, bytes: &[u8]) {
        bytes.chunks(16 * 1024).for_each(|piece| self.send(stream, BODY, piece));
    }

    pub(crate) fn end(&self, stream: u8) {
        self.send(stream, END, b"");
    }

    pub(crate) fn reset(&self, stream: u8) {
        self.send(stream, RESET, b"");
    }

    fn send(&self, stream: u8, kind: u8, payload: &[u8]) {
        let mut frame = Vec::new();
        put_frame(&mut frame, stream, kind, payload);
        let mut cx = Context::from_waker(Waker::noop());
        let mut sent = 0;
        let send = || {
            if let Poll::Ready(count) =
                self.end.poll_write_vectored(&mut cx, &[std::io::IoSlice::new(&frame[sent..])])
            {
                sent += count.unwrap();
            }
            sent == frame.len()
        };
        assert!(wait_until(PATIENCE, send), "the server reads nothing");
    }

    /// What has come of a response so far.
    pub(crate) fn answered(&mut self, stream: u8) -> Answered {
        self.input.reserve(BUFFER_BYTES);
        while self.end.try_read_vec(&mut self.input).is_ok_and(|count| count > 0) {
            self.input.reserve(BUFFER_BYTES);
        }
        while let Some((number, kind, payload)) = take_frame(&mut self.input) {
            let answered = self.answers.entry(number).or_default();
            assert_eq!(answered.end, None, "nothing follows the end of stream {number}");
            match kind {
                HEAD => answered.heads.push(String::from_utf8(payload).unwrap()),
                BODY => answered.body.extend_from_slice(&payload),
                END => answered.end = Some(Ended::Complete),
                _ => answered.end = Some(Ended::Reset),
            }
        }
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// Waits until a response has ended.
    pub(crate) fn wait(&mut self, stream: u8) -> Answered {
        assert!(
            wait_until(PATIENCE, || self.answered(stream).end.is_some()),
            "stream {stream}: {:?}",
            self.answered(stream).heads
        );
        self.answered(stream)
    }
}
