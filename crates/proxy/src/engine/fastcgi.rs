//! FastCGI: responses are streams in records, with heads in CGI style.
//!
//! What is said in records is acted on in their order: one that is wrong behind a complete head cuts the
//! body, before it the head is refused.

use std::fmt;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_gateway::fastcgi::{self, Event, KeepConnection, Records};
use clearway_h1::{Beginning, BodyEvent, Decoded, ResponseFault, ResponseParser, ResponseProgress};
use clearway_message::Header;

use crate::engine::protocol::{
    Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted, parsed_heads,
};

/// Reads responses.
pub(super) struct FastCgi {
    parser: ResponseParser,
    records: Records,
    keep: KeepConnection,
    relayed: Relayed,
    /// Texts in errors of the application that make its response none (`fastcgi_catch_stderr`).
    caught: Vec<Bytes>,
    head: Head,
    end: End,
    /// How much of what has come counts for the length of a head, bytes.
    head_bytes: usize,
    output: Output,
    /// Whether all of the body was handed over.
    is_done: bool,
    /// How much of the body may follow, bytes, if that was said.
    rest: Option<u64>,
    wanted: Wanted,
}

/// How a body is passed on. As in nginx the end of the output cuts one that is too short only where the body
/// is buffered, and the end of the request always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relayed {
    Buffered,
    AsItComes,
}

/// How far the head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Incomplete,
    Complete,
    Wrong(ResponseFault),
}

/// Why no more output follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More output may follow.
    Open,
    /// The application is done with the request. Nothing has come behind that.
    Ended,
    /// Something has come behind the end, or more than was announced.
    Excess,
    Fault(Fault),
}

/// The state of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    None,
    Some,
    /// All output has come.
    Closed,
}

/// Why a response is refused, or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Head(ResponseFault),
    Record(fastcgi::Fault),
    /// The end of the request before the head of the response was there.
    EndInHead,
    /// The output was closed too early.
    ClosedOutput,
    /// The request was ended too early.
    ClosedRequest,
    /// Errors were caught; the log has them.
    Caught,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(fault) => fault.fmt(f),
            Self::Record(fault) => fault.fmt(f),
            Self::EndInHead => f.write_str("upstream sent unexpected FastCGI record: 3"),
            Self::ClosedOutput => f.write_str("upstream prematurely closed FastCGI stdout"),
            Self::ClosedRequest => f.write_str("upstream prematurely closed FastCGI request"),
            Self::Caught => Ok(()),
        }
    }
}

impl FastCgi {
    pub(super) fn new(keep: KeepConnection, relayed: Relayed, caught: Vec<Bytes>) -> Self {
        Self {
            parser: ResponseParser::new(Beginning::Lines),
            records: Records::default(),
            keep,
            relayed,
            caught,
            head: Head::Incomplete,
            end: End::Open,
            head_bytes: 0,
            output: Output::None,
            is_done: false,
            rest: None,
            wanted: Wanted::Whole,
        }
    }

    /// The application has complained.
    fn take_errors(&mut self, message: &[u8], say: Say<'_>) {
        let message = fastcgi::without_end(message);
        say(Level::Error, format_args!("FastCGI sent in stderr: \"{}\"", Verbatim(message)));
        let is_caught =
            |text: &Bytes| text.is_empty() || message.windows(text.len()).any(|part| part == text);
        if self.head == Head::Incomplete && self.caught.iter().any(is_caught) {
            self.end = End::Fault(Fault::Caught);
        }
    }

    /// Output has come: all of it so far is `output`.
    fn parse(&mut self, output: &[u8], max_bytes: usize) {
        self.output = Output::Some;
        if self.head == Head::Incomplete {
            self.head = match self.parser.parse(output, max_bytes) {
                Ok(ResponseProgress::Incomplete) => Head::Incomplete,
                Ok(_) => Head::Complete,
                Err(fault) => Head::Wrong(fault),
            };
        }
    }

    /// The application has closed its output. What it says behind that is waited for: it would be told that
    /// nobody listens.
    fn close(&mut self) {
        match self.head {
            Head::Complete => self.output = Output::Closed,
            _ => self.end = End::Fault(Fault::ClosedOutput),
        }
    }

    /// The meaning of the end of the received output.
    fn behind_output(&mut self) -> Result<Decoded, Fault> {
        let is_short = self.rest.is_some_and(|rest| rest > 0);
        match (self.end, self.output) {
            (End::Fault(fault), _) => return Err(fault),
            (_, Output::Closed) if is_short && self.relayed == Relayed::Buffered => {
                return Err(Fault::ClosedOutput);
            }
            (End::Ended | End::Excess, _) if is_short => return Err(Fault::ClosedRequest),
            (End::Open, _) => return Ok(Decoded { consumed: 0, event: BodyEvent::NeedInput }),
            (End::Ended | End::Excess, _) => self.is_done = true,
        }
        Ok(Decoded { consumed: 0, event: BodyEvent::End })
    }

    fn begin_end(&mut self) {
        if self.head != Head::Complete {
            self.end = End::Fault(Fault::EndInHead);
        }
    }
}

impl Protocol for FastCgi {
    type Fault = Fault;

    const ENDS_WITH_BODY: bool = false;

    parsed_heads!(parser);

    fn reset(&mut self) {
        let (parser, caught) = (std::mem::take(&mut self.parser), std::mem::take(&mut self.caught));
        *self = Self { parser, ..Self::new(self.keep, self.relayed, caught) };
        self.parser.clear();
    }

    fn unframe(&mut self, input: &mut Vec<u8>, from: usize, max_bytes: usize, say: Say<'_>) {
        let (mut at, mut kept) = (from, from);
        self.head_bytes = self.head_bytes.saturating_add(input.len() - from);
        while self.end == End::Open {
            let step = match self.records.next(&input[at..]) {
                Ok(step) => step,
                Err(fault) => {
                    self.end = End::Fault(Fault::Record(fault));
                    break;
                }
            };
            let behind = at + step.consumed;
            assert!(kept <= at && behind <= input.len(), "records lie one behind the other in what has come");
            match step.event {
                Event::Incomplete => break,
                Event::Stdout(range) => {
                    input.copy_within(at + range.start..at + range.end, kept);
                    kept += range.len();
                    self.parse(&input[..kept], max_bytes);
                }
                Event::Stderr(range) => {
                    self.take_errors(&input[at + range.start..at + range.end], say);
                    if behind == input.len() && self.output == Output::None {
                        // As in nginx many warnings do not take the place of the head.
                        self.head_bytes = 0;
                    }
                }
                Event::StdoutClosed => self.close(),
                Event::EndBegins => self.begin_end(),
                Event::Ended if behind < input.len() => self.end = End::Excess,
                Event::Ended => self.end = End::Ended,
            }
            at = behind;
        }
        debug_assert!(from <= kept && kept <= input.len(), "output is a part of what has come");
        input.truncate(kept);
    }

    fn head(&mut self, _: &[u8], max_bytes: usize) -> Result<HeadProgress, Fault> {
        match (self.head, self.end) {
            (Head::Complete, _) => Ok(HeadProgress::Final),
            (Head::Wrong(fault), _) => Err(Fault::Head(fault)),
            (Head::Incomplete, End::Fault(fault)) => Err(fault),
            (Head::Incomplete, _) if self.head_bytes >= max_bytes => {
                Err(Fault::Head(ResponseFault::TooBigHeader))
            }
            (Head::Incomplete, _) => Ok(HeadProgress::Incomplete),
        }
    }

    fn describe_head<'a>(&'a self, fault: Fault, input: &'a [u8]) -> Option<Box<dyn fmt::Display + 'a>> {
        match fault {
            Fault::Caught => None,
            Fault::Head(fault) => Some(Box::new(self.parser.describe(fault, input))),
            fault => Some(Box::new(fault)),
        }
    }

    fn switches_protocols(&self) -> bool {
        false
    }

    fn persistence(&self) -> Persistence {
        // An application that was not asked to stay closes behind its answer, and the next request met that.
        match (self.end, self.keep) {
            (End::Ended, KeepConnection::Yes) => Persistence::Stays,
            _ => Persistence::Closes,
        }
    }

    fn begin_body(&mut self, wanted: Wanted, _: TrailerUse) {
        debug_assert!(!self.is_done, "a body that begins is not over");
        self.wanted = wanted;
        self.rest = match (self.status(), wanted) {
            (204 | 304, _) => Some(0),
            (_, Wanted::Head | Wanted::WhatComes) => None,
            (_, Wanted::Whole) => self.content_length(),
        };
    }

    fn body(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let data = |len| Decoded { consumed: len, event: BodyEvent::Data(0..len) };
        if input.is_empty() {
            return self.behind_output();
        }
        if self.wanted == Wanted::WhatComes && self.rest.is_none() {
            // One that begins has to be whole.
            self.rest = self.content_length();
        }
        let Some(rest) = &mut self.rest else { return Ok(data(input.len())) };
        let len = usize::try_from(*rest).unwrap_or(usize::MAX).min(input.len());
        debug_assert!(len as u64 <= *rest, "no more is passed on than was announced");
        *rest -= len as u64;
        if len == 0 {
            (self.end, self.is_done) = (End::Excess, true);
            return Ok(Decoded { consumed: 0, event: BodyEvent::End });
        }
        Ok(data(len))
    }

    fn describe_body(&self, fault: Fault) -> Box<dyn fmt::Display + '_> {
        Box::new(fault)
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn eof(&self) -> Eof {
        match (self.keep, self.rest) {
            (KeepConnection::Yes, _) | (_, Some(1..)) => Eof::Premature,
            (KeepConnection::No, _) => Eof::Complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STDOUT: u8 = 6;
    const STDERR: u8 = 7;
    const END: u8 = 3;

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = (content.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, high, low, 3, 0], content, &[0; 3]].concat()
    }

    /// The result of a response that comes in pieces of this size: head, body, log, end.
    fn read(mut protocol: FastCgi, wire: &[u8], size: usize) -> (Vec<u8>, Vec<u8>, Vec<String>, String) {
        let (mut input, mut log, mut head) = (Vec::new(), Vec::new(), None);
        let mut body = Vec::new();
        for piece in wire.chunks(size) {
            let from = input.len();
            input.extend_from_slice(piece);
            protocol.unframe(&mut input, from, 100, &mut |_, text| log.push(text.to_string()));
            if head.is_none() {
                match protocol.head(&input, 100) {
                    Ok(HeadProgress::Final) => {
                        head = Some(input.drain(..protocol.head_len()).collect::<Vec<_>>());
                        protocol.begin_body(Wanted::Whole, TrailerUse::Dropped);
                    }
                    Ok(_) => continue,
                    Err(fault) => {
                        let text = protocol.describe_head(fault, &input).map(|text| text.to_string());
                        return (Vec::new(), body, log, text.unwrap_or_default());
                    }
                }
            }
            loop {
                match protocol.body(&input) {
                    Ok(Decoded { consumed, event: BodyEvent::Data(range) }) => {
                        body.extend_from_slice(&input[range]);
                        input.drain(..consumed);
                    }
                    Ok(_) => break,
                    Err(fault) => return (head.unwrap_or_default(), body, log, fault.to_string()),
                }
            }
        }
        let end = format!("{} {:?} {:?}", protocol.is_done(), protocol.eof(), protocol.persistence());
        (head.unwrap_or_default(), body, log, end)
    }

    fn plain(keep: KeepConnection) -> FastCgi {
        FastCgi::new(keep, Relayed::Buffered, Vec::new())
    }

    #[test]
    fn a_response_is_the_same_however_it_is_split() {
        let wire = [
            record(STDERR, b"first\n"),
            record(STDOUT, b"Status: 201 Made\r\nX: "),
            record(STDOUT, b"y\r\n\r\nbo"),
            record(STDERR, b"second."),
            record(STDOUT, b"dy"),
            record(STDOUT, b""),
            record(END, &[0; 8]),
        ]
        .concat();
        for size in [1, 2, 3, 7, 50, wire.len()] {
            let (head, body, _, end) = read(plain(KeepConnection::Yes), &wire, size);
            assert_eq!(head, b"Status: 201 Made\r\nX: y\r\n\r\n", "{size}");
            assert_eq!((&body[..], &end[..]), (&b"body"[..], "true Premature Stays"), "{size}");
        }
        let (_, _, log, _) = read(plain(KeepConnection::No), &wire, wire.len());
        let line = |text: &str| format!("FastCGI sent in stderr: \"{text}\"");
        assert_eq!(log, [line("first"), line("second")]);
    }

    #[test]
    fn what_is_wrong_is_named_as_nginx_names_it() {
        let head = record(STDOUT, b"Content-Length: 4\r\n\r\n");
        let end = |records: &[Vec<u8>]| {
            let wire = records.concat();
            read(plain(KeepConnection::No), &wire, wire.len()).3
        };
        let closed = "upstream prematurely closed FastCGI stdout";
        assert_eq!(end(&[record(STDOUT, b"A: b\r\n"), record(STDOUT, b"")]), closed);
        assert_eq!(end(&[record(END, &[0; 8])]), "upstream sent unexpected FastCGI record: 3");
        assert_eq!(end(&[head.clone(), record(STDOUT, b"ab"), record(STDOUT, b"")]), closed);
        let all = [head.clone(), record(STDOUT, b"ab"), record(STDOUT, b""), record(END, &[0; 8])];
        assert_eq!(end(&all), closed);
        let ended = "upstream prematurely closed FastCGI request";
        assert_eq!(end(&[head.clone(), record(STDOUT, b"ab"), record(END, &[0; 8])]), ended);
        let version = "upstream sent unsupported FastCGI protocol version: 72";
        assert_eq!(end(&[b"HTTP".to_vec()]), version);
        assert_eq!(end(&[head.clone(), b"HTTP".to_vec()]), version);
        assert_eq!(
            end(&[head.clone(), record(STDOUT, b"abcde"), record(END, &[0; 8])]),
            "true Complete Closes"
        );
        let whole = [head.clone(), record(STDOUT, b"abcd"), record(END, &[0; 8])];
        assert_eq!(end(&whole), "true Complete Closes");
        let wire = whole.concat();
        assert_eq!(read(plain(KeepConnection::Yes), &wire, wire.len()).3, "true Premature Stays");
        assert_eq!(end(&[head, record(STDOUT, b"abcd")]), "false Complete Closes");
        assert_eq!(end(&[record(STDOUT, &[b'a'; 120])]), "upstream sent too big header");
    }

    #[test]
    fn errors_before_the_head_may_be_caught() {
        let wire = [record(STDERR, b"PHP Fatal error: x"), record(STDOUT, b"A: b\r\n\r\n")].concat();
        let caught = vec![Bytes::from_static(b"no such"), Bytes::from_static(b"Fatal")];
        let (head, _, log, end) =
            read(FastCgi::new(KeepConnection::No, Relayed::AsItComes, caught.clone()), &wire, wire.len());
        assert_eq!((&head[..], log.len(), &end[..]), (&b""[..], 1, ""));
        let late = [record(STDOUT, b"A: b\r\n\r\n"), record(STDERR, b"Fatal")].concat();
        let (head, _, log, _) =
            read(FastCgi::new(KeepConnection::No, Relayed::AsItComes, caught), &late, late.len());
        assert_eq!((&head[..], log.len()), (&b"A: b\r\n\r\n"[..], 1));
    }
}
