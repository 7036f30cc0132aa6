//! Pieces of a response body on their way through filters to the socket, and the marks that travel
//! with them. Owned by the task of the request.

use std::ops::Range;

use bytes::Bytes;

use crate::response::buffer::Buf;
use crate::response::file_part::FilePart;

/// A piece of a response body.
pub enum Chunk<'c> {
    /// Part of the configuration, or static.
    Borrowed(&'c [u8]),
    /// Shared with others, such as a cached file.
    Shared(Bytes),
    /// The response's own; a filter may change it in place.
    Owned(Vec<u8>),
    /// Bytes in a pooled buffer, which is returned when it has been sent.
    Pooled(Buf),
    /// Part of a file, whose bytes nobody has read yet. Filters get one only if they say that they do
    /// not look at bytes.
    File(FilePart),
}

impl<'c> Chunk<'c> {
    /// No bytes: for a mark alone.
    pub const EMPTY: Self = Self::Borrowed(&[]);

    /// The bytes themselves; none of a part of a file.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Pooled(buf) => buf.bytes(),
            Self::File(_) => &[],
        }
    }

    /// The bytes, to be changed: copied unless they are the chunk's own; none of a part of a file.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Borrowed(_) | Self::Shared(_) = self {
            *self = Self::Owned(self.bytes().to_vec());
        }
        match self {
            Self::Owned(bytes) => bytes,
            Self::Pooled(buf) => buf.bytes_mut(),
            Self::Borrowed(_) | Self::Shared(_) | Self::File(_) => &mut [],
        }
    }

    /// The bytes, copied if they are borrowed; none of a part of a file.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Self::Shared(bytes) => bytes,
            Self::Owned(bytes) => bytes.into(),
            Self::Pooled(buf) => Bytes::copy_from_slice(buf.bytes()),
            Self::File(_) => Bytes::new(),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(part) => part.len(),
            _ => self.bytes().len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all bytes behind the first `len`.
    pub fn truncate(&mut self, len: u64) {
        let in_memory = usize::try_from(len).unwrap_or(usize::MAX);
        match self {
            Self::Borrowed(bytes) => *bytes = &bytes[..in_memory.min(bytes.len())],
            Self::Shared(bytes) => bytes.truncate(in_memory),
            Self::Owned(bytes) => bytes.truncate(in_memory),
            Self::Pooled(buf) => buf.truncate(in_memory),
            Self::File(part) => part.truncate(len),
        }
    }

    /// Makes sure that [`Chunk::part`] copies nothing.
    pub fn share(&mut self) {
        match self {
            Self::Owned(bytes) => *self = Self::Shared(std::mem::take(bytes).into()),
            Self::Pooled(buf) => *self = Self::Shared(Bytes::copy_from_slice(buf.bytes())),
            Self::Borrowed(_) | Self::Shared(_) | Self::File(_) => {}
        }
    }

    /// A part of it.
    ///
    /// # Panics
    /// If it does not lie within the chunk.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let place = |at: u64| usize::try_from(at).expect("lies in memory");
        match self {
            Self::Borrowed(bytes) => Self::Borrowed(&bytes[place(range.start)..place(range.end)]),
            Self::Shared(bytes) => Self::Shared(bytes.slice(place(range.start)..place(range.end))),
            Self::Owned(bytes) => Self::Owned(bytes[place(range.start)..place(range.end)].to_vec()),
            Self::Pooled(buf) => Self::Owned(buf.bytes()[place(range.start)..place(range.end)].to_vec()),
            Self::File(part) => Self::File(part.part(range)),
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

impl From<Buf> for Chunk<'_> {
    fn from(buf: Buf) -> Self {
        Self::Pooled(buf)
    }
}

impl From<Vec<u8>> for Chunk<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

/// The position of a chunk in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// More, and it may wait for that.
    More,
    /// More, but everything so far is to be sent now: filters let go of what they hold.
    Flush,
    /// Nothing.
    Last,
}

/// The fate of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a producer that ignores Full has no back-pressure"]
pub enum Pushed {
    /// Taken, there is room for more.
    Sent,
    /// Taken, but wait with `ready` before the next one.
    Full,
}
