//! Reads header blocks.

use std::ops::ControlFlow;

use super::huffman;
use super::integer;
use super::static_table::{STATIC_ENTRIES, STATIC_TABLE};
use super::table::Table;
use crate::hpack::CompressionFault;

/// Whether somebody on the way may put a field into a table (RFC 7541 §7.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitivity {
    /// Anybody may.
    Usual,
    /// No table may keep the field: it is to be passed on as a literal that is never indexed.
    NeverIndexed,
}

/// A field of a header block. Its bytes are valid up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name, as it was sent.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// See [`Sensitivity`].
    pub sensitivity: Sensitivity,
}

/// The owner's function for a field: it may stop the decoding.
pub type Take<'t> = dyn FnMut(Field<'_>) -> ControlFlow<()> + 't;

/// Reads the header blocks of a connection, in the order of their arrival. All of them must be read, also
/// those of requests that are refused: later ones refer to them.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The size that was announced to the other side (SETTINGS_HEADER_TABLE_SIZE), bytes.
    size_max: usize,
    /// A string on its way: of the name, then of the value.
    scratch: Vec<u8>,
}

/// Name and value of a literal: where they stand in the block, or `None` where they were put into the
/// scratch buffer, the name in front.
struct Strings<'i> {
    name: Option<&'i [u8]>,
    value: Option<&'i [u8]>,
    /// How much of the scratch buffer is the name.
    name_len: usize,
}

impl Decoder {
    /// A decoder whose table has up to `size_max` bytes, as the other side was told; 4096 if it was not.
    #[must_use]
    pub fn new(size_max: usize) -> Self {
        Self { table: Table::new(size_max), size_max, scratch: Vec::new() }
    }

    /// Reads a whole block and hands on its fields in their order. A block is as long as the owner lets it
    /// be; what it expands to the owner counts. Where the owner breaks off, the rest is not read, and no
    /// other block can be.
    ///
    /// # Errors
    /// The connection has to end; fields that came before the fault were handed on.
    pub fn decode(&mut self, block: &[u8], take: &mut Take<'_>) -> Result<(), CompressionFault> {
        let mut input = block;
        while let Some(&first) = input.first() {
            if first & 0xe0 != 0x20 {
                break;
            }
            let size = integer::read(&mut input, 5)?;
            if size > self.size_max {
                return Err(CompressionFault::TableSize);
            }
            self.table.resize(size);
        }
        while let Some(&first) = input.first() {
            let taken = match first {
                0x80.. => {
                    let number = integer::read(&mut input, 7)?;
                    let (name, value) = self.entry(number)?;
                    take(Field { name, value, sensitivity: Sensitivity::Usual })
                }
                0x40.. => self.literal(&mut input, Literal::Indexed, take)?,
                0x20.. => return Err(CompressionFault::TableSize),
                0x10.. => self.literal(&mut input, Literal::Never, take)?,
                _ => self.literal(&mut input, Literal::Plain, take)?,
            };
            if taken.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Gives memory back that is not needed between blocks.
    pub fn rest(&mut self) {
        self.table.rest();
        self.scratch = Vec::new();
    }

    fn entry(&self, number: usize) -> Result<(&[u8], &[u8]), CompressionFault> {
        let found = match number.checked_sub(1) {
            Some(index) if index < STATIC_ENTRIES => {
                let (name, value) = STATIC_TABLE[index];
                Some((name.as_bytes(), value.as_bytes()))
            }
            Some(index) => self.table.get(index - STATIC_ENTRIES),
            None => None,
        };
        found.ok_or(CompressionFault::NoSuchEntry)
    }

    fn literal(
        &mut self,
        input: &mut &[u8],
        literal: Literal,
        take: &mut Take<'_>,
    ) -> Result<ControlFlow<()>, CompressionFault> {
        let number = integer::read(input, literal.prefix_bits())?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let read = self.strings(input, number, &mut scratch);
        let result = read.map(|strings| {
            let (name, value) = scratch.split_at(strings.name_len);
            let (name, value) = (strings.name.unwrap_or(name), strings.value.unwrap_or(value));
            if literal == Literal::Indexed {
                self.table.add(name, value);
            }
            take(Field { name, value, sensitivity: literal.sensitivity() })
        });
        self.scratch = scratch;
        result
    }

    fn strings<'i>(
        &self,
        input: &mut &'i [u8],
        number: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<Strings<'i>, CompressionFault> {
        let name = if number == 0 {
            string(input, scratch)?
        } else {
            // The name's entry may leave the table when the new field is added to it.
            scratch.extend_from_slice(self.entry(number)?.0);
            None
        };
        let name_len = scratch.len();
        let value = string(input, scratch)?;
        Ok(Strings { name, value, name_len })
    }
}

/// Looks at the front of a block of which more is to come.
///
/// # Errors
/// A number in it is too large, whatever follows.
pub fn look_ahead(mut part: &[u8]) -> Result<(), CompressionFault> {
    let is_truncated = |fault: &CompressionFault| {
        matches!(fault, CompressionFault::Truncated | CompressionFault::TruncatedNumber)
    };
    while let Some(&first) = part.first() {
        let (prefix_bits, strings) = match first {
            0x80.. => (7, 0),
            0x40.. => (6, if first == 0x40 { 2 } else { 1 }),
            0x20.. => (5, 0),
            _ => (4, if first & 0x0f == 0 { 2 } else { 1 }),
        };
        let read = integer::read(&mut part, prefix_bits).and_then(|_| {
            (0..strings).try_for_each(|_| {
                let len = integer::read(&mut part, 7)?;
                part = part.get(len..).ok_or(CompressionFault::Truncated)?;
                Ok(())
            })
        });
        match read {
            Ok(()) => {}
            Err(fault) if is_truncated(&fault) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// The fate of a literal field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Literal {
    Indexed,
    Plain,
    Never,
}

impl Literal {
    fn prefix_bits(self) -> u32 {
        if self == Self::Indexed { 6 } else { 4 }
    }

    fn sensitivity(self) -> Sensitivity {
        if self == Self::Never { Sensitivity::NeverIndexed } else { Sensitivity::Usual }
    }
}

/// A string: where it stands, or `None` if it was decoded behind what `scratch` holds.
fn string<'i>(input: &mut &'i [u8], scratch: &mut Vec<u8>) -> Result<Option<&'i [u8]>, CompressionFault> {
    let is_huffman = input.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::read(input, 7)?;
    let (text, rest) = input.split_at_checked(len).ok_or(CompressionFault::Truncated)?;
    *input = rest;
    if !is_huffman {
        return Ok(Some(text));
    }
    huffman::decode(text, scratch).map(|()| None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hpack::push_field;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
        digits.chunks(2).map(pair).collect()
    }

    fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, CompressionFault> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut take = |field: Field<'_>| {
            fields.push((text(field.name), text(field.value)));
            ControlFlow::Continue(())
        };
        decoder.decode(block, &mut take)?;
        Ok(fields)
    }

    /// Blocks of one connection and their fields, from RFC 7541 Appendix C.
    fn plays(size_max: usize, blocks: &[(&str, &[(&str, &str)])]) {
        let mut decoder = Decoder::new(size_max);
        for (hex, fields) in blocks {
            let fields: Vec<_> = fields.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
            assert_eq!(read(&mut decoder, &bytes(hex)), Ok(fields));
        }
    }

    const GET: (&str, &str) = (":method", "GET");
    const ROOT: (&str, &str) = (":path", "/");
    const HOST: (&str, &str) = (":authority", "www.example.com");
    const HTTP: (&str, &str) = (":scheme", "http");
    const CUSTOM: [(&str, &str); 5] =
        [GET, (":scheme", "https"), (":path", "/index.html"), HOST, ("custom-key", "custom-value")];

    #[test]
    fn requests_of_the_specification() {
        let no_cache = [GET, HTTP, ROOT, HOST, ("cache-control", "no-cache")];
        let plain = [
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &[GET, HTTP, ROOT, HOST][..]),
            ("8286 84be 5808 6e6f 2d63 6163 6865", &no_cache),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", &CUSTOM),
        ];
        plays(4096, &plain);
        let huffman = [
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &[GET, HTTP, ROOT, HOST][..]),
            ("8286 84be 5886 a8eb 1064 9cbf", &no_cache),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", &CUSTOM),
        ];
        plays(4096, &huffman);
    }

    #[test]
    fn responses_of_the_specification_with_a_table_that_is_too_small() {
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let rest = [("cache-control", "private"), date, ("location", "https://www.example.com")];
        let first = [&[(":status", "302")], &rest[..]].concat();
        let second =
            [(":status", "307"), ("cache-control", "private"), date, ("location", "https://www.example.com")];
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let third = [
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            ("location", "https://www.example.com"),
            ("content-encoding", "gzip"),
            ("set-cookie", cookie),
        ];
        let plain = [
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a \
                 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                &first[..],
            ),
            ("4803 3330 37c1 c0bf", &second),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 \
                 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 \
                 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                &third,
            ),
        ];
        plays(256, &plain);
        let huffman = [
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
                 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &first[..],
            ),
            ("4883 640e ffc1 c0bf", &second),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
                 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
                 4ee5 b106 3d50 07",
                &third,
            ),
        ];
        plays(256, &huffman);
    }

    #[test]
    fn what_cannot_be_read_ends_the_connection() {
        let fault = |hex| read(&mut Decoder::new(4096), &bytes(hex)).expect_err("it is refused");
        assert_eq!(fault("80"), CompressionFault::NoSuchEntry);
        assert_eq!(fault("be"), CompressionFault::NoSuchEntry, "the table is empty");
        assert_eq!(fault("7e 00"), CompressionFault::NoSuchEntry);
        assert_eq!(fault("00"), CompressionFault::Truncated);
        assert_eq!(fault("40 01 61"), CompressionFault::Truncated);
        assert_eq!(fault("40 05 61"), CompressionFault::Truncated);
        assert_eq!(fault("ff"), CompressionFault::TruncatedNumber);
        assert_eq!(fault("3f e2 1f"), CompressionFault::TableSize, "4097 bytes");
        assert_eq!(fault("82 20"), CompressionFault::TableSize, "behind a field");
        assert_eq!(fault("00 81 06 00"), CompressionFault::InvalidHuffman);
        assert_eq!(fault("ff ff ff ff ff ff"), CompressionFault::TooLargeNumber);
    }

    #[test]
    fn a_number_that_is_too_large_is_seen_before_the_rest_has_come() {
        for (hex, expected) in [
            ("82 84", Ok(())),
            ("40 03 61", Ok(())),
            ("ff", Ok(())),
            ("ff ff ff ff ff", Err(CompressionFault::TooLargeNumber)),
            ("82 42 ff ff ff ff ff", Err(CompressionFault::TooLargeNumber)),
            ("40 01 61 ff ff ff ff ff", Err(CompressionFault::TooLargeNumber)),
        ] {
            assert_eq!(look_ahead(&bytes(hex)), expected, "{hex}");
        }
    }

    #[test]
    fn a_table_that_was_made_smaller_has_lost_what_was_in_it() {
        let mut decoder = Decoder::new(4096);
        assert_eq!(read(&mut decoder, &bytes("40 01 61 01 62 be")).map(|fields| fields.len()), Ok(2));
        assert_eq!(read(&mut decoder, &bytes("20 3f e1 1f 82")).map(|fields| fields.len()), Ok(1));
        assert_eq!(read(&mut decoder, &bytes("be")), Err(CompressionFault::NoSuchEntry));
    }

    #[test]
    fn what_nobody_may_index_is_told() {
        let mut seen = Vec::new();
        let mut decoder = Decoder::new(4096);
        let block = bytes("10 01 61 01 62 00 01 61 01 62 1f 08 01 63");
        let mut take = |field: Field<'_>| {
            seen.push((field.name.to_vec(), field.sensitivity));
            ControlFlow::Continue(())
        };
        decoder.decode(&block, &mut take).expect("fields");
        let never = Sensitivity::NeverIndexed;
        let expected = [(&b"a"[..], never), (b"a", Sensitivity::Usual), (b"authorization", never)];
        assert_eq!(seen, expected.map(|(name, sensitivity)| (name.to_vec(), sensitivity)));
        assert_eq!(decoder.table.get(0), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            fields in prop::collection::vec(
                ("[a-z-]{0,20}", prop::collection::vec(any::<u8>(), 0..40)), 0..20,
            ),
        ) {
            let mut block = Vec::new();
            fields.iter().for_each(|(name, value)| push_field(&mut block, name.as_bytes(), value));
            let mut read = Vec::new();
            let mut decoder = Decoder::new(0);
            let mut take = |field: Field<'_>| {
                read.push((field.name.to_vec(), field.value.to_vec()));
                ControlFlow::Continue(())
            };
            prop_assert_eq!(decoder.decode(&block, &mut take), Ok(()));
            let sent: Vec<_> = fields.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn any_bytes_are_fields_or_a_fault(
            blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..4),
        ) {
            let mut decoder = Decoder::new(128);
            for block in blocks {
                if decoder.decode(&block, &mut |_| ControlFlow::Continue(())).is_err() {
                    break;
                }
            }
        }
    }
}
