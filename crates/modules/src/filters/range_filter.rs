//! `Range` and `If-Range` (RFC 9110 §14): parts of a response, one or several. A header filter, which comes
//! after all that change the response, and the body filter that cuts it; microseconds on the loop.

#[cfg(fuzzing)]
pub mod fuzzing;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_base::date;
use clearway_http::{
    BodyFilter, Chunk, FilterSpec, Filtering, Input, Mark, Module, Next, Ranges, Request, ResponseHead,
};
use clearway_message::{HeaderName, Known, Version};

/// The module.
pub static RANGE_FILTER: Module = Module { name: "range_filter", filters: FILTERS, ..Module::EMPTY };

static FILTERS: &[FilterSpec] = &[FilterSpec { enabled: |_| true, filter }];

/// The largest number that a position may be.
const POSITION_MAX: u64 = i64::MAX as u64;
/// The assumed cost of a part in addition to its bytes, if `max_ranges` does not limit their number.
const PART_COST_BYTES: u64 = 256;
/// How much more than the whole the parts may cost then.
const PARTS_EXTRA_BYTES: u64 = 4096;

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let takes_files = filtering.takes_files();
    let head = filtering.head();
    if head.ranges == Ranges::Passed {
        return None;
    }
    let ranges = std::mem::take(&mut head.ranges);
    let at = if let Ranges::OneFrom(start) = ranges { start } else { 0 };
    let is_one = matches!(ranges, Ranges::OnePart | Ranges::OneFrom(_));
    let is_allowed = head.status == 200 && (is_one || ranges == Ranges::Allowed);
    let length = head.content_length.filter(|_| is_allowed)?;
    let max_ranges = *request.location().core.sending.max_ranges;
    if max_ranges == Some(0) || request.version() < Version::HTTP_10 {
        return None;
    }
    let max_ranges = if is_one { Some(1) } else { max_ranges };
    head.ranges = Ranges::Announced;
    let wanted = request.header(Known::Range).filter(|range| range.len() >= 7)?;
    let (unit, specs) = wanted.split_at(6);
    if !unit.eq_ignore_ascii_case(b"bytes=") || !is_the_one_meant(request, head) {
        return None;
    }
    let filter: Box<dyn BodyFilter> = match parse(specs, length, max_ranges) {
        Wanted::Everything => return None,
        Wanted::Nothing => {
            set_content_range(head, format!("bytes */{length}"));
            filtering.refuse(416);
            return None;
        }
        Wanted::Parts(parts) => match &parts[..] {
            [part] => {
                set_content_range(head, content_range(part, length));
                head.content_length = Some(part.end - part.start);
                Box::new(One { part: part.clone(), at })
            }
            _ if takes_files => Box::new(Several::begin(head, parts, length)),
            _ if are_in_order(&parts) => {
                Box::new(InOrder { several: Several::begin(head, parts, length), at: 0, nth: 0 })
            }
            // The body would have to be there as one.
            _ => return None,
        },
    };
    head.status = 206;
    head.ranges = Ranges::Refused;
    Some(filter)
}

/// Whether the response is the one that `If-Range` speaks of.
fn is_the_one_meant(request: &Request<'_>, head: &ResponseHead<'_>) -> bool {
    let Some(condition) = request.header(Known::IfRange) else { return true };
    if condition.len() >= 2 && condition.ends_with(b"\"") {
        return head.etag.as_deref() == Some(condition);
    }
    head.last_modified.is_some() && date::parse_http_date(condition) == head.last_modified
}

/// The parts that a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// As if there were none.
    Everything,
    /// The ranges lie outside of the body: 416.
    Nothing,
    /// One part or more.
    Parts(Vec<Range<u64>>),
}

/// Reads what follows `bytes=`, for a body of `length` bytes.
fn parse(specs: &[u8], length: u64, max_ranges: Option<u64>) -> Wanted {
    let (mut parts, mut size) = (Vec::new(), 0_u64);
    for spec in specs.split(|&byte| byte == b',') {
        let Some(part) = parse_part(spec, length) else { return Wanted::Nothing };
        if part.start < part.end {
            size = size.saturating_add(part.end - part.start);
            if size > POSITION_MAX {
                return Wanted::Nothing;
            }
            parts.push(part);
            if max_ranges.is_some_and(|max| parts.len() as u64 > max) {
                return Wanted::Everything;
            }
        } else if part.start == 0 {
            return Wanted::Everything;
        }
    }
    let count = parts.len() as u64;
    let costs_more = max_ranges.is_none() && size + count * PART_COST_BYTES > length + PARTS_EXTRA_BYTES;
    match count {
        0 => Wanted::Nothing,
        1 => Wanted::Parts(parts),
        _ if size > length || costs_more => Wanted::Everything,
        _ => Wanted::Parts(parts),
    }
}

/// One part, cut at the end of the body; empty if it begins there. `None`: it is malformed.
fn parse_part(spec: &[u8], length: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, behind) = (trim(&spec[..dash]), &spec[dash + 1..]);
    let last = trim(behind);
    if first.is_empty() {
        // Here nothing may stand between.
        let count = position(last).filter(|_| !behind.starts_with(b" "))?;
        return Some(length.saturating_sub(count)..length);
    }
    let start = position(first)?;
    let end = if last.is_empty() { length } else { position(last)?.saturating_add(1).min(length) };
    Some(start..end)
}

fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number <= POSITION_MAX).then_some(number)
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end - 1)
}

const CONTENT_RANGE: HeaderName<'_> = HeaderName::new(b"Content-Range");

fn set_content_range(head: &mut ResponseHead<'_>, value: String) {
    head.headers.remove(CONTENT_RANGE);
    head.headers.add(CONTENT_RANGE.text(), value.as_bytes());
}

/// Lets one part pass.
struct One {
    part: Range<u64>,
    /// How much of the body came so far, bytes.
    at: u64,
}

impl BodyFilter for One {
    fn input(&self) -> Input {
        Input::Anything
    }

    fn push<'c>(&mut self, mut chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if let Ranges::OneFrom(at) = next.head().ranges {
            self.at = self.at.max(at);
        }
        let (start, end) = (self.at, self.at + chunk.len());
        self.at = end;
        let inside = |at: u64| at.clamp(start, end) - start;
        let (from, to) = (inside(self.part.start), inside(self.part.end));
        let mark = if end >= self.part.end { Mark::Last } else { mark };
        if from > 0 || to < chunk.len() {
            chunk.share();
            chunk = chunk.part(from..to);
        }
        if !chunk.is_empty() || mark != Mark::More {
            next.push(chunk, mark);
        }
    }
}

/// Makes several parts of a body that comes in one chunk.
struct Several {
    parts: Vec<Range<u64>>,
    length: u64,
    /// The text in front of each part, up to its range.
    separator: Vec<u8>,
    /// The text behind the last part.
    end: Vec<u8>,
}

impl Several {
    fn begin(head: &mut ResponseHead<'_>, parts: Vec<Range<u64>>, length: u64) -> Self {
        let boundary = next_boundary();
        let mut separator = [b"\r\n--", &boundary[..], b"\r\n"].concat();
        if let Some(content_type) = &head.content_type {
            separator.extend_from_slice(b"Content-Type: ");
            separator.extend_from_slice(content_type);
            if let Some(charset) = head.charset.take() {
                separator.extend_from_slice(b"; charset=");
                separator.extend_from_slice(&charset);
            }
            separator.extend_from_slice(b"\r\n");
        }
        separator.extend_from_slice(b"Content-Range: ");
        let end = [b"\r\n--", &boundary[..], b"--\r\n"].concat();
        let several = Self { parts, length, separator, end };
        let content_type = [b"multipart/byteranges; boundary=", &boundary[..]].concat();
        head.content_type = Some(content_type.into());
        head.headers.remove(CONTENT_RANGE);
        let bytes = |part: &Range<u64>| several.part_head(part).len() as u64 + part.end - part.start;
        let bytes: u64 = several.parts.iter().map(bytes).sum();
        head.content_length = Some(bytes + several.end.len() as u64);
        several
    }

    fn part_head(&self, part: &Range<u64>) -> Vec<u8> {
        [&self.separator[..], content_range(part, self.length).as_bytes(), b"\r\n\r\n"].concat()
    }
}

impl BodyFilter for Several {
    fn input(&self) -> Input {
        Input::Anything
    }

    fn push<'c>(&mut self, mut chunk: Chunk<'c>, _: Mark, next: &mut Next<'_, 'c>) {
        debug_assert_eq!(chunk.len(), self.length, "who allows ranges pushes the body in one chunk");
        if chunk.len() == self.length {
            chunk.share();
            for part in &self.parts {
                next.push(Chunk::Owned(self.part_head(part)), Mark::More);
                next.push(chunk.part(part.clone()), Mark::More);
            }
        }
        // A body that is not the announced one ends too early, and the connection with it.
        next.push(Chunk::Owned(std::mem::take(&mut self.end)), Mark::Last);
    }
}

fn are_in_order(parts: &[Range<u64>]) -> bool {
    parts.windows(2).all(|two| two[0].end <= two[1].start)
}

/// The parts of a body that comes in any number of chunks, for ranges in ascending order.
struct InOrder {
    several: Several,
    /// How much has come, bytes.
    at: u64,
    /// The first part that has not come as a whole.
    nth: usize,
}

impl BodyFilter for InOrder {
    fn push<'c>(&mut self, mut chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        chunk.share();
        let (at, end) = (self.at, self.at + chunk.len());
        self.at = end;
        while let Some(part) = self.several.parts.get(self.nth)
            && part.start < end
        {
            if part.start >= at {
                next.push(Chunk::Owned(self.several.part_head(part)), Mark::More);
            }
            next.push(chunk.part(part.start.max(at) - at..part.end.min(end) - at), Mark::More);
            if part.end > end {
                break;
            }
            self.nth += 1;
        }
        if self.nth == self.several.parts.len() && !self.several.end.is_empty() {
            next.push(Chunk::Owned(std::mem::take(&mut self.several.end)), Mark::Last);
        } else if mark != Mark::More {
            // One that ends too early ends the connection with it.
            next.push(Chunk::EMPTY, mark);
        }
    }
}

/// Twenty digits that no other response of this process has.
fn next_boundary() -> Vec<u8> {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0) >> 32));
    format!("{:020}", NEXT.fetch_add(1, Ordering::Relaxed)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(specs: &str, max_ranges: Option<u64>) -> Wanted {
        parse(specs.as_bytes(), 100, max_ranges)
    }

    #[test]
    fn one_part() {
        let one = |specs| match parts(specs, None) {
            Wanted::Parts(parts) if parts.len() == 1 => (parts[0].start, parts[0].end),
            other => panic!("{specs}: {other:?}"),
        };
        assert_eq!([one("0-0"), one("5-"), one("-7"), one("-500")], [(0, 1), (5, 100), (93, 100), (0, 100)]);
        assert_eq!([one(" 1 - 2 "), one("98-9999"), one("100-,3-3")], [(1, 3), (98, 100), (3, 4)]);
    }

    #[test]
    fn nothing_that_there_is() {
        for specs in [
            "100-", "100-200", "x", "1-x", "1", "-", "--1", "1--2", "1-2x", "1 2-3", "", "- 5", "-5\t",
            "5-\t",
        ] {
            assert_eq!(parts(specs, None), Wanted::Nothing, "{specs:?}");
        }
        assert_eq!(parts("9223372036854775808-", None), Wanted::Nothing);
        assert_eq!(parts("1-9223372036854775808", None), Wanted::Nothing);
    }

    #[test]
    fn everything() {
        assert_eq!(parts("0-49,40-99", None), Wanted::Everything, "more than there is");
        assert_eq!(parts("-0", None), Wanted::Nothing, "the last 0 bytes");
        assert_eq!(parts("1-1,2-2,3-3", Some(2)), Wanted::Everything);
        assert_eq!(parts("1-1,2-2", Some(2)), Wanted::Parts(vec![1..2, 2..3]));
        assert_eq!(parse(b"-5", 0, None), Wanted::Everything);
        assert_eq!(parse(b"0-", 0, None), Wanted::Everything);
        let many = (0..17).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
        assert_eq!(parts(&many, None), Wanted::Everything, "their heads would be more than the whole");
        assert!(matches!(parts(&many, Some(100)), Wanted::Parts(parts) if parts.len() == 17));
    }
}
