//! Which VM a thread is in: a table that a signal's handler and other threads may read at any time.
//!
//! 1. A VM has one slot for as long as it lives. Only the thread that holds the VM writes it.
//! 2. `entered` is an address on that thread's stack, below which everything is of this run of Lua, or 0: one
//!    store when the outermost run begins, one when it ends. Stacks of threads do not overlap, so the address
//!    says which thread it is, without a number that would have to be asked for.
//! 3. Where VMs run inside each other the innermost is the one with the lowest address.
//! 4. Another thread may find a run that is over by the time it looks: it reads `entered` again afterwards,
//!    and what it has read in between counts if that is the same and so is `runs`. What it reads by address
//!    it asks the kernel for, so a VM that is closed meanwhile gives garbage and no crash.
//! 5. `limit_ns` is how long a run may take, `slice_ns` after how long others have their turn; written before
//!    the run begins, by the thread that holds the VM.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// VMs that can be seen at a time; further ones run unseen.
pub const VMS_MAX: usize = 1024;

// A line for each: loops that enter their VMs share none.
#[repr(align(64))]
struct Slot {
    /// The address of what the whole VM has; 0 where the slot is free.
    global: AtomicUsize,
    entered: AtomicUsize,
    runs: AtomicU64,
    limit_ns: AtomicU64,
    slice_ns: AtomicU64,
}

impl Slot {
    const fn free() -> Self {
        Self {
            global: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
            runs: AtomicU64::new(0),
            limit_ns: AtomicU64::new(u64::MAX),
            slice_ns: AtomicU64::new(u64::MAX),
        }
    }
}

static SLOTS: [Slot; VMS_MAX] = [const { Slot::free() }; VMS_MAX];

static LEAST_LIMIT_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// The shortest limit or slice that a run has had so far, nanoseconds; `u64::MAX`: there was none. Any
/// thread.
#[must_use]
pub fn least_limit_ns() -> u64 {
    LEAST_LIMIT_NS.load(Ordering::Relaxed)
}

/// The slot of a VM, if it has one.
pub(crate) struct Presence {
    slot: Option<usize>,
}

impl Presence {
    pub(crate) fn new(global: usize) -> Self {
        let slot = SLOTS.iter().position(|slot| {
            slot.global.load(Ordering::Relaxed) == 0
                && slot.global.compare_exchange(0, global, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        Self { slot }
    }

    /// Sets the limits; `u64::MAX` is no limit (rule 5).
    pub(crate) fn set_limits_ns(&self, limit_ns: u64, slice_ns: u64) {
        let Some(slot) = self.slot.map(|index| &SLOTS[index]) else { return };
        slot.limit_ns.store(limit_ns, Ordering::Relaxed);
        slot.slice_ns.store(slice_ns, Ordering::Relaxed);
        let least_ns = limit_ns.min(slice_ns);
        if least_ns < least_limit_ns() {
            LEAST_LIMIT_NS.fetch_min(least_ns, Ordering::Relaxed);
        }
    }

    /// How much of the limit is left for the next run, where slices have taken some.
    pub(crate) fn set_limit_left_ns(&self, left_ns: u64) {
        if let Some(index) = self.slot {
            SLOTS[index].limit_ns.store(left_ns, Ordering::Relaxed);
        }
    }

    /// The outermost run begins, with what is below `stack`.
    pub(crate) fn enter(&self, stack: usize) {
        let Some(slot) = self.slot.map(|index| &SLOTS[index]) else { return };
        slot.runs.store(slot.runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        slot.entered.store(stack, Ordering::Release);
    }

    /// The outermost run is over.
    pub(crate) fn leave(&self) {
        if let Some(index) = self.slot {
            SLOTS[index].entered.store(0, Ordering::Release);
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(index) = self.slot {
            SLOTS[index].entered.store(0, Ordering::Relaxed);
            SLOTS[index].limit_ns.store(u64::MAX, Ordering::Relaxed);
            SLOTS[index].slice_ns.store(u64::MAX, Ordering::Relaxed);
            SLOTS[index].global.store(0, Ordering::Release);
        }
    }
}

/// One run of one VM, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    slot: usize,
    runs: u64,
    pub(crate) global: usize,
}

impl Run {
    /// The innermost run on the thread whose stack, as far as it is in use, is this. Async-signal-safe.
    #[must_use]
    pub fn on(stack: &Range<usize>) -> Option<Self> {
        let entered = |index: usize| SLOTS[index].entered.load(Ordering::Acquire);
        let found = (0..VMS_MAX)
            .map(|index| (entered(index), index))
            .filter(|(address, _)| stack.contains(address))
            .min()?;
        let (slot, index) = (&SLOTS[found.1], found.1);
        let runs = slot.runs.load(Ordering::Relaxed);
        let global = slot.global.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (slot.entered.load(Ordering::Relaxed) == found.0).then_some(Self { slot: index, runs, global })
    }

    /// How long it may take, nanoseconds; `u64::MAX`: as long as it does. Async-signal-safe.
    #[must_use]
    pub fn limit_ns(&self) -> u64 {
        SLOTS[self.slot].limit_ns.load(Ordering::Relaxed)
    }

    /// After how long others have their turn, nanoseconds; `u64::MAX`: never. Async-signal-safe.
    #[must_use]
    pub fn slice_ns(&self) -> u64 {
        SLOTS[self.slot].slice_ns.load(Ordering::Relaxed)
    }

    /// Whether it is under way still, so that what was read meanwhile is of it (rule 4).
    #[must_use]
    pub fn goes_on(&self) -> bool {
        fence(Ordering::Acquire);
        let slot = &SLOTS[self.slot];
        slot.entered.load(Ordering::Relaxed) != 0 && slot.runs.load(Ordering::Relaxed) == self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_run_of_a_stack_is_found_until_it_ends() {
        // Addresses that are no thread's, so that tests beside this one are not seen.
        let (outer, inner) = (Presence::new(16), Presence::new(24));
        outer.enter(0x190);
        let stack = 0x100..0x200;
        let found = Run::on(&stack).unwrap();
        assert_eq!(found.global, 16);
        inner.enter(0x120);
        assert_eq!(Run::on(&stack).unwrap().global, 24);
        assert_eq!(Run::on(&(0x130..0x200)).unwrap().global, 16, "that one lies below this stack");
        inner.leave();
        assert!(found.goes_on() && Run::on(&stack) == Some(found));
        outer.leave();
        assert!(!found.goes_on() && Run::on(&stack).is_none());
        outer.enter(0x190);
        assert!(!found.goes_on(), "another run, at the same place");
    }
}
