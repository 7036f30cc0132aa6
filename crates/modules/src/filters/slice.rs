//! `slice` and `$slice_range`: a large response is asked for in parts, one after the other, each by a request
//! of its own to an upstream server; the first one by the request itself, the others by subrequests of it.
//! Runs on the loop of the request.
//!
//! As in nginx, reading the variable turns the header filter on: what is answered then has to be the part
//! that was meant, or all of it. Which part of all that the client wants is cut out by the range filter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, ContextKey, Cost, Delivery, Enabling, Exchange, FilterSpec, Filtering,
    HeaderName, Input, Lasts, Level, Load, Mark, Module, Next, Phase, PhaseHandler, Presence, Ranges,
    Request, ResponseHead, Setting, Step, Subrequest, SubrequestOutcome, VariableKind, VariableSpec, View,
    context, set, settings,
};
use clearway_message::Known;
use clearway_runtime::TaskCell;

/// The module. It comes before all modules that evaluate variables, and before all other filters.
pub static SLICE: Module = Module {
    name: "slice",
    directives: DIRECTIVES,
    confs: &[&SLICE_CONF],
    variables: VARIABLES,
    phases: PHASES,
    filters: &[FilterSpec { enabled: is_used, filter }],
    ..Module::EMPTY
};

const NAME: &str = "slice_range";

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "slice",
    contexts: context::ALL,
    args: Args::TAKE1,
    syntax: "slice SIZE",
    default: "slice 0;",
    doc: "The size of the parts in which a response is asked for, one after the other; 0 is no parts. Where \
          a request has read `$slice_range`, a response with status 206 must be the part that was asked for; \
          another one is passed on as it is.",
    example: "
        location /video/ {
            slice 1m;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:8080;
        }",
    see: &["max_ranges", "proxy_force_ranges"],
    handler: |scope, directive| {
        set(directive, &mut scope.conf.location(&SLICE_CONF).size, |directive| directive.size(0))
    },
}];

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: NAME,
    kind: VariableKind::Exact,
    doc: "The part of the response, in the form of `Range`, in which what the client wants begins. Not for \
          subrequests, and not once there is a status.",
    eval: |view, _, out| {
        Presence::put(range(view).map(|range| range.to_string()).as_deref().map(str::as_bytes), out)
    },
}];

static PHASES: &[PhaseHandler] = &[
    PhaseHandler { phase: Phase::ServerRewrite, cost: Cost::Cheap, enabled: is_used, handler: prepare },
    PhaseHandler { phase: Phase::Rewrite, cost: Cost::Cheap, enabled: is_used, handler: prepare },
];

static SLICE_CONF: ConfKey<SliceConf> = ConfKey::new(Level::Location);

settings! {
    /// Size of a part, bytes; 0: there are none.
    struct SliceConf {
        size: Setting<u64>,
    }
}

static SLICE_CONTEXT: ContextKey<Arc<Slice>> = ContextKey::new(Lasts::UntilRedirect);
static ASKED_PART: ContextKey<AskedPart> = ContextKey::new(Lasts::Common);

/// The slices of which a part is asked for by a subrequest.
#[derive(Default)]
struct AskedPart(TaskCell<Option<Arc<Slice>>>);

/// The state of the variable in a request, up to an internal redirect. One task reads and writes.
struct Slice {
    /// Where the next part begins, or one of the two numbers below, which no position is.
    start: AtomicU64,
    size: AtomicU64,
    /// How long all of it is, bytes.
    length: AtomicU64,
    /// Whether the part that was asked for last has come.
    has_come: AtomicBool,
    /// The tag of the first part, which the others must have, too.
    etag: TaskCell<Option<Vec<u8>>>,
}

/// The variable was not read yet.
const UNREAD: u64 = u64::MAX;
/// There is another response than a part.
const GONE: u64 = u64::MAX - 1;

/// First byte and number of bytes of a part.
struct Range {
    start: u64,
    size: u64,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As in nginx the end of the last part that there can be is beyond what a number can be.
        let last = self.start.wrapping_add(self.size).wrapping_sub(1).cast_signed();
        write!(f, "bytes={}-{last}", self.start)
    }
}

fn is_used(enabling: &Enabling<'_>) -> bool {
    enabling.variables.is_used(NAME.as_bytes())
}

/// Makes room for what is read later, where nothing can be kept any more.
fn prepare<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let request = exchange.request;
    let has_parts = *request.conf(&SLICE_CONF).size > 0;
    if has_parts && request.is_main() && request.context(&SLICE_CONTEXT).is_none() {
        request.set_context(&SLICE_CONTEXT, Arc::new(Slice::new()));
    }
    Step::Declined
}

fn range(view: &View<'_, '_>) -> Option<Range> {
    let slice = slice_of(view.request)?;
    match slice.start.load(Ordering::Relaxed) {
        GONE => None,
        UNREAD => {
            let size = *view.request.conf(&SLICE_CONF).size;
            if size == 0 || view.status() != 0 {
                return None;
            }
            let start = wanted_start(view.request) / size * size;
            slice.start.store(start, Ordering::Relaxed);
            slice.size.store(size, Ordering::Relaxed);
            Some(Range { start, size })
        }
        start => Some(Range { start, size: slice.size.load(Ordering::Relaxed) }),
    }
}

/// The first byte that the client wants.
fn wanted_start(request: &Request<'_>) -> u64 {
    match request.header(Known::Range) {
        Some(range) if request.header(Known::IfRange).is_none() => parse_start(range),
        _ => 0,
    }
}

/// The first byte of the only part that a `Range` asks for; 0 where that is not said.
fn parse_start(range: &[u8]) -> u64 {
    let Some((unit, spec)) = range.split_at_checked(b"bytes=".len()) else { return 0 };
    if !unit.eq_ignore_ascii_case(b"bytes=") || spec.contains(&b',') {
        return 0;
    }
    let spec = spec.trim_ascii_start();
    let digits = spec.iter().take_while(|byte| byte.is_ascii_digit());
    let number = |number: u64, digit: &u8| number.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    digits.into_iter().try_fold(0, number).filter(|&start| start <= i64::MAX as u64).unwrap_or(0)
}

/// The slice of a request, or of the request that it asks a part for.
fn slice_of(request: &Request<'_>) -> Option<Arc<Slice>> {
    if request.is_main() {
        return request.context(&SLICE_CONTEXT).cloned();
    }
    let asked = request.is_clone().then(|| request.find_common_context(&ASKED_PART))??;
    asked.0.enter().clone()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let slice = slice_of(request)?;
    if matches!(slice.start.load(Ordering::Relaxed), UNREAD | GONE) {
        return None;
    }
    let status = filtering.head().status;
    if status != 206 && request.is_main() {
        slice.start.store(GONE, Ordering::Relaxed);
        return None;
    }
    let taken = if status == 206 { slice.take(filtering.head()) } else { Err(Fault::Status(status)) };
    if let Err(fault) = taken {
        request.log(LogLevel::Error, format_args!("{fault}"));
        filtering.abandon();
        return None;
    }
    request.is_main().then(|| Box::new(Parts { slice, end: None, waiting: None }) as Box<dyn BodyFilter>)
}

/// Why a response is not the part that was asked for, in nginx's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Status(u16),
    Etag,
    Malformed,
    NoLength,
    Other { start: u64, end: u64, expected: (u64, u64) },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "unexpected status code {status} in slice response"),
            Self::Etag => f.write_str("etag mismatch in slice response"),
            Self::Malformed => f.write_str("invalid range in slice response"),
            Self::NoLength => f.write_str("no complete length in slice response"),
            Self::Other { start, end, expected: (from, to) } => {
                write!(f, "unexpected range in slice response: {start}-{end}, expected: {from}-{to}")
            }
        }
    }
}

const CONTENT_RANGE: HeaderName<'_> = HeaderName::new(b"Content-Range");

impl Slice {
    fn new() -> Self {
        Self {
            start: AtomicU64::new(UNREAD),
            size: AtomicU64::new(0),
            length: AtomicU64::new(0),
            has_come: AtomicBool::new(false),
            etag: TaskCell::default(),
        }
    }

    /// Takes the head of a part for one of all of it.
    fn take(&self, head: &mut ResponseHead<'_>) -> Result<(), Fault> {
        let mut etag = self.etag.enter();
        if etag.is_some() && *etag != head.etag.as_deref().map(<[u8]>::to_vec) {
            return Err(Fault::Etag);
        }
        if let Some(own) = &head.etag {
            *etag = Some(own.to_vec());
        }
        let value = head.headers.first_known(Known::ContentRange).ok_or(Fault::Malformed)?;
        let ContentRange { start, end, length } = ContentRange::parse(value).ok_or(Fault::Malformed)?;
        let length = length.ok_or(Fault::NoLength)?;
        let expected_end = start.saturating_add(self.size.load(Ordering::Relaxed)).min(length);
        let expected = (self.start.load(Ordering::Relaxed), expected_end);
        if (start, end) != expected {
            return Err(Fault::Other { start, end, expected });
        }
        self.start.store(end, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.has_come.store(true, Ordering::Relaxed);
        head.headers.remove(CONTENT_RANGE);
        head.status = 200;
        head.content_length = Some(length);
        head.ranges = Ranges::OneFrom(start);
        Ok(())
    }
}

/// The values of `Content-Range`: the first byte, the one behind the last, and the length of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentRange {
    start: u64,
    end: u64,
    length: Option<u64>,
}

impl ContentRange {
    fn parse(value: &[u8]) -> Option<Self> {
        let (range, length) = split(value.strip_prefix(b"bytes ")?, b'/')?;
        let (start, last) = split(range, b'-')?;
        let length = if length == b"*" { None } else { Some(number(length)?) };
        Some(Self { start: number(start)?, end: number(last)?.checked_add(1)?, length })
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == at)?;
    Some((text[..at].trim_ascii(), text[at + 1..].trim_ascii()))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(number).filter(|&number: &u64| number < i64::MAX as u64)
}

/// Puts the further parts behind the first one.
struct Parts {
    slice: Arc<Slice>,
    /// Behind which byte nothing is wanted; once the first part is over.
    end: Option<u64>,
    waiting: Option<SubrequestOutcome>,
}

impl BodyFilter for Parts {
    fn input(&self) -> Input {
        Input::Anything
    }

    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if mark != Mark::Last {
            next.push(chunk, mark);
            return;
        }
        if !chunk.is_empty() {
            next.push(chunk, Mark::More);
        }
        self.go_on(next);
    }

    fn is_busy(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.status().is_some())
    }

    fn resume(&mut self, next: &mut Next<'_, '_>) {
        if self.waiting.take().is_some() {
            self.go_on(next);
        }
    }
}

impl Parts {
    /// Asks for the next part, or ends the response.
    fn go_on(&mut self, next: &mut Next<'_, '_>) {
        let slice = &self.slice;
        if !slice.has_come.swap(false, Ordering::Relaxed) {
            next.request().log(LogLevel::Error, format_args!("missing slice response"));
            return next.terminate();
        }
        let end = match self.end {
            Some(end) => end,
            None => *self.end.insert(slice.find_end(next)),
        };
        if slice.start.load(Ordering::Relaxed) >= end {
            slice.start.store(GONE, Ordering::Relaxed);
            return next.push(Chunk::EMPTY, Mark::Last);
        }
        let asked = next.request().common_context(&ASKED_PART);
        *asked.0.enter() = Some(Arc::clone(slice));
        let wanted = Subrequest::clone_of(next.request(), Delivery::InOrder);
        match next.subrequest(wanted) {
            Ok(outcome) => {
                next.wait_for(&outcome);
                self.waiting = Some(outcome);
            }
            Err(_) => next.terminate(),
        }
    }
}

impl Slice {
    /// Where what the client wants ends, as the range filter has put it into the head. Parts that lie before
    /// it are left out.
    fn find_end(&self, next: &mut Next<'_, '_>) -> u64 {
        let head = next.head();
        let length = self.length.load(Ordering::Relaxed);
        let range = head.headers.first_known(Known::ContentRange).filter(|_| head.status == 206);
        let Some(ContentRange { start, end, .. }) = range.and_then(ContentRange::parse) else {
            return length;
        };
        let size = self.size.load(Ordering::Relaxed);
        if self.start.load(Ordering::Relaxed).saturating_add(size) <= start {
            let first = start / size * size;
            self.start.store(first, Ordering::Relaxed);
            next.skip_to(first);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_ranges() {
        for (range, start) in [
            ("bytes=25-", 25),
            ("BYTES= 25-30", 25),
            ("bytes=25", 25),
            ("bytes=25x-", 25),
            ("bytes=-5", 0),
            ("bytes=25-30,40-50", 0),
            ("bytes=25,", 0),
            ("octets=25-", 0),
            ("bytes=", 0),
            ("byte", 0),
            ("bytes=9223372036854775807-", i64::MAX as u64),
            ("bytes=9223372036854775808-", 0),
            ("bytes=99999999999999999999999-", 0),
        ] {
            assert_eq!(parse_start(range.as_bytes()), start, "{range}");
        }
    }

    #[test]
    fn content_ranges() {
        let parse = |text: &str| ContentRange::parse(text.as_bytes());
        let range = |start, end, length| Some(ContentRange { start, end, length });
        assert_eq!(parse("bytes 0-9/100"), range(0, 10, Some(100)));
        assert_eq!(parse("bytes  10 - 19 / * "), range(10, 20, None));
        for text in ["", "bytes", "bytes 1-2", "bytes 1/2", "bytes -2/3", "bytes 1-x/3", "bytes */3"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("bytes 0-9223372036854775807/1"), None);
        assert_eq!(parse("bytes 0-99999999999999999999/1"), None);
    }

    #[test]
    fn a_part_is_the_one_that_was_asked_for() {
        let taken = |value: &str, etag: Option<&'static str>| {
            let slice = Slice::new();
            slice.start.store(10, Ordering::Relaxed);
            slice.size.store(10, Ordering::Relaxed);
            *slice.etag.enter() = Some(b"\"a\"".to_vec());
            let mut head = ResponseHead { status: 206, ..ResponseHead::default() };
            head.etag = etag.map(|etag| etag.as_bytes().into());
            head.headers.add(CONTENT_RANGE.text(), value.as_bytes());
            slice.take(&mut head).map(|()| (head.status, head.content_length, head.ranges))
        };
        let etag = Some("\"a\"");
        assert_eq!(taken("bytes 10-19/25", etag), Ok((200, Some(25), Ranges::OneFrom(10))));
        assert_eq!(taken("bytes 10-11/12", etag), Ok((200, Some(12), Ranges::OneFrom(10))));
        let other = |start, end, expected| Err(Fault::Other { start, end, expected });
        assert_eq!(taken("bytes 10-18/25", etag), other(10, 19, (10, 20)));
        assert_eq!(taken("bytes 0-9/25", etag), other(0, 10, (10, 10)));
        assert_eq!(taken("bytes 10-19/*", etag), Err(Fault::NoLength));
        assert_eq!(taken("10-19/25", etag), Err(Fault::Malformed));
        assert_eq!(taken("bytes 10-19/25", Some("\"b\"")), Err(Fault::Etag));
        assert_eq!(taken("bytes 10-19/25", None), Err(Fault::Etag));
    }

    /// As Debian's nginx prints them.
    #[test]
    fn ranges_are_printed() {
        assert_eq!(Range { start: 20, size: 10 }.to_string(), "bytes=20-29");
        let last = Range { start: 9_223_372_036_854_775_800, size: 10 };
        assert_eq!(last.to_string(), "bytes=9223372036854775800--9223372036854775807");
    }
}
