//! The client against the server in one process, with bytes that come in any pieces: requests and responses
//! of all kinds arrive as they were sent, whatever the windows are.

use std::collections::{BTreeMap, VecDeque};

use clearway_message::{HeaderLine, Known, RequestHead};
use proptest::prelude::*;

use super::{Client, Event, Limits, RequestLine, Unopened};
use crate::connection::{self, Connection};
use crate::frame::{ErrorCode, Rest};
use crate::hpack::push_field;
use crate::request::{HeadLimits, HeadReader, Underscores, Unusual};

/// Turns within which all of it is over; a run that needs more does not end.
const TURNS_MAX: usize = 200_000;

#[derive(Clone, Debug)]
struct Exchange {
    /// `HEAD` or `POST`.
    method: &'static str,
    request_bytes: usize,
    response_bytes: usize,
    interim_heads: usize,
    /// Values of fields that the server's table keeps, or not.
    value: String,
    has_trailers: bool,
    says_length: bool,
}

fn exchanges() -> impl Strategy<Value = Vec<Exchange>> {
    let exchange = (
        any::<bool>(),
        prop_oneof![Just(0), 1usize..3_000, Just(70_000)],
        prop_oneof![Just(0), 1usize..3_000, Just(70_000)],
        0usize..3,
        "[ -~]{0,40}",
        any::<(bool, bool)>(),
    );
    let exchange =
        exchange.prop_map(|(head, request, response, interim_heads, value, (trailers, length))| {
            let has_head_only = head && request == 0;
            let response_bytes = if has_head_only { 0 } else { response };
            let has_trailers = trailers && !has_head_only;
            Exchange {
                method: if has_head_only { "HEAD" } else { "POST" },
                request_bytes: request,
                response_bytes,
                interim_heads,
                value,
                has_trailers,
                says_length: length,
            }
        });
    prop::collection::vec(exchange, 1..12)
}

/// The parts of one message that have arrived.
#[derive(Default)]
struct Come {
    head: String,
    interim_heads: usize,
    bytes: usize,
    trailers: String,
    is_over: bool,
    /// How much of what is sent back is sent.
    sent: usize,
    has_head_sent: bool,
}

/// A byte of a body at a place.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn body(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

fn field<'h>(name: &'h [u8], value: &'h [u8]) -> HeaderLine<'h> {
    HeaderLine { name, value, known: Known::Other }
}

/// Two connections and the frames under way between them.
struct Pair<'e> {
    exchanges: &'e [Exchange],
    windows: (u32, u32),
    client: Client,
    server: Connection,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Bytes that each side has received and not taken.
    kept: (Vec<u8>, Vec<u8>),
    next: usize,
    /// The index of the exchange of each stream.
    of_stream: BTreeMap<u32, usize>,
    asked: BTreeMap<u32, Come>,
    answered: BTreeMap<u32, Come>,
    done: usize,
}

impl<'e> Pair<'e> {
    fn new(exchanges: &'e [Exchange], streams: u32, windows: (u32, u32)) -> Self {
        let head = HeadLimits {
            field_bytes: 4_096,
            head_bytes: 16_384,
            fields: 100,
            unusual: Unusual::Skipped,
            underscores: Underscores::Unusual,
        };
        let server = Connection::new(connection::Limits { streams, window_bytes: windows.0, head });
        let limits = Limits { streams: 100, window_bytes: windows.1, head_bytes: 16_384, fields: 100 };
        Self {
            exchanges,
            windows,
            client: Client::new(limits),
            server,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            kept: (Vec::new(), Vec::new()),
            next: 0,
            of_stream: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            done: 0,
        }
    }

    fn ask(&mut self) {
        let mut out = Vec::new();
        // A server may refuse bodies before its settings are known: RFC 9113 has clients try again.
        while self.client.has_acknowledged()
            && let Some(exchange) = self.exchanges.get(self.next)
        {
            let method = exchange.method.as_bytes();
            let line = RequestLine { method, scheme: b"http", authority: b"a", path: b"/x" };
            let rest = if exchange.request_bytes == 0 { Rest::Ended } else { Rest::Open };
            let line_of_value = field(b"x-value", exchange.value.as_bytes());
            match self.client.open(&mut out, line, std::iter::once(line_of_value), rest) {
                Ok(stream) => {
                    self.of_stream.insert(stream, self.next);
                    self.answered.insert(stream, Come::default());
                    self.next += 1;
                }
                Err(reason) => {
                    assert_eq!(reason, Unopened::Full);
                    break;
                }
            }
        }
        for (stream, come) in &mut self.answered {
            let exchange = &self.exchanges[self.of_stream[stream]];
            while come.sent < exchange.request_bytes && self.client.sendable(*stream) > 0 {
                let count = self.client.sendable(*stream).min(exchange.request_bytes - come.sent);
                let is_last = come.sent + count == exchange.request_bytes;
                let rest = if is_last && !exchange.has_trailers { Rest::Ended } else { Rest::Open };
                self.client.push_data(&mut out, *stream, &body(come.sent, count), rest);
                come.sent += count;
                if is_last && exchange.has_trailers {
                    let trailer = field(b"x-end", b"1");
                    self.client.push_trailers(&mut out, *stream, std::iter::once(trailer));
                }
            }
        }
        self.to_server.extend(out);
        let mut control = Vec::new();
        self.client.take_control(&mut control);
        self.to_server.extend(control);
    }

    fn serve(&mut self, count: usize) {
        let count = count.min(self.to_server.len());
        self.kept.0.extend(self.to_server.drain(..count));
        self.server.begin_read(count).expect("it is no flood");
        let kept = std::mem::take(&mut self.kept.0);
        let mut input = &kept[..];
        loop {
            match self.server.receive(&mut input).expect("the client keeps to the rules") {
                connection::Event::Need => break,
                connection::Event::Opened => {}
                connection::Event::Head(stream, rest) => {
                    let (mut text, mut head) = (Vec::new(), RequestHead::default());
                    let read =
                        self.server.read_head(&mut HeadReader::default(), rest, (&mut text, &mut head));
                    assert_eq!(read.expect("it is read").0, None);
                    let is_over = rest == Rest::Ended;
                    let head = String::from_utf8(text).expect("it is text");
                    self.asked.insert(stream, Come { head, is_over, ..Come::default() });
                }
                connection::Event::Data(stream, bytes, rest) => {
                    let come = self.asked.get_mut(&stream).expect("it has begun");
                    assert_eq!(bytes, body(come.bytes, bytes.len()));
                    come.bytes += bytes.len();
                    come.is_over = rest == Rest::Ended;
                    if self.server.receivable(stream).is_some_and(|left| left <= self.windows.0 / 2) {
                        self.server.widen(stream, self.windows.0);
                    }
                }
                connection::Event::End(stream) => {
                    self.asked.get_mut(&stream).expect("it has begun").is_over = true;
                }
                event => panic!("the client keeps to the rules: {event:?}"),
            }
        }
        self.kept.0 = input.to_vec();
    }

    fn respond(&mut self) {
        let mut out = Vec::new();
        self.server.take_control(&mut out);
        let mut over = Vec::new();
        for (stream, come) in &mut self.asked {
            let exchange = &self.exchanges[self.of_stream[stream]];
            if !come.is_over {
                continue;
            }
            if !come.has_head_sent {
                Self::respond_head(&mut self.server, &mut out, *stream, exchange);
                come.has_head_sent = true;
            }
            while come.sent < exchange.response_bytes && self.server.sendable(*stream) > 0 {
                let count = self.server.sendable(*stream).min(exchange.response_bytes - come.sent);
                self.server.push_data(&mut out, *stream, &body(come.sent, count), Rest::Open);
                come.sent += count;
            }
            if come.sent == exchange.response_bytes {
                if exchange.has_trailers {
                    let trailer = field(b"x-end", b"2");
                    self.server.push_trailers(&mut out, *stream, std::iter::once(trailer));
                } else {
                    self.server.push_data(&mut out, *stream, b"", Rest::Ended);
                }
                over.push(*stream);
            }
        }
        for stream in over {
            self.check_request(stream);
            self.server.close(stream);
        }
        self.to_client.extend(out);
    }

    fn respond_head(server: &mut Connection, out: &mut Vec<u8>, stream: u32, exchange: &Exchange) {
        for _ in 0..exchange.interim_heads {
            let mut block = Vec::new();
            push_field(&mut block, b"link", exchange.value.as_bytes());
            server.push_head(out, stream, 103, &block, Rest::Open);
        }
        let mut block = Vec::new();
        push_field(&mut block, b"x-value", exchange.value.as_bytes());
        if exchange.says_length {
            let length = if exchange.method == "HEAD" { 7 } else { exchange.response_bytes };
            push_field(&mut block, b"content-length", length.to_string().as_bytes());
        }
        server.push_head(out, stream, 200, &block, Rest::Open);
    }

    fn check_request(&mut self, stream: u32) {
        let exchange = &self.exchanges[self.of_stream[&stream]];
        let come = self.asked.remove(&stream).expect("it has begun");
        let method = exchange.method;
        let head = format!("{method} /x HTTP/2.0\r\nhost: a\r\nx-value: {}\r\n\r\n", exchange.value);
        assert_eq!((come.head, come.bytes), (head, exchange.request_bytes));
    }

    fn hear(&mut self, count: usize) {
        let count = count.min(self.to_client.len());
        self.kept.1.extend(self.to_client.drain(..count));
        self.client.begin_read(count).expect("it is no flood");
        let kept = std::mem::take(&mut self.kept.1);
        let mut input = &kept[..];
        loop {
            let event = self.client.receive(&mut input).expect("the server keeps to the rules");
            let stream = match event {
                Event::Need => break,
                Event::Opened => continue,
                Event::Interim(stream) | Event::Head(stream, _) | Event::Trailers(stream) => stream,
                Event::Data(stream, bytes, _) => {
                    let come = self.answered.get_mut(&stream).expect("it was asked for");
                    assert_eq!(bytes, body(come.bytes, bytes.len()));
                    come.bytes += bytes.len();
                    if self.client.receivable(stream).is_some_and(|left| left <= self.windows.1 / 2) {
                        self.client.widen(stream, self.windows.1);
                    }
                    stream
                }
                event => panic!("the server keeps to the rules: {event:?}"),
            };
            let text = String::from_utf8(self.client.head().0.to_vec()).expect("it is text");
            let come = self.answered.get_mut(&stream).expect("it was asked for");
            match event {
                Event::Interim(_) => come.interim_heads += 1,
                Event::Head(_, rest) => (come.head, come.is_over) = (text, rest == Rest::Ended),
                Event::Trailers(_) => (come.trailers, come.is_over) = (text, true),
                Event::Data(_, _, rest) => come.is_over = rest == Rest::Ended,
                _ => {}
            }
            if come.is_over {
                self.check_response(stream);
                self.client.close(stream);
                self.done += 1;
            }
        }
        self.kept.1 = input.to_vec();
    }

    fn check_response(&mut self, stream: u32) {
        let exchange = &self.exchanges[self.of_stream[&stream]];
        let come = self.answered.remove(&stream).expect("it was asked for");
        let mut head = format!("x-value: {}\r\n", exchange.value);
        if exchange.says_length {
            let length = if exchange.method == "HEAD" { 7 } else { exchange.response_bytes };
            head += &format!("content-length: {length}\r\n");
        }
        let trailers = if exchange.has_trailers { "x-end: 2\r\n" } else { "" };
        assert_eq!((come.head, come.trailers.as_str()), (head, trailers));
        assert_eq!((come.interim_heads, come.bytes), (exchange.interim_heads, exchange.response_bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_one_side_sends_the_other_receives(
        exchanges in exchanges(),
        streams in 1u32..5,
        windows in prop_oneof![Just((65_536, 65_536)), (1u32..2_000, 1u32..2_000), Just((65_536, 500))],
        pieces in prop::collection::vec(prop_oneof![1usize..40, Just(5_000), Just(usize::MAX)], 1..30),
    ) {
        let mut pair = Pair::new(&exchanges, streams, windows);
        let mut turns = 0;
        while pair.done < exchanges.len() {
            let piece = |turn: usize| pieces[turn % pieces.len()];
            pair.ask();
            pair.serve(piece(turns));
            pair.respond();
            pair.hear(piece(turns + 1));
            turns += 1;
            prop_assert!(turns < TURNS_MAX, "they wait for each other");
        }
        pair.client.rest();
        pair.client.go_away(ErrorCode::NoError);
        pair.ask();
        pair.serve(usize::MAX);
        prop_assert_eq!((pair.server.open_streams(), pair.client.open_streams()), (0, 0));
        prop_assert!(!pair.server.is_leaving());
    }
}
