//! HTTP/1 as servers speak it; and what SCGI and uwsgi servers answer, whose heads may also be in CGI style
//! and whose connections serve one request each.

use std::fmt;

use clearway_base::log::Level;
use clearway_h1::{
    Asked, Beginning, Decoded, ResponseBody, ResponseFault, ResponseFraming, ResponseParser,
    ResponseProgress, Trailers,
};
use clearway_message::Header;

use crate::engine::protocol::{
    Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted, parsed_heads,
};

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

    /// The protocol of SCGI and uwsgi servers.
    pub(super) fn of_application() -> Self {
        let parser = ResponseParser::new(Beginning::Either);
        Self { parser, body: None, connections: Persistence::Closes }
    }

    fn reader(&self) -> &ResponseBody {
        self.body.as_ref().expect("the body begins behind the head")
    }
}

impl Protocol for Http1 {
    type Fault = ResponseFault;

    parsed_heads!(parser);

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

    fn describe_head<'a>(
        &'a self,
        fault: ResponseFault,
        input: &'a [u8],
    ) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.parser.describe(fault, input)))
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
