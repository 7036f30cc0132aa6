//! The properties of each mount: what can be known about its files. Found out once per mount, on a pool
//! thread, from the number that fstatfs(2) gives a file system, and corrected by the results of calls.
//!
//! A table of fixed size, keyed by the mount's id. An entry is filled by the thread that swaps its key in;
//! its class is 0 (unknown) until then. When the entries near an id's place are all taken, the first is given
//! to the new mount: descriptors of the old one have a wrong class from then on.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use clearway_os::stat::Stat;

/// Mounts that are remembered.
const SLOTS: usize = 128;
/// Entries that are looked at for one id.
const REACH: usize = 8;
/// Since Linux 6.8 ids of mounts begin here and are not used again.
const UNIQUE_FROM: u64 = 1 << 31;
/// With so many reads of pool threads under way a disk may have no room for more: starting one, which
/// is what asking about a cold page does, would wait.
pub(super) const BUSY_READS: u32 = 4;
/// After an answer was late, only what is surely in memory is asked about for so long, ms.
const LATE_FOR_MS: u32 = 1000;

/// The class of a file system, by what can be known about its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// Not asked for yet.
    Unknown = 0,
    /// Everything is in memory (tmpfs).
    Memory = 1,
    /// A local disk whose page cache can be asked (`RWF_NOWAIT`).
    Telling = 2,
    /// A local disk behind something that does not tell (overlayfs): what was read lately is known.
    Mute = 3,
    /// Another machine is asked for every call, or the file system is not known: never on a loop.
    Remote = 4,
}

impl Class {
    /// By the `f_type` of fstatfs(2), see include/uapi/linux/magic.h.
    pub(super) fn of_magic(magic: u64) -> Self {
        match magic {
            // tmpfs, ramfs.
            0x0102_1994 | 0x8584_58f6 => Self::Memory,
            // ext2 to ext4, xfs, btrfs, f2fs, bcachefs, zfs, jfs, nilfs2, reiserfs, vfat, exfat, ntfs3,
            // iso9660, udf, squashfs, erofs. Those that cannot tell say so when they are asked.
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0xca45_1a4e | 0x2fc1_2fc1 | 0x3153_464a
            | 0x3434 | 0x5265_4973 | 0x4d44 | 0x2011_bab0 | 0x7366_746e | 0x9660 | 0x1501_3346
            | 0x7371_7368 | 0xe0f5_e1e2 => Self::Telling,
            // overlayfs, aufs.
            0x794c_7630 | 0x6175_6673 => Self::Mute,
            _ => Self::Remote,
        }
    }

    fn of_number(number: u8) -> Self {
        match number {
            1 => Self::Memory,
            2 => Self::Telling,
            3 => Self::Mute,
            4 => Self::Remote,
            _ => Self::Unknown,
        }
    }
}

/// The properties of one mount.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Mount {
    /// 0: free.
    key: AtomicU64,
    class: AtomicU8,
    /// Reads of pool threads under way.
    reads: AtomicU32,
    /// When an answer was late; 0: never.
    late_ms: AtomicU32,
    /// Bytes of its files that are held ([`Held`](super::Held)).
    pub(super) held_bytes: AtomicUsize,
}

impl Mount {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            class: AtomicU8::new(0),
            reads: AtomicU32::new(0),
            late_ms: AtomicU32::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }

    pub(super) fn class(&self) -> Class {
        Class::of_number(self.class.load(Ordering::Relaxed))
    }

    pub(super) fn set_class(&self, class: Class) {
        self.class.store(class as u8, Ordering::Relaxed);
    }

    /// Whether starting to read might wait for readers that are at it already.
    pub(super) fn is_busy(&self, now_ms: u32) -> bool {
        let late_ms = self.late_ms.load(Ordering::Relaxed);
        self.reads.load(Ordering::Relaxed) >= BUSY_READS
            || (late_ms != 0 && now_ms.wrapping_sub(late_ms) < LATE_FOR_MS)
    }

    /// An answer that should have cost nothing was late.
    pub(super) fn note_late(&self, now_ms: u32) {
        self.late_ms.store(now_ms | 1, Ordering::Relaxed);
    }

    /// A pool thread reads until the result is dropped.
    pub(super) fn reading(&self) -> InFlight<'_> {
        InFlight::new(&self.reads)
    }
}

/// Counts something as under way until it is dropped.
pub(super) struct InFlight<'a>(&'a AtomicU32);

impl<'a> InFlight<'a> {
    pub(super) fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All mounts that were met.
#[derive(Debug)]
pub(super) struct Mounts([Mount; SLOTS]);

impl Mounts {
    pub(super) const fn new() -> Self {
        Self([const { Mount::new() }; SLOTS])
    }

    /// The entry of the mount that a file lies on; its class may be unknown yet.
    pub(super) fn find(&self, stat: &Stat) -> &Mount {
        let key = key(stat);
        let home = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for at in 0..REACH {
            let mount = &self.0[(home as usize + at) % SLOTS];
            let seen = match mount.key.load(Ordering::Relaxed) {
                0 => mount.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).err(),
                taken => Some(taken),
            };
            if seen.is_none_or(|seen| seen == key) {
                return mount;
            }
        }
        let mount = &self.0[home as usize % SLOTS];
        mount.set_class(Class::Unknown);
        mount.key.store(key, Ordering::Relaxed);
        mount
    }
}

/// Never 0. Where ids of mounts are used again the device is part of it.
fn key(stat: &Stat) -> u64 {
    if stat.mount >= UNIQUE_FROM {
        return stat.mount;
    }
    (stat.mount << 32 ^ stat.device) | 1 << 63
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn on(mount: u64, device: u64) -> Stat {
        Stat { mount, device, ..Stat::default() }
    }

    #[test]
    fn each_mount_has_its_entry() {
        let mounts = Mounts::new();
        let (one, two) = (mounts.find(&on(UNIQUE_FROM, 1)), mounts.find(&on(UNIQUE_FROM + 1, 1)));
        one.set_class(Class::Mute);
        assert_eq!((two.class(), mounts.find(&on(UNIQUE_FROM, 9)).class()), (Class::Unknown, Class::Mute));
        let (three, four) = (mounts.find(&on(0, 1)), mounts.find(&on(0, 2)));
        three.set_class(Class::Memory);
        assert_eq!(four.class(), Class::Unknown, "without ids the device tells");
        assert!(!std::ptr::eq(mounts.find(&on(30, 2)), mounts.find(&on(31, 2))));
    }

    #[test]
    fn more_mounts_than_entries_push_each_other_out() {
        let mounts = Mounts::new();
        for id in 0..4 * SLOTS as u64 {
            let mount = mounts.find(&on(UNIQUE_FROM + id, 0));
            assert_eq!(mount.class(), Class::Unknown, "nothing is left of who was there");
            mount.set_class(Class::Telling);
            assert_eq!(mounts.find(&on(UNIQUE_FROM + id, 0)).class(), Class::Telling);
        }
    }

    #[test]
    fn reads_and_late_answers_make_a_mount_busy() {
        let mount = Mount::new();
        let mut reading: Vec<_> = (1..BUSY_READS).map(|_| mount.reading()).collect();
        assert!(!mount.is_busy(5));
        reading.push(mount.reading());
        assert!(mount.is_busy(5));
        drop(reading);
        assert!(!mount.is_busy(5));
        mount.note_late(4_000_000_001);
        assert!(mount.is_busy(4_000_000_500) && !mount.is_busy(4_000_001_001));
    }
}
