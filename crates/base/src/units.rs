//! Units of the configuration language: sizes (`8k`, `1m`), offsets (also `1g`), times (`1h 30m`,
//! `500ms`) and plain numbers, read exactly as nginx reads them, overflow included.
//!
//! Pure functions; any thread. `None` always means "not in nginx's form, or too large"; the caller reports it
//! in the words of its directive.

use std::time::Duration;

/// The largest value of any unit: nginx keeps all of them in signed 64-bit integers.
pub const VALUE_MAX: u64 = i64::MAX as u64;

const KIB_BYTES: u64 = 1024;
const MIB_BYTES: u64 = 1024 * KIB_BYTES;
const GIB_BYTES: u64 = 1024 * MIB_BYTES;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;
const WEEK_S: u64 = 7 * DAY_S;
/// nginx's month has 30 days.
const MONTH_S: u64 = 30 * DAY_S;
/// nginx's year has 365 days.
const YEAR_S: u64 = 365 * DAY_S;

const MSEC_PER_S: u64 = 1000;

/// A decimal number without sign, at most [`VALUE_MAX`].
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0, |value, &digit| push_digit(value, digit))
}

/// A size in bytes: a number, or one with `k` or `m` (either case) behind it.
#[must_use]
pub fn parse_size(text: &[u8]) -> Option<u64> {
    match text.split_last()? {
        (b'k' | b'K', digits) => scaled(digits, KIB_BYTES),
        (b'm' | b'M', digits) => scaled(digits, MIB_BYTES),
        _ => parse_number(text),
    }
}

/// An offset in a file in bytes: a size that may also end in `g` or `G`.
#[must_use]
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    match text.split_last()? {
        (b'g' | b'G', digits) => scaled(digits, GIB_BYTES),
        _ => parse_size(text),
    }
}

/// A time with the precision of a millisecond: `ms`, `s`, `m`, `h`, `d` and `w`, largest unit
/// first, each at most once; a bare number counts seconds.
#[must_use]
pub fn parse_msec(text: &[u8]) -> Option<Duration> {
    parse_time(text, Precision::Milliseconds).map(Duration::from_millis)
}

/// A time with the precision of a second: as [`parse_msec`], with `M` (30 days) and `y` (365 days)
/// and without `ms`.
#[must_use]
pub fn parse_sec(text: &[u8]) -> Option<Duration> {
    parse_time(text, Precision::Seconds).map(Duration::from_secs)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Precision {
    Seconds,
    Milliseconds,
}

/// The units of a time, largest first: each must be smaller than the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    /// After a bare number that a space ended: nothing but another bare number may follow.
    Last,
}

fn parse_time(text: &[u8], precision: Precision) -> Option<u64> {
    let mut rest = text;
    // A time in milliseconds has neither years nor months: it starts below them.
    let mut step = if precision == Precision::Seconds { Step::Start } else { Step::Month };
    let mut value = 0;
    let mut total: u64 = 0;
    let mut digits_seen = false;

    while let Some((&byte, behind)) = rest.split_first() {
        if byte.is_ascii_digit() {
            value = push_digit(value, byte)?;
            digits_seen = true;
            rest = behind;
            continue;
        }
        let (unit, behind) = take_unit(byte, behind)?;
        if step >= unit.not_after || (unit.step == Step::Millisecond && precision == Precision::Seconds) {
            return None;
        }
        step = unit.step;
        total = add(total, in_precision(value, unit, precision)?)?;
        value = 0;
        rest = skip_spaces(behind);
    }
    if !digits_seen {
        return None;
    }
    let tail = Unit { step: Step::Last, not_after: Step::Last, seconds: 1 };
    add(total, in_precision(value, tail, precision)?)
}

#[derive(Clone, Copy)]
struct Unit {
    step: Step,
    /// The first step behind which this unit may not stand.
    not_after: Step,
    /// Its seconds; for `ms`, its milliseconds.
    seconds: u64,
}

/// The unit that `byte` begins, and the text behind it.
fn take_unit(byte: u8, behind: &[u8]) -> Option<(Unit, &[u8])> {
    let (step, seconds) = match byte {
        b'y' => (Step::Year, YEAR_S),
        b'M' => (Step::Month, MONTH_S),
        b'w' => (Step::Week, WEEK_S),
        b'd' => (Step::Day, DAY_S),
        b'h' => (Step::Hour, HOUR_S),
        b'm' => match behind.split_first() {
            Some((b's', behind)) => {
                let unit = Unit { step: Step::Millisecond, not_after: Step::Millisecond, seconds: 1 };
                return Some((unit, behind));
            }
            _ => (Step::Minute, MINUTE_S),
        },
        b's' => (Step::Second, 1),
        b' ' => return Some((Unit { step: Step::Last, not_after: Step::Second, seconds: 1 }, behind)),
        _ => return None,
    };
    Some((Unit { step, not_after: step, seconds }, behind))
}

fn in_precision(value: u64, unit: Unit, precision: Precision) -> Option<u64> {
    // The limit is on the scaled value, and nginx compares before it multiplies.
    let scale = match precision {
        Precision::Milliseconds if unit.step != Step::Millisecond => unit.seconds * MSEC_PER_S,
        _ => unit.seconds,
    };
    (value <= VALUE_MAX / scale).then(|| value * scale)
}

fn scaled(digits: &[u8], scale: u64) -> Option<u64> {
    parse_number(digits).filter(|&value| value <= VALUE_MAX / scale).map(|value| value * scale)
}

fn add(total: u64, value: u64) -> Option<u64> {
    total.checked_add(value).filter(|&sum| sum <= VALUE_MAX)
}

fn push_digit(value: u64, digit: u8) -> Option<u64> {
    if !digit.is_ascii_digit() {
        return None;
    }
    value.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|&value| value <= VALUE_MAX)
}

/// Only the space character counts: a tab inside a time is an error.
fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    &text[spaces..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("007", 7),
            ("8k", 8 * 1024),
            ("8K", 8 * 1024),
            ("1m", 1024 * 1024),
            ("1M", 1024 * 1024),
            ("9223372036854775807", i64::MAX as u64),
            ("9007199254740991k", 9_007_199_254_740_991 * 1024),
        ] {
            assert_eq!(parse_size(text.as_bytes()), Some(bytes), "{text}");
            assert_eq!(parse_offset(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "+1", "1.5k", " 1", "1 ", "1kb", "1kk", "0x10", "9223372036854775808"] {
            assert_eq!(parse_size(text.as_bytes()), None, "{text}");
            assert_eq!(parse_offset(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_size(b"9007199254740992k"), None);
        assert_eq!(parse_size(b"1g"), None);
        assert_eq!(parse_offset(b"1g"), Some(1 << 30));
        assert_eq!(parse_offset(b"2G"), Some(2 << 30));
        assert_eq!(parse_offset(b"8589934592g"), None);
    }

    #[test]
    fn times_in_seconds() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("1h 30m", 5400),
            ("1h30m", 5400),
            ("1h   30m", 5400),
            ("1d12h", 129_600),
            ("1y", 31_536_000),
            ("1M", 2_592_000),
            ("1y1M1w1d1h1m1s", 31_536_000 + 2_592_000 + 604_800 + 86_400 + 3600 + 60 + 1),
            ("1m 5", 65),
            ("1 2", 3),
            ("1s1", 2),
            ("5 ", 5),
            (" 5", 5),
            ("1hm", 3600),
            ("0", 0),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(parse_sec(text.as_bytes()), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            " ",
            "s",
            "1m1h",
            "1h1h",
            "500ms",
            "1\t",
            "1x",
            "-1",
            "1 2 3",
            "1 2s",
            "1s 2s",
            "1M1y",
            "9223372036854775808",
            "292471208678y",
            "9223372036854775807s1",
        ] {
            assert_eq!(parse_sec(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn times_in_milliseconds() {
        for (text, milliseconds) in [
            ("30", 30_000),
            ("500ms", 500),
            ("1s500ms", 1500),
            ("1s 500ms", 1500),
            ("1m", 60_000),
            ("1w", 604_800_000),
            ("1ms1", 1001),
            ("9223372036854775", 9_223_372_036_854_775_000),
            ("9223372036854775807ms", i64::MAX as u64),
        ] {
            assert_eq!(parse_msec(text.as_bytes()), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["1y", "1M", "500ms1s", "1ms1ms", "9223372036854776", "9223372036854775807ms1", "ms"] {
            assert_eq!(parse_msec(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_number(b"0"), Some(0));
        assert_eq!(parse_number(b"9223372036854775807"), Some(VALUE_MAX));
        for text in ["", "9223372036854775808", "99999999999999999999", "1k", "-1", " 1"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text}");
        }
    }
}
