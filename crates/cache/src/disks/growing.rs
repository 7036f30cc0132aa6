//! A file of a cache that others read while it is written. Any thread; what may wait is a job of the disk.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use clearway_offload::{Blocking, Pool, Task, file};

use super::disk::{Disk, DiskError, Root};

/// A file that others read while it grows.
#[derive(Clone)]
pub struct Growing {
    pub(super) file: Arc<File>,
    pub(super) path: Arc<Path>,
    pub(super) disk: Arc<Disk>,
    pub(super) via: Option<Arc<Pool>>,
    pub(super) body_start: u64,
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
        self.body_start
    }

    /// What it is called for now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
