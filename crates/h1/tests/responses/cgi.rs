//! Responses that begin with header lines, of which `Status` says the status.

use clearway_h1::{Asked, Beginning, ResponseFault, ResponseFraming, ResponseParser, ResponseProgress};

/// Status, reason and framing of a head that comes byte by byte; the error is the log's text.
fn read(beginning: Beginning, input: &str) -> Result<(u16, String, ResponseFraming), String> {
    let input = input.as_bytes();
    let mut parser = ResponseParser::new(beginning);
    for end in 0..=input.len() {
        match parser.parse(&input[..end], 4096) {
            Ok(ResponseProgress::Incomplete) => {}
            Ok(ResponseProgress::Final) => {
                assert_eq!(end, parser.len(), "nothing behind the head is looked at");
                let reason = String::from_utf8_lossy(parser.reason().of(input)).into_owned();
                return Ok((parser.status(), reason, parser.framing(Asked::Whole)));
            }
            Ok(other) => return Err(format!("{other:?}")),
            Err(fault) => return Err(parser.describe(fault, &input[..end]).to_string()),
        }
    }
    Err("incomplete".into())
}

fn cgi(input: &str) -> Result<(u16, String, ResponseFraming), String> {
    let read_as_cgi = read(Beginning::Lines, input);
    assert_eq!(read(Beginning::Either, input), read_as_cgi, "there is no status line to be seen");
    read_as_cgi
}

const UNTIL_CLOSE: ResponseFraming = ResponseFraming::UntilClose;

#[test]
fn the_status_is_what_the_lines_say() {
    assert_eq!(cgi("Status: 404 Not Here\r\nA: b\r\n\r\nbody"), Ok((404, " Not Here".into(), UNTIL_CLOSE)));
    assert_eq!(cgi("A: b\nstatus: 403\n\n"), Ok((403, String::new(), UNTIL_CLOSE)));
    assert_eq!(cgi("Location: /x\r\n\r\n"), Ok((302, String::new(), UNTIL_CLOSE)));
    assert_eq!(cgi("Status: 201 Created\nLocation: /x\n\n"), Ok((201, " Created".into(), UNTIL_CLOSE)));
    assert_eq!(cgi("X-Powered-By: a\r\n\r\n"), Ok((200, String::new(), UNTIL_CLOSE)));
    assert_eq!(cgi("\r\n"), Ok((200, String::new(), UNTIL_CLOSE)));
    let length = "Content-Length: 3\r\n\r\n";
    assert_eq!(cgi(length), Ok((200, String::new(), ResponseFraming::Length(3))));
    assert_eq!(cgi("Status: 304\r\n\r\n"), Ok((304, String::new(), ResponseFraming::Empty)));
}

#[test]
fn a_status_without_digits_is_refused_as_nginx_refuses_it() {
    for status in ["OK", "20", "", "2x0 OK"] {
        let text = format!("upstream sent invalid status \"{status}\"");
        assert_eq!(cgi(&format!("Status: {status}\r\n\r\n")), Err(text));
    }
    assert_eq!(cgi("A b\r\n\r\n"), Err("upstream sent invalid header: \"A\\x20...\"".into()));
    let twice = "Content-Length: 1\r\nContent-Length: 1\r\n\r\n";
    assert!(cgi(twice).is_err_and(|text| text.starts_with("upstream sent duplicate header line")));
}

#[test]
fn a_status_line_goes_before_lines_where_it_may_be_there() {
    let input = "HTTP/1.1 404 Gone\r\nStatus: 200 OK\r\n\r\n";
    assert_eq!(read(Beginning::Either, input), Ok((404, " Gone".into(), UNTIL_CLOSE)));
    // Among header lines a status line says nothing, as in nginx (some servers send it twice).
    assert_eq!(read(Beginning::Lines, input), Ok((200, " OK".into(), UNTIL_CLOSE)));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(Beginning::Either, chunked), Ok((200, " OK".into(), UNTIL_CLOSE)));
}

#[test]
fn a_parser_stays_what_it_is_when_it_is_cleared() {
    let mut parser = ResponseParser::new(Beginning::Lines);
    for _ in 0..2 {
        assert_eq!(parser.parse(b"Status: 500\n\n", 4096), Ok(ResponseProgress::Final));
        assert_eq!(parser.status(), 500);
        parser.clear();
    }
    assert_eq!(parser.parse(&[b'a'; 5000], 4096), Err(ResponseFault::TooBigHeader));
}
