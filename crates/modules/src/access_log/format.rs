//! `log_format`: taken apart once, at load, and filled in once per request and log. Runs in the log
//! phase; a line is one allocation, of the size that lines of the format have had so far.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use clearway_base::date;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_http::uri::escape_log;
use clearway_http::{Load, Presence, VariableId, View, put_decimal};
use clearway_message::Known;

/// Room for a line whose format has not been used yet, bytes.
const LINE_BYTES_USUAL: usize = 256;
/// The most bytes that are allocated ahead for a line: one long line does not make all others large.
const LINE_BYTES_AHEAD_MAX: usize = 4096;

/// A format with its name.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) name: Bytes,
    content: Content,
    /// The longest line so far, bytes.
    line_bytes: AtomicUsize,
}

#[derive(Debug)]
enum Content {
    /// The format that is always there.
    Combined,
    Parts {
        parts: Box<[Part]>,
        escape: Escape,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(Bytes),
    Variable(VariableId),
}

/// The escaping of the values of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    /// `\xXX`; a dash for a variable that has no value.
    Default,
    Json,
    None,
}

impl Format {
    /// The format `combined`.
    pub(super) fn combined() -> Self {
        Self::new(Bytes::from_static(b"combined"), Content::Combined)
    }

    /// Reads a `log_format`.
    ///
    /// # Errors
    /// nginx's message about it.
    pub(super) fn parse(load: &mut Load, directive: &Directive) -> Result<Self, Error> {
        let (name, mut texts) = directive.args.split_first().expect("the table asks for two arguments");
        let mut escape = Escape::Default;
        if let Some(given) = texts.first().and_then(|text| text.strip_prefix(b"escape=")) {
            escape = match given {
                b"default" => Escape::Default,
                b"json" => Escape::Json,
                b"none" => Escape::None,
                other => {
                    let text = message(&[&"unknown log format escaping \"", &other, &"\""]);
                    return Err(directive.error(text));
                }
            };
            texts = &texts[1..];
        }
        let mut parts = Vec::new();
        for text in texts {
            parse_text(text, |part| match part {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Variable(name) => parts.push(Part::Variable(load.variables.id(name))),
            })
            .map_err(|text| directive.error(text))?;
        }
        Ok(Self::new(name.clone(), Content::Parts { parts: parts.into(), escape }))
    }

    fn new(name: Bytes, content: Content) -> Self {
        Self { name, content, line_bytes: AtomicUsize::new(LINE_BYTES_USUAL) }
    }

    /// Room that a line is likely to need, its line feed included, bytes.
    pub(super) fn line_bytes(&self) -> usize {
        self.line_bytes.load(Ordering::Relaxed)
    }

    /// Appends what a request has to say, without line feed.
    pub(super) fn append(&self, view: &View<'_, '_>, line: &mut Vec<u8>) {
        let start = line.len();
        match &self.content {
            Content::Combined => append_combined(view, line),
            Content::Parts { parts, escape } => {
                parts.iter().for_each(|part| part.append(*escape, view, line));
            }
        }
        let bytes = line.len() - start + 1;
        if bytes > self.line_bytes() && bytes <= LINE_BYTES_AHEAD_MAX {
            self.line_bytes.store(bytes, Ordering::Relaxed);
        }
    }
}

impl Part {
    fn append(&self, escape: Escape, view: &View<'_, '_>, line: &mut Vec<u8>) {
        let id = match self {
            Self::Text(text) => return line.extend_from_slice(text),
            Self::Variable(id) => *id,
        };
        let start = line.len();
        match (view.append_variable(id, line), escape) {
            (Presence::NotFound, Escape::Default) => line.push(b'-'),
            (Presence::NotFound, _) | (_, Escape::None) => {}
            (Presence::Found, Escape::Default) => escape_from(start, line, is_hexed, escape_log),
            (Presence::Found, Escape::Json) => escape_from(start, line, is_special_in_json, escape_json),
        }
    }
}

/// Whether `escape_log` changes a byte.
fn is_hexed(byte: u8) -> bool {
    !matches!(byte, 0x20..=0x7e) || matches!(byte, b'"' | b'\\')
}

/// Whether `escape_json` changes a byte.
fn is_special_in_json(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\')
}

/// Appends a value as it may stand in a JSON string; what is beyond ASCII stays as it is.
fn escape_json(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x08 => line.extend_from_slice(b"\\b"),
            0x0c => line.extend_from_slice(b"\\f"),
            0..=0x1f => {
                line.extend_from_slice(b"\\u00");
                line.extend_from_slice(&[byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]));
            }
            _ => line.push(byte),
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes that are looked at together: without a way out between them there is one instruction for many.
const LOOKED_AT_TOGETHER: usize = 16;

/// Escapes the end of a line where it stands. Few values need it.
fn escape_from(
    start: usize,
    line: &mut Vec<u8>,
    special: impl Fn(u8) -> bool,
    put: impl FnOnce(&[u8], &mut Vec<u8>),
) {
    let mut at = start;
    for bytes in line[start..].chunks(LOOKED_AT_TOGETHER) {
        if bytes.iter().fold(false, |any, &byte| any | special(byte)) {
            let rest = line.split_off(at);
            return put(&rest, line);
        }
        at += bytes.len();
    }
}

/// A piece of a format as it is written.
enum Piece<'a> {
    Text(Bytes),
    Variable(&'a [u8]),
}

/// Takes an argument of `log_format` apart: text, `$name` and `${name}`, in which a name may begin with
/// a digit.
fn parse_text(text: &Bytes, mut found: impl FnMut(Piece<'_>)) -> Result<(), Vec<u8>> {
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'$' {
            let end = memchr::memchr(b'$', &text[at..]).map_or(text.len(), |dollar| at + dollar);
            found(Piece::Text(text.slice(at..end)));
            at = end;
            continue;
        }
        let invalid = || message(&[&"invalid parameter \"", &&text[at..], &"\""]);
        let braced = text.get(at + 1) == Some(&b'{');
        let start = at + 1 + usize::from(braced);
        if start >= text.len() {
            return Err(invalid());
        }
        let length =
            text[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let name = &text[start..start + length];
        let end = start + length;
        if braced && text.get(end) != Some(&b'}') {
            return Err(message(&[&"the closing bracket in \"", &name, &"\" variable is missing"]));
        }
        if name.is_empty() {
            return Err(invalid());
        }
        found(Piece::Variable(name));
        at = end + usize::from(braced);
    }
    Ok(())
}

/// `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer"
/// "$http_user_agent"`, without asking the table of variables.
fn append_combined(view: &View<'_, '_>, line: &mut Vec<u8>) {
    let request = view.request;
    request.put_peer(line);
    line.extend_from_slice(b" - ");
    match view.remote_user() {
        Some(user) => escape_log(&user, line),
        None => line.push(b'-'),
    }
    line.extend_from_slice(b" [");
    line.extend_from_slice(&date::access_log_time(request.now_unix_s(), request.utc_offset_minutes()));
    line.extend_from_slice(b"] \"");
    put(line, request.request_line());
    line.extend_from_slice(b"\" ");
    line.extend_from_slice(&view.status_digits());
    line.push(b' ');
    put_decimal(line, view.body_sent_bytes());
    line.extend_from_slice(b" \"");
    let start = line.len();
    match view.append_header(Known::Referer, line) {
        Presence::Found => escape_from(start, line, is_hexed, escape_log),
        Presence::NotFound => line.push(b'-'),
    }
    line.extend_from_slice(b"\" \"");
    put(line, request.header(Known::UserAgent));
    line.push(b'"');
}

/// A value as it may stand between quotes; a dash for none.
fn put(line: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => escape_log(value, line),
        None => line.push(b'-'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &'static str) -> Result<Vec<String>, String> {
        let mut pieces = Vec::new();
        let text = Bytes::from_static(text.as_bytes());
        let parsed = parse_text(&text, |piece| {
            pieces.push(match piece {
                Piece::Text(text) => String::from_utf8_lossy(&text).into_owned(),
                Piece::Variable(name) => format!("${}", String::from_utf8_lossy(name)),
            });
        });
        parsed.map(|()| pieces).map_err(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn formats_are_taken_apart_as_nginx_does() {
        for (text, expected) in [
            ("", vec![]),
            ("text", vec!["text"]),
            ("$a", vec!["$a"]),
            ("x ${a}y$b-c", vec!["x ", "$a", "y", "$b", "-c"]),
            ("$1$a_9", vec!["$1", "$a_9"]),
            ("a}b", vec!["a}b"]),
        ] {
            assert_eq!(pieces(text).unwrap(), expected, "{text}");
        }
        for (text, error) in [
            ("a $", "invalid parameter \"$\""),
            ("a $ b", "invalid parameter \"$ b\""),
            ("$$a", "invalid parameter \"$$a\""),
            ("${", "invalid parameter \"${\""),
            ("${}", "invalid parameter \"${}\""),
            ("${a", "the closing bracket in \"a\" variable is missing"),
            ("${a-b}", "the closing bracket in \"a\" variable is missing"),
        ] {
            assert_eq!(pieces(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn values_are_escaped_where_they_stand() {
        let escaped = |special: fn(u8) -> bool, put: fn(&[u8], &mut Vec<u8>), value: &[u8]| {
            let mut line = [b"\"\x01", value].concat();
            escape_from(2, &mut line, special, put);
            String::from_utf8(line.split_off(2)).unwrap()
        };
        assert_eq!(escaped(is_hexed, escape_log, b"a~ b"), "a~ b");
        assert_eq!(escaped(is_hexed, escape_log, b"a\"\\\x7f\xff\n"), "a\\x22\\x5C\\x7F\\xFF\\x0A");
        assert_eq!(escaped(is_special_in_json, escape_json, b"\x1b\"\\\n\r\t\x08\x0c"), {
            "\\u001B\\\"\\\\\\n\\r\\t\\b\\f"
        });
    }
}
