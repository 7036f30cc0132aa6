//! A connection against a client that says what it is told to say: requests, and each limit.

use super::*;
use crate::frame::flag;
use crate::hpack::push_field;
use crate::request::{Underscores, Unusual};

const LIMITS: Limits = Limits {
    streams: 4,
    window_bytes: 65_536,
    head: HeadLimits {
        field_bytes: 8_192,
        head_bytes: 32_768,
        fields: 100,
        unusual: Unusual::Skipped,
        underscores: Underscores::Unusual,
    },
};

/// A client that says what it is told to say.
struct Peer {
    server: Connection,
}

impl Peer {
    fn new() -> Self {
        Self::with(LIMITS)
    }

    fn with(limits: Limits) -> Self {
        let mut server = Connection::new(limits);
        let mut input = PREFACE;
        assert_eq!(server.receive(&mut input), Ok(Event::Need));
        server.take_control(&mut Vec::new());
        Self { server }
    }

    /// What one frame leads to.
    fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        FrameHead { length: payload.len() as u32, kind, flags, stream }.push(&mut bytes);
        bytes.extend_from_slice(payload);
        self.server.begin_read(bytes.len())?;
        let mut input = &bytes[..];
        let event = self.server.receive(&mut input)?;
        let said = format!("{event:?}");
        if let Event::Head(_, rest) = event {
            let (mut text, mut head) = (Vec::new(), RequestHead::default());
            let (fault, _) =
                self.server.read_head(&mut HeadReader::default(), rest, (&mut text, &mut head))?;
            assert_eq!(fault, None);
        }
        if !input.is_empty() {
            assert_eq!(self.server.receive(&mut input), Ok(Event::Need), "the rest is skipped");
        }
        assert!(input.is_empty(), "all of it is taken");
        Ok(said)
    }

    fn begin(&mut self, stream: u32, rest: Rest) -> Result<String, Failure> {
        let end = if rest == Rest::Ended { flag::END_STREAM } else { 0 };
        self.say(kind::HEADERS, flag::END_HEADERS | end, stream, &block())
    }

    fn control(&mut self) -> Vec<(u8, u32, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.server.take_control(&mut bytes);
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        while let Some(head) = rest.first_chunk() {
            let head = FrameHead::read(head);
            let end = HEAD_BYTES + head.length as usize;
            frames.push((head.kind, head.stream, rest[HEAD_BYTES..end].to_vec()));
            rest = &rest[end..];
        }
        frames
    }
}

fn block() -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x84];
    push_field(&mut block, b":authority", b"a");
    block
}

fn reason(result: Result<String, Failure>) -> (ErrorCode, String) {
    let failure = result.expect_err("the connection ends");
    (failure.code, failure.to_string())
}

fn code(code: ErrorCode) -> Vec<u8> {
    (code as u32).to_be_bytes().to_vec()
}

#[test]
fn a_request_has_a_head_a_body_and_an_end() {
    let mut peer = Peer::new();
    assert_eq!(peer.begin(1, Rest::Open), Ok("Head(1, Open)".into()));
    assert_eq!(peer.say(kind::DATA, 0, 1, b"ab"), Ok("Data(1, [97, 98], Open)".into()));
    assert_eq!(peer.say(kind::DATA, flag::END_STREAM, 1, b""), Ok("Data(1, [], Ended)".into()));
    assert_eq!(peer.begin(3, Rest::Ended), Ok("Head(3, Ended)".into()));
    let mut out = Vec::new();
    peer.server.push_head(&mut out, 3, 204, b"", Rest::Ended);
    assert_eq!(out, [0, 0, 2, 1, 5, 0, 0, 0, 3, 0x20, 0x89]);
    peer.server.close(3);
    assert_eq!((peer.server.open_streams(), peer.control()), (1, vec![]));
}

#[test]
fn it_begins_with_the_preface_which_may_come_in_pieces() {
    let mut server = Connection::new(LIMITS);
    let mut begin = &PREFACE[..10];
    assert_eq!(server.receive(&mut begin), Ok(Event::Need));
    assert_eq!(begin.len(), 10, "it is kept");
    let mut other = &b"GET / HTTP/1.1\r\n"[..];
    let failure = server.receive(&mut other).expect_err("refused");
    assert_eq!(
        (failure.code, failure.to_string()),
        (ErrorCode::ProtocolError, "invalid connection preface".into())
    );
}

#[test]
fn a_head_comes_in_parts_that_nothing_interrupts() {
    let mut peer = Peer::new();
    let block = block();
    assert_eq!(peer.say(kind::HEADERS, flag::END_STREAM, 1, &block[..3]), Ok("Need".into()));
    assert!(peer.server.is_in_block());
    let end = peer.say(kind::CONTINUATION, flag::END_HEADERS, 1, &block[3..]);
    assert_eq!(end, Ok("Head(1, Ended)".into()));

    let begin = || {
        let mut peer = Peer::new();
        peer.say(kind::HEADERS, 0, 1, &block).expect("it may go on");
        peer
    };
    let interrupted = "client sent inappropriate frame while CONTINUATION was expected";
    assert_eq!(reason(begin().say(kind::PING, 0, 0, b"12345678")).1, interrupted);
    let other = "client sent CONTINUATION frame with incorrect identifier";
    assert_eq!(reason(begin().say(kind::CONTINUATION, 4, 3, b"")).1, other);
    let alone = reason(Peer::new().say(kind::CONTINUATION, 4, 1, b""));
    assert_eq!(alone, (ErrorCode::ProtocolError, "client sent unexpected CONTINUATION frame".into()));
}

#[test]
fn parts_of_a_head_are_limited_in_number_and_size() {
    let mut peer = Peer::new();
    peer.say(kind::HEADERS, 0, 1, &block()).expect("it may go on");
    for _ in 0..CONTINUATIONS_MAX {
        peer.say(kind::CONTINUATION, 0, 1, b"").expect("it may go on");
    }
    let end = reason(peer.say(kind::CONTINUATION, 0, 1, b""));
    assert_eq!(end, (ErrorCode::EnhanceYourCalm, "client sent too large header".into()));

    let mut peer = Peer::new();
    peer.say(kind::HEADERS, 0, 1, &[0x82; 16_000]).expect("it may go on");
    peer.say(kind::CONTINUATION, 0, 1, &[0x82; 16_000]).expect("it may go on");
    let end = reason(peer.say(kind::CONTINUATION, 0, 1, &[0x82; 800]));
    assert_eq!(end.0, ErrorCode::EnhanceYourCalm);
}

#[test]
fn numbers_of_streams_are_odd_and_grow() {
    let mut peer = Peer::new();
    peer.begin(5, Rest::Ended).expect("a request");
    for wrong in [2, 3] {
        let text = format!("client sent HEADERS frame with incorrect identifier {wrong}, the last was 5");
        let mut peer = Peer::new();
        peer.begin(5, Rest::Ended).expect("a request");
        assert_eq!(reason(peer.begin(wrong, Rest::Ended)), (ErrorCode::ProtocolError, text));
    }
    for (kind, payload) in
        [(kind::DATA, &b""[..]), (kind::RST_STREAM, &[0; 4]), (kind::WINDOW_UPDATE, &[0, 0, 0, 1])]
    {
        let mut peer = Peer::new();
        assert_eq!(reason(peer.say(kind, 0, 7, payload)).0, ErrorCode::ProtocolError, "type {kind}");
    }
}

#[test]
fn what_comes_behind_the_end_is_a_violation() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Ended).expect("a request");
    let cut = peer.say(kind::DATA, 0, 1, b"late").expect("the connection stays");
    assert!(cut.starts_with("Cut(1, HalfClosed"), "{cut}");
    assert_eq!(peer.control(), [(kind::RST_STREAM, 1, code(ErrorCode::StreamClosed))]);
    peer.server.close(1);
    assert_eq!(reason(peer.say(kind::DATA, 0, 1, b"later")).0, ErrorCode::StreamClosed);

    // What this side has ended may be sent to for a while.
    let mut peer = Peer::new();
    peer.begin(1, Rest::Open).expect("a request");
    peer.server.push_head(&mut Vec::new(), 1, 204, b"", Rest::Ended);
    peer.server.close(1);
    assert_eq!(peer.control(), [(kind::RST_STREAM, 1, code(ErrorCode::NoError))]);
    assert_eq!(peer.say(kind::DATA, 0, 1, b"on its way"), Ok("Need".into()));
    assert_eq!(peer.say(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), Ok("Need".into()));
}

#[test]
fn trailers_end_a_body() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Open).expect("a request");
    assert_eq!(peer.begin(1, Rest::Ended), Ok("End(1)".into()));
    peer.begin(3, Rest::Open).expect("a request");
    let cut = peer.begin(3, Rest::Open).expect("the connection stays");
    assert!(cut.starts_with("Cut(3, OpenTrailers"), "{cut}");
}

#[test]
fn streams_are_limited_and_one_that_was_cancelled_counts_until_it_is_closed() {
    let mut peer = Peer::new();
    for stream in [1, 3, 5, 7] {
        peer.begin(stream, Rest::Ended).expect("a request");
    }
    assert_eq!(peer.begin(9, Rest::Ended), Ok("Cut(9, Concurrent(4))".into()));
    assert_eq!(peer.control(), [(kind::RST_STREAM, 9, code(ErrorCode::RefusedStream))]);
    assert_eq!(peer.say(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]), Ok("Reset(1, 8)".into()));
    assert_eq!(peer.begin(11, Rest::Ended), Ok("Cut(11, Concurrent(4))".into()), "its handler goes on");
    peer.server.close(1);
    assert_eq!(peer.begin(13, Rest::Ended), Ok("Head(13, Ended)".into()));
}

#[test]
fn who_goes_on_with_refused_streams_is_left() {
    let mut peer = Peer::new();
    for stream in [1, 3, 5, 7] {
        peer.begin(stream, Rest::Ended).expect("a request");
    }
    let refused = (0..).map(|nth| 9 + 2 * nth).take_while(|&stream| peer.begin(stream, Rest::Ended).is_ok());
    assert_eq!(refused.count(), 101, "as nginx counts");
    let (code, text) = reason(peer.begin(1_001, Rest::Ended));
    assert_eq!((code, text.as_str()), (ErrorCode::NoError, "client sent too many refused streams"));
}

#[test]
fn who_begins_and_cancels_is_left() {
    let mut peer = Peer::new();
    let mut cancel = |stream: u32| -> Result<(), Failure> {
        peer.begin(stream, Rest::Ended)?;
        peer.say(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8])?;
        peer.server.close(stream);
        Ok(())
    };
    let cancelled = (0..).map(|nth| 1 + 2 * nth).take_while(|&stream| cancel(stream).is_ok()).count();
    assert_eq!(cancelled as u64, RESETS_MAX);
}

/// A client that makes the server reset streams has reset them (CVE-2025-8671).
#[test]
fn resets_that_violations_lead_to_count_as_well() {
    let mut peer = Peer::new();
    let mut provoke = |stream: u32| -> Result<(), Failure> {
        peer.begin(stream, Rest::Ended)?;
        peer.say(kind::WINDOW_UPDATE, 0, stream, &STREAM_MAX.to_be_bytes())?;
        peer.server.close(stream);
        peer.server.take_control(&mut Vec::new());
        Ok(())
    };
    let provoked = (0..).map(|nth| 1 + 2 * nth).take_while(|&stream| provoke(stream).is_ok()).count();
    assert_eq!(provoked as u64, RESETS_MAX);
}

#[test]
fn frames_that_ask_for_nothing_are_limited() {
    for (kind, flags, stream, payload) in [
        (kind::PING, 0, 0, &b"12345678"[..]),
        (kind::PING, flag::ACK, 0, b"12345678"),
        (kind::SETTINGS, 0, 0, b""),
        (kind::SETTINGS, flag::ACK, 0, b""),
        (kind::DATA, 0, 1, b""),
        (kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        (kind::GOAWAY, 0, 0, &[0; 8]),
        (77, 0, 0, b""),
    ] {
        let mut peer = Peer::new();
        peer.begin(1, Rest::Open).expect("a request");
        let mut say = || {
            peer.server.take_control(&mut Vec::new());
            peer.say(kind, flags, stream, payload)
        };
        let taken = (0..).take_while(|_| say().is_ok()).count();
        assert_eq!(taken as u64, USELESS_FRAMES_MAX + 1, "type {kind}");
    }
    let mut peer = Peer::new();
    let mut priority = || peer.say(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 0]);
    assert_eq!((0..).take_while(|_| priority().is_ok()).count(), 100, "as nginx counts");
}

#[test]
fn what_waits_for_a_client_that_does_not_read_is_limited() {
    let mut peer = Peer::new();
    let frames = (0..).take_while(|_| {
        peer.say(kind::PING, 0, 0, b"12345678").expect("a ping");
        !peer.server.is_congested()
    });
    assert!(frames.count() * 17 < CONTROL_MAX_BYTES, "then nothing more is read");
}

#[test]
fn bodies_have_windows() {
    let limits = Limits { window_bytes: 100, ..LIMITS };
    let mut peer = Peer::with(limits);
    assert_eq!(peer.begin(1, Rest::Open), Ok("Cut(1, Early)".into()), "it may not know of the window");
    peer.say(kind::SETTINGS, flag::ACK, 0, b"").expect("settings");
    peer.begin(3, Rest::Open).expect("a request");
    peer.say(kind::DATA, 0, 3, &[b'x'; 60]).expect("it has room");
    assert_eq!(peer.server.receivable(3), Some(40));
    peer.control();
    peer.server.widen(3, 20);
    assert_eq!(peer.control(), [(kind::WINDOW_UPDATE, 3, vec![0, 0, 0, 20])]);
    // Padding is given back, as nothing reads it.
    peer.say(kind::DATA, flag::PADDED, 3, b"\x09x123456789").expect("it has room");
    assert_eq!((peer.server.receivable(3), peer.control().len()), (Some(59), 1));
    let cut = peer.say(kind::DATA, 0, 3, &[b'x'; 60]).expect("the connection stays");
    assert!(cut.starts_with("Cut(3, Window(3, 60, 59)"), "{cut}");
    assert_eq!(peer.control(), [(kind::RST_STREAM, 3, code(ErrorCode::FlowControlError))]);
}

#[test]
fn what_is_sent_keeps_to_the_windows_of_the_client() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Ended).expect("a request");
    assert_eq!(peer.server.sendable(1), 16_384);
    peer.say(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]).expect("settings");
    assert_eq!((peer.server.sendable(1), peer.control()), (10, vec![(kind::SETTINGS, 0, vec![])]));
    let mut out = Vec::new();
    peer.server.push_data(&mut out, 1, &[b'x'; 10], Rest::Open);
    assert_eq!((peer.server.sendable(1), out.len()), (0, HEAD_BYTES + 10));
    assert_eq!(peer.say(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 5]), Ok("Opened".into()));
    assert_eq!(peer.server.sendable(1), 5);
    let wide = peer.say(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(wide, Ok("Opened".into()));
    let cut = peer.say(kind::WINDOW_UPDATE, 0, 1, &STREAM_MAX.to_be_bytes()).expect("the connection stays");
    assert!(cut.starts_with("Cut(1, Increment"), "{cut}");
    let (code, _) = reason(peer.say(kind::WINDOW_UPDATE, 0, 0, &STREAM_MAX.to_be_bytes()));
    assert_eq!(code, ErrorCode::FlowControlError);
}

#[test]
fn heads_that_are_longer_than_a_frame_go_on_in_others() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Ended).expect("a request");
    let mut lines = clearway_message::Headers::default();
    lines.add(b"x-long", &[0xff; 20_000]);
    let mut out = Vec::new();
    let mut block = Vec::new();
    lines.iter().for_each(|line| push_field(&mut block, line.name, line.value));
    peer.server.push_head(&mut out, 1, 200, &block, Rest::Ended);
    let first = FrameHead::read(out.first_chunk().expect("a head"));
    assert_eq!((first.length, first.kind, first.flags), (16_384, kind::HEADERS, flag::END_STREAM));
    let second = FrameHead::read(out[HEAD_BYTES + 16_384..].first_chunk().expect("a head"));
    assert_eq!((second.kind, second.flags, second.stream), (kind::CONTINUATION, flag::END_HEADERS, 1));
    assert_eq!(out.len(), 2 * HEAD_BYTES + 16_384 + second.length as usize);
}

#[test]
fn who_is_told_to_go_begins_nothing_more() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Open).expect("a request");
    peer.server.go_away(ErrorCode::NoError);
    peer.server.go_away(ErrorCode::NoError);
    let told = [(kind::GOAWAY, 0, vec![0, 0, 0, 1, 0, 0, 0, 0])];
    assert_eq!(peer.control(), told, "once");
    assert_eq!(peer.begin(3, Rest::Ended), Ok("Need".into()));
    assert_eq!(peer.say(kind::DATA, flag::END_STREAM, 1, b"x"), Ok("Data(1, [120], Ended)".into()));
}

#[test]
fn what_comes_before_the_farewell_is_known_is_taken() {
    let mut peer = Peer::new();
    peer.server.announce_leave();
    peer.server.announce_leave();
    let announced = (kind::GOAWAY, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(peer.control(), [announced, (kind::PING, 0, b"farewell".to_vec())], "once");
    let begun = peer.begin(3, Rest::Ended).expect("a request that was on its way");
    assert!(begun.starts_with("Head"), "{begun}");
    peer.say(kind::PING, flag::ACK, 0, b"another.").expect("it is no answer to that");
    assert!(!peer.server.is_leaving());
    peer.say(kind::PING, flag::ACK, 0, b"farewell").expect("the client knows now");
    assert_eq!(peer.control(), [(kind::GOAWAY, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert!(peer.server.is_leaving());
    assert_eq!(peer.begin(5, Rest::Ended), Ok("Need".into()), "refused");

    let mut peer = Peer::new();
    peer.begin(1, Rest::Ended).expect("a request");
    peer.server.announce_leave();
    assert_eq!(peer.control(), [(kind::GOAWAY, 0, vec![0, 0, 0, 1, 0, 0, 0, 0])], "the last word");
    assert!(peer.server.is_leaving());
}

#[test]
fn frames_that_are_too_long_are_not_waited_for() {
    for (kind, length) in
        [(kind::SETTINGS, 16_385), (kind::HEADERS, 40_000), (kind::PING, 9), (kind::PUSH_PROMISE, 4)]
    {
        let mut peer = Peer::new();
        let mut input = Vec::new();
        FrameHead { length, kind, flags: 0, stream: 0 }.push(&mut input);
        let failure = peer.server.receive(&mut &input[..]).expect_err("refused");
        assert!(matches!(failure.reason, Reason::Frame(_) | Reason::Unreadable(_)), "type {kind}");
    }
}

#[test]
fn bodies_are_handed_on_as_they_come() {
    let mut peer = Peer::new();
    peer.begin(1, Rest::Open).expect("a request");
    let mut bytes = Vec::new();
    let flags = flag::PADDED | flag::END_STREAM;
    FrameHead { length: 10, kind: kind::DATA, flags, stream: 1 }.push(&mut bytes);
    bytes.extend_from_slice(b"\x03abcdef...");
    let mut events = Vec::new();
    let mut begin = 0;
    for end in 0..=bytes.len() {
        let mut input = &bytes[begin..end];
        match peer.server.receive(&mut input).expect("a body") {
            Event::Need => {}
            event => events.push(format!("{event:?}")),
        }
        begin = end - input.len();
    }
    let mut expected: Vec<_> = (b'a'..=b'f').map(|byte| format!("Data(1, [{byte}], Open)")).collect();
    expected.push("Data(1, [], Ended)".into());
    assert_eq!(events, expected);

    // What is long and means nothing is skipped, and so is the body of what is over.
    let mut bytes = Vec::new();
    FrameHead { length: 1 << 14, kind: 99, flags: 0, stream: 1 }.push(&mut bytes);
    assert_eq!(peer.server.receive(&mut &bytes[..]), Ok(Event::Need));
    for _ in 0..16 {
        let mut input = &[b'x'; 1 << 10][..];
        assert_eq!((peer.server.receive(&mut input), input.len()), (Ok(Event::Need), 0));
    }
    assert_eq!(peer.begin(3, Rest::Ended), Ok("Head(3, Ended)".into()));
}
