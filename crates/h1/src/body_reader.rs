//! The body of one request between the socket and the code that stores or drops it. It holds what was
//! received behind the head, and gives back what turns out to belong to the next request. Owned by the
//! request.
//!
//! Invariant: each received byte is decoded once, in the order in which it came, whether it is kept or not.

use crate::body::{BodyDecoder, BodyEvent};
use crate::fault::Fault;
use clearway_message::BodyLength;

/// Decodes one body as it comes: into a buffer that is kept ([`take_received`](Self::take_received), then
/// [`decode_in_place`](Self::decode_in_place)), or into nothing ([`discard`](Self::discard)).
///
/// ```
/// use clearway_h1::{BodyReader, HeadParser, HeadProgress, Options};
/// use clearway_message::{RequestHead};
///
/// // What was read so far; where it is incomplete, read behind it and parse again.
/// let mut input = b"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhi".to_vec();
/// let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
/// assert_eq!(parser.parse(&mut head, &input, &Options::default())?, HeadProgress::Complete);
/// assert_eq!(head.line.path.of(&input), b"/a");
/// assert_eq!(head.line.args.of(&input), b"b");
///
/// // What was received behind the head is the body's. The bytes of the head stay while it is in use.
/// let received = input.split_off(parser.len());
/// let mut body = BodyReader::new(head.body, received);
/// body.limit(1_000_000)?; // `client_max_body_size`
/// let mut data = Vec::new();
/// body.take_received(&mut data)?;
/// assert_eq!(data, b"hi");
///
/// // The rest is read into the buffer that is kept, and decoded where it is.
/// let from = data.len();
/// data.extend_from_slice(b" yoGET /next");
/// body.decode_in_place(&mut data, from)?;
/// assert!(body.is_done());
/// assert_eq!(data, b"hi yo");
///
/// // The next request begins with what the body has left.
/// input.clear();
/// body.put_rest_into(&mut input);
/// assert_eq!(input, b"GET /next");
/// # Ok::<(), clearway_h1::Fault>(())
/// ```
#[derive(Debug)]
pub struct BodyReader {
    decoder: BodyDecoder,
    /// Why there is no more to decode.
    fault: Option<Fault>,
    /// Received bytes that were not taken yet, decoded up to `at`.
    input: Vec<u8>,
    at: usize,
    /// Bytes that were decoded to be kept, with framing.
    taken_bytes: u64,
}

impl BodyReader {
    /// The body that the head announces; `input` is what was received behind the head.
    pub fn new(length: BodyLength, input: Vec<u8>) -> Self {
        Self { decoder: BodyDecoder::new(length), fault: None, input, at: 0, taken_bytes: 0 }
    }

    /// Whether all of it was decoded.
    pub fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Limits it to so many bytes of data.
    ///
    /// # Errors
    /// More is announced or was received. It can still be received, to be dropped.
    pub fn limit(&mut self, max_bytes: u64) -> Result<(), Fault> {
        self.decoder.limit(max_bytes)
    }

    /// Takes the limit away.
    pub fn unlimit(&mut self) {
        self.decoder.unlimit();
    }

    /// Bytes of the body that were received, without framing.
    pub fn received(&self) -> u64 {
        self.decoder.received()
    }

    /// Bytes of the body, or of the current chunk, that are known to be missing.
    pub fn remaining(&self) -> u64 {
        self.decoder.remaining()
    }

    /// Bytes that were decoded to be kept, with framing.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Whether something was received that is not decoded: of the next request, if the body is done.
    pub fn has_rest(&self) -> bool {
        self.at < self.input.len()
    }

    /// Appends what was received behind the end of the body to `input`.
    pub fn put_rest_into(self, input: &mut Vec<u8>) {
        input.extend_from_slice(&self.input[self.at..]);
    }

    /// Where to append what is received of a body that is dropped.
    pub fn input(&mut self) -> &mut Vec<u8> {
        self.input.drain(..self.at);
        self.at = 0;
        &mut self.input
    }

    /// Decodes what was received, and drops it.
    ///
    /// # Errors
    /// The body is malformed, or too large; so it is from then on.
    pub fn discard(&mut self) -> Result<(), Fault> {
        while self.has_rest() && !self.decoder.is_done() {
            self.check()?;
            let decoded = self.decoder.decode(&self.input[self.at..]);
            self.at += decoded.inspect_err(|fault| self.fault = Some(*fault))?.consumed;
        }
        Ok(())
    }

    /// Appends the data of what was received with the head to `data`.
    ///
    /// # Errors
    /// As [`discard`](Self::discard).
    pub fn take_received(&mut self, data: &mut Vec<u8>) -> Result<(), Fault> {
        let (from, taken_bytes) = (data.len(), self.taken_bytes);
        data.extend_from_slice(&self.input[self.at..]);
        self.input.clear();
        self.at = 0;
        // nginx counts no byte of a body that is wrong where it comes with its head.
        self.decode_in_place(data, from).inspect_err(|_| self.taken_bytes = taken_bytes)
    }

    /// Takes the framing out of what was received into `data` from `from` on, so that the data of the body
    /// stands there without gaps. What follows the end of the body is kept for the next request.
    ///
    /// # Errors
    /// As [`discard`](Self::discard); the data before the fault stays in `data`.
    pub fn decode_in_place(&mut self, data: &mut Vec<u8>, from: usize) -> Result<(), Fault> {
        let (mut at, mut end) = (from, from);
        while at < data.len() && !self.decoder.is_done() {
            self.check()?;
            match self.decoder.decode(&data[at..]) {
                Ok(decoded) => {
                    if let BodyEvent::Data(range) = decoded.event {
                        data.copy_within(at + range.start..at + range.end, end);
                        end += range.len();
                    }
                    at += decoded.consumed;
                }
                Err(fault) => {
                    // All that was read counts as length of the request, as nginx counts it.
                    self.taken_bytes += (data.len() - from) as u64;
                    data.truncate(end);
                    self.fault = Some(fault);
                    return Err(fault);
                }
            }
        }
        self.taken_bytes += (at - from) as u64;
        debug_assert!(self.input.is_empty(), "what was received with the head comes first");
        self.input.extend_from_slice(&data[at..]);
        data.truncate(end);
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)
    }
}
