//! The pieces on their way in a pipe: a ring of places. The filler alone moves its end, the taker alone its
//! front (rule 1 of the crate), so neither tries anything twice.
//!
//! 1. The filler fills the place at the end, then moves the end behind it.
//! 2. The taker sees the end first, then empties the place at the front, then moves the front behind it.
//! 3. So a place is filled when it is empty and emptied when it is full, and nothing else happens to it.

use bytes::Bytes;

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Slot;

/// Pieces on their way; a filler that makes smaller ones than that takes waits for the pieces.
#[cfg(not(loom))]
pub(crate) const PIECES_MAX: usize = 16;
/// Models use all places that there are.
#[cfg(loom)]
pub(crate) const PIECES_MAX: usize = 2;

/// The pieces on their way in one pipe.
pub(crate) struct Pieces {
    places: [Slot<Bytes>; PIECES_MAX],
    /// How many were taken, by the taker.
    front: AtomicUsize,
    /// How many were pushed, by the filler.
    end: AtomicUsize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| Slot::default()),
            front: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }
}

impl Pieces {
    /// Adds a piece behind the others, by the filler.
    ///
    /// # Errors
    /// All places are full; the piece is given back.
    pub(crate) fn push(&self, piece: Bytes) -> Result<(), Bytes> {
        let end = self.end.load(Ordering::Relaxed);
        if end.wrapping_sub(self.front.load(Ordering::Acquire)) >= PIECES_MAX {
            return Err(piece);
        }
        let before = self.places[end % PIECES_MAX].swap(Some(Box::new(piece)));
        debug_assert!(before.is_none(), "a pipe has one filler");
        self.end.store(end.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the piece in front, by the taker.
    pub(crate) fn pop(&self) -> Option<Bytes> {
        let front = self.front.load(Ordering::Relaxed);
        if front == self.end.load(Ordering::Acquire) {
            return None;
        }
        let piece = self.places[front % PIECES_MAX].swap(None);
        debug_assert!(piece.is_some(), "a pipe has one taker");
        self.front.store(front.wrapping_add(1), Ordering::Release);
        piece.map(|piece| *piece)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front.load(Ordering::Acquire) == self.end.load(Ordering::Acquire)
    }

    pub(crate) fn is_full(&self) -> bool {
        let front = self.front.load(Ordering::Acquire);
        self.end.load(Ordering::Acquire).wrapping_sub(front) >= PIECES_MAX
    }
}
