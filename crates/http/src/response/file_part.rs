//! Open files as parts of response bodies. A file is shared by all responses that send it, a part belongs to
//! one response. Nothing here reads.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use clearway_offload::Pool;
use clearway_offload::files::Opened;

use clearway_base::log::Verbatim;

/// An open regular file with its name.
pub struct OpenFile {
    /// Taken when it is closed.
    opened: Option<Handle>,
    path: Box<[u8]>,
    access: FileAccess,
    /// Closes what takes long to close.
    closer: Option<Arc<Pool>>,
    /// Reads what the loop cannot, in place of the location's pool.
    reader: Option<Arc<Pool>>,
}

/// The descriptor.
enum Handle {
    Own(Opened),
    /// Other holders share the file, and close it.
    Shared(Arc<Opened>),
}

impl Handle {
    #[inline]
    fn opened(&self) -> &Opened {
        match self {
            Self::Own(opened) => opened,
            Self::Shared(opened) => opened,
        }
    }
}

/// How the contents of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Through the page cache.
    Cached,
    /// Past it (`directio`): every read waits for the disk.
    Direct {
        /// The alignment of positions and sizes (`directio_alignment`), bytes; a power of two.
        alignment: u32,
    },
}

impl OpenFile {
    /// The file that `path` names.
    #[must_use]
    pub fn new(opened: Opened, path: &[u8], access: FileAccess, closer: Option<Arc<Pool>>) -> Self {
        Self { opened: Some(Handle::Own(opened)), path: path.into(), access, closer, reader: None }
    }

    /// A file that others keep open, too, read through the page cache.
    #[must_use]
    pub fn shared(opened: Arc<Opened>, path: &[u8]) -> Self {
        let opened = Some(Handle::Shared(opened));
        Self { opened, path: path.into(), access: FileAccess::Cached, closer: None, reader: None }
    }

    /// Has a pool of its disk read what the loop cannot, and close it.
    #[must_use]
    pub fn with_pool(mut self, pool: Arc<Pool>) -> Self {
        debug_assert!(self.reader.is_none(), "a file has one pool");
        (self.closer, self.reader) = (Some(Arc::clone(&pool)), Some(pool));
        self
    }

    /// The pool of its disk, if it has one.
    #[must_use]
    pub fn pool(&self) -> Option<&Arc<Pool>> {
        self.reader.as_ref()
    }

    /// The open file itself.
    ///
    /// # Panics
    /// Never: it is taken in `drop` only.
    #[inline]
    #[must_use]
    pub fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("taken when it is closed").opened()
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// How it is read.
    #[must_use]
    pub fn access(&self) -> FileAccess {
        self.access
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let opened = match self.opened.take() {
            Some(Handle::Own(opened)) => opened,
            Some(Handle::Shared(shared)) => match Arc::into_inner(shared) {
                Some(opened) => opened,
                None => return,
            },
            None => return,
        };
        if let Some(pool) = &self.closer
            && opened.is_dear_to_close()
        {
            // Where the pool is full it is closed here after all.
            pool.submit_at(opened.at(), move |_| drop(opened)).detach();
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({:?})", Verbatim(&self.path).to_string())
    }
}

/// A part of an open file.
#[derive(Clone, Debug)]
pub struct FilePart {
    file: Arc<OpenFile>,
    range: Range<u64>,
}

impl FilePart {
    /// The bytes from `range.start` up to `range.end`, which the file should have.
    #[must_use]
    pub fn new(file: Arc<OpenFile>, range: Range<u64>) -> Self {
        debug_assert!(range.start <= range.end, "a part does not end before it begins");
        Self { file, range }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// The offset of the part in the file, bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.range.start
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        debug_assert!(self.range.start <= self.range.end, "a part does not end before it begins");
        self.range.end - self.range.start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Drops all bytes behind the first `len`.
    pub(crate) fn truncate(&mut self, len: u64) {
        self.range.end = self.range.end.min(self.range.start.saturating_add(len));
    }

    /// Drops the first `count` bytes, all at most.
    pub(crate) fn advance(&mut self, count: u64) {
        debug_assert!(count <= self.len(), "no more is taken than the part has");
        self.range.start = self.range.end.min(self.range.start + count);
    }

    /// A part of it.
    ///
    /// # Panics
    /// If it does not lie within it.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "within the part");
        let start = self.range.start + range.start;
        Self { file: Arc::clone(&self.file), range: start..self.range.start + range.end }
    }
}
