//! Invariants for any `Range`, checked by the fuzz target `header_values`.

use std::ops::Range;

use super::{PART_COST_BYTES, PARTS_EXTRA_BYTES, Wanted, parse};

/// The first two bytes are the length of a body, the third says how many parts may be asked for, the rest is
/// what stands behind `bytes=`.
///
/// # Panics
/// If a part does not lie in the body, the parts are others than were asked for, or in another order, or
/// what is sent instead of them has no reason.
pub fn check(input: &[u8]) {
    let Some((&[l0, l1, max], specs)) = input.split_first_chunk::<3>() else { return };
    let length = u64::from(u16::from_be_bytes([l0, l1]));
    let max_ranges = (max < 0x80).then_some(u64::from(max % 8) + 1);
    let asked: Vec<Option<Range<u64>>> =
        specs.split(|&byte| byte == b',').map(|spec| part(spec, length)).collect();
    let there: Vec<Range<u64>> = asked.iter().flatten().filter(|part| !part.is_empty()).cloned().collect();
    let bytes: u64 = there.iter().map(|part| part.end - part.start).sum();
    let costs_bytes = bytes + there.len() as u64 * PART_COST_BYTES;
    let is_too_much = there.len() > 1
        && (bytes > length || max_ranges.is_none() && costs_bytes > length + PARTS_EXTRA_BYTES);
    let is_too_many = max_ranges.is_some_and(|max| there.len() as u64 > max);
    match parse(specs, length, max_ranges) {
        Wanted::Parts(parts) => {
            assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
            assert!(asked.iter().all(Option::is_some) && parts == there);
            assert!(!is_too_much && !is_too_many);
            let again: Vec<String> =
                parts.iter().map(|part| format!("{}-{}", part.start, part.end - 1)).collect();
            assert_eq!(parse(again.join(",").as_bytes(), length, max_ranges), Wanted::Parts(parts));
        }
        Wanted::Nothing => assert!(asked.contains(&None) || there.is_empty()),
        Wanted::Everything => {
            let begins_with_nothing = asked.iter().flatten().any(|part| part.is_empty() && part.start == 0);
            assert!(begins_with_nothing || is_too_much || is_too_many);
        }
    }
}

/// A part by its grammar, in numbers that do not overflow.
fn part(spec: &[u8], length: u64) -> Option<Range<u64>> {
    let (first, last) = std::str::from_utf8(spec).ok()?.split_once('-')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let significant = digits.trim_start_matches('0');
        let number =
            if is_number && significant.len() < 20 { format!("0{significant}") } else { return None };
        number.parse::<u128>().ok().filter(|&number| number <= i64::MAX as u128)
    };
    let within = |position: u128| position.min(u128::from(length)) as u64;
    let (first, bare) = (first.trim_matches(' '), last.trim_matches(' '));
    if first.is_empty() {
        return Some(length - within(number(last.trim_end_matches(' '))?)..length);
    }
    let start = number(first)? as u64;
    Some(start..if bare.is_empty() { length } else { within(number(bare)? + 1) })
}
