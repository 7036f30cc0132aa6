//! HTTP/1 as servers speak it.

use std::fmt;

use clearway_h1::{
    Asked, Decoded, ResponseBody, ResponseFault, ResponseFraming, ResponseParser, ResponseProgress, Trailers,
};
use clearway_message::Header;

use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, TrailerUse, Wanted};

/// Digits of a status.
const STATUS_DIGITS: usize = 3;

/// Reads responses.
#[derive(Default)]
pub(super) struct Http1 {
    parser: ResponseParser,
    body: Option<ResponseBody>,
}

impl Http1 {
    fn reader(&self) -> &ResponseBody {
        self.body.as_ref().expect("the body begins behind the head")
    }
}

impl Protocol for Http1 {
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

    fn describe_head<'a>(&'a self, fault: ResponseFault, input: &'a [u8]) -> Box<dyn fmt::Display + 'a> {
        Box::new(self.parser.describe(fault, input))
    }

    fn warn(&self, input: &[u8], say: &mut dyn FnMut(fmt::Arguments<'_>)) {
        self.parser.warnings(input).for_each(|warning| say(format_args!("{warning}")));
    }

    fn status(&self) -> u16 {
        self.parser.status()
    }

    fn status_line<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        let reason = self.parser.reason();
        match reason.start().checked_sub(STATUS_DIGITS) {
            Some(start) => &input[start..reason.end()],
            None => b"200 OK",
        }
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
        if self.parser.keeps_alive() { Persistence::Stays } else { Persistence::Closes }
    }

    fn begin_body(&mut self, wanted: Wanted, trailers: TrailerUse) {
        let asked = match wanted {
            Wanted::Whole => Asked::Whole,
            Wanted::Head => Asked::Head,
        };
        let trailers = match trailers {
            TrailerUse::Dropped => Trailers::Dropped,
            TrailerUse::Kept { max_bytes } => Trailers::Kept { max_bytes },
        };
        self.body = Some(ResponseBody::new(self.parser.framing(asked), trailers));
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

    fn excess(&self) -> &'static str {
        self.reader().excess()
    }

    fn trailers(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        self.reader().trailers().for_each(|(name, value)| take(name, value));
    }
}
