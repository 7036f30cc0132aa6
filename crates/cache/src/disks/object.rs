//! Objects of a cache, as they are looked for and found.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway_offload::files::Opened;
use clearway_os::stat::Stat;

use super::disk::DiskError;
use crate::header::{StoredHeader, Unusable};
use crate::index::{BLOCK_BYTES, File};
use crate::key::{Digest, Key};
use crate::seal::Soundness;

/// The object that a request looks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The key, which the file repeats.
    pub key: Arc<Key>,
    /// The file's digest: the key's, or that of a variant.
    pub digest: Digest,
    /// Room for everything up to the body (`proxy_buffer_size`), bytes, where the index does not know how
    /// much that is.
    pub head_max_bytes: usize,
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file's digest.
    pub digest: Digest,
    /// The number of its disk.
    pub disk: u8,
    /// Its inode.
    pub inode: u64,
    /// Its length, bytes.
    pub length: u64,
}

/// A file that holds the response for a key.
#[derive(Debug)]
pub struct Found {
    /// The identity of the file.
    pub identity: Identity,
    /// The path of the file.
    pub path: Arc<Path>,
    /// The file, for its body: from [`Found::body_start`] to the end. `None` where [`Found::body`] has that
    /// and the file belongs to a copy in memory.
    pub opened: Option<Handle>,
    /// The bytes that were read: at least up to the body.
    pub(super) data: Bytes,
    pub(super) head: Bytes,
    pub(super) body_start: usize,
    pub(super) soundness: Soundness,
    /// The parsed head, if there is a copy of it.
    pub(super) made: Option<Arc<Made>>,
}

/// The parsed form that requests have made of an object's head, such as its lines. It is made once, and stays
/// as long as the copy of the object.
#[derive(Debug, Default)]
pub struct Made(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Made {
    /// The parsed form, if it is of this type.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::downcast(Arc::clone(self.0.get()?)).ok()
    }

    /// Keeps this, unless something is there already. It takes no more memory than
    /// [`Made::LINE_BYTES`] for each line of the head.
    pub fn set(&self, made: Arc<dyn Any + Send + Sync>) {
        let _ = self.0.set(made);
    }

    /// How much is accounted for each line of a head, bytes.
    pub const LINE_BYTES: usize = 32;
}

impl Found {
    /// The header of the file.
    ///
    /// # Panics
    /// With another key.
    #[must_use]
    pub fn header(&self, key: &Key) -> StoredHeader<'_> {
        StoredHeader::read(&self.data, key, usize::MAX).expect("it was read before with this key")
    }

    /// The response's head as it came, without the line that was added.
    #[must_use]
    pub fn head(&self) -> Bytes {
        self.head.clone()
    }

    /// The parsed head, and the place in which one can be kept.
    #[must_use]
    pub fn made(&self) -> Option<Arc<Made>> {
        self.made.clone()
    }

    /// Where the body begins, bytes from the file's beginning.
    #[must_use]
    pub fn body_start(&self) -> u64 {
        self.body_start as u64
    }

    /// The length of the body, bytes.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        debug_assert!(
            self.body_start() <= self.identity.length,
            "a file is no shorter than what stands before its body"
        );
        self.identity.length - self.body_start()
    }

    /// The body, where the file is so small that it was read as a whole.
    #[must_use]
    pub fn body(&self) -> Option<Bytes> {
        let is_whole = self.data.len() as u64 == self.identity.length;
        is_whole.then(|| self.data.slice(self.body_start..))
    }

    /// Its file, if it is open.
    #[must_use]
    pub fn file(&self) -> Option<&Opened> {
        self.opened.as_ref().map(|handle| match handle {
            Handle::Own(opened) => opened,
            Handle::Kept(opened) => &**opened,
        })
    }

    /// Whether its length and checksums were compared with what was written.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        matches!(self.soundness, Soundness::Sealed(_))
    }
}

/// The open file of an object.
#[derive(Debug)]
pub enum Handle {
    /// The request's own.
    Own(Opened),
    /// Kept open for further requests.
    Kept(Arc<Opened>),
}

/// Why there is no file to answer with. A request goes to the upstream, whichever it is.
#[derive(Debug)]
pub enum Miss {
    /// There is none.
    Absent,
    /// There is one that is not used: logged as `cache file "PATH" WHY`, at the level of the reason.
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: Unusable,
    },
    /// There was one that is not what was written; it was removed. Logged (crit) as
    /// `cache file "PATH" is broken`.
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// A call has failed, logged (crit) by its text.
    Failed(DiskError),
    /// The disk is left out at the moment: the response is not to be stored either.
    Out,
    /// There is a large one that is being compared with its checksum: the response is not to be stored
    /// meanwhile.
    Doubtful,
}

/// The entry of the index for a file.
pub(crate) fn file_of(
    identity: &Identity,
    header: &StoredHeader<'_>,
    stat: &Stat,
    stamp: Option<u32>,
) -> File {
    let blocks = (stat.blocks * 512).div_ceil(BLOCK_BYTES);
    File {
        disk: identity.disk,
        valid_s: u64::try_from(header.valid_sec).unwrap_or(0),
        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        body_start: header.body_start,
        inode: identity.inode,
        stored_s: u64::try_from(header.date).unwrap_or(0),
        stamp: stamp.unwrap_or(0),
    }
}
