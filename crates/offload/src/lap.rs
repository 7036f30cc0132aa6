//! The slots of a queue (`ring`), which carry positions, as in Dmitry Vyukov's bounded queue.
//!
//! 1. Position `p` belongs to slot `p mod slots`. A slot whose stamp is `p` is free for the push of
//!    `p`, with `p + 1` it is full and open to the pop of `p`; positions only grow.
//! 2. The thread that moves `tail` (`head`) from `p` to `p + 1` owns the slot until it stores the next stamp
//!    (release): `p + 1` after a push, `p + slots` after a pop.
//! 3. A push gives up when `limit` positions are taken, or when its slot is not free yet because a
//!    pop from one lap before has not finished.
//! 4. A pop gives up when the slot at `head` is not full, also while its push is under way and later
//!    ones are complete.

use crate::cell::Turn;
use crate::sync::{AtomicUsize, Ordering};

/// A bounded queue; see the rules at the head of the file.
#[derive(Debug)]
pub(crate) struct Lap<T> {
    tail: Apart<AtomicUsize>,
    head: Apart<AtomicUsize>,
    slots: Box<[Slot<T>]>,
    limit: usize,
}

/// A place in a lap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

/// Keeps what producers write away from what consumers write (two lines: they are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug)]
struct Slot<T> {
    stamp: AtomicUsize,
    cell: Turn<T>,
}

impl<T> Lap<T> {
    /// A queue for up to `limit` (at least 1) entries. All slots are allocated here.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        // Two at least: with one slot "full at p" and "free for p + 1" would be the same stamp.
        let slots = limit.max(2);
        Self {
            tail: Apart(AtomicUsize::new(0)),
            head: Apart(AtomicUsize::new(0)),
            slots: (0..slots).map(|p| Slot { stamp: AtomicUsize::new(p), cell: Turn::new(None) }).collect(),
            limit,
        }
    }

    /// How many entries it has room for.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Adds an entry at the end. Never waits.
    ///
    /// # Errors
    /// Gives the value back when the queue is full.
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(tail);
            let ahead = slot.stamp.load(Ordering::Acquire).wrapping_sub(tail).cast_signed();
            if ahead < 0 || self.is_at_limit(tail) {
                return Err(value);
            }
            if ahead > 0 {
                tail = self.tail.0.load(Ordering::Relaxed);
                continue;
            }
            match self.advance(&self.tail.0, tail) {
                Ok(()) => {
                    slot.cell.put(value);
                    slot.stamp.store(tail.wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Takes the first entry, unless there is none or its push is still under way. Never waits.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(head);
            let ahead = slot.stamp.load(Ordering::Acquire).wrapping_sub(head.wrapping_add(1)).cast_signed();
            if ahead < 0 {
                return None;
            }
            if ahead > 0 {
                head = self.head.0.load(Ordering::Relaxed);
                continue;
            }
            match self.advance(&self.head.0, head) {
                Ok(()) => {
                    let value = slot.cell.take();
                    slot.stamp.store(head.wrapping_add(self.slots.len()), Ordering::Release);
                    debug_assert!(value.is_some(), "a full slot holds a value");
                    return value;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Whether a pop would find something now.
    pub(crate) fn is_ready(&self) -> bool {
        let head = self.head.0.load(Ordering::Acquire);
        self.slot(head).stamp.load(Ordering::Acquire).wrapping_sub(head.wrapping_add(1)).cast_signed() >= 0
    }

    /// Entries in the queue, those under way included; out of date at once.
    pub(crate) fn len(&self) -> usize {
        // Head first: it can only grow towards the tail that is read after it.
        let head = self.head.0.load(Ordering::SeqCst);
        self.tail.0.load(Ordering::SeqCst).wrapping_sub(head)
    }

    /// Whether there is nothing, not even a push under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next entry will stand; those of pushes that have come back are before it.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.tail.0.load(Ordering::SeqCst))
    }

    /// Whether everything before the mark was taken.
    pub(crate) fn is_past(&self, mark: Mark) -> bool {
        self.head.0.load(Ordering::SeqCst).wrapping_sub(mark.0).cast_signed() >= 0
    }

    /// Whether `limit` positions before `tail` are taken. With as many slots as that the stamps say it
    /// alone, and producers need not fetch the line that consumers write.
    fn is_at_limit(&self, tail: usize) -> bool {
        // Negative if `tail` is long out of date; the exchange fails then.
        let taken = || tail.wrapping_sub(self.head.0.load(Ordering::SeqCst)).cast_signed();
        self.limit < self.slots.len() && taken() >= self.limit.cast_signed()
    }

    fn slot(&self, position: usize) -> &Slot<T> {
        // Positions would wrap after 2^64 entries.
        &self.slots[position % self.slots.len()]
    }

    fn advance(&self, end: &AtomicUsize, from: usize) -> Result<(), usize> {
        end.compare_exchange_weak(from, from.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed).map(drop)
    }
}
