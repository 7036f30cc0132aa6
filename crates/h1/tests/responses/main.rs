//! Responses of upstream servers: the codec against a model that sees all of a response at once, however the
//! bytes are split; and single cases with nginx's words.

mod cgi;
mod model;
mod play;

use clearway_h1::{
    Asked, INTERIM_HEADS_MAX, ResponseBody, ResponseFault, ResponseFraming, ResponseParser, ResponseProgress,
    Trailers,
};
use clearway_message::{Headers, Known, Piece};
use play::{End, Reading, play};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const WHOLE: Reading = Reading { asked: Asked::Whole, head_max_bytes: 4096, trailers: Trailers::Dropped };

const KEPT: Reading = Reading { trailers: Trailers::Kept { max_bytes: 4096 }, ..WHOLE };

fn readings() -> impl Strategy<Value = Reading> {
    let asked = prop_oneof![4 => Just(Asked::Whole), 1 => Just(Asked::Head)];
    let head_max_bytes = prop_oneof![3 => Just(4096_usize), 1 => 1..120_usize];
    let trailers = prop_oneof![
        2 => Just(Trailers::Dropped),
        2 => Just(Trailers::Kept { max_bytes: 4096 }),
        1 => (0..30_usize).prop_map(|max_bytes| Trailers::Kept { max_bytes }),
    ];
    (asked, head_max_bytes, trailers).prop_map(|(asked, head_max_bytes, trailers)| Reading {
        asked,
        head_max_bytes,
        trailers,
    })
}

fn eol() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => Just("\r\n"), 2 => Just("\n"), 1 => select(&["\r\r\n", "\r", "\rx\n"][..])]
}

fn status_line() -> impl Strategy<Value = String> {
    let version = prop_oneof![
        8 => Just("HTTP/1.1 "),
        3 => select(&["HTTP/1.0 ", "HTTP/2.0 ", "HTTP/1.1  ", "HTTP/01.1 ", "HTTP/99.100 "][..]),
        1 => select(&["HTTP/1.1000 ", "HTTP/1000.1 ", "HTTP/1.0000 ", "HTTP/999.999 "][..]),
        1 => select(&["", "HTTP/", "http/1.1 ", "ICY ", "HTTP/0.9 ", "HTTP/1.", "H"][..]),
    ];
    let code = prop_oneof![
        8 => select(&["200", "204", "304", "404", "100", "101", "103", "102"][..]),
        1 => select(&["20", "2 0 0", "2000", "20x", "-20", "000", ""][..]),
    ];
    let reason = select(&[" OK", "", " ", ".1 Forbidden", " a\tb ", "  two", "x", " n\0l"][..]);
    (version, code, reason, eol()).prop_map(|(v, c, r, end)| format!("{v}{c}{r}{end}"))
}

fn line() -> impl Strategy<Value = String> {
    let framing = select(
        &[
            "Content-Length: 5",
            "content-length:0",
            "Content-Length: 05 ",
            "Content-Length: x",
            "Content-Length: 9223372036854775808",
            "Transfer-Encoding: chunked",
            "transfer-encoding: CHUNKED",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: \tchunked",
            "Connection: Close",
            "Connection: keep-alive",
        ][..],
    );
    let single = select(
        &[
            "Server: a",
            "Date: b",
            "ETag: c",
            "Location: /",
            "Set-Cookie: d",
            "Expires: 0",
            "X-Accel-Expires: 1",
        ][..],
    );
    let odd = select(
        &[
            "HTTP/1.1 200 OK",
            "HTTPS/x: y",
            "no-colon",
            "un_der: x",
            "bad(name): y",
            " folded",
            "A : b",
            ": v",
            "n:",
        ][..],
    );
    prop_oneof![
        4 => framing.prop_map(str::to_owned),
        3 => single.prop_map(str::to_owned),
        2 => odd.prop_map(str::to_owned),
        4 => "X-[a-z]{1,9}: {0,2}[!-~ ]{0,40} {0,2}",
        1 => "[ -~\\x00\t\r]{0,12}",
    ]
}

fn body() -> impl Strategy<Value = String> {
    let piece = select(
        &[
            "5\r\nhello\r\n",
            "1;x=y\r\na\r\n",
            "0\r\n",
            "\r\n",
            "T: v\r\n",
            "T:v\n",
            "a",
            "fffffffffffffff\r\n",
            "5\n",
        ][..],
    );
    prop_oneof![
        Just("hello".to_owned()),
        Just("5\r\nhello\r\n0\r\n\r\n".to_owned()),
        Just("5\r\nhello\r\n0\r\nA: b\r\nHTTP/1.1 200\r\nc: \r\n\r\nrest".to_owned()),
        vec(piece, 0..6).prop_map(|pieces| pieces.concat()),
        "[a-z0-9\r\n]{0,30}",
    ]
}

fn response() -> impl Strategy<Value = Vec<u8>> {
    let head = (status_line(), vec((line(), eol()), 0..6), eol()).prop_map(|(status, lines, end)| {
        let lines: String = lines.iter().map(|(line, eol)| format!("{line}{eol}")).collect();
        format!("{status}{lines}{end}")
    });
    (vec(head, 1..3), body()).prop_map(|(heads, body)| (heads.concat() + &body).into_bytes())
}

const STARTS: &[&str] = &["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n"];

fn check(input: &[u8], reading: Reading) -> Result<(), TestCaseError> {
    let (whole, words) = play(input, [], reading);
    prop_assert_eq!(&model::read(input, reading), &whole);
    for cut in 0..input.len() {
        prop_assert_eq!(&play(input, [cut], reading), &(model::read(input, reading), words.clone()));
    }
    prop_assert_eq!(&play(input, 0..input.len(), reading), &(whole, words));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2048 }))]

    #[test]
    fn responses_are_read_by_their_grammar(input in response(), reading in readings()) {
        check(&input, reading)?;
    }

    #[test]
    fn garbage_is_read_by_the_grammar(
        input in vec(any::<u8>(), 0..60),
        start in select(STARTS),
        reading in readings(),
    ) {
        check(&[start.as_bytes(), &input].concat(), reading)?;
    }
}

/// What is said in the log about `input`.
fn words(input: &str, reading: Reading) -> String {
    play(input.as_bytes(), [], reading).1
}

#[test]
fn faults_have_the_words_of_nginx() {
    let head = |lines: &str| words(&format!("HTTP/1.1 200 OK\r\n{lines}"), WHOLE);
    assert_eq!(head("Bad name: x\r\n"), "upstream sent invalid header: \"Bad\\x20...\"");
    assert_eq!(head("A: b\0c"), "upstream sent invalid header: \"A: b\\x00...\"");
    assert_eq!(
        head("Content-Length: 1\r\ncontent-length: 1\r\n"),
        "upstream sent duplicate header line: \"content-length: 1\", previous value: \"Content-Length: 1\""
    );
    let both = "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time";
    assert_eq!(head("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), both);
    assert_eq!(head("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), both);
    assert_eq!(
        head("Content-Length: -1\r\n"),
        "upstream sent invalid \"Content-Length\" header: \"Content-Length: -1\""
    );
    assert_eq!(head("Transfer-Encoding: x\r\n"), "upstream sent unknown \"Transfer-Encoding\": \"x\"");
    assert_eq!(
        head("Server: a\r\nServer: b\r\n\r\n"),
        "upstream sent duplicate header line: \"Server: b\", previous value: \"Server: a\", ignored\n"
    );
    assert_eq!(words("HTTP/1.0 103 E\r\n\r\n", WHOLE), "upstream sent HTTP/1.0 response with early hints");
    let chunked =
        |body: &str| words(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"), KEPT);
    assert_eq!(chunked("5\nhello"), "upstream sent invalid chunked response");
    assert_eq!(chunked("0\r\nA b: c\r\n"), "upstream sent invalid trailer: \"A\\x20...\"");
    let long = format!("0\r\nA: {}", "x".repeat(5000));
    assert_eq!(chunked(&long), "upstream sent too big trailers");
    assert_eq!(head(&format!("A: {}", "x".repeat(5000))), "upstream sent too big header");
}

#[test]
fn a_head_goes_on_as_it_came() {
    let input = b"HTTP/1.1 200 OK\r\nServer: s\r\nSet-Cookie: a\r\nServer: t\r\nun_der: x\r\n\r\n";
    let mut parser = ResponseParser::default();
    assert_eq!(parser.parse(input, 4096), Ok(ResponseProgress::Final));
    assert_eq!(parser.find(input, Known::SetCookie), Some(&b"a"[..]));
    let mut headers = Headers::default();
    headers.pass(input.to_vec(), parser.lines().iter().copied());
    let pieces = [&b"Server: s\r\nSet-Cookie: a\r\n"[..], b"un_der: x\r\n"];
    assert_eq!(headers.pieces().collect::<Vec<_>>(), pieces.map(Piece::Lines));
}

#[test]
fn nothing_is_known_of_what_has_no_status_line() {
    for input in
        [&b"HTTP/1.1 2000 OK\r\n\r\n"[..], b"HTTP/1.1 20 OK\r\n", b"HTTP/1.1 103 x\ry", b"HTTP/1.0 2 0 0\n"]
    {
        let mut parser = ResponseParser::default();
        assert_eq!(parser.parse(input, 4096), Ok(ResponseProgress::Headless));
        assert_eq!((parser.status(), parser.reason().of(input), parser.len()), (200, &b""[..], 0));
        assert_eq!((parser.reason().start(), parser.is_interim(), parser.keeps_alive()), (0, false, false));
        assert_eq!(parser.framing(Asked::Head), ResponseFraming::UntilClose);
    }
}

#[test]
fn interim_responses_are_counted() {
    let mut parser = ResponseParser::default();
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    for _ in 0..INTERIM_HEADS_MAX {
        assert_eq!(parser.parse(interim, 4096), Ok(ResponseProgress::Interim));
        assert_eq!(parser.next_head(), interim.len());
    }
    assert_eq!(parser.parse(interim, 4096), Err(ResponseFault::TooManyInterim));
    parser.clear();
    assert_eq!(parser.parse(interim, 4096), Ok(ResponseProgress::Interim));
}

#[test]
fn bytes_behind_the_end_are_named_by_the_framing() {
    let body = |framing| ResponseBody::new(framing, Trailers::Kept { max_bytes: 100 });
    let more = "upstream sent more data than specified in \"Content-Length\" header";
    assert_eq!(body(ResponseFraming::Empty).excess(), more);
    assert_eq!(body(ResponseFraming::Length(1)).excess(), more);
    let mut chunked = body(ResponseFraming::Chunked);
    chunked.decode(b"0\r\n\r\nx").unwrap();
    assert_eq!(chunked.excess(), "upstream sent data after final chunk");
    let mut chunked = body(ResponseFraming::Chunked);
    chunked.decode(b"0\r\nA: b").unwrap();
    assert_eq!(chunked.decode(b"\r\n\r\nx").unwrap().consumed, 4);
    assert_eq!(chunked.excess(), "upstream sent data after trailers");
}

/// A model that agrees with everything would be of no use.
#[test]
fn the_model_knows_right_from_wrong() {
    let end = |input: &str| model::read(input.as_bytes(), KEPT).end;
    assert_eq!(end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!"), End::Complete { rest: 1 });
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(end(&format!("{chunked}1\r\na\r\n0\r\nT: u\r\n\r\n")), End::Complete { rest: 0 });
    assert_eq!(end(&format!("{chunked}1\na\r\n0\r\n\r\n")), End::Fault(ResponseFault::InvalidChunked));
    assert_eq!(end("HTTP/1.1 200 OK\r\nA\x7f"), End::Fault(ResponseFault::InvalidHeader));
    assert!(model::read(b"hello", KEPT).heads.is_empty());
}
