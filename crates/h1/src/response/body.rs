//! The body of a response as it comes, and the trailers behind its last chunk. One value per response, which
//! the request's task owns.
//!
//! Invariants: each byte is decoded once, in the order in which it came; nothing but trailers is kept, and of
//! those no more than the owner allows. What comes behind the end belongs to nobody: the connection cannot be
//! used again.

use std::fmt;

use clearway_message::{BodyLength, HEAD_MAX_BYTES, Header, Known, name_hash};

use super::fault::ResponseFault;
use super::head::{ResponseFraming, write_invalid};
use crate::body::{BodyDecoder, BodyEvent, Decoded};
use crate::header_line::{HeaderLine, Line, Sender};

/// The fate of trailers, the lines behind the last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// Trailers are read and dropped.
    Dropped,
    /// Trailers are kept, up to so many bytes with their line ends (`proxy_pass_trailers on`,
    /// `proxy_buffer_size`).
    Kept {
        /// The most bytes of them.
        max_bytes: usize,
    },
}

/// The meaning of the connection's end for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The response is complete.
    Complete,
    /// Something is missing: "upstream prematurely closed connection".
    Premature,
}

#[derive(Clone, Debug)]
enum ResponseBodyState {
    Counted(BodyDecoder),
    Chunked(BodyDecoder),
    Section(Box<Section>),
    UntilClose,
    Done,
    Failed(ResponseFault),
}

/// Decodes the body of one response.
#[derive(Clone, Debug)]
pub struct ResponseBody {
    state: ResponseBodyState,
    framing: ResponseFraming,
    trailers: Trailers,
    /// The trailer section when it is complete, or wrong.
    section: Option<Box<Section>>,
    received: u64,
}

impl ResponseBody {
    /// At the beginning of a body.
    pub fn new(framing: ResponseFraming, trailers: Trailers) -> Self {
        let state = match (framing, trailers) {
            (ResponseFraming::Empty | ResponseFraming::Length(0), _) => ResponseBodyState::Done,
            (ResponseFraming::Length(bytes), _) => {
                ResponseBodyState::Counted(BodyDecoder::new(BodyLength::Length(bytes)))
            }
            (ResponseFraming::Chunked, Trailers::Dropped) => {
                ResponseBodyState::Chunked(BodyDecoder::new(BodyLength::Chunked))
            }
            (ResponseFraming::Chunked, Trailers::Kept { .. }) => {
                ResponseBodyState::Chunked(BodyDecoder::before_trailers())
            }
            (ResponseFraming::UntilClose, _) => ResponseBodyState::UntilClose,
        };
        Self { state, framing, trailers, section: None, received: 0 }
    }

    /// Decodes up to the next piece of data, the body's end or the input's. Bytes behind the end are not
    /// consumed: see [`excess`](Self::excess).
    ///
    /// # Errors
    /// The response is cut here, and its connection to be closed.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ResponseFault> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match &mut self.state {
                ResponseBodyState::Done => return Ok(Decoded { consumed: at, event: BodyEvent::End }),
                ResponseBodyState::Failed(fault) => return Err(*fault),
                ResponseBodyState::UntilClose => return Ok(self.take_all(input.len())),
                ResponseBodyState::Counted(decoder) | ResponseBodyState::Chunked(decoder) => {
                    let Ok(decoded) = decoder.decode(rest) else {
                        self.state = ResponseBodyState::Failed(ResponseFault::InvalidChunked);
                        continue;
                    };
                    let (from, is_done) = (at, decoder.is_done());
                    at += decoded.consumed;
                    if is_done {
                        self.end_data();
                    }
                    match decoded.event {
                        BodyEvent::Data(range) => {
                            self.received += range.len() as u64;
                            let event = BodyEvent::Data(from + range.start..from + range.end);
                            return Ok(Decoded { consumed: at, event });
                        }
                        BodyEvent::NeedInput => return Ok(need_input(at)),
                        BodyEvent::End => {}
                    }
                }
                ResponseBodyState::Section(section) => {
                    let next = match section.take(rest, &mut at) {
                        Ok(SectionProgress::Incomplete) => return Ok(need_input(at)),
                        Ok(SectionProgress::Complete) => ResponseBodyState::Done,
                        Err(fault) => ResponseBodyState::Failed(fault),
                    };
                    if let ResponseBodyState::Section(section) = std::mem::replace(&mut self.state, next) {
                        self.section = Some(section);
                    }
                }
            }
        }
    }

    fn take_all(&mut self, len: usize) -> Decoded {
        self.received += len as u64;
        let event = if len == 0 { BodyEvent::NeedInput } else { BodyEvent::Data(0..len) };
        Decoded { consumed: len, event }
    }

    fn end_data(&mut self) {
        self.state = match (&self.state, self.trailers) {
            (ResponseBodyState::Chunked(_), Trailers::Kept { max_bytes }) => {
                ResponseBodyState::Section(Box::new(Section::new(max_bytes.min(HEAD_MAX_BYTES))))
            }
            _ => ResponseBodyState::Done,
        };
    }

    /// Whether the body has come to its end, trailers included.
    pub fn is_done(&self) -> bool {
        matches!(self.state, ResponseBodyState::Done)
    }

    /// Bytes of data that came.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of data that are known to be missing: of the body, or of the current chunk.
    pub fn remaining(&self) -> u64 {
        match &self.state {
            ResponseBodyState::Counted(decoder) | ResponseBodyState::Chunked(decoder) => decoder.remaining(),
            _ => 0,
        }
    }

    /// The meaning of the connection's end at this moment.
    pub fn eof(&self) -> Eof {
        match self.state {
            ResponseBodyState::Done | ResponseBodyState::UntilClose => Eof::Complete,
            _ => Eof::Premature,
        }
    }

    /// The line of the error log (level `warn`) for bytes behind the end, in nginx's words. The connection
    /// must not be used again.
    pub fn excess(&self) -> &'static str {
        match (&self.section, self.framing) {
            (Some(section), _) if section.waited => "upstream sent data after trailers",
            (_, ResponseFraming::Chunked) => "upstream sent data after final chunk",
            _ => "upstream sent more data than specified in \"Content-Length\" header",
        }
    }

    /// The trailers that were kept, name and value, when the body is done.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.section.iter().flat_map(|section| {
            section.lines.iter().map(|line| (line.name.of(&section.bytes), line.value.of(&section.bytes)))
        })
    }

    /// The message for the error log about a fault of this body, in nginx's words.
    pub fn describe(&self, fault: ResponseFault) -> impl fmt::Display {
        Description { fault, section: self.section.as_deref() }
    }
}

fn need_input(consumed: usize) -> Decoded {
    Decoded { consumed, event: BodyEvent::NeedInput }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionProgress {
    Incomplete,
    Complete,
}

/// The lines behind the last chunk.
#[derive(Clone, Debug, Default)]
struct Section {
    bytes: Vec<u8>,
    max_bytes: usize,
    line: HeaderLine,
    pos: usize,
    lines: Vec<Header>,
    /// Whether it came in several pieces.
    waited: bool,
}

impl Section {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, ..Self::default() }
    }

    /// Takes what belongs to the section, and moves `at` behind it.
    fn take(&mut self, input: &[u8], at: &mut usize) -> Result<SectionProgress, ResponseFault> {
        let before = self.bytes.len();
        let taken = input.len().min(self.max_bytes - before);
        self.bytes.extend_from_slice(&input[..taken]);
        loop {
            let usual = self.line.take_usual(&self.bytes, &mut self.pos);
            let parse = || self.line.parse(&self.bytes, &mut self.pos, Sender::Server);
            match usual.map_or_else(parse, Ok).map_err(|_| ResponseFault::InvalidTrailer)? {
                Line::Header => {
                    let (name, value) = (self.line.name(), self.line.value());
                    let hash = name_hash(name.of(&self.bytes));
                    let known = Known::find_hashed(name.of(&self.bytes), hash);
                    self.lines.push(Header { name, value, hash, known });
                }
                Line::End => {
                    *at += self.pos - before;
                    self.bytes.truncate(self.pos);
                    return Ok(SectionProgress::Complete);
                }
                Line::Incomplete if self.bytes.len() == self.max_bytes => {
                    return Err(ResponseFault::TooBigTrailers);
                }
                Line::Incomplete => {
                    *at += taken;
                    self.waited = true;
                    return Ok(SectionProgress::Incomplete);
                }
            }
        }
    }
}

struct Description<'a> {
    fault: ResponseFault,
    section: Option<&'a Section>,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.fault.message();
        match (self.fault, self.section) {
            (ResponseFault::InvalidTrailer, Some(section)) => {
                write_invalid(f, message, section.line.received(), &section.bytes)
            }
            _ => f.write_str(message),
        }
    }
}
