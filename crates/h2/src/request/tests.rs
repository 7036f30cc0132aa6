//! Heads that are taken and heads that are refused, in nginx's words.

use super::*;
use crate::hpack::push_field;

const LIMITS: HeadLimits = HeadLimits {
    field_bytes: 100,
    head_bytes: 1_000,
    fields: 10,
    unusual: Unusual::Skipped,
    underscores: Underscores::Unusual,
};

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.example:8443")];

type Read = Result<Option<HeadFault>, Unreadable>;

fn read_ending(fields: &[(&str, &str)], rest: Rest) -> (Read, Vec<u8>, RequestHead) {
    let mut block = Vec::new();
    fields.iter().for_each(|(name, value)| {
        // As they are: what is written in capitals is not made small.
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "one byte says how long it is");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    });
    let (mut text, mut head) = (Vec::new(), RequestHead::default());
    let mut decoder = Decoder::new(4096);
    let read = HeadReader::default().read((&mut decoder, &block), rest, &LIMITS, (&mut text, &mut head));
    (read, text, head)
}

fn read(fields: &[(&str, &str)]) -> (Read, Vec<u8>, RequestHead) {
    read_ending(fields, Rest::Ended)
}

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    GET.iter().chain(more).copied().collect()
}

/// What is wrong with a head that has these fields behind the usual ones.
fn fault(more: &[(&'static str, &'static str)]) -> String {
    read(&with(more)).0.expect("the connection stays").map(|fault| fault.to_string()).unwrap_or_default()
}

/// The same of these fields alone.
fn fault_of(fields: &[(&str, &str)]) -> String {
    read(fields).0.expect("the connection stays").map(|fault| fault.to_string()).unwrap_or_default()
}

#[test]
fn a_head_is_that_of_http1() {
    let fields = [("x-a", "1"), ("cookie", "a=b"), ("accept", "*/*"), ("cookie", "c=d")];
    let (read, text, head) = read(&with(&fields));
    assert_eq!(read, Ok(None));
    let expected =
        "GET / HTTP/2.0\r\nhost: a.example:8443\r\nx-a: 1\r\naccept: */*\r\ncookie: a=b; c=d\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&text), expected);
    assert_eq!((head.method(), head.version(), head.body), (Method::Get, HTTP_2, BodyLength::Empty));
    assert_eq!(head.line.line.of(&text), b"GET / HTTP/2.0");
    assert_eq!(head.line.protocol.of(&text), b"HTTP/2.0");
    assert_eq!(head.find(&text, Known::Cookie), Some(&b"a=b; c=d"[..]));
    let host = head.host.expect("it has one");
    assert_eq!((host.name.of(&text), host.port), (&b"a.example"[..], 8443));
    let lines: Vec<_> = head.headers.iter(&text).map(|line| (line.name, line.value)).collect();
    assert_eq!(lines[1], (&b"x-a"[..], &b"1"[..]));
}

#[test]
fn a_target_is_taken_apart() {
    for (target, path, args, is_plain) in [
        ("/a/b", "/a/b", "", true),
        ("/a?b=c?d", "/a", "b=c?d", true),
        ("/a?", "/a", "", true),
        ("/a#b?c", "/a", "", true),
        ("/a?b#c", "/a", "b", true),
        ("/a//b", "/a//b", "", false),
        ("/./b", "/./b", "", false),
        ("/%41", "/%41", "", false),
    ] {
        let fields = [(":path", target), GET[0], GET[1], GET[3]];
        let (read, text, head) = read(&fields);
        assert_eq!(read, Ok(None), "{target}");
        let of = |span: Span| String::from_utf8_lossy(span.of(&text)).into_owned();
        let line = &head.line;
        assert_eq!((of(line.raw), of(line.path), of(line.args)), (target.into(), path.into(), args.into()));
        assert_eq!(line.path_is_plain, is_plain, "{target}");
    }
}

#[test]
fn the_length_of_a_body_is_announced_or_comes_with_its_end() {
    let body = |fields: &[(&'static str, &'static str)], rest| read_ending(&with(fields), rest).2.body;
    assert_eq!(body(&[], Rest::Open), BodyLength::Chunked);
    assert_eq!(body(&[("content-length", "7")], Rest::Open), BodyLength::Length(7));
    assert_eq!(body(&[("content-length", "0")], Rest::Ended), BodyLength::Length(0));
    assert_eq!(fault(&[("content-length", "7")]), "client prematurely closed stream");
    for wrong in ["", "+7", "7a", "9223372036854775808"] {
        let fields = [&GET[..], &[("content-length", wrong)]].concat();
        assert_eq!(fault_of(&fields), "client sent invalid \"Content-Length\" header", "{wrong}");
    }
}

#[test]
fn pseudo_header_fields_are_there_once_and_first() {
    for (at, (name, value)) in GET.into_iter().enumerate().take(3) {
        let mut fields = GET.to_vec();
        fields.remove(at);
        assert_eq!(fault_of(&fields), format!("client sent no {name} header"));
        fields.push((name, ""));
        assert_eq!(fault_of(&fields), format!("client sent empty {name} header"));
        assert_eq!(fault_of(&with(&[(name, value)])), format!("client sent duplicate {name} header"));
    }
    assert_eq!(fault(&[(":status", "200")]), "client sent unknown pseudo-header \":status\"");
    assert_eq!(fault(&[("a", "b"), (":path", "/")]), "client sent out of order pseudo-headers");
    let changed = |at: usize, value: &'static str| {
        let mut fields = GET;
        fields[at].1 = value;
        fault_of(&fields)
    };
    assert_eq!(changed(0, "get"), "client sent invalid method: \"get\"");
    assert_eq!(changed(0, "CONNECT"), "client sent CONNECT method");
    assert_eq!(changed(0, "TRACE"), "client sent TRACE method");
    assert_eq!(changed(1, "1a"), "client sent invalid :scheme header: \"1a\"");
    for path in ["*", "a", "/ HTTP/1.1", "/\x7f", "/\t", "http://b/"] {
        assert_eq!(changed(2, path), format!("client sent invalid :path header: \"{path}\""));
    }
    assert_eq!(changed(3, "a/b"), "client sent invalid \":authority\" header");
}

#[test]
fn no_field_ends_its_line_or_concerns_a_connection() {
    for name in ["X-A", "a b", "a:", "a\n", "a\0"] {
        let fields = [&GET[..], &[(name, "b")]].concat();
        assert_eq!(fault_of(&fields), format!("client sent invalid header name: \"{name}\""));
    }
    for value in ["a\r\nb: c", "a\nb", "a\0"] {
        let fields = [&GET[..], &[("a", value)]].concat();
        assert_eq!(fault_of(&fields), format!("client sent header \"a\" with invalid value: \"{value}\""));
    }
    for name in ["Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade"] {
        let small = name.to_ascii_lowercase();
        let fields = [&GET[..], &[(&small, "x")]].concat();
        assert_eq!(fault_of(&fields), format!("client sent \"{name}\" header"));
    }
    assert_eq!(fault(&[("te", "trailers")]), "");
    assert_eq!(fault(&[("te", "gzip")]), "client sent invalid \"TE\" header");
    assert_eq!(fault(&[("te", "trailers"), ("te", "trailers")]), "client sent invalid \"TE\" header");
    assert_eq!(fault(&[("range", "a"), ("range", "b")]), "");
    let twice = fault(&[("if-match", "a"), ("if-match", "b")]);
    assert_eq!(twice, "client sent duplicate header line: \"if-match: b\"");
}

#[test]
fn a_host_is_said_in_one_of_two_ways() {
    assert_eq!(fault(&[("host", "a.example:8443")]), "");
    let other = "client sent \":authority\" and \"Host\" headers with different values";
    assert_eq!(fault(&[("host", "b.example")]), other);
    let alone = [GET[0], GET[1], GET[2], ("host", "b.example")];
    let (read, text, head) = read(&alone);
    assert_eq!((read, head.host.expect("it has one").name.of(&text)), (Ok(None), &b"b.example"[..]));
    assert_eq!(fault_of(&GET[..3]), "client sent neither \":authority\" nor \"Host\" header");
    assert_eq!(fault_of(&[GET[0], GET[1], GET[2], ("host", "/")]), "client sent invalid host header");
}

#[test]
fn unusual_names_are_skipped() {
    let (read, text, _) = read(&with(&[("a_b", "1"), ("a+b", "2"), ("a-b", "3")]));
    assert_eq!(read, Ok(None));
    assert!(text.ends_with(b"8443\r\na-b: 3\r\n\r\n"), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn heads_are_limited() {
    let value = "x".repeat(101);
    assert_eq!(read(&[("a", &value)]).0, Err(Unreadable::LargeField));
    assert_eq!(read(&[("", "b")]).0, Err(Unreadable::EmptyName));
    let fields: Vec<_> = (0..10).map(|_| ("abcdefghijklmnopqrstuvwxyz", &value[..80])).collect();
    assert_eq!(read(&fields).0, Err(Unreadable::LargeHead));
    let many: Vec<_> = (0..11).map(|_| ("a", "b")).collect();
    let (read, ..) = read(&with(&many));
    let refused = read.expect("the connection stays").expect("there are too many");
    assert_eq!((refused.page(), refused.to_string()), (494, "client sent too many header lines".into()));
}

/// A field that a table has takes a byte each time, and is not read for ever.
#[test]
fn what_a_small_block_expands_to_is_limited() {
    let mut block = vec![0x40, 1, b'a', 100];
    block.extend_from_slice(&[b'x'; 100]);
    block.extend_from_slice(&[0xbe; 900]);
    let (mut text, mut head) = (Vec::new(), RequestHead::default());
    let mut decoder = Decoder::new(4096);
    let mut reader = HeadReader::default();
    let read = reader.read((&mut decoder, &block), Rest::Ended, &LIMITS, (&mut text, &mut head));
    assert_eq!(read, Err(Unreadable::LargeHead));
    assert!(text.len() < 2_000, "{} bytes", text.len());
}

#[test]
fn later_heads_begin_with_nothing() {
    let (mut reader, mut decoder) = (HeadReader::default(), Decoder::new(4096));
    for (fields, expected) in [(&GET[..1], "client sent no :scheme header"), (&GET[..], "")] {
        let mut block = Vec::new();
        fields.iter().for_each(|(name, value)| push_field(&mut block, name.as_bytes(), value.as_bytes()));
        let (mut text, mut head) = (Vec::new(), RequestHead::default());
        let read = reader.read((&mut decoder, &block), Rest::Ended, &LIMITS, (&mut text, &mut head));
        let fault = read.expect("the connection stays");
        assert_eq!(fault.map(|fault| fault.to_string()).unwrap_or_default(), expected);
    }
}
