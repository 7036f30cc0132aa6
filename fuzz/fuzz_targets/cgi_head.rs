//! Heads in CGI style, of FastCGI, SCGI and uwsgi servers: the same in whatever pieces they come. The first
//! three bytes of the input choose the size of the pieces, the limit of the head, and whether a status line
//! may stand before the lines.
#![no_main]

use clearway_h1::{Beginning, ResponseFault, ResponseParser, ResponseProgress};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&[piece, limit, how], response)) = input.split_first_chunk::<3>() else {
        return;
    };
    let beginning = || if how & 1 == 0 { Beginning::Lines } else { Beginning::Either };
    let max_bytes = if how & 2 == 0 { 4096 } else { usize::from(limit) * 2 + 1 };
    let whole = read(ResponseParser::new(beginning()), response, response.len().max(1), max_bytes);
    for size in [1, usize::from(piece).max(1)] {
        let split = read(ResponseParser::new(beginning()), response, size, max_bytes);
        // How much was there when a head was found to be too long differs.
        if whole.fault.is_none() || split.fault.is_none() {
            assert_eq!(split, whole);
        }
    }
});

/// What is read of a head.
#[derive(Debug, Default, PartialEq)]
struct Read {
    fault: Option<ResponseFault>,
    is_complete: bool,
    status: u16,
    len: usize,
    content_length: Option<u64>,
    lines: Vec<(Vec<u8>, Vec<u8>)>,
}

fn read(mut parser: ResponseParser, response: &[u8], size: usize, max_bytes: usize) -> Read {
    let mut there = 0;
    while there < response.len() {
        there = response.len().min(there + size);
        let input = &response[..there];
        match parser.parse(input, max_bytes) {
            Ok(ResponseProgress::Incomplete) => {}
            Ok(_) => {
                assert!(parser.len() <= there);
                parser.warnings(input).for_each(|warning| drop(warning.to_string()));
                let text = |line: &clearway_message::Header| {
                    (line.name.of(input).to_vec(), line.value.of(input).to_vec())
                };
                let lines: Vec<_> = parser.lines().iter().map(text).collect();
                assert!(lines.iter().all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
                let (status, len, content_length) = (parser.status(), parser.len(), parser.content_length());
                return Read { fault: None, is_complete: true, status, len, content_length, lines };
            }
            Err(fault) => {
                let _ = parser.describe(fault, input).to_string();
                return Read { fault: Some(fault), ..Read::default() };
            }
        }
    }
    Read::default()
}
