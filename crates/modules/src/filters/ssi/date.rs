//! `timefmt`: a moment in the words of strftime(3), in the C locale.

use clearway_base::date;

/// Longest date, bytes; a longer one is none.
const DATE_BYTES_MAX: usize = 2048 - 1;

/// The default format.
pub(super) const DEFAULT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The clock that a date is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Gmt,
    /// So many minutes ahead of it.
    Local(i32),
}

/// A moment, taken apart.
struct Moment {
    unix_s: i64,
    year: i64,
    /// From 0.
    month: usize,
    day: i64,
    /// From Sunday.
    weekday: i64,
    /// From 0.
    yearday: i64,
    second_of_day: i64,
    clock: Clock,
}

/// Writes a moment; `None` where that comes to nothing, or to too much.
pub(super) fn format(format: &[u8], unix_s: i64, clock: Clock) -> Option<Vec<u8>> {
    if format == b"%s" {
        return Some(unix_s.to_string().into_bytes());
    }
    let moment = Moment::new(unix_s, clock);
    let (mut out, mut bytes) = (Vec::new(), format.iter().copied());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let Some(mut kind) = bytes.next() else {
            out.push(b'%');
            break;
        };
        if matches!(kind, b'E' | b'O') {
            kind = bytes.next().unwrap_or(b'%');
        }
        match moment.field(kind) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(&[b'%', kind]),
        }
    }
    Some(out).filter(|out| (1..=DATE_BYTES_MAX).contains(&out.len()))
}

impl Moment {
    fn new(unix_s: i64, clock: Clock) -> Self {
        let offset_s = match clock {
            Clock::Gmt => 0,
            Clock::Local(minutes) => i64::from(minutes) * 60,
        };
        let local = unix_s + offset_s;
        let (days, second_of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let yearday = days - days_before(year);
        let weekday = (days + 4).rem_euclid(7);
        Self { unix_s, year, month: month as usize, day, weekday, yearday, second_of_day, clock }
    }

    fn field(&self, kind: u8) -> Option<String> {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let second = self.second_of_day % 60;
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let (weekday, month) = (WEEKDAYS[self.weekday as usize], MONTHS[self.month]);
        let all = |format: &str| format.bytes().map(|kind| self.part(kind)).collect::<String>();
        Some(match kind {
            b'a' => weekday[..3].to_owned(),
            b'A' => weekday.to_owned(),
            b'b' | b'h' => month[..3].to_owned(),
            b'B' => month.to_owned(),
            b'c' => all("a b e H:M:S Y"),
            b'C' => format!("{:02}", self.year / 100),
            b'd' => format!("{:02}", self.day),
            b'D' | b'x' => all("m/d/y"),
            b'e' => format!("{:2}", self.day),
            b'F' => all("Y-m-d"),
            b'g' => format!("{:02}", self.iso_week().0 % 100),
            b'G' => self.iso_week().0.to_string(),
            b'H' => format!("{hour:02}"),
            b'I' => format!("{hour12:02}"),
            b'j' => format!("{:03}", self.yearday + 1),
            b'k' => format!("{hour:2}"),
            b'l' => format!("{hour12:2}"),
            b'm' => format!("{:02}", self.month + 1),
            b'M' => format!("{minute:02}"),
            b'n' => "\n".to_owned(),
            b'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            b'P' => if hour < 12 { "am" } else { "pm" }.to_owned(),
            b'r' => all("I:M:S p"),
            b'R' => all("H:M"),
            b's' => self.unix_s.to_string(),
            b'S' => format!("{second:02}"),
            b't' => "\t".to_owned(),
            b'T' | b'X' => all("H:M:S"),
            b'y' => format!("{:02}", self.year % 100),
            b'Y' => self.year.to_string(),
            b'%' => "%".to_owned(),
            _ => return self.week_or_zone(kind),
        })
    }

    /// A field, or what stands between fields.
    fn part(&self, kind: u8) -> String {
        if kind.is_ascii_alphabetic() {
            self.field(kind).unwrap_or_default()
        } else {
            char::from(kind).into()
        }
    }

    fn week_or_zone(&self, kind: u8) -> Option<String> {
        Some(match kind {
            b'u' => if self.weekday == 0 { 7 } else { self.weekday }.to_string(),
            b'U' => format!("{:02}", (self.yearday + 7 - self.weekday) / 7),
            b'V' => format!("{:02}", self.iso_week().1),
            b'w' => self.weekday.to_string(),
            b'W' => format!("{:02}", (self.yearday + 7 - (self.weekday + 6) % 7) / 7),
            b'z' => {
                let zone = date::access_log_time(self.unix_s, self.offset_minutes());
                String::from_utf8_lossy(&zone[zone.len() - 5..]).into_owned()
            }
            b'Z' => match self.clock {
                Clock::Gmt => "GMT".to_owned(),
                Clock::Local(0) => "UTC".to_owned(),
                Clock::Local(_) => return self.week_or_zone(b'z'),
            },
            _ => return None,
        })
    }

    fn offset_minutes(&self) -> i32 {
        match self.clock {
            Clock::Gmt => 0,
            Clock::Local(minutes) => minutes,
        }
    }

    /// Year and week by ISO 8601, whose weeks begin on Monday and belong to the year of their Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let thursday = days_before(self.year) + self.yearday - (self.weekday + 6) % 7 + 3;
        let (year, ..) = civil(thursday);
        (year, (thursday - days_before(year)) / 7 + 1)
    }
}

/// Days from 1970 to the beginning of a year.
fn days_before(year: i64) -> i64 {
    let years = year - 1;
    years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) - 719_162
}

/// Year, month from 0 and day of the month of a day since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let mut year = 1970 + days.div_euclid(366);
    while days_before(year + 1) <= days {
        year += 1;
    }
    let is_leap = days_before(year + 1) - days_before(year) == 366;
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut left = days - days_before(year);
    for (month, length) in (0..).zip(lengths) {
        if left < length {
            return (year, month, left + 1);
        }
        left -= length;
    }
    unreachable!("a year has no more days than its months")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pattern: &str, unix_s: i64, clock: Clock) -> String {
        String::from_utf8(format(pattern.as_bytes(), unix_s, clock).unwrap()).unwrap()
    }

    #[test]
    fn fields_are_those_of_date_1() {
        let all = "%a %A %b %B %c %C %d %D %e %F %g %G %h %H %I %j %k %l %m %M %p %P %r %R %s %S %T %u %U %V \
                   %w %W %x %X %y %Y %z %Z %% %Q %Ey %Od";
        // From `TZ=UTC LC_ALL=C date -d @N`.
        assert_eq!(
            text(all, 951_825_907, Clock::Gmt),
            "Tue Tuesday Feb February Tue Feb 29 12:05:07 2000 20 29 02/29/00 29 2000-02-29 00 2000 Feb 12 \
             12 060 12 12 02 05 PM pm 12:05:07 PM 12:05 951825907 07 12:05:07 2 09 09 2 \
             09 02/29/00 12:05:07 00 \
             2000 +0000 GMT % %Q 00 29"
        );
        assert_eq!(text("%G-%V %g %U %W %j %u %w", 1_735_603_200, Clock::Gmt), "2025-01 25 52 53 366 2 2");
        assert_eq!(text("%G-%V %U %W %j %u", 1_609_632_000, Clock::Gmt), "2020-53 01 00 003 7");
        assert_eq!(text("%F %T %z", 1_609_459_199, Clock::Local(90)), "2021-01-01 01:29:59 +0130");
        assert_eq!(text("%d %k %l %Z", 0, Clock::Local(0)), "01  0 12 UTC");
        assert_eq!(text("%s", 5, Clock::Gmt), "5");
        assert_eq!(format(b"", 5, Clock::Gmt), None);
        assert_eq!(format("x".repeat(2048).as_bytes(), 5, Clock::Gmt), None);
    }

    #[test]
    fn days_are_consecutive() {
        let mut last = civil(-1);
        assert_eq!(last, (1969, 11, 31));
        for days in 0..150_000 {
            let day = civil(days);
            let goes_on = day.2 == last.2 + 1 && day.1 == last.1;
            assert!(
                goes_on || (day.2 == 1 && (day.1 == last.1 + 1 || day.0 == last.0 + 1)),
                "{last:?} {day:?}"
            );
            last = day;
        }
    }
}
