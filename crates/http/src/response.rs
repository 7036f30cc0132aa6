//! The parts of responses: pieces of bodies, parts of files and how they are read.

pub(crate) mod buffer;
pub(crate) mod chunk;
pub(crate) mod file_part;
pub(crate) mod file_sender;

use smallvec::SmallVec;

/// The value of `Content-Type` with a charset.
pub(crate) fn with_charset(content_type: &[u8], charset: &[u8]) -> SmallVec<[u8; 64]> {
    let mut value = SmallVec::new();
    for part in [content_type, b"; charset=", charset] {
        value.extend_from_slice(part);
    }
    value
}
