//! A client of HTTP/2: its streams, the windows that it opens, and how strictly it reads what comes.

use std::collections::BTreeMap;

use clearway_h2::frame::{Rest, flag, kind};
use clearway_sim::{Body, Method, Request};
use clearway_testkit::http2::{Ended, Frames, Settings};

use crate::expected::{Asked, Received, path, sent};

/// What both windows are at first, bytes (RFC 9113 §6.9.2).
const FIRST_WINDOW: u64 = 65_535;
/// The longest payload that is sent.
const FRAME_MAX: usize = 16_384;
/// As a cause of an end: there was none.
const NO_ERROR: u32 = 0;

/// One request.
#[derive(Debug)]
struct AskedStream {
    of: Asked,
    /// When it was asked.
    at_ms: u64,
    /// Of its body.
    unsent: Vec<u8>,
    /// What of a body may be sent.
    may_send: u64,
    /// How much the client has allowed to be sent, and cancelled.
    window: u64,
    is_cancelled: bool,
    received: Received,
    state: AskedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedState {
    Waiting,
    Head,
    Over,
}

/// A client of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2 {
    frames: Frames,
    streams: BTreeMap<u32, AskedStream>,
    next_stream: u32,
    /// The window of the connection: all that was allowed.
    window: u64,
    may_send: u64,
    /// Windows and settings of the server's that were looked at.
    windows_seen: usize,
    settings_seen: bool,
    server_window: u64,
    pub(crate) answered: Vec<(Request, Received)>,
}

impl Http2 {
    pub(crate) fn new() -> (Self, Vec<u8>) {
        let new = Self {
            frames: Frames::default(),
            streams: BTreeMap::new(),
            next_stream: 1,
            window: FIRST_WINDOW,
            may_send: FIRST_WINDOW,
            windows_seen: 0,
            settings_seen: false,
            server_window: FIRST_WINDOW,
            answered: Vec::new(),
        };
        (new, Frames::hello(Settings::default()))
    }

    /// The head of a request; its body follows as windows allow.
    pub(crate) fn ask(&mut self, request: &Request, now_ms: u64) -> Vec<u8> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let method = match request.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
        };
        let length = request.body.length().to_string();
        let fields = match request.body {
            Body::Known(_) => vec![("content-length", &length[..])],
            Body::None | Body::Chunked(..) => Vec::new(),
        };
        let rest = if request.body.length() == 0 { Rest::Ended } else { Rest::Open };
        let bytes = Frames::request(stream, method, &path(request), &fields, rest);
        let asked = AskedStream {
            of: Asked::now(request),
            at_ms: now_ms,
            unsent: sent(request),
            may_send: self.server_window,
            window: FIRST_WINDOW,
            is_cancelled: false,
            received: Received::default(),
            state: AskedState::Waiting,
        };
        self.streams.insert(stream, asked);
        bytes
    }

    /// Frames of bodies that may be sent now.
    pub(crate) fn bodies(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (&stream, asked) in &mut self.streams {
            let may = asked.may_send.min(self.may_send).min(FRAME_MAX as u64);
            if asked.unsent.is_empty() || asked.state == AskedState::Over || asked.is_cancelled || may == 0 {
                continue;
            }
            let count = asked.unsent.len().min(usize::try_from(may).expect("small"));
            let piece: Vec<u8> = asked.unsent.drain(..count).collect();
            (asked.may_send, self.may_send) = (asked.may_send - count as u64, self.may_send - count as u64);
            let end = if asked.unsent.is_empty() { flag::END_STREAM } else { 0 };
            bytes.extend(Frames::frame(kind::DATA, end, stream, &piece));
        }
        bytes
    }

    /// Opens the windows of the connection and of one of the streams that go on.
    pub(crate) fn open(&mut self, by: u32) -> Vec<u8> {
        self.window += u64::from(by);
        let mut bytes = Frames::frame(kind::WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
        let going = self.streams.iter_mut().filter(|(_, asked)| asked.goes_on());
        // That with the smallest window first, so that none is left behind.
        if let Some((stream, asked)) =
            going.min_by_key(|(_, asked)| asked.window - asked.received.body.len() as u64)
        {
            asked.window += u64::from(by);
            bytes.extend(Frames::frame(kind::WINDOW_UPDATE, 0, *stream, &by.to_be_bytes()));
        }
        bytes
    }

    /// Whether something goes on.
    pub(crate) fn goes_on(&self) -> bool {
        self.streams.values().any(AskedStream::goes_on)
    }

    /// Whether something that goes on has little room left.
    pub(crate) fn wants_window(&self) -> bool {
        let all: u64 = self.frames.answers.values().map(|answer| answer.body.len() as u64).sum();
        let is_low = |window: u64, received: u64| window < received + FIRST_WINDOW;
        let mut going = self.streams.values().filter(|asked| asked.goes_on());
        going.any(|asked| is_low(self.window, all) || is_low(asked.window, asked.received.body.len() as u64))
    }

    /// Cancels one of the latest requests.
    pub(crate) fn cancel(&mut self, back: usize) -> Vec<u8> {
        let mut going = self.streams.iter_mut().rev().filter(|(_, asked)| asked.goes_on());
        let Some((stream, asked)) = going.nth(back) else { return Vec::new() };
        asked.is_cancelled = true;
        Frames::frame(kind::RST_STREAM, 0, *stream, &8_u32.to_be_bytes())
    }

    /// How much has come of bodies that are not complete.
    pub(crate) fn under_way(&self) -> Vec<(u32, u64)> {
        let going =
            self.streams.values().filter(|asked| asked.state == AskedState::Head && !asked.is_cancelled);
        going.map(|asked| (asked.of.request.id, asked.received.body.len() as u64)).collect()
    }

    /// What is to be said to what has come.
    pub(crate) fn receive(&mut self, bytes: &[u8], excuse: impl Fn(u64) -> bool) -> Result<Vec<u8>, String> {
        self.frames.receive(bytes);
        let mut reply = Vec::new();
        if let (false, Some(settings)) = (self.settings_seen, self.frames.settings) {
            self.settings_seen = true;
            let window = u64::from(settings.window_bytes.unwrap_or(65_535));
            for asked in self.streams.values_mut() {
                asked.may_send = (asked.may_send + window).saturating_sub(self.server_window);
            }
            self.server_window = window;
            reply = Frames::frame(kind::SETTINGS, flag::ACK, 0, b"");
        }
        for &(stream, by) in &self.frames.windows[self.windows_seen..] {
            match stream {
                0 => self.may_send += u64::from(by),
                _ => {
                    if let Some(asked) = self.streams.get_mut(&stream) {
                        asked.may_send += u64::from(by);
                    }
                }
            }
        }
        self.windows_seen = self.frames.windows.len();
        if let Some((code, _)) = self.frames.gone
            && code != NO_ERROR
            && !excuse(0)
        {
            return Err(format!("the server goes with code {code}"));
        }
        self.check_streams(excuse)?;
        Ok(reply)
    }

    fn check_streams(&mut self, excuse: impl Fn(u64) -> bool) -> Result<(), String> {
        let all: u64 = self.frames.answers.values().map(|answer| answer.body.len() as u64).sum();
        if all > self.window {
            return Err(format!("{all} bytes where the connection's window allows {}", self.window));
        }
        for (stream, answer) in &self.frames.answers {
            if *stream == 0 {
                continue;
            }
            let Some(asked) = self.streams.get_mut(stream) else {
                return Err(format!("something on stream {stream}, which is not open"));
            };
            if asked.state == AskedState::Over && asked.received.body.len() < answer.body.len() {
                return Err(format!("bytes behind the end of stream {stream}"));
            }
            if asked.state == AskedState::Over {
                continue;
            }
            asked.take(answer).map_err(|why| format!("stream {stream}: {why}"))?;
            match answer.end {
                None => {}
                Some(Ended::Complete) => {
                    asked.state = AskedState::Over;
                    asked.received.check_whole(&asked.of.request)?;
                    self.answered.push((asked.of.request.clone(), std::mem::take(&mut asked.received)));
                    asked.received.body.clone_from(&answer.body);
                }
                Some(Ended::Reset(code)) => {
                    asked.state = AskedState::Over;
                    let is_excused = asked.is_cancelled || asked.of.may_break() || excuse(asked.at_ms);
                    if !is_excused {
                        return Err(format!("stream {stream} was reset with {code}: {:?}", asked.of.request));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the head of a response has come, whatever became of the rest.
    pub(crate) fn has_begun(&self, id: u32) -> bool {
        let mut asked = self.streams.iter().filter(|(_, asked)| asked.of.request.id == id);
        asked
            .any(|(stream, _)| self.frames.answers.get(stream).is_some_and(|answer| !answer.heads.is_empty()))
    }

    /// Nothing more comes.
    pub(crate) fn end(&self, is_excused: bool) -> Result<(), String> {
        if is_excused {
            return Ok(());
        }
        let Some((_, last)) = self.frames.gone else {
            return Err("a connection was closed without a word".to_owned());
        };
        self.check_answered_to(last)
    }

    pub(crate) fn check_answered(&self) -> Result<(), String> {
        self.check_answered_to(self.frames.gone.map_or(u32::MAX, |(_, last)| last))
    }

    fn check_answered_to(&self, last: u32) -> Result<(), String> {
        let left = self.streams.range(..=last).find(|(_, asked)| asked.goes_on());
        match left {
            None => Ok(()),
            Some((stream, asked)) => {
                Err(format!("no end of stream {stream}: {:?}, {:?}", asked.of.request, asked.state))
            }
        }
    }
}

impl AskedStream {
    fn goes_on(&self) -> bool {
        self.state != AskedState::Over && !self.is_cancelled
    }

    fn take(&mut self, answer: &clearway_testkit::http2::Answer) -> Result<(), String> {
        if self.state == AskedState::Waiting
            && let Some(head) = answer.heads.first()
        {
            let value =
                |name: &str| head.iter().find_map(|field| field.strip_prefix(name)).map(str::to_owned);
            self.state = AskedState::Head;
            self.received.status = answer.status().parse().map_err(|_| format!("the head {head:?}"))?;
            self.received.path = value("x-path: ");
            self.received.content_length = value("content-length: ").and_then(|length| length.parse().ok());
            self.received.check_head(&self.of.request)?;
        }
        if answer.heads.len() > 1 || self.state == AskedState::Waiting && !answer.body.is_empty() {
            return Err(format!("heads {:?}, {} bytes", answer.heads, answer.body.len()));
        }
        let known = self.received.body.len();
        self.received.body.extend_from_slice(&answer.body[known..]);
        if self.received.body.len() as u64 > self.window {
            return Err(format!(
                "{} bytes where the window allows {}",
                self.received.body.len(),
                self.window
            ));
        }
        self.received.check_body(&self.of.request)
    }
}
