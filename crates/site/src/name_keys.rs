//! The beginnings of sorted names as numbers, laid out for few reads of memory. Built at load, searched on
//! loops.

use std::ops::Range;

/// Keys of sorted names. In front stands the last of each eight, so that a search reads few cache lines:
/// those of a server that is asked for once in a while are in no cache.
pub(crate) struct Keys {
    all: Box<[u64]>,
    blocks: usize,
}

/// As many as a cache line holds.
const BLOCK_KEYS: usize = 8;

impl Keys {
    /// The keys of names in their order.
    pub(crate) fn new(keys: impl Iterator<Item = u64> + Clone) -> Self {
        let last_of_each = keys.clone().skip(BLOCK_KEYS - 1).step_by(BLOCK_KEYS);
        let blocks = last_of_each.clone().count();
        Self { all: last_of_each.chain(keys).collect(), blocks }
    }

    /// The key of a name.
    pub(crate) fn at(&self, index: usize) -> u64 {
        self.all[self.blocks + index]
    }

    /// Which names have this key; the place where they would be, if there is none.
    pub(crate) fn equal(&self, key: u64) -> Range<usize> {
        let (last_of_each, keys) = self.all.split_at(self.blocks);
        let passed = BLOCK_KEYS * last_of_each.partition_point(|&last| last < key);
        let block = &keys[passed..keys.len().min(passed + BLOCK_KEYS)];
        let first = passed + block.partition_point(|&other| other < key);
        let count = match &keys[first..] {
            [one, ..] if *one != key => 0,
            [_, two, ..] if *two != key => 1,
            rest => rest.partition_point(|&other| other == key),
        };
        first..first + count
    }
}

/// The first eight bytes as a number that orders as they do; equal numbers leave the order open.
pub(crate) fn order_key(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => match (text.first_chunk(), text.last_chunk()) {
            // Some of the last four bytes are among the first four already.
            (Some(first), Some(last)) => {
                let rest = u64::from(u32::from_be_bytes(*last)) << (8 * (8 - text.len()));
                u64::from(u32::from_be_bytes(*first)) << 32 | rest & u64::from(u32::MAX)
            }
            _ => text.iter().zip(1..).fold(0, |key, (&byte, at)| key | u64::from(byte) << (64 - 8 * at)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_names_do() {
        let names: [&[u8]; 9] =
            [b"", b"/", b"/a", b"/aaaaaa", b"/aaaaaab", b"/aaab", b"/b", b"/b\0", b"\xff"];
        let keys = names.map(order_key);
        assert!(keys.is_sorted());
        assert_eq!(order_key(b"/aaaaaab"), order_key(b"/aaaaaabc"));
    }

    #[test]
    fn equal_keys_are_found_wherever_they_stand() {
        for length in 0..40_u64 {
            // 0, 2, 2, 2, 8, 8, 8, 14 and so on: some alone, some in a row across blocks.
            let keys: Vec<u64> = (0..length).map(|at| 2 * (at - at.saturating_sub(1) % 3)).collect();
            let table = Keys::new(keys.iter().copied());
            assert!((0..keys.len()).all(|index| table.at(index) == keys[index]));
            for key in 0..=2 * length {
                let wanted = keys.partition_point(|&k| k < key)..keys.partition_point(|&k| k <= key);
                assert_eq!(table.equal(key), wanted, "{key} in {keys:?}");
            }
        }
    }
}
