//! However a stream of requests is split, the events are the same; and requests made of parts come out in
//! those parts.

#[expect(dead_code, reason = "each test uses a part")]
mod connection;

use clearway_h1::{Fault, HeadParser, Options};
use clearway_message::{BodyLength, RequestHead, Span, Version};
use connection::{End, Event, Received, Wish, receive};
use proptest::prelude::*;

/// All that can be observed of a stream of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Observed {
    /// Method, raw target, path, args, host, headers, body; one entry per request.
    requests: Vec<Vec<Vec<u8>>>,
    ended: usize,
    fault: Option<Fault>,
    end: End,
}

/// What comes of `input`, cut at `cuts`, if bodies are kept.
fn observe(input: &[u8], cuts: &[usize], options: &Options) -> Observed {
    observe_with(input, cuts, options, Wish::Keep(u64::MAX))
}

fn observe_with(input: &[u8], cuts: &[usize], options: &Options, wish: Wish) -> Observed {
    let mut ends: Vec<usize> = cuts.iter().map(|&cut| cut.min(input.len())).collect();
    ends.push(input.len());
    ends.sort_unstable();
    let starts = [0].into_iter().chain(ends.iter().copied());
    let pieces: Vec<&[u8]> = starts.zip(&ends).map(|(start, &end)| &input[start..end]).collect();
    let mut observed = Observed::default();
    let end = receive(pieces, options, |event| {
        match event {
            Event::Head(head, bytes) => observed.requests.push(parts(head, bytes)),
            Event::Body(data) => {
                let request = observed.requests.last_mut().expect("a body follows a head");
                let body = request.last_mut().expect("the body is the last part");
                assert!(data.starts_with(body), "what was decoded stays");
                data.clone_into(body);
            }
            Event::End => observed.ended += 1,
            Event::Refused(fault, ..) => observed.fault = Some(fault),
        }
        assert!(observed.requests.len() - observed.ended <= 1, "one at a time");
        wish
    });
    Observed { end, ..observed }
}

fn parts(Received { head, parser }: Received<'_>, bytes: &[u8]) -> Vec<Vec<u8>> {
    let spans = [head.line.method_name, head.line.raw, head.line.path, head.line.args, head.line.protocol];
    let host = head.host.map_or_else(Span::default, |host| host.name);
    let headers = head.headers.iter(bytes).flat_map(|line| [line.name, line.value]);
    let ignored = parser.ignored().iter().map(|span| span.of(bytes));
    let parts = spans.into_iter().chain([host]).map(|span| span.of(bytes));
    parts.chain(headers).chain(ignored).chain([&b""[..]]).map(<[u8]>::to_vec).collect()
}

fn options() -> impl Strategy<Value = Options> {
    (1usize..200, 0usize..4, 20usize..200).prop_map(|(first, number, size)| Options {
        client_header_buffer_size: first,
        large_client_header_buffers: number,
        large_client_header_buffer_size: size,
        ..Options::default()
    })
}

/// One request, mostly valid.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "CONNECT", "X-Y_Z", "get", ""]);
    let target = prop_oneof![
        "(/[a-z.%+]{0,6}){1,4}(\\?[a-z=&]{0,8})?(#[a-z?]{0,3})?",
        "[a-z]{1,4}://[a-zA-Z.:0-9]{0,8}(/[a-z]{0,4})?(\\?[a-z]{0,3})?",
        "\\*|[a-z]{0,3}:[0-9]{0,5}",
    ];
    let version =
        prop::sample::select(vec![" HTTP/1.1", " HTTP/1.1", " HTTP/1.0", " HTTP/1.2 ", "", " HTTP/3"]);
    let eol = || prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", "\r"]);
    let header = prop_oneof![
        Just("Host: example.com".to_owned()),
        Just("Connection: Keep-Alive".to_owned()),
        "[A-Za-z_-]{1,8}: {0,2}[ -~]{0,40} {0,2}",
        "[!-~]{0,8}[ \\x00\t]?",
    ];
    let headers = prop::collection::vec((header, eol()), 0..5);
    let body = prop_oneof![
        Just("\r\n".to_owned()),
        "[a-z]{5}".prop_map(|data| format!("Content-Length: 5\r\n\r\n{data}")),
        chunks().prop_map(|chunks| format!("Transfer-Encoding: chunked\r\n\r\n{chunks}")),
    ];
    (eol(), method, target, version, eol(), headers, body).prop_map(
        |(before, method, target, version, end, headers, body)| {
            let before = if before.len() == 2 { "" } else { "\r\n\n\r\n\n\r\n\n\n\n\n\n\n\n" };
            let headers: String = headers.iter().map(|(line, eol)| format!("{line}{eol}")).collect();
            format!("{before}{method} {target}{version}{end}Host: h\r\n{headers}{body}").into_bytes()
        },
    )
}

fn chunks() -> impl Strategy<Value = String> {
    let chunk =
        ("[a-z]{1,20}", "(;[a-z]{0,3}| |\t)?", prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n"]))
            .prop_map(|(data, extension, eol)| format!("{:x}{extension}{eol}{data}\r\n", data.len()));
    let trailers = prop::sample::select(vec!["", "", "X: y\r\n", "X: y\n"]);
    (prop::collection::vec(chunk, 0..4), trailers)
        .prop_map(|(chunks, trailers)| format!("{}0\r\n{trailers}\r\n", chunks.concat()))
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events(
        requests in prop::collection::vec(request(), 1..4),
        cuts in prop::collection::vec(0usize..400, 0..6),
        options in prop_oneof![Just(Options::default()), options()],
    ) {
        let input = requests.concat();
        let whole = observe(&input, &[], &options);
        prop_assert_eq!(&observe(&input, &cuts, &options), &whole);
        let every: Vec<usize> = (0..input.len()).collect();
        prop_assert_eq!(&observe(&input, &every, &options), &whole);
        // A body that is dropped ends where it would if it was kept.
        let dropped = observe_with(&input, &cuts, &options, Wish::Drop);
        prop_assert_eq!((dropped.ended, dropped.fault, dropped.end), (whole.ended, whole.fault, whole.end));
    }

    #[test]
    fn garbage_gives_the_same_events(
        input in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(0usize..300, 0..6),
    ) {
        let options = Options::default();
        prop_assert_eq!(observe(&input, &cuts, &options), observe(&input, &[], &options));
    }

    #[test]
    fn a_request_comes_out_in_its_parts(
        method in "[A-Z_-]{1,10}",
        path in "/[a-z/]{0,20}",
        args in "[a-z=&?]{0,10}",
        headers in prop::collection::vec(("X-[A-Za-z0-9-]{1,12}", "([!-~]([ -~]{0,60}[!-~])?)?"), 0..40),
        body in prop::option::of(prop::collection::vec(any::<u8>(), 0..2000)),
    ) {
        prop_assume!(method != "CONNECT" && method != "TRACE");
        let mut input = format!("{method} {path}?{args} HTTP/1.1\r\nHost: h.example\r\n").into_bytes();
        let mut expected = vec![b"Host".to_vec(), b"h.example".to_vec()];
        for (name, value) in &headers {
            input.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            expected.extend([name.as_bytes().to_vec(), value.as_bytes().to_vec()]);
        }
        if let Some(body) = &body {
            input.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            expected.extend([b"Content-Length".to_vec(), body.len().to_string().into_bytes()]);
            input.extend_from_slice(body);
        } else {
            input.extend_from_slice(b"\r\n");
        }
        expected.push(body.clone().unwrap_or_default());
        let observed = observe(&input, &[], &Options::default());
        prop_assert_eq!(observed.fault, None);
        prop_assert_eq!((observed.ended, observed.end), (1, End::default()));
        let request = &observed.requests[0];
        prop_assert_eq!(&request[0], method.as_bytes());
        prop_assert_eq!(&request[2], path.as_bytes());
        prop_assert_eq!(&request[3], args.as_bytes());
        prop_assert_eq!(&request[6..], &expected[..]);
    }
}

#[test]
fn a_head_that_arrives_by_the_byte_is_not_scanned_again() {
    // 32 KiB by single bytes: with a scan from the start each time this would be half a billion steps.
    let mut input = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    for _ in 0..3 {
        input.extend_from_slice(b"X: ");
        input.extend_from_slice(&[b'y'; 8000]);
        input.extend_from_slice(b"\r\n");
    }
    input.extend_from_slice(b"\r\n");
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let options = Options::default();
    for end in 1..=input.len() {
        let progress = parser.parse(&mut head, &input[..end], &options).expect("a valid head");
        assert_eq!(progress == clearway_h1::HeadProgress::Complete, end == input.len());
        assert!(parser.len() <= end);
    }
    assert_eq!(head.headers.len(), 4);
    assert_eq!(head.version(), Version::HTTP_11);
    assert_eq!(head.body, BodyLength::Empty);
}
