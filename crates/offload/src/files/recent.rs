//! Events of the last seconds, as tables of hashes: an entry has one place, and a newer one pushes it out.
//! Any thread, no locks: an entry is one word.
//!
//! Times are milliseconds that wrap after 49 days; an entry that nobody touched for so long is taken for
//! a new one. The hash is seeded, so that nobody outside can choose what collides.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files are remembered in parts of so many bytes.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;
/// Parts of files that are remembered: 4 GiB of large files.
const BLOCKS: usize = 16_384;
/// An entry that is as young as this is not written again, ms.
const RENEW_MS: u32 = 250;

/// Hashes of names and places.
#[derive(Debug)]
pub(super) struct Hasher(OnceLock<u64>);

impl Hasher {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The hash of a text and a number.
    pub(super) fn of_bytes(&self, text: &[u8], more: u64) -> u64 {
        let (words, rest) = text.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let start = mix(self.seed() ^ more, text.len() as u64);
        let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        mix(hash, u64::from_le_bytes(last))
    }

    /// The hash of a block of a file.
    pub(super) fn of_place(&self, file: u64, block: u64) -> u64 {
        mix(mix(self.seed(), file), block)
    }

    fn seed(&self) -> u64 {
        *self.0.get_or_init(|| RandomState::new().hash_one(0))
    }
}

/// Both halves of a product, so that each bit depends on all.
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (product as u64) ^ (product >> 64) as u64
}

/// Things that were so lately. An entry: the upper half of the hash, then the time.
#[derive(Debug)]
pub(super) struct Names<const N: usize>([AtomicU64; N]);

impl<const N: usize> Names<N> {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    pub(super) fn note(&self, key: u64, now_ms: u32) {
        if !self.is_fresh(key, now_ms, RENEW_MS) {
            self.slot(key).store(tag(key) | u64::from(now_ms), Ordering::Relaxed);
        }
    }

    /// Whether it was so within the last `within_ms`.
    pub(super) fn is_fresh(&self, key: u64, now_ms: u32, within_ms: u32) -> bool {
        let entry = self.slot(key).load(Ordering::Relaxed);
        entry & TAG == tag(key) && now_ms.wrapping_sub(entry as u32) < within_ms
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.0[key as usize % N]
    }
}

/// The part of an entry that is not the time.
const TAG: u64 = !(u32::MAX as u64);
/// The lowest bit of the tag in [`Ranges`]: see [`Evidence::InMemory`].
const IN_MEMORY: u64 = 1 << 32;

/// Never that of an empty entry.
fn tag(key: u64) -> u64 {
    key & TAG | 1 << 63
}

/// Why a part of a file should be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The part was read from the disk. Under pressure the kernel drops parts that were read once first.
    Read,
    /// The part was found in memory when it was asked for again: the kernel keeps it for longer.
    InMemory,
}

/// How long evidence counts, ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    pub(super) read_ms: u32,
    pub(super) in_memory_ms: u32,
}

/// Parts of files.
#[derive(Debug)]
pub(super) struct Ranges([AtomicU64; BLOCKS]);

impl Ranges {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BLOCKS])
    }

    /// Remembers all blocks that `range` touches of the file whose blocks have the keys of `key`.
    pub(super) fn note(&self, key: impl Fn(u64) -> u64, range: Range<u64>, evidence: Evidence, now_ms: u32) {
        let flag = if evidence == Evidence::InMemory { IN_MEMORY } else { 0 };
        for key in blocks(range).map(key) {
            let (slot, tag) = (self.slot(key), block_tag(key) | flag);
            let entry = slot.load(Ordering::Relaxed);
            if entry & TAG != tag || now_ms.wrapping_sub(entry as u32) >= RENEW_MS {
                slot.store(tag | u64::from(now_ms), Ordering::Relaxed);
            }
        }
    }

    /// Whether there is evidence for all of `range`.
    pub(super) fn is_trusted(
        &self,
        key: impl Fn(u64) -> u64,
        range: Range<u64>,
        trust: Trust,
        now_ms: u32,
    ) -> bool {
        blocks(range).map(key).all(|key| {
            let entry = self.slot(key).load(Ordering::Relaxed);
            let within_ms = if entry & IN_MEMORY != 0 { trust.in_memory_ms } else { trust.read_ms };
            entry & TAG & !IN_MEMORY == block_tag(key) && now_ms.wrapping_sub(entry as u32) < within_ms
        })
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn forget_all(&self) {
        self.0.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    fn slot(&self, key: u64) -> &AtomicU64 {
        &self.0[key as usize % BLOCKS]
    }
}

fn block_tag(key: u64) -> u64 {
    tag(key) & !IN_MEMORY
}

/// The blocks that a range touches.
fn blocks(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fresh_for_a_while_also_when_the_clock_wraps() {
        let (names, hash) = (Names::<64>::new(), Hasher::new());
        let key = hash.of_bytes(b"/srv/www/index.html", 0);
        assert!(!names.is_fresh(key, 0, 1000), "an empty table knows nothing, also at time 0");
        names.note(key, u32::MAX - 100);
        assert!(names.is_fresh(key, u32::MAX, 1000) && names.is_fresh(key, 800, 1000));
        assert!(!names.is_fresh(key, 900, 1000));
        assert!(!names.is_fresh(hash.of_bytes(b"/srv/www/index.htm", 0), u32::MAX, 1000));
        assert!(!names.is_fresh(hash.of_bytes(b"/srv/www/index.html", 1), u32::MAX, 1000));
    }

    #[test]
    fn texts_of_equal_words_differ() {
        let hash = Hasher::new();
        let texts: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"12345678", b"12345678\0", b"1234567812345678"];
        let mut hashes: Vec<u64> = texts.iter().map(|text| hash.of_bytes(text, 0)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn a_range_is_trusted_if_all_of_its_blocks_are() {
        let (ranges, hash) = (Ranges::new(), Hasher::new());
        let key = |block| hash.of_place(2, block);
        let trust = Trust { read_ms: 100, in_memory_ms: 1000 };
        let (end, now) = (10 * BLOCK_BYTES, 5000);
        assert!(!ranges.is_trusted(key, 0..1, trust, now));
        ranges.note(key, 1..2 * BLOCK_BYTES, Evidence::Read, now);
        assert!(ranges.is_trusted(key, 0..2 * BLOCK_BYTES, trust, now));
        assert!(!ranges.is_trusted(key, 0..2 * BLOCK_BYTES + 1, trust, now));
        assert!(!ranges.is_trusted(key, 0..BLOCK_BYTES, trust, now + 100), "what was read is soon gone");
        ranges.note(key, 0..end, Evidence::InMemory, now);
        assert!(ranges.is_trusted(key, 0..end, trust, now + 999));
        assert!(!ranges.is_trusted(key, 0..end, trust, now + 1000));
        let other = |block| hash.of_place(3, block);
        assert!(!ranges.is_trusted(other, 0..1, trust, now));
        assert!(ranges.is_trusted(other, 0..0, trust, now), "nothing is always there");
    }
}
