//! Request heads: no input panics, every part lies inside the head, and what was accepted keeps the
//! promises that the rest of the server relies on.
#![no_main]

use clearway_h1::{HeadParser, HeadProgress, Options};
use clearway_message::{Known, RequestHead, Span, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let options = Options::default();
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    match parser.parse(&mut head, input, &options) {
        Ok(HeadProgress::Complete) => check(&head, parser.len(), input),
        Ok(HeadProgress::Incomplete) => {
            assert_eq!(parser.len(), input.len());
            assert!(parser.wanted(input.len(), &options) > 0);
        }
        Err(fault) => {
            assert!(matches!(fault.status(), 400 | 405 | 414 | 501 | 505));
            assert!(parser.describe(&head, fault, input).to_string().starts_with("client "));
        }
    }
});

fn check(head: &RequestHead, len: usize, input: &[u8]) {
    let inside = |span: Span| assert!(span.end() <= len && span.start() <= span.end());
    for span in [head.line.method_name, head.line.line, head.line.raw, head.line.path, head.line.args] {
        inside(span);
    }
    assert!(head.line.path.of(input).starts_with(b"/"));
    assert!(!head.line.method_name.is_empty());
    assert!(!head.line.path.of(input).iter().any(|&byte| byte <= b' ' || b"?#\x7f".contains(&byte)));
    let head_bytes = &input[..len];
    for (line, inside) in head.headers.iter(input).zip(head.headers.iter(head_bytes)) {
        assert_eq!(line, inside);
        assert!(!line.value.iter().any(|byte| b"\r\n\0".contains(byte)));
        assert_eq!(Known::find(line.name), line.known);
    }
    if head.version() > Version::HTTP_10 {
        assert!(head.has(Known::Host));
    }
    if let Some(host) = head.host {
        assert!(!host.name.of(input).iter().any(|byte| b"/\\ \t?#@".contains(byte)));
    }
}
