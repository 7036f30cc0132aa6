//! Header compression (RFC 7541). A [`Decoder`] belongs to a connection, whose header blocks it reads one
//! after the other. The encoder has no state: any task can write its head by itself, in any order, as it
//! never refers to what was sent before.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;

pub use decoder::{Decoder, Field, Sensitivity, Take, look_ahead};
pub use encoder::{
    CommonName, NO_TABLE, push_common, push_common_number, push_field, push_static, push_status,
};
pub use table::ENTRY_OVERHEAD_BYTES;

use std::fmt;

/// A header block cannot be read. The connection has to end (COMPRESSION_ERROR): its table is not known any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionFault {
    /// The block ends in the middle of a field.
    Truncated,
    /// The block ends in the middle of a number.
    TruncatedNumber,
    /// A number of more than 21 bits behind its prefix.
    TooLargeNumber,
    /// There is no entry with that number.
    NoSuchEntry,
    /// Bits that are no code, an end-of-string code, or filling that is too long or not made of ones.
    InvalidHuffman,
    /// The table may not become that large, or its size changes between two fields.
    TableSize,
}

impl fmt::Display for CompressionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated | Self::TruncatedNumber => "truncated header block",
            Self::TooLargeNumber => "too large number in header block",
            Self::NoSuchEntry => "invalid index in header block",
            Self::InvalidHuffman => "invalid Huffman code in header block",
            Self::TableSize => "invalid table size update in header block",
        })
    }
}

impl std::error::Error for CompressionFault {}
