//! Records as they come from an application.
//!
//! Invariants: the same bytes give the same events however they were split; what an event names lies within
//! what was consumed; nothing is kept but eight bytes of state.

use std::fmt;
use std::ops::Range;

use super::{REQUEST_ID, VERSION, kind};

/// The meaning of the next bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed; all bytes so far are consumed.
    Incomplete,
    /// A part of the response.
    Stdout(Range<usize>),
    /// The application has closed its output.
    StdoutClosed,
    /// A complaint of the application: a line for the log.
    Stderr(Range<usize>),
    /// The application is done with the request; the record that says so goes on.
    EndBegins,
    /// That record is complete: what follows belongs to nothing.
    Ended,
}

/// An event, and how many bytes of the input it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From the front of the input.
    pub consumed: usize,
    /// Their meaning. Ranges are of the input.
    pub event: Event,
}

/// A fault of a record. Its text is nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another version than 1.
    Version(u8),
    /// Neither output nor errors nor the end.
    Kind(u8),
    /// The record belongs to another request (high byte of its number).
    IdHigh(u8),
    /// The record belongs to another request (low byte of its number).
    IdLow(u8),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "upstream sent unsupported FastCGI protocol version: {version}")
            }
            Self::Kind(kind) => write!(f, "upstream sent invalid FastCGI record type: {kind}"),
            Self::IdHigh(byte) => write!(f, "upstream sent unexpected FastCGI request id high byte: {byte}"),
            Self::IdLow(byte) => write!(f, "upstream sent unexpected FastCGI request id low byte: {byte}"),
        }
    }
}

impl std::error::Error for Fault {}

/// Where in a record the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordPosition {
    #[default]
    Version,
    Kind,
    IdHigh,
    IdLow,
    LengthHigh,
    LengthLow,
    Padding,
    Reserved,
    Content,
    Fill,
    /// Behind the last record.
    Over,
}

/// Reads records. One value for a connection and request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records {
    place: RecordPosition,
    kind: u8,
    /// Bytes of the content that are still to come.
    left: u16,
    /// Zeros behind the content that are still to come.
    fill: u8,
}

impl Records {
    /// The next step. After [`Event::Ended`] nothing is consumed any more.
    ///
    /// # Errors
    /// The connection cannot be used any more.
    pub fn next(&mut self, input: &[u8]) -> Result<Step, Fault> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.place {
                RecordPosition::Content => return Ok(self.content(input, at)),
                RecordPosition::Fill => {
                    at += self.skip_fill(input.len() - at);
                    if self.place == RecordPosition::Over {
                        return Ok(Step { consumed: at, event: Event::Ended });
                    }
                }
                RecordPosition::Over => return Ok(Step { consumed: 0, event: Event::Ended }),
                _ => {
                    self.header_byte(byte)?;
                    at += 1;
                    if let Some(event) = self.begun() {
                        return Ok(Step { consumed: at, event });
                    }
                }
            }
        }
        let event = if self.place == RecordPosition::Over { Event::Ended } else { Event::Incomplete };
        Ok(Step { consumed: at, event })
    }

    /// Whether the next byte begins a record, or the last record is complete.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.place, RecordPosition::Version | RecordPosition::Over)
    }

    fn header_byte(&mut self, byte: u8) -> Result<(), Fault> {
        self.place = match self.place {
            RecordPosition::Version if byte != VERSION => return Err(Fault::Version(byte)),
            RecordPosition::Version => RecordPosition::Kind,
            RecordPosition::Kind if !matches!(byte, kind::STDOUT | kind::STDERR | kind::END_REQUEST) => {
                return Err(Fault::Kind(byte));
            }
            RecordPosition::Kind => {
                self.kind = byte;
                RecordPosition::IdHigh
            }
            RecordPosition::IdHigh if byte != 0 => return Err(Fault::IdHigh(byte)),
            RecordPosition::IdHigh => RecordPosition::IdLow,
            RecordPosition::IdLow if byte != REQUEST_ID => return Err(Fault::IdLow(byte)),
            RecordPosition::IdLow => RecordPosition::LengthHigh,
            RecordPosition::LengthHigh => {
                self.left = u16::from(byte) << 8;
                RecordPosition::LengthLow
            }
            RecordPosition::LengthLow => {
                self.left |= u16::from(byte);
                RecordPosition::Padding
            }
            RecordPosition::Padding => {
                self.fill = byte;
                RecordPosition::Reserved
            }
            RecordPosition::Reserved
            | RecordPosition::Content
            | RecordPosition::Fill
            | RecordPosition::Over => RecordPosition::Content,
        };
        Ok(())
    }

    /// The event of a record that consists of its header, once that is complete.
    fn begun(&mut self) -> Option<Event> {
        if self.place != RecordPosition::Content {
            return None;
        }
        let is_empty = self.left == 0;
        if is_empty {
            self.end_content();
        }
        match self.kind {
            kind::END_REQUEST => Some(Event::EndBegins),
            kind::STDOUT if is_empty => Some(Event::StdoutClosed),
            _ => None,
        }
    }

    fn content(&mut self, input: &[u8], at: usize) -> Step {
        let take = usize::from(self.left).min(input.len() - at);
        self.left -= take as u16;
        if self.left == 0 {
            self.end_content();
        }
        let (range, consumed) = (at..at + take, at + take);
        let event = match self.kind {
            kind::STDOUT => Event::Stdout(range),
            kind::STDERR => Event::Stderr(range),
            _ if self.place == RecordPosition::Over => Event::Ended,
            _ => return self.behind_end(input, consumed),
        };
        Step { consumed, event }
    }

    /// Goes on behind a part of the last record's content.
    fn behind_end(&mut self, input: &[u8], at: usize) -> Step {
        let at = if self.place == RecordPosition::Fill { at + self.skip_fill(input.len() - at) } else { at };
        let event = if self.place == RecordPosition::Over { Event::Ended } else { Event::Incomplete };
        Step { consumed: at, event }
    }

    fn end_content(&mut self) {
        self.place = if self.fill == 0 { self.next_record() } else { RecordPosition::Fill };
    }

    /// Skips zeros of which so many bytes are there; how many of them.
    fn skip_fill(&mut self, there: usize) -> usize {
        let skip = usize::from(self.fill).min(there);
        self.fill -= skip as u8;
        if self.fill == 0 {
            self.place = self.next_record();
        }
        skip
    }

    fn next_record(&self) -> RecordPosition {
        if self.kind == kind::END_REQUEST { RecordPosition::Over } else { RecordPosition::Version }
    }
}

/// A message of an application as the log has it: without line ends, spaces and full stops at its end.
#[must_use]
pub fn without_end(message: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'.' | b' ');
    let end = message.iter().rposition(|byte| !is_end(byte)).map_or(1, |last| last + 1);
    &message[..end.min(message.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, content: &[u8], fill: u8) -> Vec<u8> {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let mut record = vec![1, kind, 0, 1, high, low, fill, 0];
        record.extend_from_slice(content);
        record.resize(record.len() + usize::from(fill), 0);
        record
    }

    /// The results of reading bytes that come in pieces: output, errors, other events.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        other: Vec<Event>,
        left: Vec<u8>,
        fault: Option<Fault>,
    }

    fn read(pieces: &[&[u8]]) -> Seen {
        let (mut records, mut seen) = (Records::default(), Seen::default());
        for piece in pieces {
            seen.left.extend_from_slice(piece);
            loop {
                let step = match records.next(&seen.left) {
                    Ok(step) => step,
                    Err(fault) => {
                        seen.fault = Some(fault);
                        return seen;
                    }
                };
                match step.event.clone() {
                    Event::Stdout(range) => seen.stdout.extend_from_slice(&seen.left[range]),
                    Event::Stderr(range) => seen.stderr.extend_from_slice(&seen.left[range]),
                    Event::Incomplete => {}
                    other if seen.other.last() != Some(&other) => seen.other.push(other),
                    _ => {}
                }
                seen.left.drain(..step.consumed);
                if matches!(step.event, Event::Incomplete | Event::Ended) {
                    break;
                }
            }
        }
        seen
    }

    fn conversation() -> Vec<u8> {
        [
            record(6, b"Status: 200 OK\r\n\r\nhel", 3),
            record(7, b"a warning\n", 0),
            record(7, b"", 5),
            record(6, b"lo", 255),
            record(6, b"", 0),
            record(3, &[0; 8], 2),
            b"next".to_vec(),
        ]
        .concat()
    }

    #[test]
    fn streams_are_told_apart() {
        let seen = read(&[&conversation()]);
        assert_eq!(seen.stdout, b"Status: 200 OK\r\n\r\nhello");
        assert_eq!(seen.stderr, b"a warning\n");
        assert_eq!(seen.other, [Event::StdoutClosed, Event::EndBegins, Event::Ended]);
        assert_eq!(seen.left, b"next");
    }

    #[test]
    fn an_end_without_content_or_filling_is_one() {
        for end in [record(3, &[], 0), record(3, &[], 7), record(3, &[0; 8], 0)] {
            assert_eq!(read(&[&end]).other, [Event::EndBegins, Event::Ended]);
        }
    }

    #[test]
    fn what_is_wrong_is_named_as_nginx_names_it() {
        let fault = |bytes: &[u8]| read(&[bytes]).fault.expect("it is refused").to_string();
        assert_eq!(fault(&[0]), "upstream sent unsupported FastCGI protocol version: 0");
        assert_eq!(fault(b"HTTP"), "upstream sent unsupported FastCGI protocol version: 72");
        assert_eq!(fault(&[1, 10]), "upstream sent invalid FastCGI record type: 10");
        assert_eq!(fault(&[1, 6, 1]), "upstream sent unexpected FastCGI request id high byte: 1");
        assert_eq!(fault(&[1, 6, 0, 2]), "upstream sent unexpected FastCGI request id low byte: 2");
        assert_eq!(fault(&[record(6, b"x", 9), vec![2]].concat()).split(' ').next_back(), Some("2"));
    }

    #[test]
    fn messages_lose_their_end() {
        let cases = [("a.b. \r\n", "a.b"), ("", ""), ("...", "."), ("\n", "\n"), ("x", "x")];
        for (message, logged) in cases {
            assert_eq!(without_end(message.as_bytes()), logged.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn splits_change_nothing(cuts in prop::collection::vec(0usize..400, 0..12)) {
            let bytes = conversation();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect();
            prop_assert_eq!(read(&pieces), read(&[&bytes]));
        }

        #[test]
        fn any_bytes_are_events_or_a_fault(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            from in 0usize..120,
        ) {
            let mut input = conversation();
            input.truncate(from);
            input.extend_from_slice(&bytes);
            let mut records = Records::default();
            let mut at = 0;
            while let Ok(step) = records.next(&input[at..]) {
                if let Event::Stdout(range) | Event::Stderr(range) = &step.event {
                    prop_assert!(!range.is_empty() && range.end <= step.consumed);
                }
                at += step.consumed;
                prop_assert!(at <= input.len());
                if matches!(step.event, Event::Incomplete | Event::Ended) {
                    break;
                }
            }
        }
    }
}
