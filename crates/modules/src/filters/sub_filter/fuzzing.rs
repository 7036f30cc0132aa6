//! Invariants for any texts and bytes, checked by the fuzz target `sub_filter`.

use super::search::{Searcher, naive};

/// Texts that one input has.
const TEXTS_MAX: usize = 16;

/// Lines up to an empty one are texts, the rest is looked through.
///
/// # Panics
/// If another search finds something else.
pub fn check(input: &[u8]) {
    let end = input.windows(2).position(|two| two == b"\n\n").unwrap_or(input.len());
    let bytes = input.get(end + 2..).unwrap_or_default();
    let texts = input[..end].split(|&byte| byte == b'\n').filter(|text| !text.is_empty());
    let texts: Vec<Box<[u8]>> = texts.take(TEXTS_MAX).map(|text| text.to_ascii_lowercase().into()).collect();
    if texts.is_empty() {
        return;
    }
    let found = Searcher::new(texts.clone()).find(bytes, |_| true);
    assert_eq!(found, naive(&texts, bytes));
}
