//! Regular expressions: nginx's dialect is PCRE2 on bytes, and this file alone knows that crate.
//!
//! Compiled at load, shared by all loops, executed on loops without waiting: an expression keeps scratch
//! memory for a match, and some more for when several threads match at once; it is only tried for, never
//! waited for. The work of one match is bounded ([`MATCH_STEPS_MAX`] or `pcre_match_limit`,
//! [`JIT_STACK_MAX_BYTES`]); what exceeds that is an error, as in nginx, and what takes long below it is a
//! matter for the hand-over.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use clearway_base::log::Verbatim;
use clearway_metrics::Counter;
use pcre2::bytes::CaptureLocations;
use smallvec::SmallVec;

/// Most steps of backtracking that one match may take: PCRE2's own limit, which `pcre_match_limit` can
/// only lower.
pub const MATCH_STEPS_MAX: u64 = 10_000_000;

/// Matches that were given up.
pub static LIMITS_HIT: Counter = Counter::new(
    "pcre_limits_hit_total",
    "matches",
    "Matches of regular expressions that were given up because they took more steps than pcre_match_limit \
     or too much memory; each is an alert in the error log and a 500. The expression named there backtracks \
     too much on some input.",
);

/// Most memory that one match of compiled code may use for backtracking, in bytes.
pub const JIT_STACK_MAX_BYTES: usize = 1 << 20;

/// Most scratch buffers that one expression keeps beside its first; more are made when more threads match
/// at once.
const STOCK_MAX: usize = 15;

/// Whether letters match in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// `~`
    Sensitive,
    /// `~*`
    Insensitive,
}

/// A capturing group with a name, `(?<name>…)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGroup {
    /// The name, which becomes that of a variable.
    pub name: Box<str>,
    /// Number of the group, from 1.
    pub group: usize,
    /// The variable that takes its text, as [`Regex::bind_names`] was told; 0 before.
    pub variable: u32,
}

/// A compiled expression.
pub struct Regex {
    code: Arc<Code>,
    pattern: Box<[u8]>,
    case: Case,
    names: Vec<NamedGroup>,
}

/// The compiled code that expressions share which are written alike.
struct Code {
    code: pcre2::bytes::Regex,
    groups: usize,
    /// The beginning of every subject that matches.
    prefix: Box<[u8]>,
    /// No other has or had it.
    number: u64,
    /// Locked for the length of a match.
    scratch: Mutex<Option<CaptureLocations>>,
    /// Scratch memory for threads that find `scratch` locked. Locked for a moment.
    stock: Mutex<Vec<CaptureLocations>>,
}

/// Numbers of expressions that were given away; 0 is none.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Expressions by their text. The servers of a large configuration repeat a few of them thousands of times,
/// and the next configuration has most of those of the one in use.
static KNOWN: LazyLock<Mutex<KnownCode>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct KnownCode {
    by_text: HashMap<(Case, String), Weak<Code>>,
    /// How many there may be before those are looked for that nobody has any more.
    sweep_at: usize,
}

impl KnownCode {
    fn insert(&mut self, case: Case, text: String, code: &Arc<Code>) {
        if self.by_text.len() >= self.sweep_at {
            self.by_text.retain(|_, code| code.strong_count() > 0);
            self.sweep_at = 2 * self.by_text.len() + SWEEP_MIN;
        }
        self.by_text.insert((case, text), Arc::downgrade(code));
    }
}

/// Below so many expressions nobody looks for those that are gone.
const SWEEP_MIN: usize = 64;

impl Code {
    /// Compiles an expression, unless somebody has it.
    fn of(text: String, case: Case, prefix: &[u8]) -> Result<Arc<Self>, CompileError> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (case, text);
        if let Some(code) = known().by_text.get(&key).and_then(Weak::upgrade) {
            return Ok(code);
        }
        let (_, text) = key;
        let code = build(&text, case).map_err(|error| CompileError::new(&text, &error))?;
        let code = Arc::new(Self {
            groups: code.captures_len() - 1,
            prefix: prefix.into(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed) + 1,
            scratch: Mutex::default(),
            stock: Mutex::default(),
            code,
        });
        known().insert(case, text, &code);
        Ok(code)
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex(\"{}\")", self.pattern.escape_ascii())
    }
}

impl Regex {
    /// Compiles a pattern of the configuration.
    ///
    /// # Errors
    /// In nginx's words, with the rest of the pattern from the place of the error on.
    pub fn compile(pattern: &[u8], case: Case) -> Result<Self, CompileError> {
        let code = Code::of(as_text(pattern), case, prefix(pattern))?;
        let names = code.code.capture_names().iter().enumerate();
        let names = names.filter_map(|(group, name)| {
            name.as_ref().map(|name| NamedGroup { name: name.as_str().into(), group, variable: 0 })
        });
        Ok(Self { pattern: pattern.into(), case, names: names.collect(), code })
    }

    /// Bounds the steps that a match may take.
    pub fn limit(&mut self, steps: u64) {
        debug_assert!(steps <= MATCH_STEPS_MAX);
        let text = format!("(*LIMIT_MATCH={steps}){}", as_text(&self.pattern));
        let code = Code::of(text, self.case, prefix(&self.pattern));
        self.code = code.expect("it is an expression without the limit");
    }

    /// The pattern as configured.
    #[must_use]
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// Number of capturing groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.code.groups
    }

    /// The groups that have names, by number.
    #[must_use]
    pub fn names(&self) -> &[NamedGroup] {
        &self.names
    }

    /// Asks for the variable of each named group and keeps the answers in [`Self::names`].
    ///
    /// # Errors
    /// The first one that `variable` returns.
    pub fn bind_names<E>(&mut self, mut variable: impl FnMut(&str) -> Result<u32, E>) -> Result<(), E> {
        for named in &mut self.names {
            named.variable = variable(&named.name)?;
        }
        Ok(())
    }

    /// Whether the expression matches somewhere in `subject`. When it does, `captures` holds its groups
    /// afterwards (none if it has no groups, as in nginx); when it does not, `captures` is left alone.
    ///
    /// # Errors
    /// When a limit of PCRE2 was reached; the request is to be answered with 500.
    pub fn exec(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, MatchError> {
        if self.rules_out(subject) {
            return Ok(false);
        }
        self.code.exec(subject, captures).map_err(|error| {
            LIMITS_HIT.increment();
            MatchError { code: error.code() }
        })
    }

    /// Whether the beginning of a subject is enough to see that it does not match.
    pub fn rules_out(&self, subject: &[u8]) -> bool {
        let prefix = &self.code.prefix[..];
        match self.case {
            Case::Sensitive => !subject.starts_with(prefix),
            Case::Insensitive => {
                let start = subject.get(..prefix.len());
                !start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            }
        }
    }
}

impl Code {
    fn exec(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, pcre2::Error> {
        if let Ok(mut scratch) = self.scratch.try_lock() {
            let scratch = scratch.get_or_insert_with(|| self.code.capture_locations());
            return self.exec_with(scratch, subject, captures);
        }
        let kept = self.stock.try_lock().ok().and_then(|mut stock| stock.pop());
        let mut scratch = kept.unwrap_or_else(|| self.code.capture_locations());
        let found = self.exec_with(&mut scratch, subject, captures);
        if let Ok(mut stock) = self.stock.try_lock()
            && stock.len() < STOCK_MAX
        {
            stock.push(scratch);
        }
        found
    }

    fn exec_with(
        &self,
        scratch: &mut CaptureLocations,
        subject: &[u8],
        captures: &mut Captures,
    ) -> Result<bool, pcre2::Error> {
        let found = self.code.captures_read(scratch, subject)?.is_some();
        if found {
            captures.take_from(scratch, self);
        }
        Ok(found)
    }
}

/// The text that all subjects of an expression begin with, as far as its first characters tell: what stands
/// between a `^` and the first character that may have another meaning. Empty where there are, or might
/// be, other branches.
fn prefix(pattern: &[u8]) -> &[u8] {
    let Some(text) = pattern.strip_prefix(b"^").filter(|rest| has_one_branch(rest)) else { return b"" };
    let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-');
    let len = text.iter().take_while(is_plain).count();
    match text.get(len) {
        // It is about the last one of them.
        Some(b'?' | b'*' | b'+' | b'{') => &text[..len.saturating_sub(1)],
        _ => &text[..len],
    }
}

/// Whether there is certainly no `|` outside of parentheses.
fn has_one_branch(pattern: &[u8]) -> bool {
    if memchr::memchr(b'|', pattern).is_none() {
        return true;
    }
    let mut depth = 0_usize;
    let mut rest = pattern;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind) {
            (b'\\', [b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'b' | b'B', behind @ ..]) => rest = behind,
            (b'\\', [byte, behind @ ..]) if byte.is_ascii_punctuation() => rest = behind,
            (b'(', [b'?', b':' | b'<', ..]) => depth += 1,
            // Other escapes, sets, and what is no group: they may hide parentheses.
            (b'\\' | b'[', _) | (b'(', [b'?' | b'*', ..]) => return false,
            (b'(', _) => depth += 1,
            (b')', _) if depth == 0 => return false,
            (b')', _) => depth -= 1,
            (b'|', _) if depth == 0 => return false,
            _ => {}
        }
    }
    true
}

fn build(text: &str, case: Case) -> Result<pcre2::bytes::Regex, pcre2::Error> {
    pcre2::bytes::RegexBuilder::new()
        .caseless(case == Case::Insensitive)
        .jit_if_available(true)
        .max_jit_stack_size(Some(JIT_STACK_MAX_BYTES))
        .build(text)
}

/// PCRE2 without its UTF mode takes any bytes but the binding wants text, so bytes that are no UTF-8
/// are written as escapes. (A backslash before such a byte means the byte itself and is dropped.)
fn as_text(pattern: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(pattern) {
        return text.to_owned();
    }
    let mut text = String::with_capacity(2 * pattern.len());
    let mut escaped = false;
    for &byte in pattern {
        if byte.is_ascii() {
            text.push(char::from(byte));
        } else {
            if escaped {
                text.pop();
            }
            text.push_str(&format!("\\x{byte:02x}"));
        }
        escaped = byte == b'\\' && !escaped;
    }
    text
}

/// Where the groups of the last successful match stood in its subject: `$1` to `$9`. Group 0 is the
/// whole match.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    ranges: SmallVec<[(u32, u32); 4]>,
    /// Number of the expression whose groups they are, 0 while there are none.
    of: u64,
}

/// Start of a group that took no part in the match.
const UNSET: u32 = u32::MAX;

impl Captures {
    /// The range of a group in the subject; `None` when it took no part in the match.
    #[must_use]
    pub fn get(&self, group: usize) -> Option<Range<usize>> {
        let &(start, end) = self.ranges.get(group)?;
        (start != UNSET).then_some(start as usize..end as usize)
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.of = 0;
    }

    /// Whether these are groups of that expression or of one that is written alike. In the same subject it
    /// will find the same.
    pub fn are_of(&self, regex: &Regex) -> bool {
        self.of == regex.code.number
    }

    fn take_from(&mut self, scratch: &CaptureLocations, code: &Code) {
        self.clear();
        if code.groups == 0 {
            return;
        }
        self.of = code.number;
        let offset = |at: usize| u32::try_from(at).expect("requests are far smaller than 4 GiB");
        for group in 0..=code.groups {
            self.ranges.push(match scratch.get(group) {
                // `\K` can set a start behind the end.
                Some((start, end)) => (offset(start.min(end)), offset(end)),
                None => (UNSET, UNSET),
            });
        }
    }
}

/// A pattern that is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    reason: String,
    pattern: String,
    /// Where in the pattern the error was found.
    offset: usize,
}

impl CompileError {
    fn new(pattern: &str, error: &pcre2::Error) -> Self {
        // The binding offers PCRE2's text only behind words of its own.
        let text = error.to_string();
        let mut parts = text.splitn(3, ": ");
        let reason = parts.nth(2).unwrap_or(&text).to_owned();
        Self { reason, pattern: pattern.to_owned(), offset: error.offset().unwrap_or(pattern.len()) }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pcre2_compile() failed: {} in \"{}\"", self.reason, self.pattern)?;
        let rest = self.pattern.as_bytes().get(self.offset..).unwrap_or_default();
        if !rest.is_empty() {
            write!(f, " at \"{}\"", String::from_utf8_lossy(rest))?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// A match that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchError {
    /// PCRE2's number: -47 match limit, -46 stack of compiled code, -63 heap.
    pub code: i32,
}

impl MatchError {
    /// The line for the error log (level alert).
    #[must_use]
    pub fn describe(self, subject: &[u8], regex: &Regex) -> String {
        format!(
            "pcre2_match() failed: {} on \"{}\" using \"{}\"",
            self.code,
            Verbatim(subject),
            Verbatim(&regex.pattern)
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compile(pattern: &[u8]) -> Regex {
        Regex::compile(pattern, Case::Sensitive).unwrap()
    }

    #[test]
    fn groups_are_ranges_of_the_subject() {
        let regex = compile(br"^/(\w+)(-x)?/(?<file>.*)$");
        let mut captures = Captures::default();
        assert!(regex.exec(b"/ab/c.d", &mut captures).unwrap());
        assert_eq!(captures.get(0), Some(0..7));
        assert_eq!(captures.get(1), Some(1..3));
        assert_eq!(captures.get(2), None);
        assert_eq!(captures.get(3), Some(4..7));
        assert_eq!(captures.get(4), None);
        assert_eq!(regex.groups(), 3);

        assert!(!regex.exec(b"nothing", &mut captures).unwrap());
        assert_eq!(captures.get(1), Some(1..3), "a failed match changes nothing");
        assert!(compile(b"b/c").exec(b"/ab/c.d", &mut captures).unwrap());
        assert_eq!(captures.get(0), None, "an expression without groups captures nothing");
    }

    #[test]
    fn those_that_are_written_alike_are_one() {
        let first = compile(br"^/alike/(?<name>\w+)$");
        let second = compile(br"^/alike/(?<name>\w+)$");
        assert!(Arc::ptr_eq(&first.code, &second.code));
        let other = Regex::compile(br"^/alike/(?<name>\w+)$", Case::Insensitive).unwrap();
        assert!(!Arc::ptr_eq(&first.code, &other.code));
        let mut limited = compile(br"^/alike/(?<name>\w+)$");
        limited.limit(100);
        assert!(!Arc::ptr_eq(&first.code, &limited.code));
        let mut captures = Captures::default();
        assert!(limited.exec(b"/alike/x", &mut captures).unwrap());
        assert_eq!((captures.get(1), limited.groups()), (Some(7..8), 1));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        for number in 0..10 * SWEEP_MIN {
            compile(format!("forgotten{number}").as_bytes());
        }
        let known = KNOWN.lock().unwrap();
        let left = known.by_text.keys().filter(|(_, text)| text.starts_with("forgotten")).count();
        assert!(left < 10 * SWEEP_MIN, "{left}");
    }

    #[test]
    fn names_are_bound_in_order() {
        let mut regex = compile(br"(?<a>x)(y)(?P<b>z)");
        let mut next = 40;
        regex
            .bind_names(|_| {
                next += 1;
                Ok::<_, ()>(next)
            })
            .unwrap();
        let seen: Vec<_> = regex.names().iter().map(|n| (&*n.name, n.group, n.variable)).collect();
        assert_eq!(seen, [("a", 1, 41), ("b", 3, 42)]);
        assert_eq!(regex.bind_names(|name| Err::<u32, _>(name.len())), Err(1));
    }

    #[test]
    fn case_is_ascii_and_text_is_bytes() {
        let mut captures = Captures::default();
        let regex = Regex::compile(b"^/A\xc3\xa9", Case::Insensitive).unwrap();
        assert!(regex.exec(b"/a\xc3\xa9", &mut captures).unwrap());
        assert!(!compile(b"^/A").exec(b"/a", &mut captures).unwrap());
        let latin = compile(b"^\\\xe9[\xe8\xea]$");
        assert!(latin.exec(b"\xe9\xea", &mut captures).unwrap());
        assert!(compile(b"").exec(b"", &mut captures).unwrap());
    }

    /// The texts of nginx 1.31.5 with the same PCRE2.
    #[test]
    fn errors_in_the_words_of_nginx() {
        let table: [(&[u8], &str); 3] = [
            (b"(abc", "pcre2_compile() failed: missing closing parenthesis in \"(abc\""),
            (b"a[b", "pcre2_compile() failed: missing terminating ] for character class in \"a[b\""),
            (
                b"^/a(?<1x>b)/c",
                "pcre2_compile() failed: subpattern name must start with a non-digit in \"^/a(?<1x>b)/c\" \
                 at \"1x>b)/c\"",
            ),
        ];
        for (pattern, expected) in table {
            let error = Regex::compile(pattern, Case::Sensitive).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn runaway_matches_end_with_an_error() {
        let regex = compile(b"^(a+)+$|^(?:(?:a|a)*)*b");
        let subject = [b'a'; 60].iter().copied().chain(*b"!").collect::<Vec<u8>>();
        let error = regex.exec(&subject, &mut Captures::default()).unwrap_err();
        assert_eq!(error.code, -47);
        assert!(
            error.describe(b"/x", &regex).starts_with("pcre2_match() failed: -47 on \"/x\" using \"^(a+)+")
        );
    }

    #[test]
    fn a_lower_limit_is_reached_sooner_and_changes_nothing_else() {
        let pattern = b"^(?<all>(?:a|a)*)(b)";
        let mut regex = Regex::compile(pattern, Case::Insensitive).unwrap();
        regex.bind_names(|_| Ok::<_, ()>(3)).unwrap();
        let mut captures = Captures::default();
        let subject = b"aaaaaaaaaaaaaacb";
        assert_eq!(regex.exec(subject, &mut captures), Ok(false));
        regex.limit(1_000);
        let before = LIMITS_HIT.value();
        assert_eq!(regex.exec(subject, &mut captures), Err(MatchError { code: -47 }));
        assert!(LIMITS_HIT.value() > before);
        assert_eq!(regex.exec(b"AAB", &mut captures), Ok(true));
        assert_eq!((captures.get(1), captures.get(2)), (Some(0..2), Some(2..3)));
        assert_eq!((regex.pattern(), regex.names()[0].variable), (&pattern[..], 3));
    }

    #[test]
    fn threads_share_one_expression() {
        let regex = compile(br"^/(\d+)/(\d+)$");
        let check = |thread: usize| {
            let mut captures = Captures::default();
            for n in 0..2000 {
                let subject = format!("/{thread}/{n}");
                assert!(regex.exec(subject.as_bytes(), &mut captures).unwrap());
                assert_eq!(subject[captures.get(2).unwrap()], n.to_string());
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || check(thread));
            }
        });
        assert!(regex.code.stock.lock().unwrap().len() <= STOCK_MAX);
    }

    #[test]
    fn who_finds_the_scratch_memory_in_use_takes_other() {
        let regex = compile(b"^/in-use/(a+)");
        let mut captures = Captures::default();
        let used = regex.code.scratch.lock().unwrap();
        for _ in 0..2 {
            assert!(regex.exec(b"/in-use/aab", &mut captures).unwrap());
            assert_eq!(captures.get(1), Some(8..10));
        }
        assert_eq!(regex.code.stock.lock().unwrap().len(), 1);
        assert!(used.is_none());
    }

    #[test]
    fn groups_know_whose_they_are() {
        let same = [compile(b"^/(a+)"), compile(b"^/(a+)")];
        let others = [compile(b"^/(a*)"), Regex::compile(b"^/(a+)", Case::Insensitive).unwrap()];
        let mut captures = Captures::default();
        assert!(!captures.are_of(&same[0]));
        assert!(same[0].exec(b"/a", &mut captures).unwrap());
        assert!(same.iter().all(|regex| captures.are_of(regex)));
        assert!(!others.iter().any(|regex| captures.are_of(regex)));
        captures.clear();
        assert!(!captures.are_of(&same[0]));
        let without = compile(b"^/a");
        assert!(without.exec(b"/a", &mut captures).unwrap());
        assert!(!captures.are_of(&without), "there are none");
    }

    #[test]
    fn prefixes_end_where_another_meaning_may_begin() {
        for (pattern, expected) in [
            ("^/user/(\\d+)/(.*)$", "/user/"),
            ("^/a-b_c9", "/a-b_c9"),
            ("^/ab?c", "/a"),
            ("^/ab*", "/a"),
            ("^/ab{0,2}", "/a"),
            ("^?", ""),
            ("^/a\\.b", "/a"),
            ("^/a|b", ""),
            ("^/a(b|c)", "/a"),
            ("^/a(?:b|\\w+\\()|c", ""),
            ("^/a(?<x>b|\\.)c", "/a"),
            ("^/a(b)|c", ""),
            ("^/a[(]|b", ""),
            ("^/a\\c(|b", ""),
            ("^/a\\Q(\\E|b", ""),
            ("^/a(?#()|b", ""),
            ("^/a(*COMMIT)(b|c)", ""),
            ("/a", ""),
            ("(?i)^/a", ""),
        ] {
            let found = String::from_utf8_lossy(prefix(pattern.as_bytes()));
            assert_eq!(found, expected, "{pattern}");
        }
        let regex = Regex::compile(b"^/Ab(.)", Case::Insensitive).unwrap();
        let mut captures = Captures::default();
        assert!(regex.exec(b"/aBc", &mut captures).unwrap());
        assert!(!regex.exec(b"/a", &mut captures).unwrap());
        assert!(regex.rules_out(b"/a") && regex.rules_out(b"") && !regex.rules_out(b"/ABx"));
    }

    proptest! {
        #[test]
        fn what_is_ruled_out_does_not_match(
            pattern in "\\^[ab]{0,2}([ab|()?*+.$\\[\\]{}1,\\\\dQE#:<>ix^-]|\\(\\?|\\|){0,12}",
            subject in "[abAB(|x1]{0,6}",
            case in prop_oneof![Just(Case::Sensitive), Just(Case::Insensitive)],
        ) {
            if let Ok(regex) = Regex::compile(pattern.as_bytes(), case)
                && regex.rules_out(subject.as_bytes())
            {
                let found = regex.code.code.is_match(subject.as_bytes());
                prop_assert!(!found.unwrap(), "{pattern} {subject}");
            }
        }
    }
}
