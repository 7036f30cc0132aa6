//! Values of headers, and what else a client writes into a request to be looked for. The first byte of the
//! input says what the rest is.
#![no_main]

use clearway_base::date::{HTTP_DATE_LEN, http_date, parse_http_date};
use clearway_modules::{access_control, content, filters};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, value)) = input.split_first() else {
        return;
    };
    match kind {
        b'r' => filters::range_filter::fuzzing::check(value),
        b'd' => check_date(value),
        b't' => filters::not_modified::fuzzing::check(value),
        b'e' => filters::gzip::acceptance::fuzzing::check(value),
        b'w' => content::dav::fuzzing::check(value),
        b'f' => access_control::fuzzing::check(value),
        b's' => access_control::secure_link::fuzzing::check(value),
        b'b' => clearway_http::fuzzing::check_credentials(value),
        b'c' => clearway_http::fuzzing::check_lookup(value),
        _ => {}
    }
});

/// The end of 9999.
const LAST_SECOND: i64 = 253_402_300_799;

/// A date that is read is the same when it is written and read again, and one of the preferred form comes
/// out as it was, but for the day of the week.
fn check_date(value: &[u8]) {
    let Some(seconds) = parse_http_date(value) else { return };
    assert!(seconds <= LAST_SECOND);
    if seconds < 0 {
        return;
    }
    let written = http_date(seconds);
    assert_eq!(parse_http_date(&written), Some(seconds));
    let day_and_month = |date: &[u8]| (date[3..7].to_vec(), date[11..25].to_vec());
    let has_day = |value: &[u8]| value[3..5] == *b", " && value[5].is_ascii_digit() && value[7] == b' ';
    let is_preferred = value.len() == HTTP_DATE_LEN && has_day(value);
    // A zeroth day is the last of the month before.
    if is_preferred && value[5..7] != *b"00" && !value[..3].iter().any(|byte| b", ".contains(byte)) {
        assert_eq!(day_and_month(value), day_and_month(&written));
    }
}
