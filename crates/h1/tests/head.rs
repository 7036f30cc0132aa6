//! Options, limits and accessors of request heads that the table of edge cases does not reach.

use clearway_h1::{Fault, HeadParser, HeadProgress, InvalidHeaders, Options, Underscores};
use clearway_message::{HeaderName, Known, RequestHead, Span, TargetForm};

fn parse(input: &[u8], options: &Options) -> (HeadParser, RequestHead) {
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    assert_eq!(parser.parse(&mut head, input, options), Ok(HeadProgress::Complete));
    (parser, head)
}

fn names<'a>(head: &'a RequestHead, input: &'a [u8]) -> Vec<&'a [u8]> {
    head.headers.iter(input).map(|line| line.name).collect()
}

#[test]
fn underscores_are_valid_where_the_option_says_so() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\n_X_y: 1\r\nX(: 2\r\n\r\n";
    let options = Options { underscores: Underscores::Valid, ..Options::default() };
    let (parser, head) = parse(input, &options);
    assert_eq!(names(&head, input), [&b"Host"[..], b"_X_y"]);
    let ignored: Vec<&[u8]> = parser.ignored().iter().map(|line| line.of(input)).collect();
    assert_eq!(ignored, [b"X(: 2"]);
}

#[test]
fn invalid_headers_pass_where_the_option_says_so() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\nX_y: 1\r\nContent-Length(: 2\r\n\r\n";
    let options = Options { invalid_headers: InvalidHeaders::Pass, ..Options::default() };
    let (parser, head) = parse(input, &options);
    assert_eq!(names(&head, input), [&b"Host"[..], b"X_y", b"Content-Length("]);
    assert!(!head.has(Known::ContentLength));
    assert!(parser.ignored().is_empty());
}

#[test]
fn headers_are_found_by_name_in_any_case() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\nx-one: 1\r\nX-Two: 2\r\nX-ONE: 3\r\nCookie: c\r\n\r\n";
    let (_, head) = parse(input, &Options::default());
    let values: Vec<&[u8]> = head.headers.named(input, HeaderName::new(b"X-One")).collect();
    assert_eq!(values, [b"1", b"3"]);
    assert_eq!(head.find(input, Known::Cookie), Some(&b"c"[..]));
    assert_eq!(head.find(input, Known::Range), None);
}

#[test]
fn continue_is_expected_from_1_1_on() {
    for (version, value, expected) in [
        ("1.1", "100-Continue", true),
        ("1.2", "100-continue", true),
        ("1.0", "100-continue", false),
        ("1.1", "100-continue, x", false),
        ("1.1", "200-ok", false),
    ] {
        let input = format!("PUT / HTTP/{version}\r\nHost: a\r\nExpect: {value}\r\n\r\n");
        let (_, head) = parse(input.as_bytes(), &Options::default());
        assert_eq!(head.expects_continue(input.as_bytes()), expected, "{input}");
    }
}

#[test]
fn an_absolute_target_has_all_parts_as_ranges() {
    let input = b"GET https://B.example:81?q#f HTTP/1.1\r\nHost: a\r\n\r\n";
    let (_, head) = parse(input, &Options::default());
    let parts = [head.line.scheme, head.line.authority, head.line.raw, head.line.path, head.line.args];
    let parts = parts.map(|span: Span| span.of(input));
    assert_eq!(parts, [&b"https"[..], b"B.example:81", b"?q#f", b"/", b"q"]);
    assert_eq!(head.line.form, TargetForm::Absolute);
    let host = head.host.unwrap();
    assert_eq!((host.name.of(input), host.port, host.is_lowercase), (&b"B.example"[..], 81, false));
}

#[test]
fn a_faulty_head_keeps_what_came_before_the_fault() {
    let input = b"HEAD /a HTTP/1.1\r\nHost: b\r\nX: y\r\n bad\r\n\r\n";
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    assert_eq!(parser.parse(&mut head, input, &Options::default()), Err(Fault::InvalidHeaderLine));
    assert_eq!(head.line.line.of(input), b"HEAD /a HTTP/1.1");
    assert_eq!(names(&head, input), [&b"Host"[..], b"X"]);
    let message = parser.describe(&head, Fault::InvalidHeaderLine, input).to_string();
    assert_eq!(message, "client sent invalid header line: \"\\x20...\"");
}

/// Offers as many bytes as the head wants, as the owner of a connection does.
fn most_bytes_held(byte: impl Fn(usize) -> u8, options: &Options) -> (usize, Fault) {
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let mut held = Vec::new();
    loop {
        let wanted = parser.wanted(held.len(), options);
        assert!(wanted > 0);
        let start = held.len();
        held.extend((start..start + wanted).map(&byte));
        match parser.parse(&mut head, &held, options) {
            Ok(progress) => assert_eq!(progress, HeadProgress::Incomplete),
            Err(fault) => return (held.len(), fault),
        }
    }
}

#[test]
fn a_peer_cannot_make_its_head_grow_beyond_the_buffers() {
    let options = Options::default();
    let line = b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n";
    let start = b"GET / HTTP/1.1\r\n";
    let endless = |at: usize| *start.get(at).unwrap_or_else(|| &line[(at - start.len()) % line.len()]);
    let (held, fault) = most_bytes_held(endless, &options);
    assert_eq!(fault, Fault::HeaderLineTooLong);
    assert!(held <= options.head_max_bytes() && held > 32 * 1024, "{held}");
    let (held, fault) = most_bytes_held(|at| *b"GET /".get(at).unwrap_or(&b'a'), &options);
    assert_eq!((held, fault), (8192, Fault::UriTooLong));
}

#[test]
fn a_cleared_head_is_like_a_new_one() {
    let options = Options::default();
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let input =
        b"POST http://b/%2e?c HTTP/1.0\r\nHost: a\r\nConnection: close\r\nX_: y\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(parser.parse(&mut head, input, &options), Ok(HeadProgress::Complete));
    parser.clear();
    head.clear();
    let new = (HeadParser::new(), RequestHead::new());
    assert_eq!(format!("{parser:?} {head:?}"), format!("{:?} {:?}", new.0, new.1));
}
