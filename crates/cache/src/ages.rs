//! Finds how old objects have to be to be evicted: a histogram of the blocks on a disk by the time since
//! their objects were used, filled by a pass over the index. There is no list of objects by age, which every
//! request would have to change.

use crate::index::BLOCK_BYTES;

/// Below this age the histogram has a step for each second.
const EXACT_S: u64 = 1 << EXACT_BITS;
const EXACT_BITS: u32 = 10;

/// From this age on each doubling of the age has so many steps.
const PARTS: u64 = 1 << PARTS_BITS;
const PARTS_BITS: u32 = 6;

/// The number of steps: above 1024 seconds there are 24 octaves, up to 2^34 seconds.
const STEPS: usize = EXACT_S as usize + (34 - EXACT_BITS as usize) * PARTS as usize;

/// The histogram: blocks by the time since their objects were used.
#[derive(Clone, Debug)]
pub struct Ages {
    blocks: Box<[u64; STEPS]>,
}

impl Default for Ages {
    fn default() -> Self {
        Self { blocks: Box::new([0; STEPS]) }
    }
}

impl Ages {
    /// Adds an object of `blocks` blocks that was unused for `idle_s` seconds.
    pub fn add(&mut self, idle_s: u64, blocks: u32) {
        self.blocks[step(idle_s)] += u64::from(blocks);
    }

    /// The sum of all blocks, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().sum::<u64>().saturating_mul(BLOCK_BYTES)
    }

    /// The idle time in seconds from which on objects are to be evicted to free `wanted` bytes. It is 0 if
    /// all objects together have fewer bytes, and `None` if `wanted` is 0.
    #[must_use]
    pub fn threshold(&self, wanted: u64) -> Option<u64> {
        let wanted = wanted.div_ceil(BLOCK_BYTES);
        if wanted == 0 {
            return None;
        }
        let mut found = 0;
        let enough = self.blocks.iter().enumerate().rev().find(|(_, blocks)| {
            found += *blocks;
            found >= wanted
        });
        debug_assert!(
            enough.is_none_or(|(at, _)| step(first_of(at)) == at),
            "the first age of a step belongs to it"
        );
        Some(enough.map_or(0, |(step, _)| first_of(step)))
    }
}

fn step(idle_s: u64) -> usize {
    if idle_s < EXACT_S {
        return idle_s as usize;
    }
    let octave = idle_s.ilog2();
    let part = idle_s >> (octave - PARTS_BITS) & (PARTS - 1);
    debug_assert!(octave >= EXACT_BITS, "smaller ages are exact");
    let step = EXACT_S + u64::from(octave - EXACT_BITS) * PARTS + part;
    (step as usize).min(STEPS - 1)
}

/// The smallest age of a step, seconds.
fn first_of(step: usize) -> u64 {
    let step = step as u64;
    let Some(beyond) = step.checked_sub(EXACT_S) else { return step };
    let (octave, part) = (beyond / PARTS, beyond % PARTS);
    (PARTS | part) << (octave + u64::from(EXACT_BITS - PARTS_BITS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_go_first_and_no_more_than_have_to() {
        let mut ages = Ages::default();
        for idle_s in [0, 5, 5, 700, 100_000] {
            ages.add(idle_s, 10);
        }
        let ten_blocks = 10 * BLOCK_BYTES;
        assert_eq!(ages.bytes(), 5 * ten_blocks);
        assert_eq!(ages.threshold(0), None);
        let oldest = ages.threshold(1).expect("something has to go");
        assert!(oldest <= 100_000 && oldest > 98_000);
        assert_eq!(ages.threshold(ten_blocks), Some(oldest));
        assert_eq!(ages.threshold(ten_blocks + 1), Some(700));
        assert_eq!(ages.threshold(2 * ten_blocks + 1), Some(5));
        assert_eq!(ages.threshold(4 * ten_blocks + 1), Some(0));
        assert_eq!(ages.threshold(u64::MAX), Some(0), "all of it is not enough");
    }

    proptest! {
        #[test]
        fn a_step_begins_where_the_one_before_ends(
            idle_s in prop_oneof![0u64..5000, 0u64..1 << 34, any::<u64>()],
        ) {
            let at = step(idle_s);
            let first = first_of(at);
            prop_assert!(first <= idle_s);
            prop_assert_eq!(step(first), at);
            prop_assert!(first == 0 || step(first - 1) + 1 == at);
            prop_assert!(idle_s >= 1 << 34 || idle_s - first <= idle_s / PARTS);
        }
    }
}
