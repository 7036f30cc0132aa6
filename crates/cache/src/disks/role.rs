//! The role of a process for the caches that it shares with others (`worker_groups`). Exactly one process
//! reads directories, removes objects and writes snapshots. All write down their own changes and check their
//! disks. Messages between them are words of the zone.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::Cache;

/// The role of a process for the caches that it shares with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The cache is not shared with another process.
    #[default]
    Alone,
    /// This process looks after the caches of all.
    Manages,
    /// Another process looks after the caches.
    Assists,
}

/// Words of the zone: the disks whose snapshots and journals have been read.
const KNOWN: usize = 0;
/// The disks all of whose directories have been read.
const WALKED: usize = 1;
/// Blocks that all files take, a number that may be below zero for a moment.
const BLOCKS: usize = 2;
/// The number of objects, as of the last pass.
const OBJECTS: usize = 3;
/// Requests to the process that manages: a bit for each disk that wants room, and one for a walk.
const WISHES: usize = 4;

/// Asks for a walk: the directories are read once more.
const WISH_WALK: u64 = 1 << 63;

impl Cache {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.conf.zone.notes()[at]
    }

    pub(crate) fn known(&self) -> &AtomicU64 {
        self.word(KNOWN)
    }

    pub(crate) fn blocks(&self) -> &AtomicU64 {
        self.word(BLOCKS)
    }

    pub(crate) fn counted_objects(&self) -> &AtomicU64 {
        self.word(OBJECTS)
    }

    /// Whether there may be files that the index does not know.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.word(WALKED).load(Ordering::Acquire) != self.mark()
    }

    /// Notes that all directories were read.
    pub(crate) fn note_walked(&self) {
        self.word(WALKED).store(self.mark(), Ordering::Release);
    }

    /// Notes that the directories are to be read: a process before this one may have left files that the
    /// index does not know.
    pub(crate) fn note_cold(&self) {
        self.word(WALKED).store(0, Ordering::Release);
    }

    /// A mark of the cache's disks: another configuration may have others in the same zone.
    fn mark(&self) -> u64 {
        let mut hash = crc32fast::Hasher::new();
        self.conf.disks.iter().for_each(|disk| hash.update(disk.path.as_os_str().as_bytes()));
        1 << 32 | u64::from(hash.finalize())
    }

    /// Passes the wishes of this process, which does not manage, on to the one that does.
    pub(crate) fn pass_wishes_on(&self) {
        let walk = if self.kept.wants_walk.swap(false, Ordering::Relaxed) { WISH_WALK } else { 0 };
        let disks = self.kept.disks.iter().enumerate().filter(|(_, disk)| disk.take_wants_room());
        let wishes = disks.fold(walk, |wishes, (number, _)| wishes | 1 << number);
        if wishes != 0 {
            self.word(WISHES).fetch_or(wishes, Ordering::AcqRel);
        }
    }

    /// Takes over the wishes of other processes.
    pub(crate) fn take_wishes(&self) {
        if self.word(WISHES).load(Ordering::Relaxed) == 0 {
            return;
        }
        let wishes = self.word(WISHES).swap(0, Ordering::AcqRel);
        if wishes & WISH_WALK != 0 {
            self.kept.wants_walk.store(true, Ordering::Relaxed);
        }
        let wants = |number: usize| wishes & 1 << number != 0;
        let disks = self.kept.disks.iter().enumerate().filter(|(number, _)| wants(*number));
        disks.for_each(|(_, disk)| disk.want_room());
    }
}
