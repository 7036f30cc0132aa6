//! The formats of snapshot and journal, which a cache keeps beside its files so that its index is complete at
//! once after a start: a snapshot has all objects of a disk, a journal the objects that were added and
//! removed since. Bytes only; `disks/notes.rs` writes and reads the files.
//!
//! Both are hints. A record may be wrong if the machine stopped while it was written; that costs a look at
//! the disk, since an object is used only if its file is found and agrees. So nothing is synced, and records
//! without a valid checksum are left out.

use crate::index::{File, USES_MAX};
use crate::key::{DIGEST_BYTES, Digest};

/// Length of a record, bytes.
pub const RECORD_BYTES: usize = 40;

/// Length of an entry of a journal, bytes.
pub const ENTRY_BYTES: usize = RECORD_BYTES + 8;

/// Records in a block of a snapshot. Each block has one checksum.
pub const BLOCK_RECORDS: usize = 1600;

/// Length of a full block, bytes; the last one may be shorter.
pub const BLOCK_BYTES: usize = BLOCK_RECORDS * RECORD_BYTES + CHECKSUM_BYTES;

const CHECKSUM_BYTES: usize = 4;

/// The first bytes of a snapshot; the last of them is the version.
const MAGIC: [u8; 8] = *b"cwindex\x01";

/// Length of the head in front of the blocks, bytes: the magic and the time of the snapshot.
pub const HEAD_BYTES: usize = 16;

/// The largest idle time that a record can hold, minutes.
const IDLE_MAX_MIN: u64 = (1 << 16) - 1;

/// An object of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The digest of its key.
    pub digest: Digest,
    /// Its file, without the inode.
    pub file: File,
    /// The number of requests for it.
    pub uses: u16,
    /// The time since the last request when this was written, minutes, at most 65,535.
    pub idle_min: u16,
}

impl Record {
    /// The record of an object at the time `now_s`, Unix seconds.
    #[must_use]
    pub fn new(digest: Digest, file: File, uses: u16, (used_s, now_s): (u64, u64)) -> Self {
        let idle_min = (now_s.saturating_sub(used_s) / 60).min(IDLE_MAX_MIN) as u16;
        Self { digest, file: File { inode: 0, ..file }, uses: uses.min(USES_MAX), idle_min }
    }

    fn write(&self, out: &mut Vec<u8>) {
        debug_assert!(self.uses <= USES_MAX, "uses have ten bits");
        let File { disk, valid_s, blocks, body_start, stored_s, stamp, .. } = self.file;
        out.extend_from_slice(&self.digest.0);
        let first = valid_s & SECONDS | u64::from(self.uses) << 34 | u64::from(disk & 0xf) << 44;
        let times = stored_s & SECONDS | u64::from(stamp & STAMP) << 34;
        out.extend_from_slice(&(first | u64::from(self.idle_min) << 48).to_le_bytes());
        out.extend_from_slice(&(u64::from(blocks) | u64::from(body_start) << 32).to_le_bytes());
        out.extend_from_slice(&times.to_le_bytes());
    }

    fn read(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut digest = Digest([0; DIGEST_BYTES]);
        digest.0.copy_from_slice(&bytes[..DIGEST_BYTES]);
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[DIGEST_BYTES + 8 * at..][..8]);
            u64::from_le_bytes(word)
        };
        let (first, size, times) = (word(0), word(1), word(2));
        let file = File {
            disk: (first >> 44 & 0xf) as u8,
            valid_s: first & SECONDS,
            blocks: size as u32,
            body_start: (size >> 32) as u16,
            inode: 0,
            stored_s: times & SECONDS,
            stamp: (times >> 34) as u32 & STAMP,
        };
        let (uses, idle_min) = ((first >> 34) as u16 & USES_MAX, (first >> 48) as u16);
        Self { digest, file, uses, idle_min }
    }
}

const SECONDS: u64 = (1 << 34) - 1;
const STAMP: u32 = (1 << 22) - 1;

/// Writes a snapshot block by block into buffers of the caller.
pub struct SnapshotWriter {
    block: Vec<u8>,
}

impl SnapshotWriter {
    /// Begins a snapshot at the time `now_s`, Unix seconds, and writes its head to `out`.
    #[must_use]
    pub fn begin(now_s: u64, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&now_s.to_le_bytes());
        Self { block: Vec::with_capacity(BLOCK_BYTES) }
    }

    /// Adds a record; a block that it completes is appended to `out`.
    pub fn add(&mut self, record: &Record, out: &mut Vec<u8>) {
        record.write(&mut self.block);
        debug_assert!(self.block.len().is_multiple_of(RECORD_BYTES), "a block has whole records");
        debug_assert!(self.block.len() <= BLOCK_RECORDS * RECORD_BYTES, "a block has so many at most");
        if self.block.len() == BLOCK_RECORDS * RECORD_BYTES {
            self.flush(out);
        }
    }

    /// Appends the last block to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if !self.block.is_empty() {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block);
        out.extend_from_slice(&crc32fast::hash(&self.block).to_le_bytes());
        self.block.clear();
    }
}

/// The time of a snapshot, Unix seconds; `None` if this is no head of a snapshot.
#[must_use]
pub fn read_head(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    let (magic, time) = head.split_at(MAGIC.len());
    let time = time.try_into().ok()?;
    (magic == MAGIC).then(|| u64::from_le_bytes(time))
}

/// The records of a block of a snapshot; none if its checksum is wrong.
pub fn read_block(block: &[u8]) -> impl Iterator<Item = Record> {
    let records = block.len().checked_sub(CHECKSUM_BYTES).map(|end| block.split_at(end));
    let sound = records.filter(|(records, sum)| crc32fast::hash(records).to_le_bytes() == **sum);
    let records = sound.map_or(&[][..], |(records, _)| records);
    records.as_chunks().0.iter().map(Record::read)
}

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was stored.
    Added(Record),
    /// Its file was removed.
    Dropped(Digest),
}

const ADDED: u32 = 1;
const DROPPED: u32 = 2;

/// Appends an entry of a journal to `out`.
pub fn push_change(change: &Change, out: &mut Vec<u8>) {
    let begin = out.len();
    let kind = match change {
        Change::Added(record) => {
            record.write(out);
            ADDED
        }
        Change::Dropped(digest) => {
            out.extend_from_slice(&digest.0);
            out.resize(begin + RECORD_BYTES, 0);
            DROPPED
        }
    };
    out.extend_from_slice(&kind.to_le_bytes());
    let sum = crc32fast::hash(&out[begin..]);
    out.extend_from_slice(&sum.to_le_bytes());
    assert_eq!(out.len() - begin, ENTRY_BYTES, "all entries are as long");
}

/// The entries of a journal in their order, without those whose checksum is wrong.
pub fn read_changes(journal: &[u8]) -> impl Iterator<Item = Change> {
    journal.as_chunks::<ENTRY_BYTES>().0.iter().filter_map(|entry| {
        let (content, sum) = entry.split_last_chunk::<CHECKSUM_BYTES>()?;
        if crc32fast::hash(content).to_le_bytes() != *sum {
            return None;
        }
        let (record, kind) = content.split_first_chunk::<RECORD_BYTES>()?;
        let record = Record::read(record);
        match u32::from_le_bytes(kind.try_into().ok()?) {
            ADDED => Some(Change::Added(record)),
            DROPPED => Some(Change::Dropped(record.digest)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u64) -> Record {
        let digest = crate::Key::new(number.to_le_bytes().to_vec()).digest();
        let file = File {
            disk: (number % 16) as u8,
            valid_s: number * 77 % SECONDS,
            blocks: number as u32,
            body_start: number as u16,
            inode: number,
            stored_s: SECONDS - number,
            stamp: STAMP - number as u32 % 9,
        };
        Record::new(digest, file, number as u16, (1_000_000, 1_000_000 + 60 * number))
    }

    fn snapshot(records: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = SnapshotWriter::begin(12_345, &mut out);
        (0..records).for_each(|number| writer.add(&record(number), &mut out));
        writer.finish(&mut out);
        out
    }

    fn read(snapshot: &[u8]) -> Vec<Record> {
        snapshot[HEAD_BYTES..].chunks(BLOCK_BYTES).flat_map(read_block).collect()
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        for count in [0, 1, BLOCK_RECORDS as u64, 2 * BLOCK_RECORDS as u64 + 7] {
            let snapshot = snapshot(count);
            assert_eq!(read_head(snapshot.first_chunk().expect("a head")), Some(12_345));
            assert_eq!(read(&snapshot), (0..count).map(record).collect::<Vec<_>>());
        }
        let far = record(1 << 20);
        assert_eq!((far.idle_min, far.file.inode, far.uses), (u16::MAX, 0, 0));
        assert_eq!(Record::new(far.digest, far.file, u16::MAX, (7, 6)).idle_min, 0, "a clock that went back");
    }

    #[test]
    fn a_block_that_is_not_whole_is_left_out() {
        let count = 2 * BLOCK_RECORDS as u64 + 7;
        let mut snapshot = snapshot(count);
        snapshot[HEAD_BYTES + BLOCK_BYTES + 100] ^= 1;
        snapshot.truncate(snapshot.len() - 1);
        assert_eq!(read(&snapshot), (0..BLOCK_RECORDS as u64).map(record).collect::<Vec<_>>());
        assert_eq!(read_head(b"cwindex\x02\0\0\0\0\0\0\0\0"), None, "another version");
    }

    #[test]
    fn a_journal_goes_on_behind_an_entry_that_is_not_whole() {
        let changes = [Change::Added(record(3)), Change::Dropped(record(4).digest), Change::Added(record(5))];
        let mut journal = Vec::new();
        changes.iter().for_each(|change| push_change(change, &mut journal));
        assert_eq!(journal.len(), 3 * ENTRY_BYTES);
        assert_eq!(read_changes(&journal).collect::<Vec<_>>(), changes);
        journal[ENTRY_BYTES] ^= 1;
        assert_eq!(read_changes(&journal).collect::<Vec<_>>(), [changes[0], changes[2]]);
        journal.truncate(3 * ENTRY_BYTES - 1);
        assert_eq!(read_changes(&journal).collect::<Vec<_>>(), [changes[0]]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(read_block(&bytes).count(), 0);
            prop_assert_eq!(read_changes(&bytes).count(), 0);
        }
    }
}
