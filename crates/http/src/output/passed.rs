//! The facts about a head from another server, beside its lines: how it was written, and what of it stands
//! there. Plain data.

use std::borrow::Cow;

use clearway_message::{Known, ResponseHead, Text};

/// State of a passed head beside its lines.
#[derive(Default)]
pub(super) struct Passed {
    /// As it was received, from the status on; nothing where it is what is sent anyway.
    pub(super) status_line: Option<Box<[u8]>>,
    /// The value of `Content-Type`, where it is not written as it would be here.
    content_type: Option<Box<[u8]>>,
}

/// What of a head is sent with the lines that are passed, and not from its own place.
#[derive(Clone, Copy, Default)]
pub(super) struct Places<'a> {
    /// The headers in the lines, as bits of [`Known::bit`].
    in_lines: u64,
    pub(super) status_line: Option<&'a [u8]>,
    pub(super) content_type: Option<&'a [u8]>,
}

impl<'a> Places<'a> {
    /// What stands in the lines of a head, as far as it is passed, and what of `replaced` is nowhere else.
    #[inline]
    pub(super) fn of(passed: Option<&'a Passed>, head: &'a ResponseHead<'_>, replaced: u64) -> Self {
        match passed {
            None => Self { in_lines: replaced, status_line: chosen_line(head), content_type: None },
            Some(passed) => {
                let places = Self::of_passed(passed, head);
                Self { in_lines: places.in_lines | replaced, ..places }
            }
        }
    }

    fn of_passed(passed: &'a Passed, head: &'a ResponseHead<'_>) -> Self {
        let is_there = |known: &&Known| head.headers.first_known(**known).is_some();
        let places = [Known::ETag, Known::ContentEncoding, Known::Server, Known::Date];
        let in_lines = places.iter().filter(is_there).fold(0, |all, known| all | known.bit());
        let content_type = passed.content_type.as_deref().filter(|value| {
            let (content_type, charset) = split_content_type(value);
            head.content_type.as_deref() == Some(content_type) && head.charset.as_deref() == charset
        });
        let passed_line = passed.status_line.as_deref().filter(|line| is_of(line, head.status));
        let status_line = chosen_line(head).or(passed_line);
        Self { in_lines, status_line, content_type }
    }

    #[inline]
    pub(super) fn has(self, known: Known) -> bool {
        self.in_lines & known.bit() != 0
    }

    #[inline]
    pub(super) fn are_usual(self) -> bool {
        self.in_lines == 0 && self.status_line.is_none() && self.content_type.is_none()
    }
}

/// The status line that was chosen for the status that the head has now.
#[inline]
fn chosen_line<'a>(head: &'a ResponseHead<'_>) -> Option<&'a [u8]> {
    head.status_line.as_ref().map(|line| &*line.0).filter(|line| is_of(line, head.status))
}

fn is_of(status_line: &[u8], status: u16) -> bool {
    status_line.starts_with(&[status / 100, status / 10, status].map(|n| b'0' + (n % 10) as u8))
}

impl Passed {
    /// Takes the type and its charset. The way in which it was written is remembered.
    pub(super) fn take_content_type<'c>(&mut self, value: &[u8]) -> (Option<Text<'c>>, Option<Text<'c>>) {
        let (content_type, charset) = split_content_type(value);
        let is_usual = match charset {
            None => content_type.len() == value.len(),
            Some(charset) => crate::response::with_charset(content_type, charset)[..] == *value,
        };
        self.content_type = (!is_usual).then(|| value.into());
        (Some(known_text(content_type)), charset.map(known_text))
    }
}

/// Takes the charset out of the value of `Content-Type`, as nginx does: the type, which may have other
/// parameters, and the charset without quotes.
pub fn split_content_type(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    const NAME: &[u8] = b"charset=";
    let mut at = 0;
    while let Some(found) = memchr::memchr(b';', &value[at..]) {
        let semicolon = at + found;
        let spaces = value[semicolon + 1..].iter().take_while(|&&byte| byte == b' ').count();
        at = semicolon + 1 + spaces;
        let rest = &value[at..];
        if let Some((name, charset)) = rest.split_at_checked(NAME.len())
            && name.eq_ignore_ascii_case(NAME)
        {
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            return (&value[..semicolon], Some(charset.strip_suffix(b"\"").unwrap_or(charset)));
        }
    }
    (value, None)
}

/// Texts that are seen again and again, without a copy.
fn known_text<'c>(text: &[u8]) -> Text<'c> {
    const KNOWN: [&[u8]; 14] = [
        b"text/html",
        b"utf-8",
        b"UTF-8",
        b"application/json",
        b"text/plain",
        b"text/css",
        b"application/javascript",
        b"text/javascript",
        b"application/octet-stream",
        b"image/png",
        b"image/jpeg",
        b"image/svg+xml",
        b"image/webp",
        b"text/xml",
    ];
    match KNOWN.iter().find(|known| **known == text) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(text.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_are_taken_out_of_types() {
        for (value, content_type, charset) in [
            ("text/html", "text/html", None),
            ("text/html; charset=utf-8", "text/html", Some("utf-8")),
            ("text/html;  CHARSET=\"utf-8\"", "text/html", Some("utf-8")),
            ("text/plain; format=flowed; charset=x", "text/plain; format=flowed", Some("x")),
            ("text/plain; format=flowed", "text/plain; format=flowed", None),
            ("text/html;", "text/html;", None),
        ] {
            let expected = (content_type.as_bytes(), charset.map(str::as_bytes));
            assert_eq!(split_content_type(value.as_bytes()), expected, "{value}");
        }
    }
}
