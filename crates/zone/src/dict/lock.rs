//! How a dictionary is changed: the lock of all changes, the stripes that readers look at, and the journal by
//! which a change that was not finished is taken back. The rules are those of `dict.rs`.

use std::mem::ManuallyDrop;

use crate::dict::layout::{
    JOURNAL_AT, JOURNAL_LEN_AT, JOURNAL_MAX, LOCK_AT, Layout, STRIPES, high, low, pair, stripe_at,
};
use crate::sync::{AtomicU64, Ordering, back_off, fence, yield_now};
use crate::workers::{Worker, Workers};

/// After so many attempts the processor is given to others, and it is asked whether the holder lives.
const SPINS: u32 = if cfg!(loom) { 0 } else { 40 };

/// The words of a dictionary, and this process among those that use it.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) words: &'a [AtomicU64],
    pub(crate) layout: Layout,
    pub(crate) workers: Workers<'a>,
    pub(crate) own: Worker,
}

impl<'a> Memory<'a> {
    /// A word that may be any, where its number is not to be believed.
    pub(crate) fn peek(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn is_alive(&self, worker: u32) -> bool {
        worker == self.own.number() || self.workers.all().any(|one| one.number() == worker)
    }

    /// The state of a stripe before something is read; `None` while it is being changed.
    pub(crate) fn stripe_before(&self, stripe: usize) -> Option<u64> {
        let word = self.words[stripe_at(stripe)].load(Ordering::Acquire);
        (low(word) == 0).then_some(word)
    }

    /// Whether nothing was changed in between (rule 4).
    pub(crate) fn is_unchanged(&self, stripe: usize, before: u64) -> bool {
        fence(Ordering::Acquire);
        self.words[stripe_at(stripe)].load(Ordering::Relaxed) == before
    }

    /// Tries to take a stripe alone (rule 5).
    pub(crate) fn try_stripe(&self, stripe: usize) -> Option<HeldStripe<'a>> {
        let word = &self.words[stripe_at(stripe)];
        let before = self.stripe_before(stripe)?;
        let taken = pair(self.own.number(), high(before));
        word.compare_exchange(before, taken, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Later stores are seen with the stripe in use.
        fence(Ordering::Release);
        Some(HeldStripe { word, taken })
    }

    /// Rule 1, and 3 where the holder has died.
    pub(crate) fn lock(&self) -> Writer<'a> {
        let lock = &self.words[LOCK_AT];
        let own = u64::from(self.own.number());
        for attempt in 0_u32.. {
            match lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Writer { memory: *self, held: 0 },
                Err(holder) if attempt >= SPINS => {
                    let is_dead = !self.is_alive(holder as u32);
                    if is_dead
                        && lock.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
                    {
                        let writer = Writer { memory: *self, held: 0 };
                        writer.take_back();
                        return writer;
                    }
                    yield_now();
                }
                Err(_) => back_off(attempt),
            }
        }
        unreachable!("it goes on until the lock is had")
    }
}

/// One stripe, for a change of one word.
pub(crate) struct HeldStripe<'a> {
    word: &'a AtomicU64,
    taken: u64,
}

impl Drop for HeldStripe<'_> {
    fn drop(&mut self) {
        self.word.store(pair(0, high(self.taken).wrapping_add(1)), Ordering::Release);
    }
}

/// The holder of the lock.
pub(crate) struct Writer<'a> {
    pub(crate) memory: Memory<'a>,
    /// A bit for each stripe that it holds.
    held: u64,
}

impl Writer<'_> {
    pub(crate) fn read(&self, at: usize) -> u64 {
        self.memory.words[at].load(Ordering::Relaxed)
    }

    /// Changes a word; it becomes what it was if this holder dies before `commit`.
    pub(crate) fn write(&mut self, at: usize, value: u64) {
        let words = self.memory.words;
        let len = words[JOURNAL_LEN_AT].load(Ordering::Relaxed) as usize;
        assert!(len < JOURNAL_MAX, "a change has few words");
        words[JOURNAL_AT + 2 * len].store(at as u64, Ordering::Relaxed);
        words[JOURNAL_AT + 2 * len + 1].store(self.read(at), Ordering::Relaxed);
        words[JOURNAL_LEN_AT].store(len as u64 + 1, Ordering::Release);
        // Release: the journal is written before.
        words[at].store(value, Ordering::Release);
    }

    /// Changes a word of memory that nothing names, or one whose loss is none.
    pub(crate) fn fill(&self, at: usize, value: u64) {
        self.memory.words[at].store(value, Ordering::Relaxed);
    }

    /// Makes what was changed since the last time lasting, by one store.
    pub(crate) fn commit(&mut self) {
        self.memory.words[JOURNAL_LEN_AT].store(0, Ordering::Release);
    }

    /// Takes a stripe, if it is not this holder's already. A holder without the lock is soon done.
    pub(crate) fn hold(&mut self, stripe: usize) {
        if self.held & 1 << stripe != 0 {
            return;
        }
        for attempt in 0_u32.. {
            if let Some(taken) = self.memory.try_stripe(stripe) {
                let _held = ManuallyDrop::new(taken);
                self.held |= 1 << stripe;
                return;
            }
            if attempt < SPINS {
                back_off(attempt);
                continue;
            }
            self.free_if_dead(stripe);
            yield_now();
        }
    }

    /// Gives back all stripes but this one.
    pub(crate) fn release_but(&mut self, kept: Option<usize>) {
        let kept = kept.map_or(0, |stripe| 1 << stripe) & self.held;
        for stripe in (0..STRIPES).filter(|stripe| (self.held & !kept) & 1 << stripe != 0) {
            let word = &self.memory.words[stripe_at(stripe)];
            let changes = high(word.load(Ordering::Relaxed)).wrapping_add(1);
            word.store(pair(0, changes), Ordering::Release);
        }
        self.held = kept;
    }

    /// Rule 3: what the dead has begun, and its stripes.
    fn take_back(&self) {
        self.undo();
        (0..STRIPES).for_each(|stripe| self.free_if_dead(stripe));
    }

    fn undo(&self) {
        let words = self.memory.words;
        let len = words[JOURNAL_LEN_AT].load(Ordering::Acquire) as usize;
        for entry in (0..len.min(JOURNAL_MAX)).rev() {
            let at = words[JOURNAL_AT + 2 * entry].load(Ordering::Relaxed) as usize;
            let before = words[JOURNAL_AT + 2 * entry + 1].load(Ordering::Relaxed);
            words[at].store(before, Ordering::Relaxed);
        }
        words[JOURNAL_LEN_AT].store(0, Ordering::Release);
    }

    /// Frees the stripe of a dead writer that had only one store left to do: that is done, or has not begun.
    fn free_if_dead(&self, stripe: usize) {
        let word = &self.memory.words[stripe_at(stripe)];
        let present = word.load(Ordering::Acquire);
        if low(present) != 0 && !self.memory.is_alive(low(present)) {
            let free = pair(0, high(present).wrapping_add(1));
            // Where it fails another one has found it dead.
            let _ = word.compare_exchange(present, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Dies here, as a process does that is killed.
    #[cfg(test)]
    pub(crate) fn die(self) {
        let _dead = ManuallyDrop::new(self);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // The journal has entries here only if a panic came in between.
        if self.memory.words[JOURNAL_LEN_AT].load(Ordering::Relaxed) != 0 {
            self.undo();
        }
        self.release_but(None);
        self.memory.words[LOCK_AT].store(0, Ordering::Release);
    }
}
