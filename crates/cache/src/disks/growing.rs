//! A file of a cache that others read while it is written. Any thread; calls that may wait are jobs of the
//! disk.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use clearway_offload::{Blocking, Pool, Task, file};

use super::disk::{Disk, DiskError, Root};

/// A file that others read while it grows.
#[derive(Clone)]
pub struct Growing {
    pub(super) file: Arc<File>,
    pub(super) path: Arc<Path>,
    pub(super) disk: Arc<Disk>,
    pub(super) via: Option<Arc<Pool>>,
    /// The part before the body, as it was written first.
    pub(super) beginning: Bytes,
    pub(super) recent: Arc<Recent>,
}

/// The last bytes written, which other readers need next: they take them without a job of the disk. Kept only
/// while more bytes follow, so that slow readers keep nothing in memory. Made only where there are bytes to
/// share: to drop an `ArcSwap` costs a look at the borrows of every thread.
#[derive(Default)]
pub(super) struct Recent(OnceLock<ArcSwapOption<Page>>);

/// The bytes of one write.
struct Page {
    /// Their offset in the file.
    start: u64,
    pieces: Vec<Bytes>,
}

impl Recent {
    /// Notes that `pieces` were written from `start` on.
    pub(super) fn set(&self, start: u64, pieces: &[Bytes]) {
        let page = Page { start, pieces: pieces.to_vec() };
        self.0.get_or_init(ArcSwapOption::empty).store(Some(Arc::new(page)));
    }

    /// No more comes.
    pub(super) fn clear(&self) {
        if let Some(recent) = self.0.get() {
            recent.store(None);
        }
    }

    fn at(&self, offset: u64) -> Option<Bytes> {
        let page = self.0.get()?.load();
        let page = page.as_deref()?;
        let mut at = usize::try_from(offset.checked_sub(page.start)?).ok()?;
        for piece in &page.pieces {
            if at < piece.len() {
                return Some(piece.slice(at..));
            }
            at -= piece.len();
        }
        None
    }
}

impl std::fmt::Debug for Growing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Growing").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Growing {
    /// Where the body begins, bytes from the file's beginning.
    #[must_use]
    pub fn body_start(&self) -> u64 {
        self.beginning.len() as u64
    }

    /// Everything up to the body: the fixed header, the key and the head.
    #[must_use]
    pub fn beginning(&self) -> &Bytes {
        &self.beginning
    }

    /// Bytes of the file from `offset` on, some of them, if they were written just now.
    #[must_use]
    pub fn recent(&self, offset: u64) -> Option<Bytes> {
        self.recent.at(offset)
    }

    /// The present path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Up to `count` bytes from `offset` of the file, if the kernel has them in memory, as it has bytes that
    /// were written a moment ago. For loops: a job would cost more than the copy.
    #[must_use]
    pub fn read_cached(&self, offset: u64, count: usize) -> Option<Vec<u8>> {
        file::read_cached(&self.file, offset, count)
    }

    /// Reads up to `count` bytes from `offset` of the file: fewer only at its present end.
    pub fn read(&self, offset: u64, count: usize) -> Task<Result<Vec<u8>, DiskError>> {
        let (growing, path) = (Arc::clone(&self.file), Arc::clone(&self.path));
        let read = move |blocking: &Blocking, _: &Root| {
            file::read(blocking, &growing, offset, count)
                .map_err(|error| DiskError::new("read()", path.to_path_buf(), error))
        };
        self.disk.submit(self.via.as_ref(), read, |done| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_there_from_any_byte_on() {
        let recent = Recent::default();
        assert_eq!(recent.at(0), None);
        recent.set(10, &[Bytes::from_static(b"abc"), Bytes::new(), Bytes::from_static(b"de")]);
        let at = |offset| recent.at(offset).map(|piece| String::from_utf8_lossy(&piece).into_owned());
        let expected =
            [(9, None), (10, Some("abc")), (12, Some("c")), (13, Some("de")), (14, Some("e")), (15, None)];
        for (offset, piece) in expected {
            assert_eq!(at(offset).as_deref(), piece, "{offset}");
        }
        recent.set(15, &[Bytes::from_static(b"f")]);
        assert_eq!((at(14), at(15).as_deref()), (None, Some("f")), "what came before is in the file alone");
        recent.clear();
        assert_eq!(at(15), None);
    }
}
