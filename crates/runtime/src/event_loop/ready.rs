//! The ready queue of a loop: a bounded ring, FIFO, one producer (the carrier that owns the loop,
//! rule 5 of word.rs), any number of consumers (that carrier, and other loops that steal).
//!
//! 1. `tail` is written by the producer only, `head` by the consumers, with one compare-and-swap.
//! 2. A slot is written before the release store of `tail` that publishes it, and only while
//!    `tail - head` (with `head` acquired) is below the capacity.
//! 3. A consumer reads the slot before it swaps `head`; if the slot was overwritten meanwhile, `head`
//!    has moved and the swap fails. Both counters only grow, so nothing comes back.

use std::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Tasks that a ring holds; what is more goes to the inject queue.
pub(crate) const CAPACITY: usize = if cfg!(loom) { 2 } else { 1024 };

/// The ring. It moves pointers and never follows them.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[AtomicPtr<T>]>,
}

impl<T> Ring<T> {
    pub(crate) fn new() -> Self {
        let slots = (0..CAPACITY).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots }
    }

    /// How many there are at least (others may take meanwhile).
    pub(crate) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.head.load(Ordering::Relaxed))
    }

    /// Appends; gives the item back if the ring is full. The producer only.
    pub(crate) fn push(&self, item: NonNull<T>) -> Result<(), NonNull<T>> {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) >= CAPACITY {
            return Err(item);
        }
        self.slots[tail % CAPACITY].store(item.as_ptr(), Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest. Any thread.
    pub(crate) fn pop(&self) -> Option<NonNull<T>> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == self.tail.load(Ordering::Acquire) {
                return None;
            }
            let item = self.slots[head % CAPACITY].load(Ordering::Relaxed);
            let next = head.wrapping_add(1);
            match self.head.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return NonNull::new(item),
                Err(moved) => head = moved,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_a_bounded_fifo() {
        let ring = Ring::new();
        let items: Vec<u32> = (0..CAPACITY as u32 + 1).collect();
        for item in &items[..CAPACITY] {
            ring.push(NonNull::from(item)).unwrap();
        }
        assert_eq!(ring.len(), CAPACITY);
        ring.push(NonNull::from(&items[CAPACITY])).unwrap_err();
        for item in &items[..CAPACITY] {
            assert_eq!(ring.pop(), Some(NonNull::from(item)));
        }
        assert_eq!(ring.pop(), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn drain(ring: &Ring<usize>, times: usize) -> Vec<usize> {
        (0..times).filter_map(|_| ring.pop()).map(|p| p.as_ptr() as usize).collect()
    }

    fn item(n: usize) -> NonNull<usize> {
        NonNull::new(n as *mut usize).unwrap()
    }

    /// Owner and thief together take each item exactly once, and each sees them in order, also
    /// when the ring wraps around under the thief.
    #[test]
    fn loom_each_item_once_in_order() {
        loom::model(|| {
            let ring = Arc::new(Ring::new());
            let thief = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || drain(&ring, 2))
            };
            let mut mine = Vec::new();
            for n in [8, 16, 24] {
                while ring.push(item(n)).is_err() {
                    mine.extend(drain(&ring, 1));
                }
            }
            let stolen = thief.join().unwrap();
            mine.extend(drain(&ring, 3));
            assert!(mine.is_sorted() && stolen.is_sorted(), "{mine:?} {stolen:?}");
            let mut all = [mine, stolen].concat();
            all.sort_unstable();
            assert_eq!(all, [8, 16, 24]);
        });
    }
}
