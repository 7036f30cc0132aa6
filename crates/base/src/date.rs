//! Dates as HTTP and the logs write them. Pure arithmetic on seconds since the epoch: no clock, no
//! allocation, no time zone data base (an offset in minutes comes from the caller), any thread.
//!
//! Formatting runs once per response, so digits come in pairs from a table and the calendar is
//! computed with multiplications instead of a loop over years (Neri and Schneider, "Euclidean affine
//! functions and their application to calendar algorithms", 2023). Times before 1970 are written as
//! the epoch, as nginx does, and times after the year 9999 as its last second.

/// Length of an IMF-fixdate in bytes.
pub const HTTP_DATE_LEN: usize = 29;

/// Seconds since the epoch of 9999-12-31 23:59:59, the last moment that fits four digits of a year.
const LAST_SECOND: i64 = 253_402_300_799;

const SECONDS_PER_DAY: u64 = 86_400;

/// `00` to `99`, so that two digits are one load.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Four bytes each, with what follows the name in an IMF-fixdate; the index is days since the epoch
/// modulo 7 (1970-01-01 was a Thursday).
static DAYS: [[u8; 4]; 7] = [*b"Thu,", *b"Fri,", *b"Sat,", *b"Sun,", *b"Mon,", *b"Tue,", *b"Wed,"];

static MONTHS: [[u8; 3]; 12] = [
    *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct", *b"Nov",
    *b"Dec",
];

/// A moment taken apart.
struct Civil {
    /// Four digits at most.
    year: u32,
    /// From 0.
    month: usize,
    /// From 1.
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    /// Index into [`DAYS`].
    weekday: usize,
}

impl Civil {
    fn at(unix_seconds: i64) -> Self {
        let seconds = unix_seconds.clamp(0, LAST_SECOND) as u64;
        let days = (seconds / SECONDS_PER_DAY) as u32;
        let of_day = (seconds % SECONDS_PER_DAY) as u32;

        // Days since 0000-03-01: leap days fall at the end of such a year, so that months have fixed
        // offsets. Years are counted in quarters of days to make the division exact.
        let shifted = days + 719_468;
        let century_quarters = 4 * shifted + 3;
        let century = century_quarters / 146_097;
        let year_quarters = (century_quarters % 146_097) | 3;
        let product = 2_939_745_u64 * u64::from(year_quarters);
        let year_of_century = (product >> 32) as u32;
        let day_of_year = (product as u32) / 2_939_745 / 4;
        let month_day = 2_141 * day_of_year + 197_913;
        let month = month_day >> 16;
        let after_december = u32::from(day_of_year >= 306);

        Self {
            year: 100 * century + year_of_century + after_december,
            month: (if after_december == 1 { month - 12 } else { month }) as usize - 1,
            day: (month_day & 0xffff) / 2_141 + 1,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            weekday: (days % 7) as usize,
        }
    }

    fn put_year(&self, out: &mut [u8]) {
        put_pair(out, 0, self.year / 100);
        put_pair(out, 2, self.year % 100);
    }

    /// `23:59:59`.
    fn put_time(&self, out: &mut [u8]) {
        put_pair(out, 0, self.hour);
        put_pair(out, 3, self.minute);
        put_pair(out, 6, self.second);
    }
}

fn put_pair(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 2].copy_from_slice(&PAIRS[value as usize % 100]);
}

/// When a cookie expires, as nginx writes it: `Sun, 06-Nov-94 08:49:37 GMT`, after 2037 with the whole year.
#[must_use]
pub fn cookie_date(unix_seconds: i64) -> String {
    let (civil, date) = (Civil::at(unix_seconds), http_date(unix_seconds));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let year = if civil.year > 2037 { civil.year } else { civil.year % 100 };
    let (day, month, rest) = (text(&date[..7]), text(&date[8..11]), text(&date[16..]));
    format!("{day}-{month}-{year:02}{rest}")
}

/// The IMF-fixdate (RFC 9110 section 5.6.7) of a time in seconds since the epoch, such as
/// `Sun, 06 Nov 1994 08:49:37 GMT`.
#[must_use]
pub fn http_date(unix_seconds: i64) -> [u8; HTTP_DATE_LEN] {
    let civil = Civil::at(unix_seconds);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    out[0..4].copy_from_slice(&DAYS[civil.weekday]);
    put_pair(&mut out, 5, civil.day);
    out[8..11].copy_from_slice(&MONTHS[civil.month]);
    civil.put_year(&mut out[12..16]);
    civil.put_time(&mut out[17..25]);
    out
}

/// The time of an error log line, such as `2024/01/31 23:59:59`, `offset_minutes` east of UTC.
#[must_use]
pub fn error_log_time(unix_seconds: i64, offset_minutes: i32) -> [u8; 19] {
    let civil = Civil::at(local(unix_seconds, offset_minutes));
    let mut out = *b"1970/01/01 00:00:00";
    civil.put_year(&mut out[0..4]);
    put_pair(&mut out, 5, civil.month as u32 + 1);
    put_pair(&mut out, 8, civil.day);
    civil.put_time(&mut out[11..19]);
    out
}

/// The time of an access log line (`$time_local`), such as `31/Jan/2024:23:59:59 +0000`,
/// `offset_minutes` east of UTC.
#[must_use]
pub fn access_log_time(unix_seconds: i64, offset_minutes: i32) -> [u8; 26] {
    let civil = Civil::at(local(unix_seconds, offset_minutes));
    let mut out = *b"01/Jan/1970:00:00:00 +0000";
    put_pair(&mut out, 0, civil.day);
    out[3..6].copy_from_slice(&MONTHS[civil.month]);
    civil.put_year(&mut out[7..11]);
    civil.put_time(&mut out[12..20]);
    let (sign, minutes) = sign_and_minutes(offset_minutes);
    out[21] = sign;
    put_pair(&mut out, 22, minutes / 60);
    put_pair(&mut out, 24, minutes % 60);
    out
}

/// The ISO 8601 time of `$time_iso8601`, such as `2024-01-31T23:59:59+00:00`, `offset_minutes` east
/// of UTC.
#[must_use]
pub fn iso8601_time(unix_seconds: i64, offset_minutes: i32) -> [u8; 25] {
    let civil = Civil::at(local(unix_seconds, offset_minutes));
    let mut out = *b"1970-01-01T00:00:00+00:00";
    civil.put_year(&mut out[0..4]);
    put_pair(&mut out, 5, civil.month as u32 + 1);
    put_pair(&mut out, 8, civil.day);
    civil.put_time(&mut out[11..19]);
    let (sign, minutes) = sign_and_minutes(offset_minutes);
    out[19] = sign;
    put_pair(&mut out, 20, minutes / 60);
    put_pair(&mut out, 23, minutes % 60);
    out
}

fn local(unix_seconds: i64, offset_minutes: i32) -> i64 {
    unix_seconds.saturating_add(i64::from(offset_minutes) * 60)
}

fn sign_and_minutes(offset_minutes: i32) -> (u8, u32) {
    (if offset_minutes < 0 { b'-' } else { b'+' }, offset_minutes.unsigned_abs())
}

/// Seconds since the epoch of a date in one of the three forms of RFC 9110 section 5.6.7:
/// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`.
///
/// As in nginx the day of the week and what follows the time are not looked at, a month is told by as
/// few letters as it takes, and two-digit years below 70 are of this century.
#[must_use]
pub fn parse_http_date(value: &[u8]) -> Option<i64> {
    let stop = value.iter().position(|&byte| byte == b',' || byte == b' ')?;
    let rest = &value[stop + 1..];
    let spaces = rest.iter().take_while(|&&byte| byte == b' ').count();
    let mut fields = Fields { rest: &rest[spaces..] };
    let parsed = if value[stop] == b' ' { fields.asctime() } else { fields.with_comma() }?;
    parsed.unix_seconds()
}

/// A date as read, not yet checked against the calendar.
struct Parsed {
    year: i64,
    /// From 0.
    month: usize,
    day: i64,
    /// Hour, minute, second.
    time: [i64; 3],
}

impl Parsed {
    fn unix_seconds(&self) -> Option<i64> {
        const DAYS_IN_MONTH: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let days_in_month = DAYS_IN_MONTH[self.month] + i64::from(leap && self.month == 1);
        let [hour, minute, second] = self.time;
        if self.day > days_in_month || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        // Years begin in March here, so that the leap day is the last of a year.
        let (year, month) = match self.month {
            0 | 1 => (self.year - 1, self.month as i64 + 10),
            month => (self.year, month as i64 - 2),
        };
        let before_year = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = before_year + (153 * month + 2) / 5 + self.day - 1 - 719_468;
        Some(days * SECONDS_PER_DAY as i64 + hour * 3600 + minute * 60 + second)
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    /// `06 Nov 1994 08:49:37` or `06-Nov-94 08:49:37`.
    fn with_comma(&mut self) -> Option<Parsed> {
        let day = self.digits(2)?;
        let separator = self.byte()?;
        let year_digits = match separator {
            b' ' => 4,
            b'-' => 2,
            _ => return None,
        };
        let month = self.month()?;
        self.expect(separator)?;
        let mut year = self.digits(year_digits)?;
        if separator == b'-' {
            year += if year < 70 { 2000 } else { 1900 };
        }
        self.expect(b' ')?;
        Some(Parsed { year, month, day, time: self.time()? })
    }

    /// `Nov  6 08:49:37 1994`.
    fn asctime(&mut self) -> Option<Parsed> {
        let month = self.month()?;
        self.byte()?;
        if self.rest.first() == Some(&b' ') {
            self.byte();
        }
        let two_digits = self.rest.get(1).is_some_and(|&byte| byte != b' ');
        let day = self.digits(if two_digits { 2 } else { 1 })?;
        self.expect(b' ')?;
        let time = self.time()?;
        self.expect(b' ')?;
        Some(Parsed { year: self.digits(4)?, month, day, time })
    }

    /// `08:49:37`.
    fn time(&mut self) -> Option<[i64; 3]> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let minute = self.digits(2)?;
        self.expect(b':')?;
        Some([hour, minute, self.digits(2)?])
    }

    fn month(&mut self) -> Option<usize> {
        let [first, second, third] = *self.rest.first_chunk::<3>()?;
        self.rest = &self.rest[3..];
        Some(match (first, second, third) {
            (b'J', b'a', _) => 0,
            (b'J', _, b'n') => 5,
            (b'J', ..) => 6,
            (b'F', ..) => 1,
            (b'M', _, b'r') => 2,
            (b'M', ..) => 4,
            (b'A', b'p', _) => 3,
            (b'A', ..) => 7,
            (b'S', ..) => 8,
            (b'O', ..) => 9,
            (b'N', ..) => 10,
            (b'D', ..) => 11,
            _ => return None,
        })
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        digits
            .iter()
            .try_fold(0, |value, &byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.byte()? == wanted).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn dates_of_cookies() {
        assert_eq!(cookie_date(784_111_777), "Sun, 06-Nov-94 08:49:37 GMT");
        assert_eq!(cookie_date(2_145_916_555), "Thu, 31-Dec-37 23:55:55 GMT");
        assert_eq!(cookie_date(2_145_916_800), "Fri, 01-Jan-2038 00:00:00 GMT");
        assert_eq!(cookie_date(1_000_000_000), "Sun, 09-Sep-01 01:46:40 GMT");
    }

    #[test]
    fn known_dates() {
        let table = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
            (1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, expected) in table {
            assert_eq!(text(&http_date(seconds)), expected);
        }
    }

    /// Walks the whole range day by day against a calendar that only counts.
    #[test]
    fn every_day_agrees_with_counting() {
        let (mut year, mut month, mut day) = (1970_u32, 0_usize, 1_u32);
        for days in 0..=(LAST_SECOND / SECONDS_PER_DAY as i64) {
            let seconds = days * SECONDS_PER_DAY as i64 + days % SECONDS_PER_DAY as i64;
            let civil = Civil::at(seconds);
            assert_eq!((civil.year, civil.month, civil.day), (year, month, day), "day {days}");
            if day % 9 == 0 || month == 1 {
                assert_eq!(parse_http_date(&http_date(seconds)), Some(seconds));
            }
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = [31, 28 + u32::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
            day += 1;
            if day > length {
                day = 1;
                month += 1;
            }
            if month == 12 {
                month = 0;
                year += 1;
            }
        }
    }

    #[test]
    fn log_times_with_offsets() {
        let leap_day = 1_709_251_199;
        assert_eq!(text(&error_log_time(leap_day, 0)), "2024/02/29 23:59:59");
        assert_eq!(text(&error_log_time(leap_day, 60)), "2024/03/01 00:59:59");
        assert_eq!(text(&access_log_time(leap_day, 0)), "29/Feb/2024:23:59:59 +0000");
        assert_eq!(text(&access_log_time(leap_day, -570)), "29/Feb/2024:14:29:59 -0930");
        assert_eq!(text(&access_log_time(leap_day, 765)), "01/Mar/2024:12:44:59 +1245");
        assert_eq!(text(&iso8601_time(leap_day, -570)), "2024-02-29T14:29:59-09:30");
    }

    #[test]
    fn three_forms_are_one_moment() {
        let moment = Some(784_111_777);
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 6 08:49:37 1994",
            "Sun,06 Nov 1994 08:49:37",
            "x,   06 Nov 1994 08:49:37 +0300",
            "Sun, 06 Nxx 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(form.as_bytes()), moment, "{form}");
        }
        assert_eq!(parse_http_date(b"Monday, 18-Jan-38 03:14:07 GMT"), Some(2_147_397_247));
        assert_eq!(parse_http_date(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    }

    #[test]
    fn broken_dates_are_refused() {
        for form in [
            "",
            ",",
            "Sun",
            "Sunday06Nov1994",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov 1994 08:49:37 GMT",
            "Sun, 06 Xov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:3",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Tue, 29 Feb 1994 08:49:37 GMT",
            "Thu, 29 Feb 1900 08:49:37 GMT",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  6 08:49:37",
            "Sun Nov x6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(form.as_bytes()), None, "{form}");
        }
    }
}
