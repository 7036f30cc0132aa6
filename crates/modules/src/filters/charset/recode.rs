//! The body filter: a body in one charset becomes one in another, chunk by chunk. Works on what is in
//! memory; what needs no change is passed on uncopied.

use clearway_http::{BodyFilter, Chunk, Mark, Next};
use smallvec::SmallVec;

use super::tables::{ByteTable, Decoded, Utf8Table, decode};

/// How much of a chunk is passed on uncopied before a character that changes, bytes.
const UNCHANGED_MIN_BYTES: usize = 512;
/// Longest reference to a character that a charset does not have: `&#1114111;`.
const REFERENCE_BYTES: usize = 10;

/// Recodes characters that have one byte before and after.
pub(super) struct Bytes<'c>(pub(super) &'c [u8; 256]);

/// To UTF-8.
pub(super) struct ToUtf8<'c>(pub(super) &'c Utf8Table);

/// From UTF-8.
pub(super) struct FromUtf8<'c> {
    table: &'c Utf8Table,
    /// The beginning of a character that goes on in the next chunk.
    begun: SmallVec<[u8; 4]>,
}

impl<'t> Bytes<'t> {
    /// Which way of a table to take.
    pub(super) fn there(table: &'t ByteTable) -> Self {
        Self(&table.there)
    }

    pub(super) fn back(table: &'t ByteTable) -> Self {
        Self(&table.back)
    }
}

impl<'t> FromUtf8<'t> {
    pub(super) fn new(table: &'t Utf8Table) -> Self {
        Self { table, begun: SmallVec::new() }
    }
}

impl BodyFilter for Bytes<'_> {
    fn push<'c>(&mut self, mut chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        let changes = |byte: &u8| self.0[usize::from(*byte)] != *byte;
        let Some(start) = chunk.bytes().iter().position(changes) else { return next.push(chunk, mark) };
        chunk.bytes_mut()[start..].iter_mut().for_each(|byte| *byte = self.0[usize::from(*byte)]);
        next.push(chunk, mark);
    }
}

impl BodyFilter for ToUtf8<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        let there = &self.0.there;
        // As in nginx, before the first character of more than one byte all is taken as it is.
        let grows = |byte: &u8| there[usize::from(*byte)].len() != 1;
        let Some(first) = chunk.bytes().iter().position(grows) else { return next.push(chunk, mark) };
        let start = if first > UNCHANGED_MIN_BYTES { first } else { 0 };
        let bytes = chunk.bytes();
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 2);
        out.extend_from_slice(&bytes[..start]);
        for &byte in &bytes[start..] {
            out.extend_from_slice(&there[usize::from(byte)]);
        }
        next.push(Chunk::Owned(out), mark);
    }
}

impl BodyFilter for FromUtf8<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if self.begun.is_empty() && chunk.bytes().is_ascii() {
            return next.push(chunk, mark);
        }
        next.push(Chunk::Owned(self.convert(chunk.bytes())), mark);
    }
}

impl FromUtf8<'_> {
    fn convert(&mut self, bytes: &[u8]) -> Vec<u8> {
        let joined;
        let mut rest = if self.begun.is_empty() {
            bytes
        } else {
            joined = [&self.begun[..], bytes].concat();
            &joined
        };
        let mut out = Vec::with_capacity(rest.len() + REFERENCE_BYTES);
        self.begun.clear();
        loop {
            let plain = rest.iter().take_while(|byte| byte.is_ascii()).count();
            out.extend_from_slice(&rest[..plain]);
            rest = &rest[plain..];
            if rest.is_empty() {
                break;
            }
            let used = match decode(rest) {
                Decoded::Character(number, len) => {
                    match self.table.byte(number) {
                        Some(byte) => out.push(byte),
                        None => out.extend_from_slice(format!("&#{number};").as_bytes()),
                    }
                    len
                }
                Decoded::Invalid(len) => {
                    out.push(b'?');
                    len
                }
                Decoded::Incomplete => {
                    // At the end of the body it is dropped, as in nginx.
                    self.begun.extend_from_slice(rest);
                    break;
                }
            };
            rest = &rest[used..];
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::charset::tables::Table;

    /// As nginx 1.31.5 converts it with `charset_map koi8-r utf-8 { E1 D090; }`.
    #[test]
    fn where_chunks_begin_makes_no_difference() {
        let Table::Utf8(mut table) = Table::utf8() else { panic!("it is one of UTF-8") };
        table.add(0xe1, 0x410);
        let text =
            b"a\xd0\x90\xd0 b\xe2\x82\xac c\xf0\x9f\x98\x80d\xf0\x9f\x98d\xff\xc0\x80\xe0\x80\x80 end \xd0";
        let expected = b"a\xe1?b&#8364; c&#128512;d????? end ";
        for split in 0..=text.len() {
            for second in split..=text.len() {
                let mut filter = FromUtf8::new(&table);
                let mut out = filter.convert(&text[..split]);
                out.extend(filter.convert(&text[split..second]));
                out.extend(filter.convert(&text[second..]));
                assert_eq!(
                    out.escape_ascii().to_string(),
                    expected.escape_ascii().to_string(),
                    "{split} {second}"
                );
            }
        }
    }
}
