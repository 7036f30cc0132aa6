//! The header lines of a message, received or made, and edits on top of both. Owned by the request that
//! the message belongs to.
//!
//! A line is two spans, the hash of its name and the number of a known one. A received line has its spans
//! in the bytes that were received, and costs no copy and no allocation of its own; a line that was added
//! has them in a buffer of the list, where it stands as it is sent. So neighbours are sent in one piece.
//!
//! Invariants: the order of the list is the order on the wire; an added line has no CR, LF or NUL in its
//! name and value, whatever it was made of, so that nothing made of a request can split a message.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::header::{HEAD_MAX_BYTES, Header, Known, Span, name_hash};
use crate::line_text::{has_line_end, push_line_text};

/// From this size on the buffer of added lines drops what is replaced before it grows, bytes.
const COMPACT_MIN_BYTES: usize = 4 * 1024;

/// Room for added lines that is made for the first one, bytes.
const FIRST_BYTES: usize = 256;

/// Lines that fit without an allocation.
const INLINE_LINES: usize = 16;

/// Between a name and its value, and behind the value, where a line stands as it is sent.
const SEPARATOR: &[u8] = b": ";
const END: &[u8] = b"\r\n";

/// The name of a header to look for, in any case, with its hash: to be made once, when the configuration
/// is loaded or the program compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderName<'n> {
    text: &'n [u8],
    hash: u32,
}

impl<'n> HeaderName<'n> {
    /// A name in any spelling.
    #[must_use]
    pub const fn new(text: &'n [u8]) -> Self {
        Self { text, hash: name_hash(text) }
    }

    /// The name as it was given.
    #[must_use]
    pub const fn text(self) -> &'n [u8] {
        self.text
    }

    /// Whether it is this name.
    #[inline]
    #[must_use]
    pub fn is(self, other: &[u8]) -> bool {
        self.text.eq_ignore_ascii_case(other)
    }
}

/// A header line to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLine<'a> {
    /// The name as received or given.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Which of the headers that the server knows it is.
    pub known: Known,
}

/// A part of the lines as they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Any number of lines, each with its CRLF.
    Lines(&'a [u8]),
    /// The name and value of a line that was received in another form.
    Line(&'a [u8], &'a [u8]),
}

/// Where the bytes of a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePlace {
    /// With the received ones.
    Received,
    /// There, in the form in which lines are sent.
    Passed,
    /// In the buffer of the list.
    Added,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    name: Span,
    value: Span,
    hash: u32,
    known: Known,
    place: LinePlace,
}

/// Header lines whose received bytes are kept by an owner that hands them in: the bytes that the spans of
/// [`receive`](Self::receive) refer to, or nothing where there are no received lines.
#[derive(Clone, Debug, Default)]
pub struct HeaderLines {
    lines: SmallVec<[Line; INLINE_LINES]>,
    /// Added lines as they are sent, and what has become of those that were replaced.
    added: Vec<u8>,
    /// The known headers that are there: a set of [`Known::bit`].
    seen: u64,
}

/// Reading.
impl HeaderLines {
    /// How many lines there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether there is a line with a known header.
    #[inline]
    #[must_use]
    pub fn has(&self, known: Known) -> bool {
        self.seen & known.bit() != 0
    }

    /// All lines in their order.
    #[inline]
    pub fn iter<'a>(&'a self, received: &'a [u8]) -> impl Iterator<Item = HeaderLine<'a>> + Clone {
        self.lines.iter().map(move |line| self.look(line, received))
    }

    /// The values of all lines with this name, in any case.
    pub fn named<'a>(
        &'a self,
        received: &'a [u8],
        name: HeaderName<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + Clone {
        let same = move |line: &&Line| self.is_named(line, received, name);
        self.lines.iter().filter(same).map(move |line| line.value.of(self.bytes(line, received)))
    }

    /// The values of all lines with a known header.
    #[inline]
    pub fn known<'a>(&'a self, received: &'a [u8], known: Known) -> impl Iterator<Item = &'a [u8]> + Clone {
        let lines = if self.has(known) { &self.lines[..] } else { &[] };
        let same = move |line: &&Line| line.known == known;
        lines.iter().filter(same).map(move |line| line.value.of(self.bytes(line, received)))
    }

    /// The value of the first line with a known header. Most requests have none of the headers that are
    /// looked for, which one bit tells.
    #[inline]
    pub fn first_known<'a>(&'a self, received: &'a [u8], known: Known) -> Option<&'a [u8]> {
        if !self.has(known) {
            return None;
        }
        self.known(received, known).next()
    }

    /// The lines as they are sent: neighbours that stand in this form already are one piece.
    pub fn pieces<'a>(&'a self, received: &'a [u8]) -> impl Iterator<Item = Piece<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.lines.get(at)?;
            at += 1;
            let bytes = self.bytes(first, received);
            if first.place == LinePlace::Received {
                return Some(Piece::Line(first.name.of(bytes), first.value.of(bytes)));
            }
            let mut end = first.value.end() + END.len();
            while let Some(next) = self.lines.get(at)
                && next.place == first.place
                && next.name.start() == end
            {
                end = next.value.end() + END.len();
                at += 1;
            }
            Some(Piece::Lines(&bytes[first.name.start()..end]))
        })
    }

    #[inline]
    fn bytes<'a>(&'a self, line: &Line, received: &'a [u8]) -> &'a [u8] {
        if line.place == LinePlace::Added { &self.added } else { received }
    }

    #[inline]
    fn look<'a>(&'a self, line: &Line, received: &'a [u8]) -> HeaderLine<'a> {
        let bytes = self.bytes(line, received);
        HeaderLine { name: line.name.of(bytes), value: line.value.of(bytes), known: line.known }
    }

    #[inline]
    fn is_named(&self, line: &Line, received: &[u8], name: HeaderName<'_>) -> bool {
        line.hash == name.hash && name.is(line.name.of(self.bytes(line, received)))
    }
}

/// Receiving.
impl HeaderLines {
    /// Takes a line as a parser found it in the received bytes.
    #[inline]
    pub fn receive(&mut self, Header { name, value, hash, known }: Header) {
        self.lines.push(Line { name, value, hash, known, place: LinePlace::Received });
        self.seen |= known.bit();
    }

    /// As [`receive`](Self::receive), for a line that is likely to be sent on: it is passed unchanged if it
    /// has the form in which lines are sent.
    #[inline]
    pub fn receive_to_pass(&mut self, received: &[u8], Header { name, value, hash, known }: Header) {
        let is_sent_so = received.get(name.end()..value.start()) == Some(SEPARATOR)
            && received.get(value.end()..value.end() + END.len()) == Some(END)
            && !has_line_end(&received[name.start()..value.end()]);
        let place = if is_sent_so { LinePlace::Passed } else { LinePlace::Received };
        self.lines.push(Line { name, value, hash, known, place });
        self.seen |= known.bit();
    }

    /// Forgets everything, but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.lines.clear();
        self.added.clear();
        self.seen = 0;
    }
}

/// Edits.
impl HeaderLines {
    /// Adds a line behind the others. In name and value CR, LF and NUL become spaces (RFC 9110 §5.5).
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let line = self.append(name, value);
        self.lines.push(line);
        self.seen |= line.known.bit();
    }

    /// Removes all lines with this name; whether there was one.
    pub fn remove(&mut self, received: &[u8], name: HeaderName<'_>) -> bool {
        self.edit(received, name, |_, _| None)
    }

    /// Has one line with this name and value: in place of the first one, or behind the others.
    pub fn set(&mut self, received: &[u8], name: HeaderName<'_>, value: &[u8]) {
        let mut value = Some(value);
        self.edit(received, name, |lines, _| Some(lines.append(name.text, value.take()?)));
        if let Some(value) = value {
            self.add(name.text, value);
        }
    }

    /// Has each line with this name get the value that is made of its own, or go where none is made.
    pub fn replace(
        &mut self,
        received: &[u8],
        name: HeaderName<'_>,
        mut make: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) {
        self.edit(received, name, |lines, line| {
            let bytes = lines.bytes(&line, received);
            let value = make(line.value.of(bytes))?;
            if value == line.value.of(bytes) {
                return Some(line);
            }
            // As the line may lie in the buffer that grows.
            let name = line.name.of(bytes).to_vec();
            Some(lines.append(&name, &value))
        });
    }

    /// Puts what `make` says in the place of each line with this name; whether there was one.
    fn edit(
        &mut self,
        received: &[u8],
        name: HeaderName<'_>,
        mut make: impl FnMut(&mut Self, Line) -> Option<Line>,
    ) -> bool {
        let is_named = |lines: &Self, at: usize| lines.is_named(&lines.lines[at], received, name);
        let Some(first) = (0..self.lines.len()).find(|&at| is_named(self, at)) else { return false };
        let mut kept = first;
        for at in first..self.lines.len() {
            let line = if is_named(self, at) { make(self, self.lines[at]) } else { Some(self.lines[at]) };
            if let Some(line) = line {
                self.lines[kept] = line;
                kept += 1;
            }
        }
        self.lines.truncate(kept);
        self.seen = self.lines.iter().fold(0, |seen, line| seen | line.known.bit());
        true
    }

    /// Removes what was received.
    fn drop_received(&mut self) {
        self.lines.retain(|line| line.place == LinePlace::Added);
        self.seen = self.lines.iter().fold(0, |seen, line| seen | line.known.bit());
    }

    /// Writes a line into the buffer, and nowhere into the list.
    fn append(&mut self, name: &[u8], value: &[u8]) -> Line {
        let bytes = name.len() + SEPARATOR.len() + value.len() + END.len();
        if self.added.len() >= COMPACT_MIN_BYTES && self.added.capacity() - self.added.len() < bytes {
            self.compact();
        }
        assert!(self.added.len() + bytes <= HEAD_MAX_BYTES, "lines fit into the address space of spans");
        self.added.reserve(if self.added.is_empty() { bytes.max(FIRST_BYTES) } else { bytes });
        let name_span = put(&mut self.added, name);
        self.added.extend_from_slice(SEPARATOR);
        let value_span = put(&mut self.added, value);
        self.added.extend_from_slice(END);
        let hash = name_hash(name_span.of(&self.added));
        let known = Known::find_hashed(name_span.of(&self.added), hash);
        Line { name: name_span, value: value_span, hash, known, place: LinePlace::Added }
    }
}

/// Memory.
impl HeaderLines {
    /// Drops what is replaced. There is room for as much again afterwards, so that this does not happen for
    /// every line.
    #[cold]
    fn compact(&mut self) {
        let is_added = |line: &&Line| line.place == LinePlace::Added;
        let live_bytes: usize = self.lines.iter().filter(is_added).map(|line| line.sent().len()).sum();
        let mut live = Vec::with_capacity(self.added.capacity().max(2 * live_bytes));
        for line in self.lines.iter_mut().filter(|line| line.place == LinePlace::Added) {
            let (start, name, value) = (live.len(), line.name.len(), line.value.len());
            live.extend_from_slice(line.sent().of(&self.added));
            line.name = Span::new(start, start + name);
            line.value = Span::new(start + name + SEPARATOR.len(), start + name + SEPARATOR.len() + value);
        }
        self.added = live;
    }
}

impl Line {
    /// All of a line that stands as it is sent.
    fn sent(&self) -> Span {
        Span::new(self.name.start(), self.value.end() + END.len())
    }
}

/// The header lines of a message that is made here or passed on, with the bytes of those that were received.
/// Most messages have none beside what has its own place in the head, and these take no memory.
#[derive(Clone, Debug, Default)]
pub struct Headers(Option<Box<Kept>>);

#[derive(Clone, Debug, Default)]
struct Kept {
    /// The head that is passed on; empty as a rule.
    received: Bytes,
    lines: HeaderLines,
}

impl Headers {
    /// Takes the lines of a head that is passed on, which are spans of `received`, in place of all others.
    pub fn pass(&mut self, received: impl Into<Bytes>, lines: impl IntoIterator<Item = Header>) {
        let kept = self.0.get_or_insert_default();
        kept.lines.clear();
        kept.received = received.into();
        for line in lines {
            kept.lines.receive_to_pass(&kept.received, line);
        }
    }

    /// As [`pass`](Self::pass), behind the lines that were added.
    pub fn pass_behind(&mut self, received: impl Into<Bytes>, lines: impl IntoIterator<Item = Header>) {
        let kept = self.0.get_or_insert_default();
        kept.lines.drop_received();
        kept.received = received.into();
        for line in lines {
            kept.lines.receive_to_pass(&kept.received, line);
        }
    }

    /// Removes the lines of a head that was to be passed on, and keeps those that were added.
    pub fn drop_passed(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.lines.drop_received();
            kept.received = Bytes::new();
        }
    }

    /// The value of the first line with a known header.
    #[must_use]
    pub fn first_known(&self, known: Known) -> Option<&[u8]> {
        let kept = self.0.as_ref()?;
        kept.lines.first_known(&kept.received, known)
    }

    /// Whether there is no line.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.lines.is_empty())
    }

    /// Whether there is a line with this name, in any case.
    #[inline]
    #[must_use]
    pub fn has(&self, name: HeaderName<'_>) -> bool {
        self.0.is_some() && self.named(name).next().is_some()
    }

    /// All lines in their order.
    pub fn iter(&self) -> impl Iterator<Item = HeaderLine<'_>> + Clone {
        self.0.iter().flat_map(|kept| kept.lines.iter(&kept.received))
    }

    /// As [`HeaderLines::named`].
    pub fn named<'a>(&'a self, name: HeaderName<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.0.iter().flat_map(move |kept| kept.lines.named(&kept.received, name))
    }

    /// As [`HeaderLines::pieces`].
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.0.iter().flat_map(|kept| kept.lines.pieces(&kept.received))
    }

    /// As [`HeaderLines::add`].
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.0.get_or_insert_default().lines.add(name, value);
    }

    /// As [`HeaderLines::remove`].
    pub fn remove(&mut self, name: HeaderName<'_>) -> bool {
        self.0.as_mut().is_some_and(|kept| kept.lines.remove(&kept.received, name))
    }

    /// As [`HeaderLines::set`].
    pub fn set(&mut self, name: HeaderName<'_>, value: &[u8]) {
        let kept = self.0.get_or_insert_default();
        kept.lines.set(&kept.received, name, value);
    }

    /// As [`HeaderLines::replace`].
    pub fn replace(&mut self, name: HeaderName<'_>, make: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        if let Some(kept) = &mut self.0 {
            kept.lines.replace(&kept.received, name, make);
        }
    }
}

/// Appends a text in which what could end the line is a space.
#[inline]
fn put(out: &mut Vec<u8>, text: &[u8]) -> Span {
    let start = out.len();
    push_line_text(out, text);
    Span::new(start, out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: HeaderName<'_> = HeaderName::new(b"set-cookie");

    /// The lines of a received head, found without the rules of any protocol.
    fn received(head: &[u8]) -> Vec<Header> {
        let mut start = 0;
        let lines = head.split_inclusive(|&byte| byte == b'\n').map(|line| {
            let name = line.iter().position(|&byte| byte == b':').unwrap();
            let value = line[name + 1..].trim_ascii();
            let spaces = line[name + 1..].iter().take_while(|byte| b" \t".contains(byte)).count();
            let value_start = start + name + 1 + spaces;
            let header = Header {
                name: Span::new(start, start + name),
                value: Span::new(value_start, value_start + value.len()),
                hash: name_hash(&line[..name]),
                known: Known::find(&line[..name]),
            };
            start += line.len();
            header
        });
        lines.collect()
    }

    fn sent(headers: &Headers) -> String {
        let pieces = headers.pieces().map(|piece| match piece {
            Piece::Lines(lines) => String::from_utf8(lines.to_vec()).unwrap(),
            Piece::Line(name, value) => {
                format!("{}: {}\r\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            }
        });
        pieces.collect()
    }

    #[test]
    fn a_head_that_is_not_changed_is_passed_in_one_piece() {
        let head = b"Server: u\r\nSet-Cookie: a=1\r\nX-A: \r\nSet-Cookie: b=2\r\n";
        let mut headers = Headers::default();
        headers.pass(head.to_vec(), received(head));
        assert_eq!(headers.pieces().collect::<Vec<_>>(), [Piece::Lines(head)]);
        assert_eq!(headers.named(COOKIE).collect::<Vec<_>>(), [b"a=1", b"b=2"]);

        headers.add(b"Via", b"1.1 c");
        assert_eq!(headers.pieces().count(), 2, "one that was received, one that was added");
        assert!(headers.remove(HeaderName::new(b"x-a")) && !headers.remove(HeaderName::new(b"x-a")));
        let pieces: Vec<_> = headers.pieces().collect();
        let runs = [&b"Server: u\r\nSet-Cookie: a=1\r\n"[..], b"Set-Cookie: b=2\r\n", b"Via: 1.1 c\r\n"];
        assert_eq!(pieces, runs.map(Piece::Lines));
    }

    #[test]
    fn what_was_to_be_passed_can_be_dropped() {
        let head = b"Server: u\r\nETag: \"a\"\r\n";
        let mut headers = Headers::default();
        headers.pass(head.to_vec(), received(head));
        headers.add(b"Via", b"1.1 c");
        assert_eq!(headers.first_known(Known::ETag), Some(&b"\"a\""[..]));
        headers.drop_passed();
        assert_eq!(sent(&headers), "Via: 1.1 c\r\n");
        assert_eq!(
            (headers.first_known(Known::ETag), headers.first_known(Known::Via)),
            (None, Some(&b"1.1 c"[..]))
        );
    }

    #[test]
    fn lines_in_another_form_are_sent_in_ours() {
        let head = b"A:1\r\nB: 2\nC:\t3 \r\nD: 4\r\nE: 5\r\n";
        let mut headers = Headers::default();
        headers.pass(head.to_vec(), received(head));
        assert_eq!(sent(&headers), "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n");
        assert_eq!(headers.pieces().count(), 4);
    }

    #[test]
    fn edits_keep_the_place_of_the_first() {
        let head = b"A: 1\r\nSet-Cookie: a\r\nB: 2\r\nSET-COOKIE: b\r\n";
        let mut headers = Headers::default();
        headers.pass(head.to_vec(), received(head));
        headers.replace(COOKIE, |value| (value != b"a").then(|| [value, b"; Secure"].concat()));
        assert_eq!(sent(&headers), "A: 1\r\nB: 2\r\nSET-COOKIE: b; Secure\r\n");
        headers.set(HeaderName::new(b"a"), b"\r\nX: y\0");
        headers.set(HeaderName::new(b"New"), b"n");
        assert_eq!(sent(&headers), "a:   X: y \r\nB: 2\r\nSET-COOKIE: b; Secure\r\nNew: n\r\n");
        headers.add(b"a", b"again");
        headers.set(HeaderName::new(b"A"), b"one");
        assert_eq!(sent(&headers), "A: one\r\nB: 2\r\nSET-COOKIE: b; Secure\r\nNew: n\r\n");
    }

    #[test]
    fn known_headers_are_seen_as_long_as_they_are_there() {
        let mut lines = HeaderLines::default();
        lines.add(b"range", b"bytes=0-");
        lines.add(b"Range", b"bytes=1-");
        assert!(lines.has(Known::Range) && !lines.has(Known::Host));
        assert_eq!(lines.known(b"", Known::Range).collect::<Vec<_>>(), [b"bytes=0-", b"bytes=1-"]);
        assert!(lines.remove(b"", HeaderName::new(b"RANGE")));
        assert!(!lines.has(Known::Range) && lines.is_empty());
    }

    #[test]
    fn what_is_replaced_again_and_again_does_not_pile_up() {
        let mut headers = Headers::default();
        headers.add(b"Kept", &[b'k'; 100]);
        // Far more than is compacted at, also where each step is interpreted.
        let times: u32 = if cfg!(miri) { 300 } else { 10_000 };
        for number in 0..times {
            headers.set(HeaderName::new(b"X-Number"), &[b'0' + (number % 10) as u8; 50]);
        }
        assert_eq!(sent(&headers), format!("Kept: {}\r\nX-Number: {}\r\n", "k".repeat(100), "9".repeat(50)));
        assert!(headers.0.unwrap().lines.added.capacity() <= 4 * COMPACT_MIN_BYTES);
    }
}
