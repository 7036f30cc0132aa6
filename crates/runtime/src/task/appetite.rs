//! How much CPU a task is known to take each time it is polled. The rules are at the head of fair.rs, which
//! measures it.

use crate::sync::{AtomicU16, Ordering};

/// A task whose measured polls take so much on average is hungry.
const HUNGRY_US: u16 = 64;

/// The weight of one poll in the appetite, as a power of two.
const WEIGHT_SHIFT: u32 = 2;

/// A longer poll counts as one of this length (rule 3).
const LONGEST_US: u16 = 3 * HUNGRY_US;

const NS_PER_US: u64 = 1000;

/// How much CPU a task takes each time it is polled, in microseconds (rule 3).
#[derive(Debug)]
pub(crate) struct Appetite(AtomicU16);

impl Appetite {
    pub(crate) fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    pub(crate) fn is_hungry(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= HUNGRY_US
    }

    /// Counts one poll. The polling thread only.
    pub(crate) fn note(&self, cpu_ns: u64) {
        let us = u16::try_from(cpu_ns / NS_PER_US).unwrap_or(LONGEST_US).min(LONGEST_US);
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before - (before >> WEIGHT_SHIFT) + (us >> WEIGHT_SHIFT), Ordering::Relaxed);
    }
}
