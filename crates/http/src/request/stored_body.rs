//! A body that was read to its end: in memory, or in a file. It belongs to the request, and can be read as
//! often as one likes.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::request::Request;
use crate::request::body_file::TempFile;
use crate::request::contexts::{ContextKey, Lasts};

/// A body that was read to its end.
pub struct StoredBody {
    pub(crate) len: u64,
    pub(crate) place: BodyPlace,
}

/// The place of a stored body.
pub(crate) enum BodyPlace {
    Memory(Bytes),
    File(Arc<TempFile>),
}

impl StoredBody {
    /// Its length without framing, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, if it is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<&Bytes> {
        match &self.place {
            BodyPlace::Memory(bytes) => Some(bytes),
            BodyPlace::File(_) => None,
        }
    }

    /// The file that all of it is in, if it is not in memory.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<TempFile>> {
        match &self.place {
            BodyPlace::Memory(_) => None,
            BodyPlace::File(file) => Some(file),
        }
    }

    /// Up to `count` bytes from `offset`: fewer only at the end.
    ///
    /// # Errors
    /// As [`TempFile::read`].
    pub async fn read(&self, offset: u64, count: usize) -> io::Result<Bytes> {
        let left = self.len.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(count);
        match &self.place {
            BodyPlace::Memory(bytes) => {
                debug_assert_eq!(bytes.len() as u64, self.len, "it is all in memory");
                let start = bytes.len() - usize::try_from(left).expect("it is all in memory");
                Ok(bytes.slice(start..start + count))
            }
            BodyPlace::File(file) => file.read(offset, count).await.map(Bytes::from),
        }
    }
}

/// The stored body of a request.
pub(crate) static KEPT: ContextKey<Option<Arc<StoredBody>>> = ContextKey::new(Lasts::Inherited);

impl Request<'_> {
    /// The body, if a handler has had it read, and there is one.
    pub fn stored_body(&self) -> Option<&Arc<StoredBody>> {
        self.context(&KEPT)?.as_ref()
    }
}
