//! A response as an owner of the codec reads it: bytes come in pieces, heads are parsed, the body is decoded.
//! Used by the tests of this folder and by the fuzz targets `h1_response_head` and `h1_response_body`.

use clearway_h1::{
    Asked, BodyEvent, Eof, ResponseBody, ResponseFault, ResponseFraming, ResponseParser, ResponseProgress,
    Trailers,
};

/// Names and values.
pub(crate) type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// One head, interim or final.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) lines: Lines,
    /// How many lines were dropped.
    pub(crate) dropped: usize,
}

/// How it ended when all bytes were there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// Inside the head.
    #[default]
    InHead,
    InBody(Eof),
    /// So many bytes are left behind it.
    Complete {
        rest: usize,
    },
    Fault(ResponseFault),
}

/// All that can be observed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) heads: Vec<Head>,
    /// Framing, and whether the server keeps the connection.
    pub(crate) body: Option<(ResponseFraming, bool)>,
    pub(crate) data: Vec<u8>,
    pub(crate) trailers: Lines,
    pub(crate) end: End,
}

/// How it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) asked: Asked,
    /// `proxy_buffer_size`.
    pub(crate) head_max_bytes: usize,
    pub(crate) trailers: Trailers,
}

/// What comes of `input`, of which more and more bytes are there: up to each of `ends`, then all. Beside it
/// the words for the log.
pub(crate) fn play(
    input: &[u8],
    ends: impl IntoIterator<Item = usize>,
    reading: Reading,
) -> (Observed, String) {
    let mut ends = ends.into_iter().map(|end| end.min(input.len()));
    let end = ends.next().unwrap_or(input.len());
    let mut player =
        Player { input, start: 0, end, ends, observed: Observed::default(), words: String::new() };
    if let Some(framing) = player.play_heads(reading) {
        player.play_body(ResponseBody::new(framing, reading.trailers));
    }
    (player.observed, player.words)
}

struct Player<'a, I> {
    input: &'a [u8],
    /// What is there and not consumed yet: from here...
    start: usize,
    /// ...to here.
    end: usize,
    ends: I,
    observed: Observed,
    words: String,
}

impl<I: Iterator<Item = usize>> Player<'_, I> {
    /// Whether there was more.
    fn receive(&mut self) -> bool {
        let had = self.end;
        self.end = self.ends.next().unwrap_or(self.input.len()).max(had);
        had < self.input.len()
    }

    fn play_heads(&mut self, reading: Reading) -> Option<ResponseFraming> {
        let mut parser = ResponseParser::default();
        loop {
            let have = &self.input[self.start..self.end];
            match parser.parse(have, reading.head_max_bytes) {
                Ok(ResponseProgress::Incomplete) if self.receive() => continue,
                Ok(ResponseProgress::Incomplete) => return None,
                Ok(ResponseProgress::Interim) => {
                    self.observed.heads.push(take_head(&parser, have, &mut self.words));
                    self.start += parser.next_head();
                    continue;
                }
                Ok(ResponseProgress::Final) => {
                    self.observed.heads.push(take_head(&parser, have, &mut self.words));
                    self.start += parser.len();
                }
                Ok(ResponseProgress::Headless) => {}
                Err(fault) => {
                    self.words.push_str(&parser.describe(fault, have).to_string());
                    self.observed.end = End::Fault(fault);
                    return None;
                }
            }
            let framing = parser.framing(reading.asked);
            self.observed.body = Some((framing, parser.keeps_alive()));
            return Some(framing);
        }
    }

    fn play_body(&mut self, mut body: ResponseBody) {
        loop {
            let have = &self.input[self.start..self.end];
            let decoded = match body.decode(have) {
                Ok(decoded) => decoded,
                Err(fault) => {
                    assert_eq!(body.decode(b"0\r\n\r\n"), Err(fault), "what is wrong stays wrong");
                    assert_eq!(body.eof(), Eof::Premature);
                    self.words.push_str(&body.describe(fault).to_string());
                    self.observed.end = End::Fault(fault);
                    return;
                }
            };
            self.start += decoded.consumed;
            match decoded.event {
                BodyEvent::Data(range) => {
                    assert!(!range.is_empty() && range.end <= decoded.consumed);
                    self.observed.data.extend_from_slice(&have[range]);
                    assert_eq!(body.received(), self.observed.data.len() as u64);
                }
                BodyEvent::End => {
                    assert!(body.is_done() && body.eof() == Eof::Complete && body.remaining() == 0);
                    let trailers = body.trailers().map(|(name, value)| (name.to_vec(), value.to_vec()));
                    self.observed.trailers = trailers.collect();
                    self.observed.end = End::Complete { rest: self.input.len() - self.start };
                    return;
                }
                BodyEvent::NeedInput => {
                    assert_eq!(self.start, self.end, "all of it is consumed");
                    if !self.receive() {
                        self.observed.end = End::InBody(body.eof());
                        return;
                    }
                }
            }
        }
    }
}

fn take_head(parser: &ResponseParser, have: &[u8], words: &mut String) -> Head {
    let warnings: Vec<String> = parser.warnings(have).map(|warning| warning.to_string()).collect();
    words.extend(warnings.iter().map(|warning| format!("{warning}\n")));
    let lines = parser.lines().iter().map(|line| (line.name.of(have).to_vec(), line.value.of(have).to_vec()));
    Head {
        status: parser.status(),
        reason: parser.reason().of(have).to_vec(),
        lines: lines.collect(),
        dropped: warnings.len(),
    }
}
