//! `expires`: what it says, and the `Expires` and `Cache-Control` that come of it.

use std::borrow::Cow;

use clearway_base::{date, units};
use clearway_conf::error::printed;
use clearway_conf::{Directive, Error};
use clearway_http::{Filtering, HeaderName, Load, Text, Value};

const EXPIRES: HeaderName<'_> = HeaderName::new(b"Expires");
const CACHE_CONTROL: HeaderName<'_> = HeaderName::new(b"Cache-Control");
const DAY_S: i64 = 24 * 60 * 60;
const LONG_AGO: &[u8] = b"Thu, 01 Jan 1970 00:00:01 GMT";
const LATE: &[u8] = b"Thu, 31 Dec 2037 23:55:55 GMT";
/// Ten years of 365 days.
const LONG: &[u8] = b"max-age=315360000";
const NO_CACHE: &[u8] = b"no-cache";

/// The directive at one level.
pub(super) struct Expires {
    from: From,
    time: Time,
}

/// When a time begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Access,
    /// `modified`
    Modified,
}

enum Time {
    Fixed(Moment),
    /// With variables in it.
    Value(Value),
}

/// The meaning of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// No header is added.
    Off,
    Epoch,
    Max,
    /// So many seconds later; may be negative.
    After(i64),
    /// So many seconds behind midnight.
    Daily(i64),
}

impl Expires {
    /// Reads a directive; `None` for `off`.
    pub(super) fn read(load: &mut Load, directive: &Directive) -> Result<Option<Self>, Error> {
        let (from, argument) = match &directive.args[..] {
            [argument] => (From::Access, argument),
            [modified, argument] if printed(modified) == b"modified" => (From::Modified, argument),
            _ => return Err(directive.reject("invalid value")),
        };
        let value = load.variables.compile(argument, &directive.pos)?;
        let time = match value.as_literal() {
            None => Time::Value(value),
            Some(text) => match Moment::parse(text, from).map_err(|reason| directive.reject(reason))? {
                Moment::Off => return Ok(None),
                moment => Time::Fixed(moment),
            },
        };
        Ok(Some(Self { from, time }))
    }

    /// Sets the headers. As in nginx, a value that makes no sense sets none.
    pub(super) fn apply<'c>(&'c self, filtering: &mut Filtering<'_, 'c>) {
        let moment = match &self.time {
            Time::Fixed(moment) => Ok(*moment),
            Time::Value(value) => Moment::parse(&value.eval(&filtering.view()), self.from),
        };
        let Ok(moment) = moment else { return };
        let now = filtering.request.now_unix_s();
        let offset_s = i64::from(filtering.request.utc_offset_minutes()) * 60;
        let head = filtering.head();
        let start = match self.from {
            From::Modified => head.last_modified.unwrap_or(now),
            From::Access => now,
        };
        let date = |seconds| Cow::Owned(date::http_date(seconds).to_vec());
        let (expires, cache) = match moment {
            Moment::Off => return,
            Moment::Epoch => (Cow::Borrowed(LONG_AGO), Cow::Borrowed(NO_CACHE)),
            Moment::Max => (Cow::Borrowed(LATE), Cow::Borrowed(LONG)),
            // Whatever `modified` says.
            Moment::After(0) => (date(now), max_age(0)),
            Moment::After(seconds) if seconds < 0 => (date(start + seconds), Cow::Borrowed(NO_CACHE)),
            Moment::After(seconds) => (date(start + seconds), max_age(start + seconds - now)),
            Moment::Daily(seconds) => {
                let then = next_time(seconds, now, offset_s);
                (date(then), max_age(then - now))
            }
        };
        head.headers.set(EXPIRES, &expires);
        head.headers.set(CACHE_CONTROL, &cache);
    }
}

/// When it is next so many seconds behind midnight, in a zone that is ahead of UTC by an offset.
fn next_time(seconds: i64, now: i64, offset_s: i64) -> i64 {
    let midnight = now - (now + offset_s).rem_euclid(DAY_S);
    let today = midnight + seconds;
    if today > now { today } else { today + DAY_S }
}

fn max_age(seconds: i64) -> Text<'static> {
    if seconds < 0 {
        return Cow::Borrowed(NO_CACHE);
    }
    Cow::Owned(format!("max-age={seconds}").into_bytes())
}

impl Moment {
    fn parse(text: &[u8], from: From) -> Result<Self, &'static str> {
        match (text, from) {
            (b"epoch", From::Access) => return Ok(Self::Epoch),
            (b"max", From::Access) => return Ok(Self::Max),
            (b"off", From::Access) => return Ok(Self::Off),
            ([b'@', ..], From::Modified) => {
                return Err("daily time cannot be used with \"modified\" parameter");
            }
            _ => {}
        }
        let seconds = |text: &[u8]| {
            let time = units::parse_sec(text).ok_or("invalid value")?;
            i64::try_from(time.as_secs()).map_err(|_| "invalid value")
        };
        match text {
            [b'@', text @ ..] => match seconds(text)? {
                time if time > DAY_S => Err("daily time value must be less than 24 hours"),
                time => Ok(Self::Daily(time)),
            },
            [b'+', text @ ..] => seconds(text).map(Self::After),
            [b'-', text @ ..] => seconds(text).map(|time| Self::After(-time)),
            text => seconds(text).map(Self::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let access = |text: &str| Moment::parse(text.as_bytes(), From::Access);
        let modified = |text: &str| Moment::parse(text.as_bytes(), From::Modified);
        for (text, moment) in [
            ("epoch", Moment::Epoch),
            ("max", Moment::Max),
            ("off", Moment::Off),
            ("30", Moment::After(30)),
            ("+1h", Moment::After(3600)),
            ("-1d12h", Moment::After(-36 * 3600)),
            ("@15h30m", Moment::Daily(55_800)),
            ("@24h", Moment::Daily(86_400)),
            ("0", Moment::After(0)),
        ] {
            assert_eq!(access(text), Ok(moment), "{text}");
        }
        for text in ["", "x", "1x", "--1", "@", "@-1h", "Max", "+"] {
            assert_eq!(access(text), Err("invalid value"), "{text}");
        }
        assert_eq!(access("@24h1s"), Err("daily time value must be less than 24 hours"));
        assert_eq!(modified("@1h"), Err("daily time cannot be used with \"modified\" parameter"));
        assert_eq!((modified("epoch"), modified("5m")), (Err("invalid value"), Ok(Moment::After(300))));
    }

    #[test]
    fn the_next_time_of_the_day() {
        let noon = 1_700_006_400 - 1_700_006_400 % DAY_S + DAY_S / 2;
        assert_eq!(next_time(3600 * 13, noon, 0), noon + 3600);
        assert_eq!(next_time(3600 * 11, noon, 0), noon + 23 * 3600);
        assert_eq!(next_time(3600 * 12, noon, 0), noon + DAY_S);
        assert_eq!(next_time(3600 * 13, noon, 2 * 3600), noon + 23 * 3600);
        assert_eq!(next_time(3600 * 13, noon, -2 * 3600), noon + 3 * 3600);
        assert_eq!(next_time(0, noon, 13 * 3600), noon + 23 * 3600);
    }
}
