//! Invariants for any `Accept-Encoding`, checked by the fuzz target `header_values`.

use super::accepts_gzip;

/// # Panics
/// If the value is read in another way than by its grammar.
pub fn check(value: &[u8]) {
    let text: String = value.iter().map(|&byte| char::from(byte.to_ascii_lowercase())).collect();
    let accepted = value.starts_with(b"gzip,") || word(&text).is_some_and(is_wanted);
    assert_eq!(accepts_gzip(value), accepted, "{text:?}");
}

/// The text behind the first `gzip` that is a word.
fn word(text: &str) -> Option<&str> {
    let mut end = 0;
    text.match_indices("gzip").find_map(|(at, found)| {
        let is_word = at == end || text[..at].ends_with([',', ' ']);
        end = at + found.len();
        is_word.then(|| &text[end..])
    })
}

fn is_wanted(behind: &str) -> bool {
    let behind = behind.trim_start_matches(' ');
    let Some(parameter) = behind.strip_prefix(';') else {
        return behind.is_empty() || behind.starts_with(',');
    };
    let parameter = parameter.trim_start_matches(' ');
    let Some(quality) = parameter.strip_prefix("q=") else { return parameter.is_empty() };
    let number = quality.split([',', ' ']).next().unwrap_or_default();
    let has_form = number.bytes().enumerate().all(|(at, byte)| match at {
        0 => byte == b'0' || byte == b'1',
        1 => byte == b'.',
        at => byte.is_ascii_digit() && at < 5,
    });
    has_form && number.parse().is_ok_and(|number: f32| number > 0.0 && number <= 1.0)
}
