//! Text of header lines and status lines: nothing in it may end the line (RFC 9110 §5.5).

/// Appends a text in which CR, LF and NUL are spaces.
#[inline]
pub fn push_line_text(out: &mut Vec<u8>, text: &[u8]) {
    // Hardly any text has a control byte at all, which is soon seen.
    if has_control(text) {
        out.extend(text.iter().map(|&byte| if ends_line(byte) { b' ' } else { byte }));
    } else {
        out.extend_from_slice(text);
    }
}

/// Whether any byte of a text could end the line that it stands in.
#[inline]
pub(crate) fn has_line_end(text: &[u8]) -> bool {
    has_control(text) && text.iter().copied().any(ends_line)
}

/// Whether a byte could end the line that it stands in.
#[inline]
pub(crate) fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// Whether any byte is below space.
#[inline]
fn has_control(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks();
    match text.last_chunk() {
        // The last block may overlap the one before it.
        Some(last) => is_below_space(last) || blocks.iter().any(is_below_space),
        None => rest.iter().fold(false, |found, &byte| found | (byte < b' ')),
    }
}

/// Whether any of eight bytes is below space: subtracting 0x20 sets the highest bit of those that are below
/// (and have not got it already). A borrow spoils only what stands behind such a byte.
#[inline]
fn is_below_space(block: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let word = u64::from_le_bytes(*block);
    word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_line_is_a_space_wherever_it_stands() {
        for len in 0..40 {
            let plain: Vec<u8> = (0..len).map(|at| [b' ', b'~', 0x7f, 0x80, 0xff][at % 5]).collect();
            let mut out = b"<".to_vec();
            push_line_text(&mut out, &plain);
            assert_eq!(&out[1..], plain, "of {len}");
            for at in 0..len {
                for (byte, written) in [(b'\r', b' '), (b'\n', b' '), (0, b' '), (b'\t', b'\t'), (1, 1)] {
                    let (mut text, mut expected) = (plain.clone(), plain.clone());
                    (text[at], expected[at]) = (byte, written);
                    let mut out = Vec::new();
                    push_line_text(&mut out, &text);
                    assert_eq!(out, expected, "{byte} at {at} of {len}");
                    assert!(has_control(&text) && !has_control(&plain));
                    assert_eq!(has_line_end(&text), ends_line(byte));
                }
            }
        }
    }
}
