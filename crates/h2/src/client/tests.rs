//! A client against a server that says what it is told to say: responses, and each limit.

use clearway_message::Known;

use super::*;
use crate::frame::{STREAM_MAX, flag};
use crate::hpack::{push_field, push_static, push_status};

const LIMITS: Limits = Limits { streams: 3, window_bytes: 65_536, head_bytes: 1_024, fields: 10 };
const GET: RequestLine<'static> =
    RequestLine { method: b"GET", scheme: b"https", authority: b"a", path: b"/" };
const HEAD: RequestLine<'static> = RequestLine { method: b"HEAD", ..GET };

/// A server that says what it is told to say.
struct Peer {
    client: Client,
    /// What the client has written.
    out: Vec<u8>,
}

impl Peer {
    /// One that has said its settings.
    fn new() -> Self {
        let mut peer = Self { client: Client::new(LIMITS), out: Vec::new() };
        assert_eq!(peer.say(kind::SETTINGS, 0, 0, b""), Ok("Opened".into()));
        peer
    }

    /// One with a stream that waits for its response.
    fn asked(line: RequestLine<'_>) -> Self {
        let mut peer = Self::new();
        assert_eq!(peer.open(line, Rest::Ended), Ok(1));
        peer.control();
        peer
    }

    fn open(&mut self, line: RequestLine<'_>, rest: Rest) -> Result<u32, Unopened> {
        self.client.open(&mut self.out, line, std::iter::empty(), rest)
    }

    /// What frames lead to, the last of them.
    fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        FrameHead { length: payload.len() as u32, kind, flags, stream }.push(&mut bytes);
        bytes.extend_from_slice(payload);
        self.client.begin_read(bytes.len())?;
        let mut input = &bytes[..];
        let said = format!("{:?}", self.client.receive(&mut input)?);
        if !input.is_empty() {
            assert_eq!(self.client.receive(&mut input), Ok(Event::Need), "the rest is skipped");
        }
        assert!(input.is_empty(), "all of it is taken");
        Ok(said)
    }

    /// A head, or trailers where there is no status.
    fn answer(&mut self, stream: u32, flags: u8, status: u16, fields: &[(&str, &str)]) -> String {
        let mut block = Vec::new();
        if status > 0 {
            push_status(&mut block, status);
        }
        fields.iter().for_each(|(name, value)| push_field(&mut block, name.as_bytes(), value.as_bytes()));
        self.say(kind::HEADERS, flag::END_HEADERS | flags, stream, &block).expect("the connection goes on")
    }

    /// The frames that the client has written since.
    fn control(&mut self) -> Vec<(u8, u32, Vec<u8>)> {
        let mut bytes = std::mem::take(&mut self.out);
        self.client.take_control(&mut bytes);
        let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let Some(head) = rest.first_chunk() {
            let head = FrameHead::read(head);
            let end = HEAD_BYTES + head.length as usize;
            frames.push((head.kind, head.stream, rest[HEAD_BYTES..end].to_vec()));
            rest = &rest[end..];
        }
        frames
    }

    /// The code with which a stream was reset, once.
    fn reset_code(&mut self, stream: u32) -> u32 {
        let resets: Vec<_> = self.control().into_iter().filter(|frame| frame.0 == kind::RST_STREAM).collect();
        assert_eq!((resets.len(), resets[0].1), (1, stream));
        u32::from_be_bytes(resets[0].2[..].try_into().expect("four bytes"))
    }
}

const END: u8 = flag::END_STREAM;
const PROTOCOL_ERROR: u32 = ErrorCode::ProtocolError as u32;

fn reason(result: Result<String, Failure>) -> (ErrorCode, String) {
    let failure = result.expect_err("the connection ends");
    (failure.code, failure.to_string())
}

#[test]
fn a_response_has_interim_heads_a_head_a_body_and_trailers() {
    let mut peer = Peer::asked(GET);
    assert_eq!(peer.answer(1, 0, 103, &[("link", "</a>")]), "Interim(1)");
    assert_eq!(peer.answer(1, 0, 200, &[("content-length", "3"), ("x", "y")]), "Head(1, Open)");
    let (text, head) = peer.client.head();
    assert_eq!(text, b"content-length: 3\r\nx: y\r\n");
    assert_eq!((head.status, head.lines.len(), head.content_length), (200, 2, Some(3)));
    assert_eq!((head.lines[0].known, head.lines[1].value.of(text)), (Known::ContentLength, &b"y"[..]));
    assert_eq!(peer.say(kind::DATA, 0, 1, b"abc"), Ok("Data(1, [97, 98, 99], Open)".into()));
    assert_eq!(peer.answer(1, END, 0, &[("grpc-status", "0")]), "Trailers(1)");
    assert_eq!(peer.client.head().0, b"grpc-status: 0\r\n");
    peer.client.close(1);
    assert_eq!((peer.client.open_streams(), peer.control()), (0, vec![]));
}

#[test]
fn it_begins_with_the_preface_and_settings_that_refuse_pushes() {
    let mut client = Client::new(LIMITS);
    let mut out = Vec::new();
    let stream = client.open(&mut out, GET, std::iter::empty(), Rest::Ended);
    assert_eq!(stream, Ok(1), "the server's settings are not waited for");
    let settings = [&[0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0][..], &[0, 4, 0, 1, 0, 0]].concat();
    let window = [&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &(STREAM_MAX - 65_535).to_be_bytes()].concat();
    let head = [0, 0, 7, 1, 5, 0, 0, 0, 1, 0x20, 0x82, 0x87, 0x84, 0x01, 1, b'a'];
    assert_eq!(out, [PREFACE, &settings, &window, &head].concat());
    for (kind, payload) in [(kind::PING, &b"12345678"[..]), (kind::DATA, b"")] {
        let mut peer = Peer { client: Client::new(LIMITS), out: Vec::new() };
        let first = reason(peer.say(kind, 0, 0, payload));
        assert_eq!(first, (ErrorCode::ProtocolError, "upstream sent no settings frame first".into()));
    }
}

#[test]
fn pushes_and_priorities_end_the_connection() {
    let push = Peer::asked(GET).say(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2, 0x82]);
    assert_eq!(reason(push), (ErrorCode::ProtocolError, "upstream sent PUSH_PROMISE frame".into()));
    let may_push = Peer::asked(GET).say(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1]);
    assert_eq!(reason(may_push).0, ErrorCode::ProtocolError);
    let priority = Peer::asked(GET).say(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u']);
    assert_eq!(reason(priority).1, "upstream sent unexpected priority update frame");
    let pushed = Peer::asked(GET).say(kind::HEADERS, flag::END_HEADERS, 2, &[0x88]);
    assert_eq!(reason(pushed).1, "upstream sent frame for unknown stream 2");
    let unknown = Peer::asked(GET).say(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]);
    assert_eq!(reason(unknown).1, "upstream sent frame for unknown stream 3");
}

#[test]
fn a_malformed_head_ends_its_stream_and_no_other() {
    for (fields, text) in [
        (&[("x", "y")][..], "no :status header"),
        (&[(":status", "200"), (":status", "200")], "duplicate :status header"),
        (&[(":status", "20")], "invalid :status"),
        (&[(":status", "2x0")], "invalid :status"),
        (&[(":status", "099")], "invalid :status"),
        (&[(":status", "101")], "unexpected :status"),
        (&[(":status", "200"), (":path", "/")], "invalid header: an unknown pseudo-header"),
        (&[(":status", "200"), ("a b", "")], "invalid header: a byte in its name"),
        (&[(":status", "200"), ("a", "b\nc")], "invalid header: a byte in its value"),
        (&[(":status", "200"), ("content-length", "-1")], "invalid \"Content-Length\" header"),
        (
            &[(":status", "200"), ("content-length", "1"), ("content-length", "1")],
            "invalid \"Content-Length\" header",
        ),
        (
            &[
                (":status", "200"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
                ("a", "b"),
            ],
            "too large http2 header",
        ),
    ] {
        let mut peer = Peer::asked(GET);
        assert_eq!(peer.open(GET, Rest::Ended), Ok(3));
        let mut block = Vec::new();
        fields.iter().for_each(|(name, value)| push_field(&mut block, name.as_bytes(), value.as_bytes()));
        let said = peer.say(kind::HEADERS, flag::END_HEADERS, 1, &block).expect("it goes on");
        assert!(said.starts_with("Cut(1, Head("), "{said}");
        assert_eq!(peer.reset_code(1), PROTOCOL_ERROR, "{text}");
        assert_eq!(peer.answer(3, END, 204, &[]), "Head(3, Ended)");
    }
    assert_eq!(Note::Head(HeadFault::NoStatus).to_string(), "upstream sent no :status header");
}

#[test]
fn fields_of_connections_are_dropped() {
    let mut peer = Peer::asked(GET);
    let fields = [("connection", "close"), ("transfer-encoding", "chunked"), ("a", "b")];
    assert_eq!(peer.answer(1, 0, 200, &fields), "Head(1, Open)");
    assert_eq!(peer.client.head().0, b"a: b\r\n");
}

#[test]
fn a_body_is_as_long_as_its_head_says() {
    let with = |line, status, frames: &[(u8, &[u8])]| {
        let mut peer = Peer::asked(line);
        peer.answer(1, 0, status, &[("content-length", "2")]);
        let mut said = String::new();
        for (flags, bytes) in frames {
            said = peer.say(kind::DATA, *flags, 1, bytes).expect("the connection goes on");
        }
        said
    };
    assert_eq!(with(GET, 200, &[(0, b"a"), (END, b"b")]), "Data(1, [98], Ended)");
    assert_eq!(with(GET, 200, &[(0, b"abc")]), "Cut(1, LongBody)");
    assert_eq!(with(GET, 200, &[(END, b"a")]), "Cut(1, ShortBody)");
    assert_eq!(with(GET, 304, &[(END, b"")]), "Data(1, [], Ended)");
    assert_eq!(with(GET, 204, &[(0, b"a")]), "Cut(1, LongBody)");
    assert_eq!(with(HEAD, 200, &[(END, b"")]), "Data(1, [], Ended)");
    assert_eq!(with(HEAD, 200, &[(0, b"a")]), "Cut(1, LongBody)");
    let mut short = Peer::asked(GET);
    assert_eq!(short.answer(1, END, 200, &[("content-length", "2")]), "Cut(1, ShortBody)");
    let mut short = Peer::asked(GET);
    short.answer(1, 0, 200, &[("content-length", "2")]);
    assert_eq!(short.answer(1, END, 0, &[]), "Cut(1, ShortBody)", "trailers with no fields");
    let mut head = Peer::asked(HEAD);
    assert_eq!(head.answer(1, END, 200, &[("content-length", "2")]), "Head(1, Ended)");
}

#[test]
fn frames_out_of_their_order_end_the_stream() {
    let mut early = Peer::asked(GET);
    assert_eq!(early.say(kind::DATA, 0, 1, b"a"), Ok("Cut(1, EarlyData)".into()));
    let mut late = Peer::asked(GET);
    late.answer(1, END, 200, &[]);
    assert_eq!(late.say(kind::DATA, 0, 1, b"a"), Ok("Cut(1, HalfClosed(\"DATA\"))".into()));
    assert_eq!(late.reset_code(1), ErrorCode::StreamClosed as u32);
    let mut late = Peer::asked(GET);
    late.answer(1, END, 200, &[]);
    assert_eq!(late.answer(1, END, 200, &[]), "Cut(1, HalfClosed(\"HEADERS\"))");
    let mut open = Peer::asked(GET);
    open.answer(1, 0, 200, &[]);
    assert_eq!(open.answer(1, 0, 0, &[("a", "b")]), "Cut(1, OpenTrailers)");
    let mut interim = Peer::asked(GET);
    assert_eq!(interim.answer(1, END, 100, &[]), "Cut(1, Head(InterimEnd))");
    let mut zero = Peer::asked(GET);
    let said = zero.say(kind::WINDOW_UPDATE, 0, 1, &[0; 4]).expect("the connection goes on");
    assert!(said.starts_with("Cut(1, Violation(ZeroIncrement"), "{said}");
}

#[test]
fn interim_heads_have_a_limit() {
    let mut peer = Peer::asked(GET);
    for _ in 0..INTERIM_HEADS_MAX {
        assert_eq!(peer.answer(1, 0, 100, &[]), "Interim(1)");
    }
    assert_eq!(peer.answer(1, 0, 100, &[]), "Cut(1, InterimHeads)");
}

#[test]
fn windows_hold_on_both_sides() {
    let mut peer = Peer::asked(GET);
    peer.answer(1, 0, 200, &[]);
    for _ in 0..4 {
        peer.say(kind::DATA, 0, 1, &[b'x'; 16_384]).expect("there is room");
    }
    assert_eq!(peer.client.receivable(1), Some(0));
    assert_eq!(peer.say(kind::DATA, 0, 1, b"x"), Ok("Cut(1, Window(1, 0))".into()));
    assert_eq!(peer.reset_code(1), ErrorCode::FlowControlError as u32);

    let mut peer = Peer::new();
    assert_eq!(peer.open(RequestLine { method: b"POST", ..GET }, Rest::Open), Ok(1));
    peer.say(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]).expect("it is right");
    assert_eq!(peer.client.sendable(1), 10);
    peer.client.push_data(&mut Vec::new(), 1, b"0123456789", Rest::Open);
    assert_eq!((peer.client.sendable(1), peer.client.is_sending(1)), (0, true));
    assert_eq!(peer.say(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 5]), Ok("Opened".into()));
    assert_eq!(peer.client.sendable(1), 5);
    let much = STREAM_MAX.to_be_bytes();
    assert_eq!(peer.say(kind::WINDOW_UPDATE, 0, 1, &much), Ok(format!("Cut(1, Increment({STREAM_MAX}, 5))")));
    let all = peer.say(kind::WINDOW_UPDATE, 0, 0, &much);
    assert_eq!(reason(all).0, ErrorCode::FlowControlError);
}

#[test]
fn streams_are_as_many_as_both_sides_allow() {
    let mut peer = Peer::new();
    peer.say(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2]).expect("it is right");
    assert_eq!([GET; 3].map(|line| peer.open(line, Rest::Ended)), [Ok(1), Ok(3), Err(Unopened::Full)]);
    peer.client.close(1);
    assert_eq!(peer.reset_code(1), ErrorCode::Cancel as u32);
    assert_eq!(peer.open(GET, Rest::Ended), Ok(5));
    peer.say(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]).expect("it is right");
    assert_eq!([GET; 2].map(|line| peer.open(line, Rest::Ended)), [Ok(7), Err(Unopened::Full)]);
}

#[test]
fn a_server_that_leaves_says_what_it_has_not_dealt_with() {
    let mut peer = Peer::new();
    assert_eq!([GET; 2].map(|line| peer.open(line, Rest::Ended)), [Ok(1), Ok(3)]);
    let goes = peer.say(kind::GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(goes, Ok(format!("Leaving({STREAM_MAX}, 0)")));
    assert_eq!(peer.open(GET, Rest::Ended), Err(Unopened::Leaving));
    assert!([1, 3].into_iter().all(|stream| peer.client.is_dealt_with(stream)));
    let goes = peer.say(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 2, b'?']);
    assert_eq!(goes, Ok("Leaving(1, 2)".into()));
    assert_eq!([1, 3].map(|stream| peer.client.is_dealt_with(stream)), [true, false]);
    assert_eq!(peer.answer(1, END, 200, &[]), "Head(1, Ended)", "it ends what it has begun");
}

#[test]
fn a_reset_ends_a_stream_once() {
    let mut peer = Peer::asked(GET);
    assert_eq!(peer.say(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7]), Ok("Reset(1, 7)".into()));
    assert_eq!(peer.say(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7]), Ok("Need".into()));
    peer.client.close(1);
    assert_eq!(peer.control(), []);
    assert_eq!(peer.say(kind::DATA, 0, 1, b"late"), Ok("Need".into()));
    assert_eq!(peer.answer(1, END, 200, &[]), "Need");
}

#[test]
fn a_stream_that_is_closed_in_the_middle_of_a_frame_is_told_no_more() {
    let mut peer = Peer::asked(GET);
    peer.answer(1, 0, 200, &[]);
    let frame = [0, 0, 6, 0, 1, 0, 0, 0, 1, b'a', b'b', b'c'];
    assert_eq!(peer.client.receive(&mut &frame[..]), Ok(Event::Data(1, b"abc", Rest::Open)));
    peer.client.close(1);
    assert_eq!(peer.client.receive(&mut &b"def"[..]), Ok(Event::Need));
    assert_eq!(peer.reset_code(1), ErrorCode::Cancel as u32);
}

#[test]
fn blocks_are_read_whatever_becomes_of_them() {
    let mut peer = Peer::asked(GET);
    assert_eq!(peer.open(GET, Rest::Ended), Ok(3));
    peer.client.close(1);
    let mut block = vec![0x88, 0x40, 1, b'k'];
    block.extend_from_slice(&[1, b'v']);
    assert_eq!(peer.say(kind::HEADERS, flag::END_HEADERS | END, 1, &block), Ok("Need".into()));
    assert_eq!(peer.say(kind::HEADERS, 0, 3, &[0x88]), Ok("Need".into()));
    let head = peer.say(kind::CONTINUATION, flag::END_HEADERS, 3, &[0xbe]);
    assert_eq!(head, Ok("Head(3, Open)".into()));
    assert_eq!(peer.client.head().0, b"k: v\r\n");
    assert_eq!(reason(peer.say(kind::HEADERS, flag::END_HEADERS, 3, &[0xff])).0, ErrorCode::CompressionError);
}

#[test]
fn a_block_has_a_limit_and_nothing_stands_in_it() {
    let begun = || {
        let mut peer = Peer::asked(GET);
        assert_eq!(peer.say(kind::HEADERS, 0, 1, &[0x88]), Ok("Need".into()));
        peer
    };
    let large = reason(begun().say(kind::CONTINUATION, 0, 1, &[0; 1_024]));
    assert_eq!(large, (ErrorCode::EnhanceYourCalm, "upstream sent too large http2 header".into()));
    let mut many = begun();
    for _ in 0..CONTINUATIONS_MAX {
        assert_eq!(many.say(kind::CONTINUATION, 0, 1, b""), Ok("Need".into()));
    }
    assert_eq!(reason(many.say(kind::CONTINUATION, 0, 1, b"")).0, ErrorCode::EnhanceYourCalm);
    for (kind, stream) in [(kind::PING, 0), (kind::CONTINUATION, 3), (99, 0)] {
        let (code, text) = reason(begun().say(kind, 0, stream, b"12345678"));
        assert_eq!(code, ErrorCode::ProtocolError);
        assert_eq!(text, "upstream sent unexpected http2 frame while a continuation was expected");
    }
    let alone = reason(Peer::asked(GET).say(kind::CONTINUATION, 0, 1, b""));
    assert_eq!(alone.1, "upstream sent unexpected continuation frame");
    // What it expands to is the stream's matter.
    let mut peer = Peer::asked(GET);
    let mut block = Vec::new();
    push_static(&mut block, 8);
    (0..40).for_each(|_| push_static(&mut block, 16));
    let said = peer.say(kind::HEADERS, flag::END_HEADERS, 1, &block);
    assert_eq!(said, Ok("Cut(1, Head(Large))".into()));
}

#[test]
fn what_answers_nothing_has_a_limit() {
    for (kind, flags, stream, payload) in [
        (kind::PING, 0, 0, &b"12345678"[..]),
        (kind::SETTINGS, 0, 0, b""),
        (kind::SETTINGS, flag::ACK, 0, b""),
        (kind::DATA, 0, 1, b""),
        (kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        (99, 0, 0, b"?"),
    ] {
        let mut peer = Peer::asked(GET);
        peer.answer(1, 0, 200, &[]);
        let failed = (0..20_000).find_map(|_| {
            peer.control();
            peer.say(kind, flags, stream, payload).err()
        });
        assert_eq!(failed.map(|failure| failure.reason), Some(Reason::Useless), "{kind}");
    }
}

#[test]
fn control_frames_that_nobody_takes_are_noticed() {
    let mut peer = Peer::asked(GET);
    let mut pings = 0;
    while !peer.client.is_congested() {
        peer.say(kind::PING, 0, 0, b"12345678").expect("there is room");
        pings += 1;
    }
    assert!(pings < 4_000);
    peer.client.go_away(ErrorCode::NoError);
    peer.client.go_away(ErrorCode::ProtocolError);
    let last = peer.control().pop();
    assert_eq!(last, Some((kind::GOAWAY, 0, vec![0; 8])));
    assert_eq!(peer.open(GET, Rest::Ended), Err(Unopened::Leaving));
}

#[test]
fn a_client_that_rests_begins_again() {
    let mut peer = Peer::asked(GET);
    peer.answer(1, END, 200, &[]);
    peer.client.close(1);
    peer.client.rest();
    assert_eq!(peer.open(GET, Rest::Ended), Ok(3));
    assert_eq!(peer.answer(3, END, 200, &[]), "Head(3, Ended)");
    assert!(!peer.client.has_acknowledged());
    assert_eq!(peer.say(kind::SETTINGS, flag::ACK, 0, b""), Ok("Need".into()));
    assert!(peer.client.has_acknowledged());
}
