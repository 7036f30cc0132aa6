//! Writes strings of JSON, with its escapes. Any thread.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a string with its quotes.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            control if control < ' ' => put(out, format_args!("\\u{:04x}", u32::from(control))),
            character => put(out, format_args!("{character}")),
        }
    }
    out.push(b'"');
}

/// Writes text as it is.
pub fn put(out: &mut Vec<u8>, text: Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut out = Vec::new();
        put_text(&mut out, "a\"b\\c\nd\u{1f}é");
        assert_eq!(out, "\"a\\\"b\\\\c\\u000ad\\u001fé\"".as_bytes());
    }
}
