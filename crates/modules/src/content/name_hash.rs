//! The hash of a name by which tables of files find their entries. Any thread.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// Seeded, so that nobody outside can choose what shares a place. One for all tables of the process: what
/// asks several of them by the same name could not be told more by several seeds.
pub(crate) fn hash(path: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = path.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let start = mix(*SEED, path.len() as u64);
    let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(hash, u64::from_le_bytes(last))
}

/// The upper half of a hash as tables keep it: not that of an empty place.
pub(crate) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
