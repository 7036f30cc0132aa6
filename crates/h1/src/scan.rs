//! Byte classes and scanners of the head parser. Tables are built at compile time; long runs (values of
//! header lines) are compared sixteen bytes at a time in a form that the compiler turns into vector code.
//! Pure functions of the bytes: any thread.

/// Class of a byte inside a request target. The order matters: see [`skip_args`].
pub(crate) mod target {
    pub(crate) const PLAIN: u8 = 0;
    pub(crate) const SLASH: u8 = 1;
    pub(crate) const DOT: u8 = 2;
    pub(crate) const PERCENT: u8 = 3;
    pub(crate) const QUESTION: u8 = 4;
    pub(crate) const HASH: u8 = 5;
    pub(crate) const SPACE: u8 = 6;
    pub(crate) const CR: u8 = 7;
    pub(crate) const LF: u8 = 8;
    pub(crate) const BAD: u8 = 9;
}

/// Class of a byte inside the name of a header line.
pub(crate) mod name {
    /// Letters, digits and `-`.
    pub(crate) const VALID: u8 = 0;
    pub(crate) const UNDERSCORE: u8 = 1;
    pub(crate) const COLON: u8 = 2;
    pub(crate) const CR: u8 = 3;
    pub(crate) const LF: u8 = 4;
    /// Makes the name invalid; the line can still be skipped.
    pub(crate) const INVALID: u8 = 5;
    /// Control bytes, space and DEL: the request is refused.
    pub(crate) const FATAL: u8 = 6;
}

pub(crate) static TARGET: [u8; 256] = target_table();
pub(crate) static NAME: [u8; 256] = name_table();

const fn target_table() -> [u8; 256] {
    let mut table = [target::PLAIN; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = target::BAD;
        byte += 1;
    }
    table[0x7f] = target::BAD;
    table[b'/' as usize] = target::SLASH;
    table[b'.' as usize] = target::DOT;
    table[b'%' as usize] = target::PERCENT;
    table[b'?' as usize] = target::QUESTION;
    table[b'#' as usize] = target::HASH;
    table[b' ' as usize] = target::SPACE;
    table[b'\r' as usize] = target::CR;
    table[b'\n' as usize] = target::LF;
    table
}

const fn name_table() -> [u8; 256] {
    let mut table = [name::INVALID; 256];
    let mut byte = 0;
    while byte <= 0x20 {
        table[byte] = name::FATAL;
        byte += 1;
    }
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = name::VALID;
        }
        byte += 1;
    }
    table[0x7f] = name::FATAL;
    table[b'-' as usize] = name::VALID;
    table[b'_' as usize] = name::UNDERSCORE;
    table[b':' as usize] = name::COLON;
    table[b'\r' as usize] = name::CR;
    table[b'\n' as usize] = name::LF;
    table
}

/// Index of the first byte at or after `pos` that is not plain in a path, or the length of `buf`.
#[inline]
pub(crate) fn skip_plain(buf: &[u8], pos: usize) -> usize {
    skip_while(buf, pos, |byte| TARGET[usize::from(byte)] == target::PLAIN)
}

/// Index of the first byte at or after `pos` that ends a query string (`#`, space, CR, LF or a bad byte).
#[inline]
pub(crate) fn skip_args(buf: &[u8], pos: usize) -> usize {
    skip_while(buf, pos, |byte| TARGET[usize::from(byte)] < target::HASH)
}

/// Index of the first byte at or after `pos` that ends the target itself (space, CR, LF or a bad byte).
#[inline]
pub(crate) fn skip_fragment(buf: &[u8], pos: usize) -> usize {
    skip_while(buf, pos, |byte| TARGET[usize::from(byte)] < target::SPACE)
}

/// Index of the first byte at or after `pos` that is not a letter, digit or `-`.
#[inline]
pub(crate) fn skip_name(buf: &[u8], pos: usize) -> usize {
    skip_while(buf, pos, |byte| NAME[usize::from(byte)] == name::VALID)
}

/// Index of the first CR, LF or NUL at or after `pos`, or the length of `buf`.
#[inline]
pub(crate) fn skip_value(buf: &[u8], pos: usize) -> usize {
    let mut at = pos;
    while let Some(block) = buf.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        if has_control(block) {
            match block.iter().position(|&byte| ends_value(byte)) {
                Some(offset) => return at + offset,
                None => at += block.len(),
            }
        } else {
            at += block.len();
        }
    }
    skip_while(buf, at, |byte| !ends_value(byte))
}

/// Whether any byte of the block is below space. Written without branches so that it becomes one vector
/// comparison.
#[inline]
fn has_control(block: &[u8; 16]) -> bool {
    block.iter().fold(false, |found, &byte| found | (byte < 0x20))
}

#[inline]
fn ends_value(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

#[inline]
pub(crate) fn skip_while(buf: &[u8], pos: usize, keep: impl Fn(u8) -> bool) -> usize {
    match buf[pos..].iter().position(|&byte| !keep(byte)) {
        Some(offset) => pos + offset,
        None => buf.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_ends_at_the_first_terminator_whatever_its_place_in_a_block() {
        for len in 0..70 {
            for end in [b'\r', b'\n', 0] {
                let mut line = vec![b'\t'; len];
                line.push(end);
                line.extend_from_slice(b"rest\r\n");
                assert_eq!(skip_value(&line, 0), len);
            }
            assert_eq!(skip_value(&vec![b'x'; len], 0), len);
        }
    }

    #[test]
    fn high_bytes_are_plain_in_a_target_and_invalid_in_a_name() {
        assert_eq!(TARGET[0x80], target::PLAIN);
        assert_eq!(TARGET[0x7f], target::BAD);
        assert_eq!(TARGET[b'\t' as usize], target::BAD);
        assert_eq!(NAME[0xff], name::INVALID);
        assert_eq!(NAME[b' ' as usize], name::FATAL);
        assert_eq!(NAME[b'\t' as usize], name::FATAL);
    }
}
