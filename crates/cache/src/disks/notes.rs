//! The index entries of a disk are written to its directory `.clearway`: a snapshot, and a journal of the
//! changes since. After a start they are read first, so that objects are known at once; the walk through the
//! cache's directory then corrects the index.
//!
//! 1. Changes wait in a queue and are appended every [`FLUSH_MS`] by a job in the disk's pool. Each of
//!    several processes opens the journal by its name and holds a lock while it appends whole entries.
//! 2. When the journal has grown large, one process renames it to `journal.old`, writes a new snapshot,
//!    renames that over the present one, and removes `journal.old`. A start reads the snapshot, then
//!    `journal.old`, then the journal.
//! 3. Nothing is synced: an entry that is lost or wrong costs a look at the disk.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clearway_offload::directory::Directory;
use clearway_offload::{Blocking, file};
use crossbeam_queue::SegQueue;

use super::cache::now_s;
use super::metrics::{RECOVERED, UNWRITTEN};
use crate::index::{Index, Stored};
use crate::journal::{self, Change, ENTRY_BYTES, HEAD_BYTES, Record, SnapshotWriter};

/// How long a change waits to be written, ms.
pub(crate) const FLUSH_MS: u64 = 200;
/// The most changes that may wait.
const WAITING_MAX: usize = 1 << 16;
/// The least size of a journal that is replaced by a snapshot, bytes.
const JOURNAL_MIN_BYTES: u64 = 1 << 20;
/// Slots of the index that are scanned for one write to a snapshot.
const SCAN_SLOTS: usize = 1 << 14;
/// Bytes of a snapshot that are read at a time: whole blocks.
const READ_BYTES: usize = 16 * journal::BLOCK_BYTES;
/// Bytes of a journal that are read at a time: whole entries.
const READ_ENTRIES_BYTES: usize = (1 << 14) * ENTRY_BYTES;

const MODE: u32 = 0o600;
/// The directory of snapshot and journal. nginx's cache loader removes the files in it, since it does not
/// know them.
pub(crate) const DIRECTORY: &str = ".clearway";
const SNAPSHOT: &str = ".clearway/index";
const SNAPSHOT_NEW: &str = ".clearway/index.new";
const JOURNAL: &str = ".clearway/journal";
const JOURNAL_OLD: &str = ".clearway/journal.old";

/// The changes of one disk that are still to be written, and the sizes of its two files.
#[derive(Default)]
pub(crate) struct Notes {
    waiting: SegQueue<Change>,
    count: AtomicUsize,
    /// Length of the journal after the last write, bytes.
    journal_bytes: AtomicU64,
    /// Length of the last snapshot, bytes.
    snapshot_bytes: AtomicU64,
}

impl Notes {
    /// Adds a change. Returns whether it is the only one that waits.
    pub(crate) fn push(&self, change: Change) -> bool {
        let before = self.count.fetch_add(1, Ordering::AcqRel);
        if before >= WAITING_MAX {
            self.count.fetch_sub(1, Ordering::AcqRel);
            UNWRITTEN.increment();
            return false;
        }
        self.waiting.push(change);
        before == 0
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Appends the waiting changes to the journal.
    pub(crate) fn flush(&self, blocking: &Blocking, directory: &Directory) -> io::Result<()> {
        let mut out = Vec::new();
        while let Some(change) = self.waiting.pop() {
            self.count.fetch_sub(1, Ordering::AcqRel);
            journal::push_change(&change, &mut out);
        }
        if !out.is_empty() {
            self.journal_bytes.store(append(blocking, directory, &out)?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Replaces a journal that has grown large by a snapshot of this disk's objects (rule 2). Called in one
    /// process only.
    pub(crate) fn shorten(
        &self,
        blocking: &Blocking,
        directory: &Directory,
        (index, disk): (Index<'_>, u8),
    ) -> io::Result<()> {
        let most = JOURNAL_MIN_BYTES.max(self.snapshot_bytes.load(Ordering::Relaxed));
        if self.journal_bytes.load(Ordering::Relaxed) > most {
            directory.rename(blocking, Path::new(JOURNAL), Path::new(JOURNAL_OLD))?;
            self.journal_bytes.store(0, Ordering::Relaxed);
            let snapshot_bytes = write_snapshot(blocking, directory, (index, disk))?;
            self.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
            remove(blocking, directory, JOURNAL_OLD)?;
        }
        Ok(())
    }
}

/// Appends entries to the journal. Returns its new length, bytes.
fn append(blocking: &Blocking, directory: &Directory, bytes: &[u8]) -> io::Result<u64> {
    let name = Path::new(JOURNAL);
    let found = match directory.open_to_change(blocking, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match directory.create_file(blocking, name, MODE) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    directory.open_to_change(blocking, name)
                }
                made => made,
            }
        }
        found => found,
    }?;
    // The lock ends with the descriptor, and with the process. If the journal was renamed in between, its
    // changes are in the snapshot that is being written, since the index is changed before the journal.
    found.lock()?;
    let length = clearway_os::stat::of(std::os::fd::AsFd::as_fd(&found))?.size;
    // Bytes of an incomplete entry are overwritten: they would shift all later entries.
    let end = length / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
    found.write_all_at(bytes, end)?;
    Ok(end + bytes.len() as u64)
}

/// Writes a snapshot (rule 2). Returns its length, bytes.
fn write_snapshot(
    blocking: &Blocking,
    directory: &Directory,
    (index, disk): (Index<'_>, u8),
) -> io::Result<u64> {
    remove(blocking, directory, SNAPSHOT_NEW)?;
    let file = directory.create_file(blocking, Path::new(SNAPSHOT_NEW), MODE)?;
    let (mut out, mut written, now_s) = (Vec::new(), 0, now_s());
    let mut writer = SnapshotWriter::begin(now_s, &mut out);
    for first in (0..index.room()).step_by(SCAN_SLOTS) {
        for (digest, object) in index.scan(first..first + SCAN_SLOTS) {
            if let Stored::File(file) = object.stored
                && file.disk == disk
            {
                writer.add(&Record::new(digest, file, object.uses, (object.used_s, now_s)), &mut out);
            }
        }
        file.write_all_at(&out, written)?;
        written += out.len() as u64;
        out.clear();
    }
    writer.finish(&mut out);
    file.write_all_at(&out, written)?;
    directory.rename(blocking, Path::new(SNAPSHOT_NEW), Path::new(SNAPSHOT))?;
    Ok(written + out.len() as u64)
}

/// Enters the objects of snapshot and journals into the index. Returns how many there were.
///
/// # Errors
/// The system's error; files that do not exist are none.
pub(crate) fn recover(
    blocking: &Blocking,
    directory: &Directory,
    (index, disk): (Index<'_>, u8),
) -> io::Result<u64> {
    let now_s = now_s();
    let mut known = 0;
    // An entry that a request has made since the start is newer. It is told by its inode, which snapshots do
    // not hold.
    let is_newer = |digest| {
        let found = index.get(digest).map(|object| object.stored);
        matches!(found, Some(Stored::File(file)) if file.inode != 0)
    };
    let mut add = |record: Record| {
        if is_newer(record.digest) {
            return;
        }
        let file = crate::index::File { disk, ..record.file };
        let used_s = now_s.saturating_sub(u64::from(record.idle_min) * 60);
        let added = index.add(record.digest, file, (record.uses, used_s));
        known += u64::from(added.is_ok());
    };
    read_parts(blocking, directory, SNAPSHOT, (HEAD_BYTES, READ_BYTES), |part| {
        part.chunks(journal::BLOCK_BYTES).flat_map(journal::read_block).for_each(&mut add);
    })?;
    for name in [JOURNAL_OLD, JOURNAL] {
        read_parts(blocking, directory, name, (0, READ_ENTRIES_BYTES), |part| {
            for change in journal::read_changes(part) {
                match change {
                    Change::Added(record) => add(record),
                    Change::Dropped(digest) if is_newer(digest) => {}
                    Change::Dropped(digest) => _ = index.forget(digest),
                }
            }
        })?;
    }
    RECOVERED.add(known);
    Ok(known)
}

/// Reads a file from offset `begin` on, in parts of `size` bytes. A file that does not exist, or lacks the
/// head of a snapshot where `begin` skips one, counts as empty.
fn read_parts(
    blocking: &Blocking,
    directory: &Directory,
    name: &str,
    (begin, size): (usize, usize),
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let found = match directory.open_file(blocking, Path::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if begin > 0 {
        let head = file::read(blocking, &found, 0, begin)?;
        if head.first_chunk().and_then(journal::read_head).is_none() {
            return Ok(());
        }
    }
    let mut offset = begin as u64;
    loop {
        let part = file::read(blocking, &found, offset, size)?;
        take(&part);
        if part.len() < size {
            return Ok(());
        }
        offset += size as u64;
    }
}

fn remove(blocking: &Blocking, directory: &Directory, name: &str) -> io::Result<()> {
    match directory.remove_file(blocking, &PathBuf::from(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
