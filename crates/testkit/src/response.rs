//! HTTP/1 answers, parsed strictly: what a server under test gets wrong must not be overlooked.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use flate2::read::MultiGzDecoder;

/// Whether the answer to a request has a body by the kind of request (RFC 9110 §9.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As its head says.
    Whole,
    /// To HEAD: a head that speaks of a body which is not sent.
    HeadOnly,
}

/// One answer. For HTTP/0.9, which has no head, `status` is 0 and everything is body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// `HTTP/1.1`, for instance.
    pub version: String,
    /// Three digits.
    pub status: u16,
    /// The words after the status.
    pub reason: String,
    /// Names as sent and values without surrounding spaces, in order.
    pub headers: Vec<(String, String)>,
    /// Without chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.as_str())
    }

    /// Whether the server says that it will go on with this connection.
    pub fn keeps_alive(&self) -> bool {
        match self.header("connection") {
            Some(value) => !value.eq_ignore_ascii_case("close"),
            None => self.version == "HTTP/1.1",
        }
    }

    /// The body without its gzip, if it is whole and has that: two compressors seldom make the same bytes.
    pub fn decoded(&self) -> Cow<'_, [u8]> {
        let mut decoded = Vec::new();
        let is_gzip = self.header("content-encoding") == Some("gzip");
        if is_gzip && MultiGzDecoder::new(&self.body[..]).read_to_end(&mut decoded).is_ok() {
            return decoded.into();
        }
        Cow::Borrowed(&self.body)
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} {}", self.version, self.status, self.reason)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "\n{}", self.text())
    }
}

/// How far the bytes at hand go.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An answer, and how many bytes it takes.
    Complete(Response, usize),
    /// The rest has not come yet.
    NeedMore,
    /// Not HTTP: why.
    Malformed(String),
}

/// Whether more bytes can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Bytes may follow.
    Open,
    /// The server has closed: a body without length ends here.
    Ended,
}

/// Parses the first answer in `data`.
pub fn parse(data: &[u8], answer: Answer, stream: Stream) -> Parsed {
    if !b"HTTP/".starts_with(&data[..data.len().min(5)]) && !data.starts_with(b"HTTP/") {
        return match stream {
            Stream::Open => Parsed::NeedMore,
            Stream::Ended => Parsed::Complete(plain(data), data.len()),
        };
    }
    let Some(head_end) = find(data, b"\r\n\r\n") else { return Parsed::NeedMore };
    let head = String::from_utf8_lossy(&data[..head_end]);
    let mut response = match parse_head(&head) {
        Ok(response) => response,
        Err(why) => return Parsed::Malformed(why),
    };
    let start = head_end + 4;
    match body(&response, &data[start..], answer, stream) {
        Ok(Some((body, used))) => {
            response.body = body;
            Parsed::Complete(response, start + used)
        }
        Ok(None) => Parsed::NeedMore,
        Err(why) => Parsed::Malformed(why),
    }
}

fn plain(data: &[u8]) -> Response {
    Response {
        version: "HTTP/0.9".to_owned(),
        status: 0,
        reason: String::new(),
        headers: Vec::new(),
        body: data.to_vec(),
    }
}

fn parse_head(head: &str) -> Result<Response, String> {
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut words = first.splitn(3, ' ');
    let version = words.next().unwrap_or_default().to_owned();
    let status = words.next().filter(|word| word.len() == 3).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| format!("status line {first:?}"))?;
    let reason = words.next().unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("header line {line:?}"))?;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("header name {name:?}"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(Response { version, status, reason, headers, body: Vec::new() })
}

/// The body and how many bytes it takes, if it is whole (RFC 9112 §6.3).
fn body(
    head: &Response,
    data: &[u8],
    answer: Answer,
    stream: Stream,
) -> Result<Option<(Vec<u8>, usize)>, String> {
    let chunked = head.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    if answer == Answer::HeadOnly || head.status < 200 || head.status == 204 || head.status == 304 {
        return Ok(Some((Vec::new(), 0)));
    }
    match head.header("content-length") {
        Some(_) if chunked => Err("both Content-Length and chunked".to_owned()),
        _ if chunked => dechunk(data),
        Some(text) => {
            let length: usize = text.parse().map_err(|_| format!("Content-Length {text:?}"))?;
            Ok(data.get(..length).map(|body| (body.to_vec(), length)))
        }
        None if stream == Stream::Ended => Ok(Some((data.to_vec(), data.len()))),
        None => Ok(None),
    }
}

/// Takes chunk framing off (RFC 9112 §7.1). Trailers are checked for form and dropped.
fn dechunk(data: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line_end) = find(&data[at..], b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(&data[at..at + line_end]);
        let size = usize::from_str_radix(&line, 16).map_err(|_| format!("chunk size {line:?}"))?;
        at += line_end + 2;
        if size == 0 {
            let rest = &data[at..];
            if rest.starts_with(b"\r\n") {
                return Ok(Some((body, at + 2)));
            }
            return Ok(find(rest, b"\r\n\r\n").map(|end| (body, at + end + 4)));
        }
        let Some(chunk) = data.get(at..at + size) else { return Ok(None) };
        body.extend_from_slice(chunk);
        at += size;
        match data.get(at..at + 2) {
            None => return Ok(None),
            Some(b"\r\n") => at += 2,
            Some(other) => return Err(format!("{other:?} after a chunk")),
        }
    }
}

fn find(data: &[u8], wanted: &[u8]) -> Option<usize> {
    data.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(data: &[u8], answer: Answer, stream: Stream) -> (Response, usize) {
        match parse(data, answer, stream) {
            Parsed::Complete(response, used) => (response, used),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn length_and_what_follows() {
        let data = b"HTTP/1.1 200 OK\r\nContent-Length:  2\r\n\r\nhiHTTP/1.1 ";
        let (response, used) = complete(data, Answer::Whole, Stream::Open);
        assert_eq!((response.status, response.text().as_str(), used), (200, "hi", data.len() - 9));
        assert_eq!(response.header("content-length"), Some("2"));
        assert_eq!(parse(&data[..used - 1], Answer::Whole, Stream::Open), Parsed::NeedMore);
    }

    #[test]
    fn chunked() {
        let data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        let (response, used) = complete(data, Answer::Whole, Stream::Open);
        assert_eq!((response.text().as_str(), used), ("abcd", data.len()));
        for cut in 0..data.len() {
            assert_eq!(parse(&data[..cut], Answer::Whole, Stream::Open), Parsed::NeedMore, "{cut}");
        }
        let bad = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n";
        assert!(matches!(parse(bad, Answer::Whole, Stream::Open), Parsed::Malformed(_)));
    }

    #[test]
    fn no_body_where_there_is_none() {
        let head = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(complete(head, Answer::Whole, Stream::Open).1, head.len());
        let to_head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(complete(to_head, Answer::HeadOnly, Stream::Open).1, to_head.len());
    }

    #[test]
    fn a_body_up_to_the_end_and_http_0_9() {
        let data = b"HTTP/1.0 200 OK\r\n\r\nall of it";
        assert_eq!(parse(data, Answer::Whole, Stream::Open), Parsed::NeedMore);
        assert_eq!(complete(data, Answer::Whole, Stream::Ended).0.text(), "all of it");
        assert_eq!(complete(b"<p>", Answer::Whole, Stream::Ended).0.status, 0);
    }

    #[test]
    fn persistence() {
        let of = |text: &str| complete(text.as_bytes(), Answer::HeadOnly, Stream::Open).0.keeps_alive();
        assert!(of("HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!of("HTTP/1.0 200 OK\r\n\r\n"));
        assert!(!of("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"));
        assert!(of("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"));
    }
}
