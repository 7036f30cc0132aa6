//! `slice` and `$slice_range`: which part of a large response an upstream server is to be asked for. What is
//! there for upstream servers is missing, as none is asked yet: the further parts. Runs on the loop of the
//! request.
//!
//! As in nginx, reading the variable turns the header filter on: what is answered then has to be the part
//! that was meant, or all of it.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    BodyFilter, ConfKey, ContextKey, Cost, Enabling, Exchange, FilterSpec, Filtering, Lasts, Level, Load,
    Module, Phase, PhaseHandler, Presence, Request, Setting, Step, VariableKind, VariableSpec, View, context,
    set, settings,
};
use clearway_message::Known;

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
    doc: "The size of the parts in which a response is asked for; 0 is no parts. Where a request has read \
          `$slice_range`, a response with status 206 must be the part that was asked for.",
    example: "
        location /video/ {
            slice 1m;
        }",
    see: &["max_ranges"],
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

static SLICE_CONTEXT: ContextKey<Slice> = ContextKey::new(Lasts::UntilRedirect);

/// What the variable was in a request, up to an internal redirect.
struct Slice {
    /// Where the part begins, or one of the two numbers below, which no position is.
    start: AtomicU64,
    size: AtomicU64,
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
        request.set_context(&SLICE_CONTEXT, Slice { start: AtomicU64::new(UNREAD), size: AtomicU64::new(0) });
    }
    Step::Declined
}

fn range(view: &View<'_, '_>) -> Option<Range> {
    let slice = view.request.context(&SLICE_CONTEXT)?;
    // One task reads and writes.
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

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let slice = request.context(&SLICE_CONTEXT)?;
    if matches!(slice.start.load(Ordering::Relaxed), UNREAD | GONE) {
        return None;
    }
    if filtering.head().status != 206 {
        slice.start.store(GONE, Ordering::Relaxed);
        return None;
    }
    // Only an upstream server says which part its answer is.
    request.log(LogLevel::Error, format_args!("invalid range in slice response"));
    filtering.abandon();
    None
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

    /// As Debian's nginx prints them.
    #[test]
    fn ranges_are_printed() {
        assert_eq!(Range { start: 20, size: 10 }.to_string(), "bytes=20-29");
        let last = Range { start: 9_223_372_036_854_775_800, size: 10 };
        assert_eq!(last.to_string(), "bytes=9223372036854775800--9223372036854775807");
    }
}
