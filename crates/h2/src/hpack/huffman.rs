//! The Huffman code of strings (RFC 7541, Appendix B). The code is canonical: it follows from the length of
//! each symbol's code alone, so lengths are what stands here, and tables are made of them when this is
//! compiled.

use super::CompressionFault;

/// Symbols: the bytes, and the end of the string, which is never sent.
const SYMBOLS: usize = 257;

const END: usize = 256;

/// The longest code, bits.
const LONGEST: u8 = 30;

/// Length of each symbol's code, bits.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The code of each symbol, in its lowest bits.
const CODES: [u32; SYMBOLS] = codes();

const fn codes() -> [u32; SYMBOLS] {
    let (mut codes, mut code, mut length) = ([0; SYMBOLS], 0_u32, 1);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

/// Inner nodes of the tree of codes; 0 is its root.
const NODES: usize = SYMBOLS - 1;

/// In a child: it is a symbol, not a node.
const LEAF: u16 = 0x8000;

/// The two children of each node.
const TREE: [[u16; 2]; NODES] = tree();

const fn tree() -> [[u16; 2]; NODES] {
    let mut tree = [[0; 2]; NODES];
    let (mut used, mut symbol) = (1, 0);
    while symbol < SYMBOLS {
        let (mut node, mut bit) = (0, LENGTHS[symbol]);
        while bit > 1 {
            bit -= 1;
            let side = (CODES[symbol] >> bit & 1) as usize;
            if tree[node][side] == 0 {
                tree[node][side] = used;
                used += 1;
            }
            node = tree[node][side] as usize;
        }
        tree[node][(CODES[symbol] & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    tree
}

/// Where four further bits lead.
#[derive(Clone, Copy)]
struct Move {
    /// The node behind them.
    node: u8,
    /// The symbol that was completed by them.
    symbol: u8,
    found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Symbol,
    /// The end of the string, which may not be sent.
    Fault,
}

static MOVES: [[Move; 16]; NODES] = moves();

const fn moves() -> [[Move; 16]; NODES] {
    let mut moves = [[Move { node: 0, symbol: 0, found: Found::Nothing }; 16]; NODES];
    let mut node = 0;
    while node < NODES {
        let mut bits = 0;
        while bits < 16 {
            moves[node][bits] = walk(node, bits);
            bits += 1;
        }
        node += 1;
    }
    moves
}

const fn walk(from: usize, bits: usize) -> Move {
    let mut at = Move { node: 0, symbol: 0, found: Found::Nothing };
    let (mut node, mut bit) = (from, 4);
    while bit > 0 {
        bit -= 1;
        let child = TREE[node][bits >> bit & 1];
        if child & LEAF == 0 {
            node = child as usize;
            continue;
        }
        node = 0;
        let symbol = child & !LEAF;
        if symbol as usize == END {
            at.found = Found::Fault;
        } else {
            at.symbol = symbol as u8;
            at.found = Found::Symbol;
        }
    }
    at.node = node as u8;
    at
}

/// Whether a string may end at this node: behind nothing, or behind up to seven ones; and behind a byte of
/// them, which some encoders add to what ends with a byte, and other servers take.
static MAY_END: [bool; NODES] = may_end();

const fn may_end() -> [bool; NODES] {
    let mut may_end = [false; NODES];
    let (mut node, mut ones) = (0, 0);
    while ones <= 8 {
        may_end[node] = true;
        node = TREE[node][1] as usize;
        ones += 1;
    }
    may_end
}

/// Decodes a string behind what `out` holds.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionFault> {
    // The shortest code has five bits.
    out.reserve(text.len() * 8 / 5);
    let mut node = 0;
    for &byte in text {
        for bits in [byte >> 4, byte & 15] {
            let to = MOVES[usize::from(node)][usize::from(bits)];
            match to.found {
                Found::Nothing => {}
                Found::Symbol => out.push(to.symbol),
                Found::Fault => return Err(CompressionFault::InvalidHuffman),
            }
            node = to.node;
        }
    }
    if MAY_END[usize::from(node)] { Ok(()) } else { Err(CompressionFault::InvalidHuffman) }
}

/// How long a string is when it is encoded, bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Encodes a string behind what `out` holds.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        let ones = 8 - count;
        out.push((bits << ones) as u8 | ((1 << ones) - 1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &[u8]) -> Result<Vec<u8>, CompressionFault> {
        let mut out = Vec::new();
        decode(text, &mut out).map(|()| out)
    }

    #[test]
    fn codes_are_those_of_the_specification() {
        let code = |symbol: u8| (CODES[usize::from(symbol)], LENGTHS[usize::from(symbol)]);
        assert_eq!(code(b'0'), (0x0, 5));
        assert_eq!(code(b'a'), (0x3, 5));
        assert_eq!(code(b' '), (0x14, 6));
        assert_eq!(code(b'Z'), (0xfd, 8));
        assert_eq!(code(0), (0x1ff8, 13));
        assert_eq!(code(22), (0x3fff_fffe, 30));
        assert_eq!(CODES[END], 0x3fff_ffff);
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let fault = Err(CompressionFault::InvalidHuffman);
        assert_eq!(decoded(b""), Ok(Vec::new()));
        // `0`, and filling that is not made of ones; that is eight bits; an end of the string.
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), fault);
        assert_eq!(decoded(&[0b0000_0111, 0xff]), fault);
        assert_eq!(decoded(&[0xff]), Ok(Vec::new()));
        assert_eq!(decoded(&[0xff; 4]), fault);
        assert_eq!(decoded(&[0b1111_1111, 0b1111_1111, 0b1111_1111, 0b1111_1101]), fault);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(out.len(), encoded_len(&text));
            prop_assert_eq!(decoded(&out), Ok(text));
        }

        #[test]
        fn what_is_decoded_is_encoded_as_it_was(text in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(decoded) = decoded(&text) {
                let mut again = Vec::new();
                encode(&decoded, &mut again);
                let is_filled = text.strip_suffix(&[0xff]).is_some_and(|text| text == again);
                prop_assert!(again == text || is_filled, "there is one way to write a string");
            }
        }
    }
}
