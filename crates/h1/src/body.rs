//! Bodies: counted bytes and the chunked coding (RFC 9112 §7.1), strict: CRLF and nothing else
//! ends a line here. Owned by a connection; runs in the poll of the connection's task.
//!
//! Invariants: no byte is looked at twice; nothing is buffered; what a peer can send besides data is
//! bounded by [`CHUNK_OVERHEAD_MAX_BYTES`] and [`TRAILERS_MAX_BYTES`].

use std::ops::Range;

use crate::fault::Fault;
use clearway_message::BodyLength;

/// By how many bytes extensions and leading zeros of chunk sizes may exceed the data received so far.
pub const CHUNK_OVERHEAD_MAX_BYTES: u64 = 16 * 1024;

/// The most bytes of a trailer section, which is read and dropped.
pub const TRAILERS_MAX_BYTES: u64 = 32 * 1024;

/// The largest chunk size, as in nginx: there it keeps the next digit from overflowing (2^63 / 16).
const CHUNK_SIZE_MAX: u64 = i64::MAX as u64 / 16;

/// A chunk size has this many digits at most before the next ones count as overhead.
const CHUNK_SIZE_DIGITS: u64 = 16;

/// The result of a step of the decoder.
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
    /// Their meaning.
    pub event: BodyEvent,
}

/// The fate of the trailer section behind the last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrailerSection {
    /// The trailer section is read and dropped.
    Dropped,
    /// The trailer section is left to the owner: the body ends before it.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestBodyState {
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

/// Decoder of one body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: RequestBodyState,
    /// Bytes of data that are still to come: of the body, or of the chunk.
    remaining: u64,
    /// Bytes of data that came.
    received: u64,
    /// Limit on the sum of both.
    max: u64,
    /// The chunk size that is being parsed.
    size: u64,
    /// Bytes that were neither data nor needed to frame it, less the data received.
    overhead: u64,
    /// Digits of the current chunk size, or bytes of the trailer section.
    count: u64,
    trailers: TrailerSection,
}

impl BodyDecoder {
    /// A decoder at the beginning of a body.
    pub fn new(length: BodyLength) -> BodyDecoder {
        let (state, remaining) = match length {
            BodyLength::Empty | BodyLength::Length(0) => (RequestBodyState::Done, 0),
            BodyLength::Length(bytes) => (RequestBodyState::Length, bytes),
            BodyLength::Chunked => (RequestBodyState::SizeStart, 0),
        };
        let trailers = TrailerSection::Dropped;
        BodyDecoder { state, remaining, received: 0, max: u64::MAX, size: 0, overhead: 0, count: 0, trailers }
    }

    /// A decoder of chunks that ends with the line of the last one: the trailer section is its owner's.
    pub(crate) fn before_trailers() -> BodyDecoder {
        BodyDecoder { trailers: TrailerSection::Left, ..BodyDecoder::new(BodyLength::Chunked) }
    }

    /// Limits the body to `max` bytes from here on (`client_max_body_size`, whose 0 means no limit: then this
    /// is not called).
    ///
    /// # Errors
    /// The announced length is larger: answer 413. Chunks are checked as they arrive.
    pub fn limit(&mut self, max: u64) -> Result<(), Fault> {
        self.max = max;
        self.check_limit()
    }

    /// Takes any limit away: for a body that is only read to be dropped.
    pub fn unlimit(&mut self) {
        self.max = u64::MAX;
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == RequestBodyState::Done
    }

    /// Bytes of data that are known to be missing still: of the body, or of the current chunk.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Bytes of data that were received. When a chunk is refused as too large they are what the log shows
    /// before the plus sign, and `remaining` is the size of the chunk.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Decodes up to the next piece of data, the body's end or the input's.
    ///
    /// # Errors
    /// `InvalidChunkedBody` or `ChunkedBodyTooLarge`. The connection cannot be used any longer: where the
    /// next request would begin is unknown.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let mut pos = 0;
        while pos < input.len() && self.state != RequestBodyState::Done {
            match self.state {
                RequestBodyState::Length | RequestBodyState::ChunkData => {
                    return Ok(self.take_data(input, pos));
                }
                RequestBodyState::SizeStart
                | RequestBodyState::Size
                | RequestBodyState::Extension
                | RequestBodyState::SizeLineFeed => {
                    self.parse_size_line(input, &mut pos)?;
                }
                RequestBodyState::AfterData | RequestBodyState::AfterDataLineFeed => {
                    self.state = match (self.state, input[pos]) {
                        (RequestBodyState::AfterData, b'\r') => RequestBodyState::AfterDataLineFeed,
                        (RequestBodyState::AfterDataLineFeed, b'\n') => RequestBodyState::SizeStart,
                        _ => return Err(Fault::InvalidChunkedBody),
                    };
                    pos += 1;
                }
                _ => self.parse_trailers(input, &mut pos)?,
            }
        }
        let event = if self.state == RequestBodyState::Done { BodyEvent::End } else { BodyEvent::NeedInput };
        Ok(Decoded { consumed: pos, event })
    }

    fn take_data(&mut self, input: &[u8], pos: usize) -> Decoded {
        let available = input.len() - pos;
        let taken = usize::try_from(self.remaining).map_or(available, |remaining| remaining.min(available));
        self.remaining -= taken as u64;
        self.received += taken as u64;
        if self.remaining == 0 {
            self.state = match self.state {
                RequestBodyState::Length => RequestBodyState::Done,
                _ => RequestBodyState::AfterData,
            };
        }
        Decoded { consumed: pos + taken, event: BodyEvent::Data(pos..pos + taken) }
    }

    fn parse_size_line(&mut self, input: &[u8], pos: &mut usize) -> Result<(), Fault> {
        while let Some(&byte) = input.get(*pos) {
            *pos += 1;
            match self.state {
                RequestBodyState::SizeStart => {
                    self.size = u64::from(hex_digit(byte).ok_or(Fault::InvalidChunkedBody)?);
                    self.count = 1;
                    self.state = RequestBodyState::Size;
                }
                RequestBodyState::Size => match (hex_digit(byte), byte) {
                    (Some(digit), _) => self.add_digit(digit)?,
                    (None, b'\r') => self.state = RequestBodyState::SizeLineFeed,
                    (None, b';' | b' ' | b'\t') => self.state = RequestBodyState::Extension,
                    _ => return Err(Fault::InvalidChunkedBody),
                },
                RequestBodyState::Extension => match byte {
                    b'\r' => self.state = RequestBodyState::SizeLineFeed,
                    b'\n' => return Err(Fault::InvalidChunkedBody),
                    _ => self.add_overhead()?,
                },
                RequestBodyState::SizeLineFeed if byte == b'\n' => return self.begin_chunk(),
                _ => return Err(Fault::InvalidChunkedBody),
            }
        }
        Ok(())
    }

    fn add_digit(&mut self, digit: u8) -> Result<(), Fault> {
        self.size = self.size * 16 + u64::from(digit);
        if self.size > CHUNK_SIZE_MAX {
            return Err(Fault::InvalidChunkedBody);
        }
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
        self.remaining = self.size;
        if self.size == 0 {
            self.state = match self.trailers {
                TrailerSection::Dropped => RequestBodyState::TrailerStart,
                TrailerSection::Left => RequestBodyState::Done,
            };
            return Ok(());
        }
        self.state = RequestBodyState::ChunkData;
        self.overhead = self.overhead.saturating_sub(self.size);
        self.check_limit()
    }

    fn check_limit(&self) -> Result<(), Fault> {
        if self.received.saturating_add(self.remaining) <= self.max {
            return Ok(());
        }
        match self.state {
            RequestBodyState::Length => Err(Fault::BodyTooLarge),
            _ => Err(Fault::ChunkedBodyTooLarge),
        }
    }

    fn parse_trailers(&mut self, input: &[u8], pos: &mut usize) -> Result<(), Fault> {
        while let Some(&byte) = input.get(*pos) {
            *pos += 1;
            self.count += 1;
            if self.count > TRAILERS_MAX_BYTES {
                return Err(Fault::InvalidChunkedBody);
            }
            self.state = match (self.state, byte) {
                (RequestBodyState::TrailerStart, b'\r') => RequestBodyState::LastLineFeed,
                (RequestBodyState::Trailer, b'\r') => RequestBodyState::TrailerLineFeed,
                (RequestBodyState::TrailerStart | RequestBodyState::Trailer, b'\n') => {
                    return Err(Fault::InvalidChunkedBody);
                }
                (RequestBodyState::TrailerStart | RequestBodyState::Trailer, _) => RequestBodyState::Trailer,
                (RequestBodyState::TrailerLineFeed, b'\n') => RequestBodyState::TrailerStart,
                (RequestBodyState::LastLineFeed, b'\n') => RequestBodyState::Done,
                _ => return Err(Fault::InvalidChunkedBody),
            };
            if self.state == RequestBodyState::Done {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a chunked body and what was left behind it, decoded from one piece.
    fn decode(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(Vec<u8>, usize), Fault> {
        let (mut data, mut at) = (Vec::new(), 0);
        loop {
            let decoded = decoder.decode(&input[at..])?;
            let rest = &input[at..];
            at += decoded.consumed;
            match decoded.event {
                BodyEvent::Data(range) => data.extend_from_slice(&rest[range]),
                BodyEvent::End | BodyEvent::NeedInput => return Ok((data, input.len() - at)),
            }
        }
    }

    fn chunked() -> BodyDecoder {
        BodyDecoder::new(BodyLength::Chunked)
    }

    #[test]
    fn a_counted_body_ends_where_it_says() {
        let mut decoder = BodyDecoder::new(BodyLength::Length(5));
        assert_eq!(decode(&mut decoder, b"123"), Ok((b"123".to_vec(), 0)));
        assert_eq!((decoder.received(), decoder.remaining()), (3, 2));
        assert_eq!(decode(&mut decoder, b"45GET"), Ok((b"45".to_vec(), 3)));
        assert!(decoder.is_done());
    }

    #[test]
    fn an_empty_body_is_done_at_once() {
        for length in [BodyLength::Empty, BodyLength::Length(0)] {
            let mut decoder = BodyDecoder::new(length);
            assert!(decoder.is_done());
            let end = Decoded { consumed: 0, event: BodyEvent::End };
            assert_eq!(decoder.decode(b"GET"), Ok(end));
        }
    }

    #[test]
    fn counters_hold_inside_a_size_line() {
        let mut decoder = chunked();
        assert_eq!(decode(&mut decoder, b"2\r\nhi\r\nfff"), Ok((b"hi".to_vec(), 0)));
        assert_eq!((decoder.received(), decoder.remaining()), (2, 0));
    }

    #[test]
    fn an_announced_length_above_the_limit_is_refused() {
        let mut decoder = BodyDecoder::new(BodyLength::Length(5));
        assert_eq!(decoder.limit(5), Ok(()));
        assert_eq!(decoder.limit(4), Err(Fault::BodyTooLarge));
        decoder.unlimit();
        assert_eq!(decode(&mut decoder, b"12345"), Ok((b"12345".to_vec(), 0)));
    }

    #[test]
    fn the_chunk_that_exceeds_the_limit_is_refused_before_its_data() {
        let mut decoder = chunked();
        assert_eq!(decoder.limit(5), Ok(()));
        assert_eq!(decode(&mut decoder, b"5\r\n12345\r\n"), Ok((b"12345".to_vec(), 0)));
        assert_eq!(decode(&mut decoder, b"1\r\n"), Err(Fault::ChunkedBodyTooLarge));
        assert_eq!((decoder.received(), decoder.remaining()), (5, 1));
        let mut late = chunked();
        assert_eq!(decode(&mut late, b"5\r\n12345\r\n"), Ok((b"12345".to_vec(), 0)));
        assert_eq!(late.limit(4), Err(Fault::ChunkedBodyTooLarge));
    }

    #[test]
    fn extensions_are_bounded_by_the_data_they_come_with() {
        let extension = vec![b'x'; CHUNK_OVERHEAD_MAX_BYTES as usize];
        let line = |size: &str, less: usize| [size.as_bytes(), b";", &extension[less..], b"\r\n"].concat();
        assert_eq!(decode(&mut chunked(), &line("1", 0)), Ok((vec![], 0)));
        assert_eq!(
            decode(&mut chunked(), &[line("1", 0), b"x\r\n1;xx".to_vec()].concat()),
            Err(Fault::InvalidChunkedBody)
        );
        let zeros = "0".repeat(CHUNK_OVERHEAD_MAX_BYTES as usize + 17);
        assert_eq!(decode(&mut chunked(), zeros.as_bytes()), Err(Fault::InvalidChunkedBody));
        // An extension of a hundred bytes with each kilobyte is what signing clients send.
        let chunk = [&b"400;"[..], &[b's'; 100], b"\r\n", &[b'd'; 1024], b"\r\n"].concat();
        let (data, rest) = decode(&mut chunked(), &chunk.repeat(500)).unwrap();
        assert_eq!((data.len(), rest), (500 * 1024, 0));
    }

    #[test]
    fn trailers_are_bounded() {
        let mut input = b"0\r\n".to_vec();
        input.extend(std::iter::repeat_n(b"Name: value\r\n", 3000).flatten());
        assert_eq!(decode(&mut chunked(), &input), Err(Fault::InvalidChunkedBody));
    }
}
