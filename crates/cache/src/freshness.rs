//! How long a response may be used according to its header lines, by nginx's rules: X-Accel-Expires overrules
//! Cache-Control, which overrules Expires, in whatever order they come. A response with Set-Cookie or `Vary:
//! *` is not stored. Pure functions.

use clearway_base::date::parse_http_date;
use clearway_base::units::parse_number;

use crate::header::NAME_MAX_BYTES;

/// A set of header lines that are ignored (`proxy_ignore_headers`), as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored(u8);

impl Ignored {
    /// `X-Accel-Expires`.
    pub const ACCEL_EXPIRES: Self = Self(1);
    /// `Expires`.
    pub const EXPIRES: Self = Self(1 << 1);
    /// `Cache-Control`.
    pub const CACHE_CONTROL: Self = Self(1 << 2);
    /// `Set-Cookie`.
    pub const SET_COOKIE: Self = Self(1 << 3);
    /// `Vary`.
    pub const VARY: Self = Self(1 << 4);

    /// The union of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// How long a response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The end of its lifetime, Unix seconds; 0 if the response does not say it, and `proxy_cache_valid`
    /// decides.
    pub valid_sec: i64,
    /// How long after that it may be used while it is updated, seconds.
    pub updating_sec: i64,
    /// How long after that it may be used if the upstream fails, seconds.
    pub error_sec: i64,
}

/// Evaluates the header lines of one response, in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Freshness {
    now: i64,
    ignored: Ignored,
    lifetime: Lifetime,
    accel: Seen,
    expires: Seen,
    verdict: Verdict,
    /// `Cache-Control` forbids storing; X-Accel-Expires overrules it.
    no_cache: bool,
    /// `Expires` is in the past; the other two lines overrule it.
    expired: bool,
    vary: Vec<u8>,
}

/// Whether a line of which only the first counts has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Not,
    Once,
}

/// A decision that no other line overrules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    MayBeStored,
    Never,
}

impl Freshness {
    /// A response without header lines yet. `now` is in Unix seconds.
    #[must_use]
    pub fn new(now: i64, ignored: Ignored) -> Self {
        Self {
            now,
            ignored,
            lifetime: Lifetime { valid_sec: 0, updating_sec: 0, error_sec: 0 },
            accel: Seen::Not,
            expires: Seen::Not,
            verdict: Verdict::MayBeStored,
            no_cache: false,
            expired: false,
            vary: Vec::new(),
        }
    }

    /// Takes an `X-Accel-Expires`: seconds, or `@` and Unix seconds; 0 forbids storing. Only the first one
    /// counts.
    pub fn accel_expires(&mut self, value: &[u8]) {
        let first = std::mem::replace(&mut self.accel, Seen::Once) == Seen::Not;
        if !first || self.ignored.has(Ignored::ACCEL_EXPIRES) {
            return;
        }
        let number = |text| parse_number(text).and_then(|n| i64::try_from(n).ok());
        let until = match value.strip_prefix(b"@") {
            Some(text) => number(text),
            None => match number(value) {
                Some(0) => {
                    self.verdict = Verdict::Never;
                    None
                }
                seconds => seconds.map(|n| self.now.saturating_add(n)),
            },
        };
        if let Some(until) = until {
            self.lifetime.valid_sec = until;
            self.no_cache = false;
            self.expired = false;
        }
    }

    /// Takes a `Cache-Control`; each of several counts.
    pub fn cache_control(&mut self, value: &[u8]) {
        if self.ignored.has(Ignored::CACHE_CONTROL) {
            return;
        }
        let is_settled = self.lifetime.valid_sec != 0 && self.accel == Seen::Once;
        if !is_settled && !self.max_age(value) {
            return;
        }
        let Ok(updating) = seconds_behind(value, b"stale-while-revalidate=") else {
            self.verdict = Verdict::Never;
            return;
        };
        if let Some(seconds) = updating {
            self.lifetime.updating_sec = seconds;
            self.lifetime.error_sec = seconds;
        }
        match seconds_behind(value, b"stale-if-error=") {
            Ok(None) => {}
            Ok(Some(seconds)) => self.lifetime.error_sec = seconds,
            Err(NotANumber) => self.verdict = Verdict::Never,
        }
    }

    /// Takes the part of `Cache-Control` that X-Accel-Expires overrules. Returns whether the rest is to be
    /// evaluated.
    fn max_age(&mut self, value: &[u8]) -> bool {
        let forbids = [&b"no-cache"[..], b"no-store", b"private"];
        if forbids.iter().any(|word| behind(value, word).is_some()) {
            self.no_cache = true;
            return false;
        }
        let shared = seconds_behind(value, b"s-maxage=");
        let age = if shared == Ok(None) { seconds_behind(value, b"max-age=") } else { shared };
        match age {
            Ok(None) => true,
            Ok(Some(0)) => {
                self.no_cache = true;
                false
            }
            Ok(Some(seconds)) => {
                self.lifetime.valid_sec = self.now.saturating_add(seconds);
                self.expired = false;
                true
            }
            Err(NotANumber) => {
                self.verdict = Verdict::Never;
                false
            }
        }
    }

    /// Takes an `Expires`; only the first one counts, and only if no lifetime is known yet.
    pub fn expires(&mut self, value: &[u8]) {
        let first = std::mem::replace(&mut self.expires, Seen::Once) == Seen::Not;
        if !first || self.ignored.has(Ignored::EXPIRES) || self.lifetime.valid_sec != 0 {
            return;
        }
        match parse_http_date(value).filter(|&until| until >= self.now) {
            Some(until) => self.lifetime.valid_sec = until,
            None => self.expired = true,
        }
    }

    /// Takes a `Set-Cookie`.
    pub fn set_cookie(&mut self) {
        if !self.ignored.has(Ignored::SET_COOKIE) {
            self.verdict = Verdict::Never;
        }
    }

    /// Takes a `Vary`; several are joined to one list.
    pub fn vary(&mut self, value: &[u8]) {
        if self.ignored.has(Ignored::VARY) || self.verdict == Verdict::Never {
            return;
        }
        if !self.vary.is_empty() {
            self.vary.extend_from_slice(b", ");
        }
        self.vary.extend_from_slice(value);
        if value == b"*" || self.vary.len() > NAME_MAX_BYTES {
            self.verdict = Verdict::Never;
        }
    }

    /// The result after all lines: how long the response may be used, `None` if it may not be stored.
    #[must_use]
    pub fn lifetime(&self) -> Option<Lifetime> {
        let may = self.verdict == Verdict::MayBeStored && !self.no_cache && !self.expired;
        may.then_some(self.lifetime)
    }

    /// The request headers that the response depends on, as in `Vary`; empty if there are none.
    #[must_use]
    pub fn varies_by(&self) -> &[u8] {
        &self.vary
    }
}

/// The text where seconds are expected is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotANumber;

/// The text behind the first occurrence of a word, without regard to case; the word may stand anywhere.
fn behind<'v>(value: &'v [u8], word: &[u8]) -> Option<&'v [u8]> {
    let at = value.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))?;
    Some(&value[at + word.len()..])
}

/// The seconds behind a word, up to a comma, a semicolon, a space or the end. A number that is too large
/// becomes the largest one.
fn seconds_behind(value: &[u8], word: &[u8]) -> Result<Option<i64>, NotANumber> {
    let Some(text) = behind(value, word) else { return Ok(None) };
    let mut seconds: i64 = 0;
    for &byte in text.iter().take_while(|byte| !matches!(byte, b',' | b';' | b' ')) {
        if !byte.is_ascii_digit() {
            return Err(NotANumber);
        }
        match seconds.checked_mul(10).and_then(|n| n.checked_add(i64::from(byte - b'0'))) {
            Some(more) => seconds = more,
            None => return Ok(Some(i64::MAX)),
        }
    }
    Ok(Some(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    /// The times of a response with these lines, or `None` if it may not be stored.
    fn of_lines(ignored: Ignored, lines: &[(&str, &str)]) -> Option<(i64, i64, i64)> {
        let mut fresh = Freshness::new(NOW, ignored);
        for (name, value) in lines {
            let value = value.as_bytes();
            match *name {
                "a" => fresh.accel_expires(value),
                "c" => fresh.cache_control(value),
                "e" => fresh.expires(value),
                "s" => fresh.set_cookie(),
                "v" => fresh.vary(value),
                other => panic!("no line is called {other}"),
            }
        }
        fresh.lifetime().map(|time| (time.valid_sec - NOW, time.updating_sec, time.error_sec))
    }

    fn of(lines: &[(&str, &str)]) -> Option<(i64, i64, i64)> {
        of_lines(Ignored::default(), lines)
    }

    /// The result of lines that say nothing: `proxy_cache_valid` decides.
    const UNSAID: Option<(i64, i64, i64)> = Some((-NOW, 0, 0));

    #[test]
    fn cache_control_says_how_long() {
        assert_eq!(of(&[]), UNSAID);
        assert_eq!(of(&[("c", "public")]), UNSAID);
        assert_eq!(of(&[("c", "max-age=10")]), Some((10, 0, 0)));
        assert_eq!(of(&[("c", "Max-Age=10, S-MaxAge=20")]), Some((20, 0, 0)));
        assert_eq!(of(&[("c", "max-age=10;x")]), Some((10, 0, 0)));
        assert_eq!(of(&[("c", "max-age=99999999999999999999")]), Some((i64::MAX - NOW, 0, 0)));
        for forbids in ["no-cache", "no-store", "PRIVATE", "max-age=0", "max-age=", "s-maxage=0, max-age=5"] {
            assert_eq!(of(&[("c", forbids)]), None, "{forbids}");
        }
        for broken in ["max-age=x", "max-age=1x", "max-age=\"5\"", "max-age=-1"] {
            assert_eq!(of(&[("c", broken), ("a", "10")]), None, "{broken}");
        }
    }

    #[test]
    fn stale_responses_have_times_of_their_own() {
        assert_eq!(of(&[("c", "max-age=1, stale-while-revalidate=2")]), Some((1, 2, 2)));
        assert_eq!(of(&[("c", "max-age=1, stale-while-revalidate=2, stale-if-error=3")]), Some((1, 2, 3)));
        assert_eq!(of(&[("a", "9"), ("c", "no-cache, stale-if-error=3")]), Some((9, 0, 3)));
        assert_eq!(of(&[("c", "max-age=1, stale-if-error=x")]), None);
    }

    #[test]
    fn the_most_special_line_rules_wherever_it_stands() {
        assert_eq!(of(&[("a", "5"), ("c", "max-age=10")]), Some((5, 0, 0)));
        assert_eq!(of(&[("c", "max-age=10"), ("a", "5")]), Some((5, 0, 0)));
        assert_eq!(of(&[("c", "no-store"), ("a", "5")]), Some((5, 0, 0)));
        assert_eq!(of(&[("a", "@1000007")]), Some((7, 0, 0)));
        assert_eq!(of(&[("a", "0")]), None);
        assert_eq!(of(&[("a", "5"), ("a", "6")]), Some((5, 0, 0)));
        assert_eq!(of(&[("a", "soon"), ("c", "max-age=3")]), Some((3, 0, 0)));
        let past = ("e", "Thu, 01 Jan 1970 00:00:01 GMT");
        let later = ("e", "Mon, 12 Jan 1970 13:46:50 GMT");
        assert_eq!(of(&[past]), None);
        assert_eq!(of(&[("e", "0")]), None);
        assert_eq!(of(&[later]), Some((10, 0, 0)));
        assert_eq!(of(&[later, ("c", "max-age=3")]), Some((3, 0, 0)));
        assert_eq!(of(&[("c", "max-age=3"), past]), Some((3, 0, 0)));
        assert_eq!(of(&[past, ("c", "max-age=3")]), Some((3, 0, 0)));
        assert_eq!(of(&[past, later]), None);
    }

    #[test]
    fn cookies_and_stars_keep_a_response_from_being_stored() {
        assert_eq!(of(&[("s", "a=b"), ("a", "5")]), None);
        assert_eq!(of(&[("v", "*"), ("a", "5")]), None);
        assert_eq!(of(&[("v", "accept"), ("c", "max-age=5")]), Some((5, 0, 0)));
        let long = "a".repeat(NAME_MAX_BYTES - 3);
        assert_eq!(of(&[("v", "a"), ("v", &long)]), UNSAID);
        assert_eq!(of(&[("v", "ab"), ("v", &long)]), None);
    }

    #[test]
    fn lines_that_are_ignored_say_nothing() {
        let all = [
            (Ignored::ACCEL_EXPIRES, ("a", "0")),
            (Ignored::CACHE_CONTROL, ("c", "no-store")),
            (Ignored::EXPIRES, ("e", "0")),
            (Ignored::SET_COOKIE, ("s", "a=b")),
            (Ignored::VARY, ("v", "*")),
        ];
        for (ignored, line) in all {
            assert_eq!(of(&[line]), None, "{line:?}");
            assert_eq!(of_lines(ignored, &[line]), UNSAID, "{line:?}");
        }
        let both = Ignored::VARY.and(Ignored::SET_COOKIE);
        assert_eq!(of_lines(both, &[("s", "a=b"), ("v", "*")]), UNSAID);
    }
}
