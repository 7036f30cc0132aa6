//! What a process does for the caches that it shares with others (`worker_groups`): exactly one of them reads
//! directories, removes objects and writes snapshots; all write down what they change, and look whether their
//! disks are well. What one has to tell the others stands in words of the zone.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::Cache;

/// See the file's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// There is no other process.
    #[default]
    Alone,
    /// It looks after the caches of all.
    Manages,
    /// Another one does.
    Assists,
}

/// Words of the zone: which disks are known from what was written down.
const KNOWN: usize = 0;
/// Of which disks all directories were read.
const WALKED: usize = 1;
/// What all files take, in blocks, as a number that may be below zero for a moment.
const BLOCKS: usize = 2;
/// Objects, as of the last pass.
const OBJECTS: usize = 3;
/// What the process that manages is asked for: a bit for each disk that wants room, and one for a walk.
const WISHES: usize = 4;

/// That the directories are read once more.
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

    /// All directories were read.
    pub(crate) fn note_walked(&self) {
        self.word(WALKED).store(self.mark(), Ordering::Release);
    }

    /// They are to be read: a process that was here before may have left files that the index does not know.
    pub(crate) fn note_cold(&self) {
        self.word(WALKED).store(0, Ordering::Release);
    }

    /// Its disks: another configuration may have others in the same zone.
    fn mark(&self) -> u64 {
        let mut hash = crc32fast::Hasher::new();
        self.conf.disks.iter().for_each(|disk| hash.update(disk.path.as_os_str().as_bytes()));
        1 << 32 | u64::from(hash.finalize())
    }

    /// Passes on what this process, which does not manage, has found to be wanted.
    pub(crate) fn pass_wishes_on(&self) {
        let walk = if self.kept.wants_walk.swap(false, Ordering::Relaxed) { WISH_WALK } else { 0 };
        let disks = self.kept.disks.iter().enumerate().filter(|(_, disk)| disk.take_wants_room());
        let wishes = disks.fold(walk, |wishes, (number, _)| wishes | 1 << number);
        if wishes != 0 {
            self.word(WISHES).fetch_or(wishes, Ordering::AcqRel);
        }
    }

    /// Takes over what others have found to be wanted.
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
