//! Header sections by their grammar, for a reader that has all of a section at once and goes line by line:
//! what the parser is compared with. Limits, and hosts with dots and brackets, are beyond it.

use clearway_h1::{Fault, InvalidHeaders, Options, Underscores};
use clearway_message::{BodyLength, Known};

/// What a section consists of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) ignored: Vec<Vec<u8>>,
    /// The bytes behind it; `None`: it is incomplete.
    pub(crate) rest: Option<usize>,
    pub(crate) body: Option<BodyLength>,
}

/// Whether a request is of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Http10,
    Http11,
}

pub(crate) fn read(text: &[u8], release: Release, options: &Options) -> Result<Section, Fault> {
    let mut section = Section::default();
    let mut rest = text;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if matches!(line, b"" | b"\r") {
            section.rest = Some(rest.len());
            section.body = Some(framing(&section.headers, release)?);
            return Ok(section);
        }
        let (name, value) = parts(line)?;
        if !is_valid(name, options) && options.invalid_headers == InvalidHeaders::Ignore {
            let returns = line.iter().rev().take_while(|&&byte| byte == b'\r').count();
            let line = &line[..line.len() - returns];
            // The spaces before a value that is empty are not behind it.
            let received = if value.is_empty() { line } else { line.trim_spaces_end() };
            section.ignored.push(received.to_vec());
            continue;
        }
        take(&mut section.headers, name, value)?;
    }
    // What there is of a line has to be the beginning of a valid one.
    if !matches!(rest, b"" | b"\r") {
        parts(rest)?;
    }
    Ok(section)
}

/// Name and value of a line without its line feed.
fn parts(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let returns = line.iter().rev().take_while(|&&byte| byte == b'\r').count();
    let line = &line[..line.len() - returns];
    let colon = line.iter().position(|&byte| byte == b':');
    let (name, value) =
        colon.map_or((line, &line[line.len()..]), |colon| (&line[..colon], &line[colon + 1..]));
    let is_fatal = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if name.is_empty() || name.iter().any(is_fatal) || value.iter().any(|byte| b"\0\r".contains(byte)) {
        return Err(Fault::InvalidHeaderLine);
    }
    Ok((name, value.trim_spaces_start().trim_spaces_end()))
}

fn is_valid(name: &[u8], options: &Options) -> bool {
    let has_valid = |byte: &u8| match byte {
        b'_' => options.underscores == Underscores::Valid,
        b'-' => true,
        byte => byte.is_ascii_alphanumeric(),
    };
    name.iter().all(has_valid)
}

/// Headers of which there may be one: those that a request could be smuggled with, and conditions.
const UNIQUE: [&str; 12] = [
    "authorization",
    "content-length",
    "content-range",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "proxy-authorization",
    "transfer-encoding",
];

fn take(headers: &mut Vec<(Vec<u8>, Vec<u8>)>, name: &[u8], value: &[u8]) -> Result<(), Fault> {
    let is_same = |other: &[u8]| other.eq_ignore_ascii_case(name);
    let is_second = headers.iter().any(|(other, _)| is_same(other));
    if is_second && UNIQUE.iter().any(|unique| is_same(unique.as_bytes())) {
        return Err(if is_same(b"host") { Fault::DuplicateHost } else { Fault::DuplicateHeader });
    }
    headers.push((name.to_vec(), value.to_vec()));
    if is_same(b"host") && !is_host(value) { Err(Fault::InvalidHost) } else { Ok(()) }
}

/// A name of unreserved characters and sub-delims (RFC 3986 §3.2.2), and a port if any. Lines without an end
/// run into the next one, so that anything of one may stand in a value.
fn is_host(value: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_~!$&'()*+,;=".contains(byte);
    let mut parts = value.splitn(2, |&byte| byte == b':');
    let name = parts.next().unwrap_or_default();
    let port = parts.next().unwrap_or_default();
    let number = port.iter().fold(0_u64, |number, digit| (number * 10 + u64::from(digit & 15)).min(65536));
    let is_port = port.iter().all(u8::is_ascii_digit) && number < 65536;
    !name.is_empty() && name.iter().all(is_of_name) && is_port
}

fn framing(headers: &[(Vec<u8>, Vec<u8>)], release: Release) -> Result<BodyLength, Fault> {
    let find = |known: Known| {
        let name = known.name().as_bytes();
        headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    };
    if release == Release::Http11 && find(Known::Host).is_none() {
        return Err(Fault::NoHost);
    }
    let length = find(Known::ContentLength).map(|value| {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|_| is_number).ok_or(Fault::InvalidContentLength)
    });
    let length = length.transpose()?;
    match (find(Known::TransferEncoding), length) {
        (None, None) => Ok(BodyLength::Empty),
        (None, Some(length)) => Ok(BodyLength::Length(length.unsigned_abs())),
        (Some(_), _) if release == Release::Http10 => Err(Fault::TransferEncodingInHttp10),
        (Some(value), _) if !value.eq_ignore_ascii_case(b"chunked") => Err(Fault::UnknownTransferEncoding),
        (Some(_), Some(_)) => Err(Fault::ContentLengthAndTransferEncoding),
        (Some(_), None) => Ok(BodyLength::Chunked),
    }
}

/// Spaces, and nothing else that is white.
trait Spaces {
    fn trim_spaces_start(&self) -> &Self;
    fn trim_spaces_end(&self) -> &Self;
}

impl Spaces for [u8] {
    fn trim_spaces_start(&self) -> &Self {
        &self[self.iter().take_while(|&&byte| byte == b' ').count()..]
    }

    fn trim_spaces_end(&self) -> &Self {
        &self[..self.len() - self.iter().rev().take_while(|&&byte| byte == b' ').count()]
    }
}
