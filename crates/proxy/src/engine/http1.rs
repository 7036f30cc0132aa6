//! HTTP/1 as servers speak it; and what SCGI and uwsgi servers answer, whose heads may also be in CGI style
//! and whose connections serve one request each.

use std::borrow::Cow;
use std::fmt;

use clearway_base::log::Level;
use clearway_h1::{
    Asked, Beginning, Decoded, ResponseBody, ResponseFault, ResponseFraming, ResponseParser,
    ResponseProgress, Trailers,
};
use clearway_message::{Header, status};

use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted};

/// Digits of a status.
const STATUS_DIGITS: usize = 3;

/// Reads responses.
pub(super) struct Http1 {
    parser: ResponseParser,
    body: Option<ResponseBody>,
    /// Whether connections serve several requests.
    connections: Persistence,
}

impl Http1 {
    /// Responses of HTTP servers.
    pub(super) fn new() -> Self {
        Self { parser: ResponseParser::default(), body: None, connections: Persistence::Stays }
    }

    /// Those of SCGI and uwsgi servers.
    pub(super) fn of_application() -> Self {
        let parser = ResponseParser::new(Beginning::Either);
        Self { parser, body: None, connections: Persistence::Closes }
    }

    fn reader(&self) -> &ResponseBody {
        self.body.as_ref().expect("the body begins behind the head")
    }
}

/// The status line from the status on, of a head in either style. Without a text behind the status it is as
/// if this server made the response.
pub(super) fn status_line_of<'a>(parser: &ResponseParser, input: &'a [u8]) -> Cow<'a, [u8]> {
    let reason = parser.reason();
    match (reason.start().checked_sub(STATUS_DIGITS), status::status_line(parser.status())) {
        (Some(start), _) => Cow::Borrowed(&input[start..reason.end()]),
        (None, Some(line)) => Cow::Borrowed(line.as_bytes()),
        (None, None) => Cow::Owned(format!("{:03} ", parser.status()).into_bytes()),
    }
}

impl Protocol for Http1 {
    type Fault = ResponseFault;

    fn reset(&mut self) {
        self.parser.clear();
        self.body = None;
    }

    fn head(&mut self, input: &[u8], max_bytes: usize) -> Result<HeadProgress, ResponseFault> {
        self.parser.parse(input, max_bytes).map(|progress| match progress {
            ResponseProgress::Incomplete => HeadProgress::Incomplete,
            ResponseProgress::Interim => HeadProgress::Interim,
            ResponseProgress::Final => HeadProgress::Final,
            ResponseProgress::Headless => HeadProgress::Headless,
        })
    }

    fn next_head(&mut self) -> usize {
        self.parser.next_head()
    }

    fn describe_head<'a>(
        &'a self,
        fault: ResponseFault,
        input: &'a [u8],
    ) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.parser.describe(fault, input)))
    }

    fn remark(&self, input: &[u8], say: Say<'_>) {
        self.parser.warnings(input).for_each(|warning| say(Level::Warn, format_args!("{warning}")));
    }

    fn status(&self) -> u16 {
        self.parser.status()
    }

    fn status_line<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]> {
        status_line_of(&self.parser, input)
    }

    fn lines(&self) -> &[Header] {
        self.parser.lines()
    }

    fn take_lines(&mut self) -> Vec<Header> {
        self.parser.take_lines()
    }

    fn head_len(&self) -> usize {
        self.parser.len()
    }

    fn content_length(&self) -> Option<u64> {
        self.parser.content_length()
    }

    fn switches_protocols(&self) -> bool {
        self.parser.switches_protocols()
    }

    fn persistence(&self) -> Persistence {
        if self.parser.keeps_alive() { self.connections } else { Persistence::Closes }
    }

    fn begin_body(&mut self, wanted: Wanted, trailers: TrailerUse) {
        let framing = match (wanted, self.parser.framing(Asked::Whole)) {
            (Wanted::Head, _) => self.parser.framing(Asked::Head),
            (Wanted::WhatComes, ResponseFraming::Length(_)) => ResponseFraming::UntilClose,
            (Wanted::WhatComes | Wanted::Whole, framing) => framing,
        };
        let trailers = match trailers {
            TrailerUse::Dropped => Trailers::Dropped,
            TrailerUse::Kept { max_bytes } => Trailers::Kept { max_bytes },
        };
        self.body = Some(ResponseBody::new(framing, trailers));
    }

    fn body(&mut self, input: &[u8]) -> Result<Decoded, ResponseFault> {
        self.body
            .get_or_insert_with(|| ResponseBody::new(ResponseFraming::Empty, Trailers::Dropped))
            .decode(input)
    }

    fn describe_body(&self, fault: ResponseFault) -> Box<dyn fmt::Display + '_> {
        Box::new(self.reader().describe(fault))
    }

    fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(ResponseBody::is_done)
    }

    fn eof(&self) -> Eof {
        match self.reader().eof() {
            clearway_h1::Eof::Complete => Eof::Complete,
            clearway_h1::Eof::Premature => Eof::Premature,
        }
    }

    fn excess(&self) -> (Level, &'static str) {
        (Level::Warn, self.reader().excess())
    }

    fn trailers(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        self.reader().trailers().for_each(|(name, value)| take(name, value));
    }
}
