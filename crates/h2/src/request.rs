//! Heads of requests (RFC 9113 §8.3): the fields of a header block become the head that HTTP/1 has as well,
//! and the text that its spans refer to, so that what answers requests sees no difference. Run by the
//! connection's task.
//!
//! No byte of a field can end its line or its part of the request line: what could is refused, in nginx's
//! words.

mod fault;

pub use fault::HeadFault;

use std::ops::ControlFlow;

use clearway_message::{
    BodyLength, Header, Known, Method, RequestHead, Span, Version, name_hash, validate_host,
};

use crate::frame::Rest;
use crate::hpack::{CompressionFault, Decoder, Field};
use crate::schedule::Urgency;

/// HTTP/2, as requests have it.
pub const HTTP_2: Version = Version(2000);

/// The version in the request line (`$server_protocol`).
const PROTOCOL: &[u8] = b"HTTP/2.0";

/// The hash of the name `host`.
const HOST_HASH: u32 = name_hash(b"host");

/// How large heads may be, and how strict names are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The longest name, and the longest value (size of `large_client_header_buffers`), bytes.
    pub field_bytes: usize,
    /// Names and values of a head together (number and size of `large_client_header_buffers`), bytes.
    pub head_bytes: usize,
    /// Fields of a head (`max_headers`).
    pub fields: usize,
    /// The fate of fields with unusual names (`ignore_invalid_headers`).
    pub unusual: Unusual,
    /// Whether names with `_` are unusual (`underscores_in_headers`).
    pub underscores: Underscores,
}

/// The fate of a field whose name has bytes other than letters, digits and `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusual {
    /// The field is skipped.
    Skipped,
    /// The field is kept like others.
    Kept,
}

/// Whether a name with `_` is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Underscores {
    Unusual,
    Usual,
}

/// Why the connection cannot go on behind a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Its table is not known any more.
    Compression(CompressionFault),
    /// A field without a name.
    EmptyName,
    /// A name or a value is longer than the owner allows.
    LargeField,
    /// All together are.
    LargeHead,
}

/// Pseudo-header fields, in the order of the array that keeps them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pseudo {
    Method,
    Scheme,
    Path,
    Authority,
}

/// Reads heads. What is needed for one is used again for the next.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Values of pseudo-header fields.
    pseudo: Vec<u8>,
    spans: [Option<Span>; 4],
    /// The values of all `cookie` fields, as one line has them.
    cookies: Vec<u8>,
    has_line: bool,
    fields: usize,
    left_bytes: usize,
    fault: Option<HeadFault>,
    urgency: Option<Urgency>,
}

impl HeadReader {
    /// Reads a whole block: `text` and `head`, which are empty, become those of a request whose body is as
    /// `rest` says. With a fault they have what came before it.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn read(
        &mut self,
        (decoder, block): (&mut Decoder, &[u8]),
        rest: Rest,
        limits: &HeadLimits,
        (text, head): (&mut Vec<u8>, &mut RequestHead),
    ) -> Result<Option<HeadFault>, Unreadable> {
        debug_assert!(text.is_empty() && head.headers.is_empty(), "a head begins with nothing");
        self.clear(limits);
        let mut unreadable = None;
        let mut reading = Reading { reader: self, limits, text, head };
        decoder
            .decode(block, &mut |field| match reading.take(field) {
                Ok(()) => ControlFlow::Continue(()),
                Err(reason) => {
                    unreadable = Some(reason);
                    ControlFlow::Break(())
                }
            })
            .map_err(Unreadable::Compression)?;
        if let Some(reason) = unreadable {
            return Err(reason);
        }
        if reading.reader.fault.is_none() {
            reading.reader.fault = reading.finish(rest).err();
        }
        Ok(self.fault.take())
    }

    /// The priority that the last head asks for its response, if it does.
    #[must_use]
    pub fn urgency(&self) -> Option<Urgency> {
        self.urgency
    }

    fn clear(&mut self, limits: &HeadLimits) {
        self.urgency = None;
        self.pseudo.clear();
        self.cookies.clear();
        self.spans = [None; 4];
        (self.has_line, self.fields, self.fault) = (false, 0, None);
        self.left_bytes = limits.head_bytes;
    }

    fn pseudo(&self, which: Pseudo) -> Option<&[u8]> {
        self.spans[which as usize].map(|span| span.of(&self.pseudo))
    }
}

/// A head on its way.
struct Reading<'r> {
    reader: &'r mut HeadReader,
    limits: &'r HeadLimits,
    text: &'r mut Vec<u8>,
    head: &'r mut RequestHead,
}

impl Reading<'_> {
    /// Takes a field. What follows a fault is only counted.
    fn take(&mut self, Field { name, value, .. }: Field<'_>) -> Result<(), Unreadable> {
        if name.is_empty() {
            return Err(Unreadable::EmptyName);
        }
        if name.len().max(value.len()) > self.limits.field_bytes {
            return Err(Unreadable::LargeField);
        }
        let left_bytes = self.reader.left_bytes.checked_sub(name.len() + value.len());
        self.reader.left_bytes = left_bytes.ok_or(Unreadable::LargeHead)?;
        if self.reader.fault.is_none() {
            let taken = match name.strip_prefix(b":") {
                Some(name) => self.take_pseudo(name, value),
                None => self.take_field(name, value),
            };
            self.reader.fault = taken.err();
        }
        Ok(())
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        self.check(b":", name, value)?;
        if self.reader.has_line {
            return Err(HeadFault::OutOfOrder);
        }
        let which = match name {
            b"method" => Pseudo::Method,
            b"scheme" => Pseudo::Scheme,
            b"path" => Pseudo::Path,
            b"authority" => Pseudo::Authority,
            _ => return Err(HeadFault::UnknownPseudo(name.into())),
        };
        if self.reader.spans[which as usize].is_some() {
            return Err(HeadFault::Duplicate(shown(which)));
        }
        if value.is_empty() && which != Pseudo::Authority {
            return Err(HeadFault::Empty(shown(which)));
        }
        match which {
            Pseudo::Method if !value.iter().all(|&byte| is_method_byte(byte)) => {
                return Err(HeadFault::InvalidMethod(value.into()));
            }
            Pseudo::Scheme if !is_scheme(value) => {
                return Err(HeadFault::Invalid(shown(which), value.into()));
            }
            Pseudo::Path if value[0] != b'/' || value.iter().any(|&byte| byte <= b' ' || byte == 0x7f) => {
                return Err(HeadFault::Invalid(shown(which), value.into()));
            }
            Pseudo::Authority if validate_host(value, 0).is_none() => {
                return Err(HeadFault::InvalidAuthority);
            }
            _ => {}
        }
        let start = self.reader.pseudo.len();
        self.reader.pseudo.extend_from_slice(value);
        self.reader.spans[which as usize] = Some(Span::new(start, start + value.len()));
        Ok(())
    }

    /// Looks at the bytes of a field; whether its name is a usual one.
    fn check(&self, prefix: &[u8], name: &[u8], value: &[u8]) -> Result<bool, HeadFault> {
        let mut is_usual = true;
        for &byte in name {
            match byte {
                b'a'..=b'z' | b'-' | b'0'..=b'9' => {}
                b'_' if self.limits.underscores == Underscores::Usual => {}
                0..=b' ' | 0x7f | b':' | b'A'..=b'Z' => {
                    return Err(HeadFault::InvalidName([prefix, name].concat().into()));
                }
                _ => is_usual = false,
            }
        }
        if memchr_end_of_line(value) {
            return Err(HeadFault::InvalidValue([prefix, name].concat().into(), value.into()));
        }
        Ok(is_usual)
    }

    fn take_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        let is_usual = self.check(b"", name, value)?;
        self.begin_line()?;
        if !is_usual && self.limits.unusual == Unusual::Skipped {
            return Ok(());
        }
        if name == b"priority" {
            self.reader.urgency = Some(Urgency::parse(value));
        }
        if name == b"cookie" {
            if !self.reader.cookies.is_empty() {
                self.reader.cookies.extend_from_slice(b"; ");
            }
            self.reader.cookies.extend_from_slice(value);
            return Ok(());
        }
        if self.reader.fields >= self.limits.fields {
            return Err(HeadFault::TooManyFields);
        }
        self.reader.fields += 1;
        let hash = name_hash(name);
        let known = Known::find_hashed(name, hash);
        match known {
            Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::Upgrade => {
                return Err(HeadFault::OfConnection(known.name()));
            }
            Known::Te if self.head.has(Known::Te) || !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(HeadFault::InvalidTe);
            }
            Known::Host => return self.take_host(value, hash),
            _ if known.is_unique() && self.head.has(known) => {
                return Err(HeadFault::DuplicateField(name.into(), value.into()));
            }
            _ => {}
        }
        self.put_line(name, value, (hash, known));
        Ok(())
    }

    /// `Host`, which says the same as `:authority` where both are there.
    fn take_host(&mut self, value: &[u8], hash: u32) -> Result<(), HeadFault> {
        if let Some(authority) = self.reader.pseudo(Pseudo::Authority) {
            return if authority == value { Ok(()) } else { Err(HeadFault::OtherHost) };
        }
        if self.head.has(Known::Host) {
            return Err(HeadFault::DuplicateField(b"host"[..].into(), value.into()));
        }
        let at = self.text.len() + b"host: ".len();
        let host = validate_host(value, at).ok_or(HeadFault::InvalidHost)?;
        self.put_line(b"host", value, (hash, Known::Host));
        self.head.host = Some(host);
        Ok(())
    }

    fn put_line(&mut self, name: &[u8], value: &[u8], (hash, known): (u32, Known)) {
        let name_at = self.text.len();
        let value_at = name_at + name.len() + 2;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        let (name, value) =
            (Span::new(name_at, name_at + name.len()), Span::new(value_at, value_at + value.len()));
        self.head.headers.receive(Header { name, value, hash, known });
    }

    /// Writes the request line, unless it is there: no pseudo-header field may follow.
    fn begin_line(&mut self) -> Result<(), HeadFault> {
        if std::mem::replace(&mut self.reader.has_line, true) {
            return Ok(());
        }
        for which in [Pseudo::Method, Pseudo::Scheme, Pseudo::Path] {
            if self.reader.spans[which as usize].is_none() {
                return Err(HeadFault::Missing(shown(which)));
            }
        }
        let Self { reader, text, head, .. } = self;
        let [method, path] =
            [Pseudo::Method, Pseudo::Path].map(|which| reader.pseudo(which).unwrap_or_default());
        text.extend_from_slice(method);
        text.push(b' ');
        let path_at = text.len();
        text.extend_from_slice(path);
        let path_end = text.len();
        text.push(b' ');
        text.extend_from_slice(PROTOCOL);
        let line = &mut head.line;
        (line.method, line.version) = (Method::find(method), HTTP_2);
        line.line = Span::new(0, text.len());
        line.method_name = Span::new(0, method.len());
        line.raw = Span::new(path_at, path_end);
        line.protocol = Span::new(path_end + 1, text.len());
        let fragment_at = path.iter().position(|&byte| byte == b'#').unwrap_or(path.len());
        let args_at = path[..fragment_at].iter().position(|&byte| byte == b'?').unwrap_or(fragment_at);
        line.path = Span::new(path_at, path_at + args_at);
        line.args = Span::new(path_at + (args_at + 1).min(fragment_at), path_at + fragment_at);
        line.path_is_plain = is_plain(&path[..args_at]);
        text.extend_from_slice(b"\r\n");
        if self.reader.spans[Pseudo::Authority as usize].is_some() {
            self.put_authority();
        }
        Ok(())
    }

    fn put_authority(&mut self) {
        let pseudo = std::mem::take(&mut self.reader.pseudo);
        let authority = self.reader.spans[Pseudo::Authority as usize].map(|span| span.of(&pseudo));
        let authority = authority.unwrap_or_default();
        let at = self.text.len() + b"host: ".len();
        self.put_line(b"host", authority, (HOST_HASH, Known::Host));
        self.head.host = validate_host(authority, at);
        self.reader.pseudo = pseudo;
    }

    /// Checks that need the whole head, in nginx's order.
    fn finish(&mut self, rest: Rest) -> Result<(), HeadFault> {
        self.begin_line()?;
        if !self.reader.cookies.is_empty() {
            let cookies = std::mem::take(&mut self.reader.cookies);
            self.put_line(b"cookie", &cookies, (name_hash(b"cookie"), Known::Cookie));
            self.reader.cookies = cookies;
        }
        self.text.extend_from_slice(b"\r\n");
        if self.head.host.is_none() {
            return Err(HeadFault::NoHost);
        }
        let length = self.head.find(self.text, Known::ContentLength).map(decimal);
        self.head.body = match (length, rest) {
            (Some(None), _) => return Err(HeadFault::InvalidLength),
            (Some(Some(1..)), Rest::Ended) => return Err(HeadFault::ClosedEarly),
            (Some(Some(bytes)), _) => BodyLength::Length(bytes),
            (None, Rest::Open) => BodyLength::Chunked,
            (None, Rest::Ended) => BodyLength::Empty,
        };
        match self.head.method() {
            Method::Connect => Err(HeadFault::Connect),
            Method::Trace => Err(HeadFault::Trace),
            _ => Ok(()),
        }
    }
}

fn shown(which: Pseudo) -> &'static str {
    match which {
        Pseudo::Method => ":method",
        Pseudo::Scheme => ":scheme",
        Pseudo::Path => ":path",
        Pseudo::Authority => "\":authority\"",
    }
}

fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, b'_' | b'-')
}

fn is_scheme(text: &[u8]) -> bool {
    let is_later = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_later)
}

/// Whether decoding and normalizing would leave a path as it is.
fn is_plain(path: &[u8]) -> bool {
    let is_odd = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    !path.contains(&b'%') && !path.windows(2).any(is_odd)
}

fn memchr_end_of_line(value: &[u8]) -> bool {
    value.iter().any(|&byte| matches!(byte, b'\0' | b'\n' | b'\r'))
}

/// A number below 2^63.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, &digit: &u8| {
        digit.is_ascii_digit().then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    };
    let number = if digits.is_empty() { None } else { digits.iter().try_fold(0, add) };
    number.filter(|&number| i64::try_from(number).is_ok())
}

#[cfg(test)]
mod tests;
