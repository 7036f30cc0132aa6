//! Pieces of a response body on their way through filters to the socket, and the marks that travel
//! with them. Owned by the task of the request.

use bytes::Bytes;

/// Bytes of a response body.
pub enum Chunk<'c> {
    /// Part of the configuration, or static.
    Borrowed(&'c [u8]),
    /// Shared with others, such as a cached file.
    Shared(Bytes),
    /// The response's own; a filter may change it in place.
    Owned(Vec<u8>),
}

impl Chunk<'_> {
    /// No bytes: for a mark alone.
    pub const EMPTY: Self = Self::Borrowed(&[]);

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Drops what lies behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::Borrowed(bytes) => *bytes = &bytes[..len.min(bytes.len())],
            Self::Shared(bytes) => bytes.truncate(len),
            Self::Owned(bytes) => bytes.truncate(len),
        }
    }
}

impl<'c> From<&'c [u8]> for Chunk<'c> {
    fn from(bytes: &'c [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl From<Bytes> for Chunk<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

impl From<Vec<u8>> for Chunk<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

/// What comes after a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// More, and it may wait for that.
    More,
    /// More, but everything so far is to be sent now: filters let go of what they hold.
    Flush,
    /// Nothing.
    Last,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a producer that ignores Full has no back-pressure"]
pub enum Pushed {
    /// Taken, there is room for more.
    Sent,
    /// Taken, but wait with `ready` before the next one.
    Full,
}
