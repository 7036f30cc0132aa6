//! Whatever a server sends: a client keeps what a plain model of one says of streams, heads, bodies and
//! windows, in whatever pieces the frames come, and what it writes are frames of streams that are open,
//! within the windows that the server has opened. No response is told to be complete that is not.
#![no_main]

use std::collections::BTreeMap;

use clearway_h2::client::{Client, Event, Limits, RequestLine, Unopened};
use clearway_h2::flow::WINDOW_FIRST_BYTES;
use clearway_h2::frame::{ErrorCode, Frame, FrameHead, HEAD_BYTES, PREFACE, Rest, flag, kind};

const LIMITS: Limits = Limits { streams: 4, window_bytes: 1_000, head_bytes: 400, fields: 10 };
/// The largest frame that is written of a body.
const PIECE_BYTES: usize = 300;
/// Every so many streams this is asked for by `HEAD`, or with a body that does not end.
const KINDS: u32 = 3;

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Head,
    Body,
    Ended,
}

/// What the model knows of a stream.
struct Stream {
    phase: Phase,
    is_head_only: bool,
    length: Option<u64>,
    received: u64,
    may_receive: u64,
    sent: u64,
}

/// What a server has said of windows: never less than what holds.
struct Said {
    first_window: u64,
    all: u64,
    of_stream: BTreeMap<u32, u64>,
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let frames = frames(input);
    let whole = play(&frames, usize::MAX);
    for pieces in [1, 10, 100] {
        let (told, goes_on) = play(&frames, pieces);
        // Limits count what comes at once, so a connection may end sooner or later for the pieces.
        if whole.1 && goes_on {
            assert_eq!(told, whole.0);
        }
    }
});

/// Frames that a server could mean, most of them, behind its settings.
fn frames(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    if let [first, rest @ ..] = input
        && first % 16 != 0
    {
        input = rest;
        frames.push(vec![0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0]);
    }
    while let [what, stream, flags, length, rest @ ..] = input {
        let (raw, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        input = behind;
        let kind = what % 12;
        let mut payload = raw.to_vec();
        if kind == kind::HEADERS && what & 0x80 == 0 {
            payload.insert(0, 0x88);
        }
        let is_whole = what & 0x40 == 0;
        let flags = if kind == kind::HEADERS && is_whole { flag::END_HEADERS | flags & 1 } else { *flags };
        let of_connection = [kind::SETTINGS, kind::PING, kind::GOAWAY].contains(&kind);
        let stream = if of_connection || *stream == 255 { 0 } else { u32::from(*stream % 32) };
        let length = u32::try_from(payload.len()).expect("it is short");
        let mut bytes = Vec::new();
        FrameHead { length, kind, flags, stream }.push(&mut bytes);
        bytes.extend_from_slice(&payload);
        frames.push(bytes);
    }
    frames
}

/// What is told of the frames, and whether the connection goes on behind them.
fn play(frames: &[Vec<u8>], pieces: usize) -> (Vec<String>, bool) {
    let mut client = Client::new(LIMITS);
    let mut model = Model::default();
    let mut kept = Vec::new();
    for frame in frames {
        model.send(&mut client);
        model.said.take(frame);
        for piece in frame.chunks(pieces.min(frame.len())) {
            kept.extend_from_slice(piece);
            if client.begin_read(piece.len()).is_err() {
                return (model.told, false);
            }
            let mut rest = &kept[..];
            loop {
                match client.receive(&mut rest) {
                    Ok(Event::Need) => break,
                    Ok(event) => model.take(&mut client, event),
                    Err(failure) => {
                        assert_ne!(failure.code, ErrorCode::NoError);
                        assert!(failure.to_string().starts_with("upstream sent "));
                        return (model.told, false);
                    }
                }
            }
            kept = rest.to_vec();
        }
    }
    model.send(&mut client);
    (model.told, true)
}

struct Model {
    streams: BTreeMap<u32, Stream>,
    last: u32,
    sent: u64,
    said: Said,
    told: Vec<String>,
    has_begun: bool,
    is_leaving: bool,
}

impl Default for Model {
    fn default() -> Self {
        let first = u64::from(WINDOW_FIRST_BYTES);
        let said = Said { first_window: first, all: first, of_stream: BTreeMap::new() };
        Self {
            streams: BTreeMap::new(),
            last: 0,
            sent: 0,
            said,
            told: Vec::new(),
            has_begun: false,
            is_leaving: false,
        }
    }
}

impl Said {
    fn take(&mut self, frame: &[u8]) {
        let Some(head) = frame.first_chunk().map(FrameHead::read) else { return };
        match Frame::read(head, &frame[HEAD_BYTES..]) {
            Ok(Frame::WindowUpdate(increment)) if head.stream == 0 => self.all += u64::from(increment),
            Ok(Frame::WindowUpdate(increment)) => {
                *self.of_stream.entry(head.stream).or_default() += u64::from(increment);
            }
            Ok(Frame::Settings(settings)) => {
                let window = settings.window_bytes.map_or(0, u64::from);
                self.first_window = self.first_window.max(window);
            }
            _ => {}
        }
    }
}

impl Model {
    fn take(&mut self, client: &mut Client, event: Event<'_>) {
        let said = match event {
            Event::Need | Event::Opened => return,
            Event::Data(id, bytes, rest) => return self.take_data(client, id, bytes, rest),
            Event::Interim(id) => {
                let (text, head) = client.head();
                assert!(self.stream(id).phase == Phase::Head && head.is_interim());
                format!("{id}: interim {} {}", head.status, text.escape_ascii())
            }
            Event::Head(id, rest) => {
                let (text, head) = client.head();
                assert!(head.status >= 200 && head.lines.len() <= LIMITS.fields);
                assert!(head.lines.iter().all(|line| !line.name.of(text).is_empty()));
                let said = format!("{id}: head {} {rest:?} {}", head.status, text.escape_ascii());
                let (status, length) = (head.status, head.content_length);
                let stream = self.stream(id);
                assert_eq!(std::mem::replace(&mut stream.phase, Phase::Body), Phase::Head);
                let has_none = stream.is_head_only || [204, 304].contains(&status);
                stream.length = if has_none { Some(0) } else { length };
                if rest == Rest::Ended {
                    stream.end();
                }
                said
            }
            Event::Trailers(id) => {
                let stream = self.stream(id);
                assert_eq!(stream.phase, Phase::Body);
                stream.end();
                format!("{id}: trailers {}", client.head().0.escape_ascii())
            }
            Event::Reset(id, code) => {
                self.close(client, id);
                format!("{id}: reset {code}")
            }
            Event::Cut(id, note) => {
                self.close(client, id);
                assert!(note.to_string().starts_with("upstream sent "));
                format!("{id}: cut {note}")
            }
            Event::Leaving(last, code) => {
                self.is_leaving = true;
                let gone: Vec<u32> =
                    self.streams.keys().copied().filter(|id| !client.is_dealt_with(*id)).collect();
                assert!(gone.iter().all(|id| *id > last));
                gone.into_iter().for_each(|id| self.close(client, id));
                format!("leaves {last} {code}")
            }
        };
        self.told.push(said);
        assert_eq!(client.open_streams(), self.streams.len());
    }

    fn stream(&mut self, id: u32) -> &mut Stream {
        self.streams.get_mut(&id).expect("what is told is of a stream that is open")
    }

    fn take_data(&mut self, client: &mut Client, id: u32, bytes: &[u8], rest: Rest) {
        let stream = self.stream(id);
        assert_eq!(stream.phase, Phase::Body);
        stream.received += bytes.len() as u64;
        assert!(stream.received <= stream.may_receive, "a body keeps within its window");
        assert!(stream.length.is_none_or(|length| stream.received <= length), "and within its length");
        if let Some(left) = client.receivable(id)
            && left < LIMITS.window_bytes / 2
            && rest == Rest::Open
        {
            client.widen(id, LIMITS.window_bytes);
            stream.may_receive += u64::from(LIMITS.window_bytes);
        }
        if rest == Rest::Ended {
            stream.end();
            let said = format!("{id}: {} bytes", stream.received);
            self.told.push(said);
        }
    }

    fn close(&mut self, client: &mut Client, id: u32) {
        if self.streams.remove(&id).is_some() {
            client.close(id);
        }
    }

    /// Opens as many streams as there may be, sends a piece of each that has a body, and closes those that
    /// are over.
    fn send(&mut self, client: &mut Client) {
        let over = |(id, stream): (&u32, &Stream)| (stream.phase == Phase::Ended).then_some(*id);
        let over: Vec<u32> = self.streams.iter().filter_map(over).collect();
        over.into_iter().for_each(|id| self.close(client, id));
        let mut out = Vec::new();
        loop {
            let next = if self.last == 0 { 1 } else { self.last + 2 };
            let (method, rest): (&[u8], _) = match next / 2 % KINDS {
                0 => (b"GET", Rest::Ended),
                1 => (b"HEAD", Rest::Ended),
                _ => (b"POST", Rest::Open),
            };
            let line = RequestLine { method, scheme: b"https", authority: b"a", path: b"/" };
            match client.open(&mut out, line, std::iter::empty(), rest) {
                Ok(id) => {
                    assert!(id == next && !self.is_leaving);
                    self.last = id;
                    let stream = Stream {
                        phase: Phase::Head,
                        is_head_only: method == b"HEAD",
                        length: None,
                        received: 0,
                        may_receive: u64::from(LIMITS.window_bytes),
                        sent: 0,
                    };
                    self.streams.insert(id, stream);
                }
                Err(Unopened::Leaving) => break,
                Err(Unopened::Full) => break,
                Err(Unopened::Exhausted) => panic!("there are few streams"),
            }
        }
        assert!(self.streams.len() <= LIMITS.streams as usize);
        for &id in self.streams.keys() {
            let count = client.sendable(id).min(PIECE_BYTES);
            if count > 0 {
                client.push_data(&mut out, id, &[b'x'; PIECE_BYTES][..count], Rest::Open);
            }
        }
        client.take_control(&mut out);
        self.read_output(&out);
    }

    /// What is written are frames, and bodies keep within the windows that the server has opened.
    fn read_output(&mut self, out: &[u8]) {
        let mut out = if std::mem::replace(&mut self.has_begun, true) {
            out
        } else {
            out.strip_prefix(PREFACE).expect("a connection begins with its preface")
        };
        while let Some(head) = out.first_chunk().map(FrameHead::read) {
            let end = HEAD_BYTES + head.length as usize;
            let frame = Frame::read(head, &out[HEAD_BYTES..end]).expect("a client writes frames");
            assert!(head.stream <= self.last && (head.stream == 0 || head.stream % 2 == 1));
            if let Frame::Data(bytes, _) = frame {
                let count = bytes.len() as u64;
                self.sent += count;
                assert!(self.sent <= self.said.all);
                let stream = self.streams.get_mut(&head.stream).expect("a stream that sends is open");
                stream.sent += count;
                let opened = self.said.of_stream.get(&head.stream).copied().unwrap_or_default();
                assert!(stream.sent <= self.said.first_window + opened);
            }
            out = &out[end..];
        }
        assert!(out.is_empty(), "frames are whole");
    }
}

impl Stream {
    fn end(&mut self) {
        assert!(self.length.is_none_or(|length| self.received == length), "it is complete");
        self.phase = Phase::Ended;
    }
}
