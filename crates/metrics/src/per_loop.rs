//! Numbers of which every loop has its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most loops that have a value of their own, as many as `worker_processes` can be; further loops share.
pub const LOOPS_MAX: usize = 1024;

/// A `T` for each loop, for a `static`. `T` is to be aligned so that no two share a cache line.
pub struct PerLoop<T> {
    loops: [OnceLock<Box<T>>; LOOPS_MAX],
    /// Loops in use have lower indexes.
    end: AtomicUsize,
}

impl<T: Default> PerLoop<T> {
    /// A set in which no loop has counted yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics, which cannot be made by a default")]
    pub const fn new() -> Self {
        Self { loops: [const { OnceLock::new() }; LOOPS_MAX], end: AtomicUsize::new(0) }
    }

    /// The value of loop `index`.
    #[inline]
    pub fn of(&self, index: usize) -> &T {
        let index = index % LOOPS_MAX;
        match self.loops[index].get() {
            Some(of_loop) => of_loop,
            None => self.make(index),
        }
    }

    #[cold]
    fn make(&self, index: usize) -> &T {
        let of_loop = self.loops[index].get_or_init(Box::default);
        self.end.fetch_max(index + 1, Ordering::Relaxed);
        of_loop
    }

    /// The values of the loops that have counted anything, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let end = self.end.load(Ordering::Relaxed);
        let loops = self.loops[..end].iter().enumerate();
        loops.filter_map(|(index, of_loop)| of_loop.get().map(|of_loop| (index, &**of_loop)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loop_has_its_own() {
        static SEEN: PerLoop<AtomicUsize> = PerLoop::new();
        assert_eq!(SEEN.iter().count(), 0);
        for index in [3, 0, 3, 0, 3] {
            SEEN.of(index).fetch_add(index + 1, Ordering::Relaxed);
        }
        let all: Vec<_> = SEEN.iter().map(|(index, seen)| (index, seen.load(Ordering::Relaxed))).collect();
        assert_eq!(all, [(0, 2), (3, 12)]);
    }
}
