//! Whatever a client sends: a connection keeps what a plain model of one says of streams and windows, in
//! whatever pieces the frames come, and what it writes are frames of streams that are open, within the
//! windows that the client has opened.
#![no_main]

use std::collections::BTreeMap;

use clearway_h2::connection::{Connection, Event, Limits};
use clearway_h2::flow::WINDOW_FIRST_BYTES;
use clearway_h2::frame::{ErrorCode, Frame, FrameHead, HEAD_BYTES, PREFACE, Rest, STREAM_MAX, flag, kind};
use clearway_h2::request::{HeadLimits, HeadReader, Underscores, Unusual};
use clearway_message::RequestHead;

const LIMITS: Limits = Limits {
    streams: 4,
    window_bytes: 1_000,
    head: HeadLimits {
        field_bytes: 200,
        head_bytes: 400,
        fields: 10,
        unusual: Unusual::Skipped,
        underscores: Underscores::Unusual,
    },
};
/// The largest frame that is written of a body.
const PIECE_BYTES: usize = 300;

/// What the model knows of a stream.
#[derive(Default)]
struct Stream {
    received: u64,
    may_receive: u64,
    sent: u64,
    is_ended: bool,
}

/// What a client has said of windows: never less than what holds.
struct Said {
    first_window: u64,
    all: u64,
    of_stream: BTreeMap<u32, u64>,
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let frames = frames(input);
    let whole = play(&frames, usize::MAX);
    for pieces in [1, 10, 100] {
        let (said, end) = play(&frames, pieces);
        // Limits count what comes at once, so a connection may end sooner or later for the pieces.
        if whole.1 && end {
            assert_eq!(said, whole.0);
        }
    }
});

/// Frames that a client could mean, most of them.
fn frames(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let [what, stream, flags, length, rest @ ..] = input {
        let (raw, behind) = rest.split_at(rest.len().min(usize::from(*length)));
        input = behind;
        let kind = what % 11;
        let mut payload = raw.to_vec();
        if kind == kind::HEADERS && what & 0x80 == 0 {
            payload.splice(..0, [0x82, 0x87, 0x84, 0x41, 1, b'a']);
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

/// What is said of the frames, and whether the connection goes on behind them.
fn play(frames: &[Vec<u8>], pieces: usize) -> (Vec<String>, bool) {
    let mut connection = Connection::new(LIMITS);
    let mut model = Model::default();
    assert_eq!(connection.receive(&mut &PREFACE[..]), Ok(Event::Need));
    let mut kept = Vec::new();
    for frame in frames {
        model.said.take(frame);
        for piece in frame.chunks(pieces.min(frame.len())) {
            kept.extend_from_slice(piece);
            if connection.begin_read(piece.len()).is_err() {
                return (model.told, false);
            }
            let mut rest = &kept[..];
            loop {
                match connection.receive(&mut rest) {
                    Ok(Event::Need) => break,
                    Ok(event) => {
                        if !model.take(&mut connection, event) {
                            return (model.told, false);
                        }
                    }
                    Err(_) => return (model.told, false),
                }
            }
            kept = rest.to_vec();
        }
        model.send(&mut connection);
    }
    (model.told, true)
}

struct Model {
    streams: BTreeMap<u32, Stream>,
    last: u32,
    sent: u64,
    said: Said,
    told: Vec<String>,
}

impl Default for Model {
    fn default() -> Self {
        let first = u64::from(WINDOW_FIRST_BYTES);
        let said = Said { first_window: first, all: first, of_stream: BTreeMap::new() };
        Self { streams: BTreeMap::new(), last: 0, sent: 0, said, told: Vec::new() }
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
    /// Whether the connection goes on.
    fn take(&mut self, connection: &mut Connection, event: Event<'_>) -> bool {
        match event {
            Event::Need | Event::Opened => return true,
            Event::Data(id, bytes, rest) => {
                let stream = self.streams.get_mut(&id).expect("a body is of a stream that is open");
                assert!(!stream.is_ended, "nothing follows the end of a body");
                stream.received += bytes.len() as u64;
                assert!(stream.received <= stream.may_receive, "a body keeps within its window");
                stream.is_ended = rest == Rest::Ended;
                if rest == Rest::Ended {
                    self.told.push(format!("{id}: {} bytes", stream.received));
                }
                if stream.received % 3 == 0
                    && let Some(left) = connection.receivable(id)
                    && left < LIMITS.window_bytes / 2
                {
                    connection.widen(id, LIMITS.window_bytes);
                    stream.may_receive += u64::from(LIMITS.window_bytes);
                }
                return true;
            }
            Event::Head(id, rest) => {
                assert!(id % 2 == 1 && id > self.last && id <= STREAM_MAX);
                self.last = id;
                let (mut text, mut head) = (Vec::new(), RequestHead::default());
                let read = connection.read_head(&mut HeadReader::default(), rest, (&mut text, &mut head));
                let Ok((fault, _)) = read else { return false };
                self.told.push(format!("{id}: head {fault:?} {}", text.escape_ascii()));
                let may_receive = u64::from(LIMITS.window_bytes.max(WINDOW_FIRST_BYTES));
                let is_ended = rest == Rest::Ended;
                self.streams.insert(id, Stream { may_receive, is_ended, ..Stream::default() });
                assert!(self.streams.len() <= LIMITS.streams as usize);
                let mut out = Vec::new();
                connection.push_head(&mut out, id, 200, b"", Rest::Open);
                self.read_output(&out);
            }
            Event::End(id) => {
                let stream = self.streams.get_mut(&id).expect("an end is of a stream that is open");
                assert!(!std::mem::replace(&mut stream.is_ended, true));
                self.told.push(format!("{id}: end"));
            }
            Event::Reset(id, code) => {
                self.told.push(format!("{id}: reset {code}"));
                self.close(connection, id);
            }
            Event::Cut(id, note) => {
                self.told.push(format!("{id}: cut {note}"));
                self.close(connection, id);
            }
        }
        assert_eq!(connection.open_streams(), self.streams.len());
        true
    }

    fn close(&mut self, connection: &mut Connection, id: u32) {
        if self.streams.remove(&id).is_some() {
            connection.close(id);
        }
    }

    /// Sends a piece of each stream, by the order that the connection says.
    fn send(&mut self, connection: &mut Connection) {
        for &id in self.streams.keys() {
            if connection.sendable(id) > 0 {
                connection.schedule().make_ready(id);
            }
        }
        let mut out = Vec::new();
        while let Some(id) = connection.schedule().next_ready() {
            assert!(self.streams.contains_key(&id), "a stream that sends is open");
            let count = connection.sendable(id).min(PIECE_BYTES);
            connection.push_data(&mut out, id, &[b'x'; PIECE_BYTES][..count], Rest::Open);
            connection.schedule().charge(id, count);
        }
        connection.take_control(&mut out);
        self.read_output(&out);
        // One is answered whole now and then.
        let answered = self.streams.iter().find(|(_, stream)| stream.is_ended && stream.sent > 0);
        if let Some(id) = answered.map(|(id, _)| *id) {
            let mut out = Vec::new();
            connection.push_data(&mut out, id, b"", Rest::Ended);
            connection.note_answered();
            self.close(connection, id);
            self.read_output(&out);
        }
    }

    /// What is written are frames, and bodies keep within the windows that the client has opened.
    fn read_output(&mut self, mut out: &[u8]) {
        while let Some(head) = out.first_chunk().map(FrameHead::read) {
            let end = HEAD_BYTES + head.length as usize;
            let frame = Frame::read(head, &out[HEAD_BYTES..end]).expect("a server writes frames");
            if let Frame::Data(bytes, _) = frame {
                let count = bytes.len() as u64;
                self.sent += count;
                assert!(self.sent <= self.said.all);
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    stream.sent += count;
                    let opened = self.said.of_stream.get(&head.stream).copied().unwrap_or_default();
                    assert!(stream.sent <= self.said.first_window + opened);
                }
            }
            if let Frame::GoAway(_, code) = frame {
                assert_eq!(code, ErrorCode::NoError as u32, "nothing else was said");
            }
            out = &out[end..];
        }
        assert!(out.is_empty(), "frames are whole");
    }
}
