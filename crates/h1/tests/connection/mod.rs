//! A connection without a socket: requests come in pieces of any size and go through the parser and the
//! body reader in the way in which the server's connections use them. Tests and the fuzz target `h1_split`
//! look on.

use clearway_h1::{BodyReader, Fault, HeadParser, HeadProgress, Options};
use clearway_message::{BodyLength, RequestHead};

/// A head as far as it was received, and the parser that knows what belongs to HTTP/1 alone.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) parser: &'a HeadParser,
}

/// What happened on the connection.
pub(crate) enum Event<'a> {
    /// A head is complete; its spans refer to these bytes.
    Head(Received<'a>, &'a [u8]),
    /// So much of the body was received since the head: all that came of it so far.
    Body(&'a [u8]),
    /// The request is complete.
    End,
    /// The request is refused. These are the bytes that were received of its head.
    Refused(Fault, Received<'a>, &'a [u8]),
}

/// What is to be done behind a head.
#[derive(Clone, Copy)]
pub(crate) enum Wish {
    /// Keep the body, of so many bytes at most.
    Keep(u64),
    /// Drop the body.
    Drop,
    /// Close the connection.
    Close,
}

/// How a connection ends on which nothing more comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// Bytes that belong to no complete request, without the empty lines before one.
    pub(crate) rest: usize,
    pub(crate) place: EndPlace,
}

/// Where it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndPlace {
    #[default]
    Head,
    Body,
    /// By a fault, or because the observer wished so.
    Closed,
}

/// Reads requests from `pieces`; the observer is asked what to do behind each head.
pub(crate) fn receive<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    options: &Options,
    mut observe: impl FnMut(Event<'_>) -> Wish,
) -> End {
    let mut pieces = pieces.into_iter();
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let (mut input, mut start) = (Vec::new(), 0);
    loop {
        parser.clear();
        head.clear();
        loop {
            match parser.parse(&mut head, &input[start..], options) {
                Ok(HeadProgress::Complete) => break,
                Ok(HeadProgress::Incomplete) => {}
                Err(fault) => {
                    observe(Event::Refused(
                        fault,
                        Received { head: &head, parser: &parser },
                        &input[start..],
                    ));
                    return End { rest: 0, place: EndPlace::Closed };
                }
            }
            start += parser.drop_empty_lines();
            let Some(piece) = pieces.next() else {
                // Those that came together with the beginning of a request are still there.
                let is_empty_line = |byte: &&u8| matches!(**byte, b'\r' | b'\n');
                start += input[start..].iter().take_while(is_empty_line).count();
                return End { rest: input.len() - start, place: EndPlace::Head };
            };
            input.extend_from_slice(piece);
        }
        let wish = observe(Event::Head(Received { head: &head, parser: &parser }, &input[start..]));
        let body_start = start + parser.len();
        if head.body == BodyLength::Empty && !matches!(wish, Wish::Close) {
            observe(Event::End);
            start = body_start;
            continue;
        }
        let mut body = BodyReader::new(head.body, input.split_off(body_start));
        let received = match wish {
            Wish::Keep(max_bytes) => keep(&mut body, max_bytes, &mut pieces, &mut observe),
            Wish::Drop => discard(&mut body, &mut pieces),
            Wish::Close => return End { rest: 0, place: EndPlace::Closed },
        };
        match received {
            Ok(true) => {
                observe(Event::End);
            }
            Ok(false) => return End { rest: 0, place: EndPlace::Body },
            Err(fault) => {
                observe(Event::Refused(fault, Received { head: &head, parser: &parser }, &input[start..]));
                return End { rest: 0, place: EndPlace::Closed };
            }
        }
        assert_eq!(body.remaining(), 0);
        body.put_rest_into(&mut input);
        start = body_start;
    }
}

/// Whether the body came to its end.
fn keep<'p>(
    body: &mut BodyReader,
    max_bytes: u64,
    pieces: &mut impl Iterator<Item = &'p [u8]>,
    observe: &mut impl FnMut(Event<'_>) -> Wish,
) -> Result<bool, Fault> {
    body.limit(max_bytes)?;
    let mut data = Vec::new();
    let mut decoded = body.take_received(&mut data);
    loop {
        assert_eq!(body.received(), data.len() as u64);
        observe(Event::Body(&data));
        decoded?;
        if body.is_done() {
            return Ok(true);
        }
        let Some(piece) = pieces.next() else { return Ok(false) };
        let from = data.len();
        data.extend_from_slice(piece);
        decoded = body.decode_in_place(&mut data, from);
    }
}

/// The same of a body that is dropped.
fn discard<'p>(body: &mut BodyReader, pieces: &mut impl Iterator<Item = &'p [u8]>) -> Result<bool, Fault> {
    body.unlimit();
    loop {
        body.discard()?;
        if body.is_done() {
            return Ok(true);
        }
        assert!(!body.has_rest(), "what is not the end is decoded");
        let Some(piece) = pieces.next() else { return Ok(false) };
        body.input().extend_from_slice(piece);
    }
}
