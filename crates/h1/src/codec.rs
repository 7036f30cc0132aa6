//! The requests of one connection, one after the other: which bytes are head, body, or the next request.
//! Small, because it stays while the connection is idle; the head lives with the request. Whoever polls
//! the connection's task runs it.

use std::ops::Range;

use crate::body::{BodyDecoder, BodyEvent};
use crate::fault::Fault;
use crate::head::{BodyLength, HeadProgress, RequestHead};
use crate::options::Options;

/// Names a request on its connection. HTTP/1 has one at a time and counts them from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet: more input is needed.
    NeedInput,
    /// The head is complete.
    Head {
        /// The request has no body: no `End` follows.
        end_stream: bool,
    },
    /// A piece of the body: this range of the input.
    Data(Range<usize>),
    /// The body is complete.
    End,
}

/// One step of the codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The request that the event belongs to, or the next one to begin.
    pub stream: StreamId,
    /// What it was.
    pub event: Event,
    /// How many bytes of the input the codec is done with; the next call wants what follows them. The
    /// bytes of a head are to be kept as long as the head is in use.
    pub consumed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests; the head may still be that of the last one.
    Idle,
    Head,
    Body,
    Failed(Fault),
}

/// Receiving side of one HTTP/1 connection.
///
/// ```
/// use clearway_h1::{Codec, ConnectionHeader, Event, HeadWriter, Options, RequestHead};
/// use clearway_message::Method;
///
/// let options = Options::default();
/// let mut codec = Codec::new(); // stays with the connection
/// let mut head = RequestHead::new(); // lives with the request, reused by the next one
///
/// // What was read so far; where it is incomplete, read behind it and call again.
/// let input = b"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /next";
/// let received = codec.receive(input, &mut head, &options)?;
/// assert_eq!(received.event, Event::Head { end_stream: false });
/// assert_eq!(head.method(), Method::Post);
/// assert_eq!(head.path().of(input), b"/a");
/// assert_eq!(head.args().of(input), b"b");
///
/// // The bytes of the head stay where they are while it is used; the body follows them.
/// let mut at = received.consumed;
/// codec.limit_body(1_000_000)?; // `client_max_body_size`, once the location is known
/// let received = codec.receive(&input[at..], &mut head, &options)?;
/// assert_eq!(received.event, Event::Data(0..2)); // relative to what was passed in
/// at += received.consumed;
/// let received = codec.receive(&input[at..], &mut head, &options)?;
/// assert_eq!(received.event, Event::End);
///
/// // Answer, and only then go on: the next call clears `head`.
/// let mut out = Vec::new();
/// HeadWriter::new(&mut out, 204, "No Content").connection(ConnectionHeader::KeepAlive(None)).finish();
/// let received = codec.receive(&input[at..], &mut head, &options)?;
/// assert_eq!(received.event, Event::NeedInput);
/// # Ok::<(), clearway_h1::Fault>(())
/// ```
#[derive(Clone, Debug)]
pub struct Codec {
    stream: StreamId,
    phase: Phase,
    body: BodyDecoder,
}

impl Default for Codec {
    fn default() -> Codec {
        Codec::new()
    }
}

impl Codec {
    /// A codec at the beginning of a connection.
    pub fn new() -> Codec {
        Codec { stream: StreamId(1), phase: Phase::Idle, body: BodyDecoder::new(BodyLength::Empty) }
    }

    /// Makes one event of what was received. `input` begins behind the bytes consumed so far, and while
    /// a head is incomplete it grows at its end only. Behind the end of a request the next call begins
    /// the next one and clears `head`: do not call before the last one is answered.
    ///
    /// # Errors
    /// The request is to be refused; all later calls return the same fault.
    pub fn receive(
        &mut self,
        input: &[u8],
        head: &mut RequestHead,
        options: &Options,
    ) -> Result<Received, Fault> {
        let stream = self.stream;
        let received = match self.phase {
            Phase::Failed(fault) => Err(fault),
            Phase::Body => self.receive_body(input),
            Phase::Head => self.receive_head(input, head, options),
            Phase::Idle => {
                head.clear();
                self.phase = Phase::Head;
                self.receive_head(input, head, options)
            }
        };
        match received {
            Ok((event, consumed)) => Ok(Received { stream, event, consumed }),
            Err(fault) => {
                self.phase = Phase::Failed(fault);
                Err(fault)
            }
        }
    }

    /// Limits the body of the current request to `max` bytes; to be called as soon as the limit of the
    /// request's location is known.
    ///
    /// # Errors
    /// The announced length is larger. The body can still be received, to drop it.
    pub fn limit_body(&mut self, max: u64) -> Result<(), Fault> {
        self.body.limit(max)
    }

    /// Takes the limit away: for a body that is only read to be dropped.
    pub fn unlimit_body(&mut self) {
        self.body.unlimit();
    }

    /// Bytes of the body that are known to be missing still (of a chunked one: of the current chunk).
    pub fn body_remaining(&self) -> u64 {
        self.body.remaining()
    }

    /// Bytes of the body that were received.
    pub fn body_received(&self) -> u64 {
        self.body.received()
    }

    /// The request that is being received, or the next one.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Whether no request is being received: all of the last one was.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    fn receive_head(
        &mut self,
        input: &[u8],
        head: &mut RequestHead,
        options: &Options,
    ) -> Result<(Event, usize), Fault> {
        if head.parse(input, options)? == HeadProgress::Incomplete {
            return Ok((Event::NeedInput, head.drop_empty_lines()));
        }
        self.body = BodyDecoder::new(head.body_length());
        let end_stream = self.body.is_done();
        if end_stream {
            self.end_request();
        } else {
            self.phase = Phase::Body;
        }
        Ok((Event::Head { end_stream }, head.len()))
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<(Event, usize), Fault> {
        let decoded = self.body.decode(input)?;
        let event = match decoded.event {
            BodyEvent::NeedInput => Event::NeedInput,
            BodyEvent::Data(range) => Event::Data(range),
            BodyEvent::End => {
                self.end_request();
                Event::End
            }
        };
        Ok((event, decoded.consumed))
    }

    fn end_request(&mut self) {
        self.phase = Phase::Idle;
        self.stream = StreamId(self.stream.0 + 1);
    }
}
