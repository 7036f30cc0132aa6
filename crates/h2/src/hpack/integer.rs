//! Numbers with a prefix of some bits (RFC 7541 §5.1).

use super::CompressionFault;

/// The first bits of a number that has this many of a byte; the others are another thing's.
const fn prefix_max(prefix_bits: u32) -> u8 {
    ((1_u16 << prefix_bits) - 1) as u8
}

/// Bits of a number at most behind its prefix, as nginx has it: more than any limit of ours.
const BITS_MAX: u32 = 21;

/// Reads a number from the front of `input`, which loses it.
pub(super) fn read(input: &mut &[u8], prefix_bits: u32) -> Result<usize, CompressionFault> {
    let (&first, mut rest) = input.split_first().ok_or(CompressionFault::Truncated)?;
    let max = prefix_max(prefix_bits);
    let mut number = u32::from(first & max);
    if first & max == max {
        let mut shift = 0;
        loop {
            let (&byte, behind) = rest.split_first().ok_or(CompressionFault::TruncatedNumber)?;
            rest = behind;
            number += u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift >= BITS_MAX {
                return Err(CompressionFault::TooLargeNumber);
            }
        }
    }
    *input = rest;
    Ok(number as usize)
}

/// Writes a number behind the bits that `first` has in front of its prefix.
pub(super) fn push(out: &mut Vec<u8>, first: u8, prefix_bits: u32, number: usize) {
    let max = prefix_max(prefix_bits);
    if number < usize::from(max) {
        out.push(first | number as u8);
        return;
    }
    out.push(first | max);
    let mut rest = number - usize::from(max);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        // RFC 7541 §C.1
        for (number, prefix_bits, bytes) in
            [(10, 5, &[10][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42]), (31, 5, &[31, 0])]
        {
            let mut out = Vec::new();
            push(&mut out, 0, prefix_bits, number);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &out[..], prefix_bits), Ok(number));
        }
    }

    #[test]
    fn numbers_without_end_are_refused() {
        assert_eq!(read(&mut &[][..], 5), Err(CompressionFault::Truncated));
        assert_eq!(read(&mut &[31, 0x80][..], 5), Err(CompressionFault::TruncatedNumber));
        let endless = [0xff; 32];
        assert_eq!(read(&mut &endless[..], 7), Err(CompressionFault::TooLargeNumber));
        let zeros = [&[0x7f][..], &[0x80; 4], &[0]].concat();
        assert_eq!(read(&mut &zeros[..], 7), Err(CompressionFault::TooLargeNumber));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            number in 0usize..1 << 20, prefix_bits in 1u32..=8, behind in any::<u8>(),
        ) {
            let mut out = Vec::new();
            push(&mut out, 0, prefix_bits, number);
            out.push(behind);
            let mut input = &out[..];
            prop_assert_eq!(read(&mut input, prefix_bits), Ok(number));
            prop_assert_eq!(input, &[behind]);
        }
    }
}
