//! Request bodies: counted bytes and the chunked coding (RFC 9112 §7.1), strict: CRLF and nothing else
//! ends a line here. Owned by a connection; whoever polls its task runs it.
//!
//! Invariants: no byte is looked at twice; nothing is buffered; what a peer can send besides data is
//! bounded by [`CHUNK_OVERHEAD_MAX_BYTES`] and [`TRAILERS_MAX_BYTES`].

use std::ops::Range;

use crate::fault::Fault;
use crate::head::BodyLength;

/// By how many bytes extensions and leading zeros of chunk sizes may exceed the data received so far.
pub const CHUNK_OVERHEAD_MAX_BYTES: u64 = 16 * 1024;

/// The most bytes of a trailer section, which is read and dropped.
pub const TRAILERS_MAX_BYTES: u64 = 32 * 1024;

/// Sizes above this are refused as soon as another byte follows, as in nginx (2^63 / 16).
const CHUNK_SIZE_MAX: u64 = i64::MAX as u64 / 16;

/// A chunk size has this many digits at most before the next ones count as overhead.
const CHUNK_SIZE_DIGITS: u64 = 16;

/// What a step of the decoder found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is consumed and more is needed.
    NeedInput,
    /// Data: this range of the input, never empty.
    Data(Range<usize>),
    /// The body is complete. What follows the consumed bytes belongs to the next request.
    End,
}

/// A step of the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// How many bytes of the input are done with, the event's data included.
    pub consumed: usize,
    /// What they were.
    pub event: BodyEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Counted data, of the body or of a chunk.
    Length,
    SizeStart,
    Size,
    Extension,
    SizeLineFeed,
    ChunkData,
    AfterData,
    AfterDataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

/// Decoder of one request body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of data that are still to come: of the body, or of the chunk.
    remaining: u64,
    /// Length of the body, or of the chunks so far, the current one included.
    announced: u64,
    /// Limit on `announced`.
    max: u64,
    /// Bytes that were neither data nor needed to frame it, less the data received.
    overhead: u64,
    /// Digits of the current chunk size, or bytes of the trailer section.
    count: u64,
}

impl BodyDecoder {
    /// A decoder at the beginning of a body.
    pub fn new(length: BodyLength) -> BodyDecoder {
        let (state, remaining) = match length {
            BodyLength::Empty | BodyLength::Length(0) => (State::Done, 0),
            BodyLength::Length(bytes) => (State::Length, bytes),
            BodyLength::Chunked => (State::SizeStart, 0),
        };
        BodyDecoder { state, remaining, announced: remaining, max: u64::MAX, overhead: 0, count: 0 }
    }

    /// Limits the body to `max` bytes from here on (`client_max_body_size`).
    ///
    /// # Errors
    /// The announced length is larger: answer 413. Chunks are checked as they arrive.
    pub fn limit(&mut self, max: u64) -> Result<(), Fault> {
        self.max = max;
        match self.state {
            State::Length if self.announced > max => Err(Fault::BodyTooLarge),
            State::Length | State::Done => Ok(()),
            _ => self.check_announced(),
        }
    }

    /// Takes any limit away: for a body that is only read to be dropped.
    pub fn unlimit(&mut self) {
        self.max = u64::MAX;
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of data that are known to be missing still: of the body, or of the current chunk.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Bytes of data that were received. When a chunk is refused as too large they are what the log shows
    /// before the plus sign, and `remaining` is the size of the chunk.
    pub fn received(&self) -> u64 {
        self.announced - self.remaining
    }

    /// Decodes up to the next piece of data, the body's end or the input's.
    ///
    /// # Errors
    /// `InvalidChunkedBody` or `ChunkedBodyTooLarge`. The connection cannot be used any longer: where the
    /// next request would begin is unknown.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let mut pos = 0;
        while pos < input.len() && self.state != State::Done {
            match self.state {
                State::Length | State::ChunkData => return Ok(self.take_data(input, pos)),
                State::SizeStart | State::Size | State::Extension | State::SizeLineFeed => {
                    self.parse_size_line(input, &mut pos)?;
                }
                State::AfterData | State::AfterDataLineFeed => {
                    self.state = match (self.state, input[pos]) {
                        (State::AfterData, b'\r') => State::AfterDataLineFeed,
                        (State::AfterDataLineFeed, b'\n') => State::SizeStart,
                        _ => return Err(Fault::InvalidChunkedBody),
                    };
                    pos += 1;
                }
                _ => self.parse_trailers(input, &mut pos)?,
            }
        }
        let event = if self.state == State::Done { BodyEvent::End } else { BodyEvent::NeedInput };
        Ok(Decoded { consumed: pos, event })
    }

    fn take_data(&mut self, input: &[u8], pos: usize) -> Decoded {
        let available = input.len() - pos;
        let taken = usize::try_from(self.remaining).map_or(available, |remaining| remaining.min(available));
        self.remaining -= taken as u64;
        if self.remaining == 0 {
            self.state = match self.state {
                State::Length => State::Done,
                _ => State::AfterData,
            };
        }
        Decoded { consumed: pos + taken, event: BodyEvent::Data(pos..pos + taken) }
    }

    fn parse_size_line(&mut self, input: &[u8], pos: &mut usize) -> Result<(), Fault> {
        while let Some(&byte) = input.get(*pos) {
            *pos += 1;
            match self.state {
                State::SizeStart => {
                    self.remaining = u64::from(hex_digit(byte).ok_or(Fault::InvalidChunkedBody)?);
                    self.count = 1;
                    self.state = State::Size;
                }
                State::Size => {
                    if self.remaining > CHUNK_SIZE_MAX {
                        return Err(Fault::InvalidChunkedBody);
                    }
                    match (hex_digit(byte), byte) {
                        (Some(digit), _) => self.add_digit(digit)?,
                        (None, b'\r') => self.state = State::SizeLineFeed,
                        (None, b';' | b' ' | b'\t') => self.state = State::Extension,
                        _ => return Err(Fault::InvalidChunkedBody),
                    }
                }
                State::Extension => match byte {
                    b'\r' => self.state = State::SizeLineFeed,
                    b'\n' => return Err(Fault::InvalidChunkedBody),
                    _ => self.add_overhead()?,
                },
                State::SizeLineFeed if byte == b'\n' => return self.begin_chunk(),
                _ => return Err(Fault::InvalidChunkedBody),
            }
        }
        Ok(())
    }

    fn add_digit(&mut self, digit: u8) -> Result<(), Fault> {
        self.remaining = self.remaining * 16 + u64::from(digit);
        self.count += 1;
        if self.count > CHUNK_SIZE_DIGITS {
            self.add_overhead()?;
        }
        Ok(())
    }

    fn add_overhead(&mut self) -> Result<(), Fault> {
        self.overhead += 1;
        if self.overhead > CHUNK_OVERHEAD_MAX_BYTES {
            return Err(Fault::InvalidChunkedBody);
        }
        Ok(())
    }

    fn begin_chunk(&mut self) -> Result<(), Fault> {
        self.count = 0;
        if self.remaining == 0 {
            self.state = State::TrailerStart;
            return Ok(());
        }
        self.state = State::ChunkData;
        self.overhead = self.overhead.saturating_sub(self.remaining);
        self.announced = self.announced.saturating_add(self.remaining);
        self.check_announced()
    }

    fn check_announced(&self) -> Result<(), Fault> {
        if self.announced > self.max { Err(Fault::ChunkedBodyTooLarge) } else { Ok(()) }
    }

    fn parse_trailers(&mut self, input: &[u8], pos: &mut usize) -> Result<(), Fault> {
        while let Some(&byte) = input.get(*pos) {
            *pos += 1;
            self.count += 1;
            if self.count > TRAILERS_MAX_BYTES {
                return Err(Fault::InvalidChunkedBody);
            }
            self.state = match (self.state, byte) {
                (State::TrailerStart, b'\r') => State::LastLineFeed,
                (State::Trailer, b'\r') => State::TrailerLineFeed,
                (State::TrailerStart | State::Trailer, b'\n') => return Err(Fault::InvalidChunkedBody),
                (State::TrailerStart | State::Trailer, _) => State::Trailer,
                (State::TrailerLineFeed, b'\n') => State::TrailerStart,
                (State::LastLineFeed, b'\n') => State::Done,
                _ => return Err(Fault::InvalidChunkedBody),
            };
            if self.state == State::Done {
                break;
            }
        }
        Ok(())
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
