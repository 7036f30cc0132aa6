//! The codec against slow readers that see everything at once and follow the grammar.

mod chunked;
mod headers;

use clearway_h1::{
    Fault, HeadParser, HeadProgress, InvalidHeaders, LAST_CHUNK, Options, Underscores, push_chunk_size,
    push_last_chunk,
};
use clearway_message::RequestHead;
use headers::{Release, Section};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const NO_LIMIT: u64 = u64::MAX;

/// What chunked bodies are made of, and what they are broken with.
const PIECES: &[&str] = &[
    "0",
    "1",
    "2",
    "00",
    "a",
    "F",
    "10",
    "7ffffffffffffff",
    "800000000000000",
    "\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "\r",
    "\n",
    ";x",
    " ",
    "\t",
    "x",
    "xy",
    "X: y",
    "g",
    "-1",
    "+1",
    "0x1",
    "\0",
    "\u{e9}",
];

/// Parts of header sections.
const NAMES: &[&str] = &[
    "Host",
    "host",
    "X",
    "x-Long-Name-1",
    "Content-Length",
    "content-length",
    "Transfer-Encoding",
    "TRANSFER-ENCODING",
    "If-Match",
    "Cookie",
    "Connection",
    "X_y",
    "_",
    "A(b",
    "",
    "X ",
    " X",
    "X\t",
    "X\u{7f}",
    "X\0",
    "\u{e9}",
    "Content-Length\u{b}",
    "Content_Length",
];
const SEPARATORS: &[&str] = &[": ", ": ", ": ", ":", ":  ", " :", ":\t", "", "::"];
const VALUES: &[&str] = &[
    "h",
    "h",
    "h",
    "5",
    "007",
    "5 ",
    "5\t",
    "-5",
    "+5",
    "5,5",
    "9223372036854775807",
    "9223372036854775808",
    "",
    "chunked",
    "Chunked",
    "gzip, chunked",
    "chunked ",
    "close",
    "a  b",
    "\u{e9}",
    "\0",
    "a\rb",
    "\u{b}h",
];
const ENDS: &[&str] = &["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\r\n", "\r", "", "\r\n \r\n"];

/// A chunked body in which hardly anything is wrong.
fn chunked_body() -> impl Strategy<Value = Vec<u8>> {
    let end =
        || prop_oneof![12 => Just("\r\n"), 1 => select(&["\n", "\r", "\rx", "\r\r\n", "", " \r\n"][..])];
    let extension = prop_oneof![4 => Just(String::new()), 1 => "[ \t;][ -~]{0,3}"];
    let size = |data: &str| [format!("{:x}", data.len()), format!("{:03X}", data.len())];
    let chunk = ("[a-z]{1,20}", 0..2_usize, extension, end(), end()).prop_map(
        move |(data, at, extension, end, behind)| {
            format!("{}{extension}{end}{data}{behind}", size(&data)[at])
        },
    );
    let trailer = ("[A-Z]{0,2}:?[a-z]{0,3}", end()).prop_map(|(line, end)| line + end);
    let parts = (vec(chunk, 0..4), end(), vec(trailer, 0..2), end(), "[a-z]{0,2}");
    parts.prop_map(|(chunks, end, trailers, last, behind)| {
        format!("{}0{end}{}{last}{behind}", chunks.concat(), trailers.concat()).into_bytes()
    })
}

fn header() -> impl Strategy<Value = String> {
    (select(NAMES), select(SEPARATORS), select(VALUES), select(ENDS))
        .prop_map(|(name, separator, value, end)| [name, separator, value, end].concat())
}

fn options() -> impl Strategy<Value = Options> {
    let invalid_headers = select(vec![InvalidHeaders::Ignore, InvalidHeaders::Pass]);
    let underscores = select(vec![Underscores::Invalid, Underscores::Valid]);
    (invalid_headers, underscores).prop_map(|(invalid_headers, underscores)| Options {
        invalid_headers,
        underscores,
        ..Options::default()
    })
}

/// What the parser makes of a section, of which more and more bytes are there.
fn parse(text: &[u8], ends: &[usize], release: Release, options: &Options) -> Result<Section, Fault> {
    let line: &[u8] = if release == Release::Http10 { b"GET / HTTP/1.0\r\n" } else { b"GET / HTTP/1.1\r\n" };
    let input = [line, text].concat();
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let mut progress = HeadProgress::Incomplete;
    for end in ends.iter().map(|end| line.len() + end).chain([input.len()]) {
        if progress == HeadProgress::Incomplete {
            progress = parser.parse(&mut head, &input[..end], options)?;
        }
    }
    let is_complete = progress == HeadProgress::Complete;
    let bytes = |span: clearway_message::Span| span.of(&input).to_vec();
    Ok(Section {
        headers: head.headers.iter(&input).map(|l| (l.name.to_vec(), l.value.to_vec())).collect(),
        ignored: parser.ignored().iter().map(|&line| bytes(line)).collect(),
        rest: is_complete.then(|| input.len() - parser.len()),
        body: is_complete.then_some(head.body),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 1024 }))]

    #[test]
    fn chunks_are_read_by_their_grammar(
        body in prop_oneof![
            vec(select(PIECES), 0..16).prop_map(|pieces| pieces.concat().into_bytes()),
            chunked_body(),
        ],
        limit in prop_oneof![2 => Just(NO_LIMIT), 1 => 0..40_u64],
    ) {
        let expected = chunked::reference(&body, limit);
        prop_assert_eq!(&chunked::decode(&body, usize::MAX, limit), &expected);
        prop_assert_eq!(&chunked::decode(&body, 1, limit), &expected);
        for cut in 0..body.len() {
            prop_assert_eq!(&chunked::decode_cut(&body, [cut], limit), &expected);
        }
    }

    #[test]
    fn what_is_written_in_chunks_is_read(
        chunks in vec(vec(any::<u8>(), 1..40), 0..5),
        trailers in vec(("[A-Z][a-z-]{0,8}", "[ -~\r\n]{0,12}"), 0..3),
        behind in vec(any::<u8>(), 0..4),
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            push_chunk_size(&mut body, chunk.len() as u64);
            body.extend_from_slice(chunk);
            body.extend_from_slice(clearway_h1::CHUNK_END);
        }
        if trailers.is_empty() {
            body.extend_from_slice(LAST_CHUNK);
        } else {
            let lines = trailers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            push_last_chunk(&mut body, lines);
        }
        body.extend_from_slice(&behind);
        let expected = Ok((chunks.concat(), Some(behind.len())));
        prop_assert_eq!(&chunked::reference(&body, NO_LIMIT), &expected);
        for cut in 0..body.len() {
            prop_assert_eq!(&chunked::decode_cut(&body, [cut], NO_LIMIT), &expected);
        }
    }

    #[test]
    fn header_sections_are_read_by_their_grammar(
        lines in vec(header(), 0..6),
        has_host in prop::bool::weighted(0.8),
        end in select(&["\r\n", "\r\n", "\n", "\r\r\n", "", "\r"][..]),
        behind in "[a-z]{0,3}",
        release in select(vec![Release::Http11, Release::Http11, Release::Http10]),
        options in options(),
    ) {
        let host = if has_host { "Host: h\r\n" } else { "" };
        let text = format!("{host}{}{end}{behind}", lines.concat()).into_bytes();
        let expected = headers::read(&text, release, &options);
        prop_assert_eq!(&parse(&text, &[], release, &options), &expected);
        for cut in 0..text.len() {
            prop_assert_eq!(&parse(&text, &[cut], release, &options), &expected);
        }
        let every: Vec<usize> = (0..text.len()).collect();
        prop_assert_eq!(&parse(&text, &every, release, &options), &expected);
    }
}

/// Models that agree with everything would be of no use.
#[test]
fn the_models_know_right_from_wrong() {
    assert_eq!(chunked::reference(b"1\r\nx\r\n0\r\n\r\ny", NO_LIMIT), Ok((b"x".to_vec(), Some(1))));
    assert_eq!(chunked::reference(b"1\nx\r\n0\r\n\r\n", NO_LIMIT), Err(Fault::InvalidChunkedBody));
    let section = headers::read(b"Host: h\r\nX_: y\r\n\r\nz", Release::Http11, &Options::default());
    let section = section.expect("it is a section");
    assert_eq!((section.headers.len(), section.ignored.len(), section.rest), (1, 1, Some(1)));
}
