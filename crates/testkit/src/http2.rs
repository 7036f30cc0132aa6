//! A client of HTTP/2 that sends frames as given and shows what comes back. [`Frames`] is what it makes and
//! understands, for any connection; [`Http2`] is that on one without TLS.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use clearway_h2::frame::{Block, Frame, FrameHead, HEAD_BYTES, PREFACE, Rest, flag, kind};
use clearway_h2::hpack::{Decoder, push_field};
pub use clearway_h2::settings::Settings;

use crate::Server;
use crate::canonical::canonical;
use crate::client::{Address, Connection, End, PATIENCE};
use crate::response::{Answer as HowAnswered, Response};

/// The received part of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Heads and trailers in their order, fields as `name: value`.
    pub heads: Vec<Vec<String>>,
    /// The body.
    pub body: Vec<u8>,
    /// How it has ended.
    pub end: Option<Ended>,
}

/// How a response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With its last frame.
    Complete,
    /// With RST_STREAM, and this code.
    Reset(u32),
}

impl Answer {
    /// The status of the first head.
    #[must_use]
    pub fn status(&self) -> &str {
        let line = self.heads.first().and_then(|head| head.first());
        line.and_then(|line| line.strip_prefix(":status: ")).unwrap_or_default()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of an answer to `method` in which what must differ from server to server is replaced.
    #[must_use]
    pub fn canonical(&self, method: &str, server: &Server) -> String {
        let fields = |fields: &[String]| -> Vec<(String, String)> {
            let both = fields.iter().filter_map(|field| field.split_once(": "));
            both.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let mut headers = fields(self.heads.first().map_or(&[], Vec::as_slice));
        headers.retain(|(name, _)| name != ":status");
        for (name, usual) in [("date", "Date"), ("server", "Server")] {
            if let Some(header) = headers.iter_mut().find(|header| header.0 == name) {
                usual.clone_into(&mut header.0);
            }
        }
        let response = Response {
            version: "HTTP/2".to_owned(),
            status: self.status().parse().unwrap_or_default(),
            reason: String::new(),
            headers,
            body: self.body.clone(),
        };
        let asked = if method == "HEAD" { HowAnswered::HeadOnly } else { HowAnswered::Whole };
        let behind: String = self.heads.iter().skip(1).map(|head| format!("behind: {head:?}\n")).collect();
        let end = if self.end == Some(Ended::Complete) { String::new() } else { format!("{:?}\n", self.end) };
        format!("{}{behind}{end}", canonical(&response, asked, server))
    }
}

/// A client's state of its connection.
#[derive(Debug)]
pub struct Frames {
    decoder: Decoder,
    received: Vec<u8>,
    block: Vec<u8>,
    /// Responses by stream.
    pub answers: BTreeMap<u32, Answer>,
    /// The code that the server has said it goes with, and the last stream.
    pub gone: Option<(u32, u32)>,
    /// Answers to PING.
    pub pongs: usize,
    /// By how much windows were opened: of which stream, and bytes.
    pub windows: Vec<(u32, u32)>,
    /// The first settings of the server.
    pub settings: Option<Settings>,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            decoder: Decoder::new(4096),
            received: Vec::new(),
            block: Vec::new(),
            answers: BTreeMap::new(),
            gone: None,
            pongs: 0,
            windows: Vec::new(),
            settings: None,
        }
    }
}

impl Frames {
    /// The first bytes of a client.
    #[must_use]
    pub fn hello(settings: Settings) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        settings.push_frame(&mut bytes);
        bytes
    }

    /// A frame.
    #[must_use]
    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = u32::try_from(payload.len()).expect("it fits");
        FrameHead { length, kind, flags, stream }.push(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A header block.
    #[must_use]
    pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        fields.iter().for_each(|(name, value)| push_field(&mut block, name.as_bytes(), value.as_bytes()));
        block
    }

    /// The head of a request.
    #[must_use]
    pub fn request(stream: u32, method: &str, path: &str, more: &[(&str, &str)], rest: Rest) -> Vec<u8> {
        let pseudo =
            [(":method", method), (":scheme", "http"), (":path", path), (":authority", "www.example.com")];
        let block = Self::block(&[&pseudo[..], more].concat());
        let end = if rest == Rest::Ended { flag::END_STREAM } else { 0 };
        Self::frame(kind::HEADERS, flag::END_HEADERS | end, stream, &block)
    }

    /// A request that is complete.
    #[must_use]
    pub fn get(stream: u32, path: &str) -> Vec<u8> {
        Self::request(stream, "GET", path, &[], Rest::Ended)
    }

    /// Takes what has come.
    ///
    /// # Panics
    /// If a server does not send such frames.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some(head) = rest.first_chunk() {
            let head = FrameHead::read(head);
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + head.length as usize) else { break };
            rest = &rest[HEAD_BYTES + payload.len()..];
            self.take(head, payload);
        }
        self.received = rest.to_vec();
    }

    fn take(&mut self, head: FrameHead, payload: &[u8]) {
        let answer = self.answers.entry(head.stream).or_default();
        match Frame::read(head, payload).expect("servers keep the rules") {
            Frame::Data(bytes, rest) => {
                answer.body.extend_from_slice(bytes);
                answer.end = (rest == Rest::Ended).then_some(Ended::Complete).or(answer.end);
            }
            Frame::Headers(part, _, block, rest) => {
                self.block = part.to_vec();
                answer.end = (rest == Rest::Ended).then_some(Ended::Complete).or(answer.end);
                self.take_block(head.stream, block);
            }
            Frame::Continuation(part, block) => {
                self.block.extend_from_slice(part);
                self.take_block(head.stream, block);
            }
            Frame::Reset(code) => answer.end = answer.end.or(Some(Ended::Reset(code))),
            Frame::Settings(settings) => self.settings = Some(settings),
            Frame::GoAway(last, code) => self.gone = Some((code, last)),
            Frame::PingAck(_) => self.pongs += 1,
            Frame::WindowUpdate(increment) => self.windows.push((head.stream, increment)),
            _ => {}
        }
    }

    fn take_block(&mut self, stream: u32, block: Block) {
        if block == Block::GoesOn {
            return;
        }
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = self.decoder.decode(&self.block, &mut |field| {
            fields.push(format!("{}: {}", text(field.name), text(field.value)));
            ControlFlow::Continue(())
        });
        read.expect("servers write what can be read");
        self.answers.entry(stream).or_default().heads.push(fields);
    }
}

/// A client on a connection without TLS.
pub struct Http2 {
    connection: Connection,
    /// Its state.
    pub frames: Frames,
    /// How the server has ended the connection, if it has.
    pub end: Option<End>,
}

impl Http2 {
    /// Connects, and says what a client says first.
    ///
    /// # Panics
    /// If nobody listens.
    #[must_use]
    pub fn open(address: &Address, settings: Settings) -> Self {
        let connection = Connection::open(address).expect("it listens");
        let mut client = Self { connection, frames: Frames::default(), end: None };
        client.send(&Frames::hello(settings));
        client
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.connection.send(bytes);
    }

    /// Sends a frame.
    pub fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.send(&Frames::frame(kind, flags, stream, payload));
    }

    /// Asks for a path.
    pub fn get(&mut self, stream: u32, path: &str) {
        self.send(&Frames::get(stream, path));
    }

    /// Asks, with these fields and this body, and waits for the answer. The length of a body that is not
    /// empty is said behind the fields.
    ///
    /// # Panics
    /// If the stream does not end.
    pub fn ask(
        &mut self,
        stream: u32,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        if body.is_empty() {
            self.send(&Frames::request(stream, method, path, fields, Rest::Ended));
        } else {
            let length = body.len().to_string();
            let fields = [fields, &[("content-length", &length)]].concat();
            self.send(&Frames::request(stream, method, path, &fields, Rest::Open));
            self.say(kind::DATA, flag::END_STREAM, stream, body.as_bytes());
        }
        self.answer(stream)
    }

    /// Receives for a moment; whether the connection is still there.
    pub fn receive(&mut self, limit: Duration) -> bool {
        match self.connection.next_event(limit) {
            End::Data => self.frames.receive(&self.connection.take_received()),
            End::Open => {}
            end => self.end = Some(end),
        }
        self.end.is_none()
    }

    /// Receives until something is so, or the connection is over.
    ///
    /// # Panics
    /// If neither comes within [`PATIENCE`].
    pub fn wait(&mut self, is_so: impl Fn(&Frames) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.frames) && self.receive(Duration::from_millis(100)) {
            assert!(Instant::now() < until, "it does not come: {:?}", self.frames.answers.keys());
        }
    }

    /// The answer of a stream, once it has ended.
    ///
    /// # Panics
    /// If it does not end.
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.wait(|frames| frames.answers.get(&stream).is_some_and(|answer| answer.end.is_some()));
        let answer = self.frames.answers.get(&stream).cloned().unwrap_or_default();
        assert!(answer.end.is_some(), "stream {stream}: gone {:?}, {:?}", self.frames.gone, self.end);
        answer
    }

    /// The code that the server goes with, once it has said so.
    pub fn gone(&mut self) -> Option<u32> {
        self.wait(|frames| frames.gone.is_some());
        self.frames.gone.map(|(code, _)| code)
    }
}
