//! The event table of a loop: one slot per registered descriptor, named by index and generation.
//! Slots are never freed, only recycled (rule 11 of word.rs), so any thread may hold an index and a
//! late event meets a generation that is not its own.
//!
//! 1. `state` is generation (32 bits), tick (24), readiness (8). Only the generation that epoll's
//!    token names may add readiness; each time the tick moves.
//! 2. Who got WouldBlock clears a bit by one swap of the value it saw before the call: an event that
//!    came meanwhile moved the tick, and the bit stays. Who has read all there was keeps the value that
//!    it saw before, and takes [`READ`] for nothing until the tick has moved: that costs no swap.
//! 3. Releasing a slot moves the generation, empties the wakers and puts it on the free list.
//! 4. `idle` is written by the task of the socket, but for one change: from a time to [`RECLAIMED`], by who
//!    then wakes the task. The task may overrule that, since something has come for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::task::Waker;

use clearway_os::epoll::EventFlags;

use crate::io::waker_cell::WakerCell;

const PAGE: usize = 256;
const PAGES: usize = 4096;

/// Descriptors that one loop can watch.
pub const SLOTS_MAX: usize = PAGE * PAGES;

/// A read may succeed.
pub(crate) const READ: u64 = 1;
/// A write may succeed.
pub(crate) const WRITE: u64 = 2;
/// The peer has ended, or the socket failed: never cleared.
pub(crate) const READ_CLOSED: u64 = 4;
/// The socket failed: never cleared.
pub(crate) const WRITE_CLOSED: u64 = 8;
/// epoll was asked to tell of room for writing too.
pub(crate) const WRITE_WATCHED: u64 = 16;

const TICK: u64 = 1 << 8;
const TICK_MASK: u64 = 0xffff_ff00;

/// One registration.
#[repr(align(64))]
pub(crate) struct Slot {
    state: AtomicU64,
    pub(crate) reader: WakerCell,
    pub(crate) writer: WakerCell,
    next_free: AtomicU32,
    /// Since when the task of the socket can do without it (rule 4), or one of the values below.
    idle: AtomicU32,
}

/// A slot's `idle`: it cannot.
const BUSY: u32 = 0;
/// A slot's `idle`: it is to close the socket. Times are odd.
const RECLAIMED: u32 = 2;

/// What became of the offer to do without a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Standing,
    Accepted,
}

/// What epoll carries: index and generation. Never 0, since generations begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    /// The eventfd of the loop; no slot has this index.
    pub(crate) const SIGNAL: Self = Self(u32::MAX as u64);

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    fn index(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            state: AtomicU64::new(1 << 32),
            reader: WakerCell::new(),
            writer: WakerCell::new(),
            next_free: AtomicU32::new(0),
            idle: AtomicU32::new(BUSY),
        }
    }

    /// The task, whose waker is registered, can do without the socket from `from_ms` on. An offer stands
    /// as it was made first.
    pub(crate) fn offer(&self, from_ms: u64) -> Offer {
        match self.idle.load(Ordering::Relaxed) {
            RECLAIMED => return Offer::Accepted,
            BUSY => self.idle.store(from_ms as u32 | 1, Ordering::Release),
            _ => {}
        }
        Offer::Standing
    }

    /// The task needs the socket.
    pub(crate) fn take_back_offer(&self) {
        self.idle.store(BUSY, Ordering::Relaxed);
    }

    /// For how long the offer stands; `None` if there is none, or for a later time.
    fn offered_ms(&self, now_ms: u64) -> Option<u32> {
        let since = self.idle.load(Ordering::Acquire);
        // Times are compared as they are stored: they repeat after 49 days.
        let age = (now_ms as u32 | 1).wrapping_sub(since);
        (since != BUSY && since != RECLAIMED && age < u32::MAX / 2).then_some(age)
    }

    /// Rule 4. `false`: the task has taken its offer back.
    fn reclaim(&self, now_ms: u64, age: u32) -> bool {
        let since = (now_ms as u32 | 1).wrapping_sub(age);
        self.idle.compare_exchange(since, RECLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Rule 1. `false`: the token is of an earlier life of the slot.
    pub(crate) fn add(&self, token: Token, bits: u64) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            if (now >> 32) as u32 != token.generation() {
                return false;
            }
            let tick = (now + TICK) & TICK_MASK;
            let new = now & !TICK_MASK | tick | bits;
            match self.state.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
    }

    /// Rule 2.
    pub(crate) fn clear(&self, seen: u64, bits: u64) {
        let _ = self.state.compare_exchange(seen, seen & !bits, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes that epoll watches for writing too; the bit for it is not readiness and moves no tick.
    pub(crate) fn note_write_watched(&self) {
        self.state.fetch_or(WRITE_WATCHED, Ordering::AcqRel);
    }
}

/// Whether `state` is worth a read by who has read all that there was at the state `spent` (rule 2; 0: nobody
/// has yet).
pub(crate) fn may_read(state: u64, spent: u64) -> bool {
    let is_spent = (state ^ spent) & !(TICK - 1) == 0;
    state & READ_CLOSED != 0 || state & READ != 0 && !is_spent
}

/// The readiness that an event means.
pub(crate) fn readiness(flags: EventFlags) -> u64 {
    let mut bits = 0;
    if flags.intersects(EventFlags::IN | EventFlags::PRI) {
        bits |= READ;
    }
    if flags.contains(EventFlags::OUT) {
        bits |= WRITE;
    }
    if flags.contains(EventFlags::RDHUP) {
        bits |= READ | READ_CLOSED;
    }
    if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
        bits |= READ | READ_CLOSED | WRITE | WRITE_CLOSED;
    }
    bits
}

/// The table.
pub(crate) struct Slots {
    pages: Box<[OnceLock<Box<[Slot]>>]>,
    grown: AtomicU32,
    /// Index + 1 of the first free slot (0: none), and above it a count that makes swaps unique.
    free: AtomicU64,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let pages = (0..PAGES).map(|_| OnceLock::new()).collect();
        Self { pages, grown: AtomicU32::new(0), free: AtomicU64::new(0) }
    }

    /// The slot that a token's index names, if that page was ever used.
    pub(crate) fn find(&self, token: Token) -> Option<&Slot> {
        self.slot(token.index())
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        self.pages.get(index as usize / PAGE)?.get()?.get(index as usize % PAGE)
    }

    /// Takes a free slot; `None` when [`SLOTS_MAX`] are in use. A socket can be written to at first.
    pub(crate) fn take(&self) -> Option<(Token, &Slot)> {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let index = (free as u32).checked_sub(1);
            let Some(index) = index else {
                self.grow()?;
                free = self.free.load(Ordering::Acquire);
                continue;
            };
            let slot = self.slot(index)?;
            let next = u64::from(slot.next_free.load(Ordering::Relaxed));
            let new = ((free >> 32) + 1) << 32 | next;
            match self.free.compare_exchange(free, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let generation = (slot.state.load(Ordering::Relaxed) >> 32) as u32;
                    slot.idle.store(BUSY, Ordering::Relaxed);
                    slot.state.store(u64::from(generation) << 32 | WRITE, Ordering::Release);
                    return Some((Token::new(index, generation), slot));
                }
                Err(changed) => free = changed,
            }
        }
    }

    /// Rule 3.
    pub(crate) fn release(&self, token: Token) {
        let Some(slot) = self.find(token) else { return };
        let next_generation = token.generation().checked_add(1).unwrap_or(1);
        slot.state.store(u64::from(next_generation) << 32, Ordering::Release);
        drop(slot.reader.take());
        drop(slot.writer.take());
        self.put_free(token.index(), slot);
    }

    fn put_free(&self, index: u32, slot: &Slot) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.next_free.store(free as u32, Ordering::Relaxed);
            let new = ((free >> 32) + 1) << 32 | u64::from(index + 1);
            match self.free.compare_exchange(free, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => free = changed,
            }
        }
    }

    /// Adds a page. Each caller makes a page of its own, so nobody waits for another.
    fn grow(&self) -> Option<()> {
        let page = self.grown.fetch_add(1, Ordering::Relaxed) as usize;
        if page >= PAGES {
            self.grown.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let slots = self.pages[page].get_or_init(|| (0..PAGE).map(|_| Slot::new()).collect());
        // Against the one in `Runtime::wake_all`: it sees the page, or who registers in it sees what was
        // changed before.
        fence(Ordering::SeqCst);
        for (place, slot) in slots.iter().enumerate().rev() {
            self.put_free((page * PAGE + place) as u32, slot);
        }
        Some(())
    }

    /// Has the sockets closed that have been offered longest, a `share`-th of all that are offered but one
    /// at least and `most` at most; how many. Looks at every slot.
    pub(crate) fn reclaim(&self, now_ms: u64, share: usize, most: usize) -> usize {
        let mut oldest = BinaryHeap::with_capacity(most + 1);
        let mut offered = 0;
        for (page, slots) in self.pages.iter().enumerate().take(self.pages()) {
            let Some(slots) = slots.get() else { continue };
            for (place, age) in slots.iter().enumerate().filter_map(|(i, s)| Some((i, s.offered_ms(now_ms)?)))
            {
                offered += 1;
                oldest.push((Reverse(age), page * PAGE + place));
                if oldest.len() > most {
                    oldest.pop();
                }
            }
        }
        let wanted = (offered / share).clamp(1, most);
        let oldest = oldest.into_sorted_vec();
        let reclaimed = oldest.into_iter().take(wanted).filter(|&(Reverse(age), index)| {
            let slot = self.slot(index as u32);
            slot.filter(|slot| slot.reclaim(now_ms, age))
                .and_then(|slot| slot.reader.take())
                .map(Waker::wake)
                .is_some()
        });
        reclaimed.count()
    }

    /// How many pages are in use, about.
    pub(crate) fn pages(&self) -> usize {
        self.grown.load(Ordering::Relaxed) as usize
    }

    /// Wakes every task that waits for a descriptor of a page, so that it looks around; how many there
    /// were.
    pub(crate) fn wake_page(&self, page: usize) -> usize {
        let slots = self.pages.get(page).and_then(OnceLock::get).map_or(&[][..], |slots| slots);
        let wakers = slots.iter().flat_map(|slot| [slot.reader.take(), slot.writer.take()]).flatten();
        wakers.map(Waker::wake).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_event_does_not_reach_the_next_life() {
        let slots = Slots::new();
        let (old, slot) = slots.take().unwrap();
        assert!(slot.add(old, READ));
        slots.release(old);
        let (new, slot) = slots.take().unwrap();
        assert_eq!(old.index(), new.index());
        assert!(!slot.add(old, READ));
        assert_eq!(slot.state() & READ, 0);
        assert!(slot.add(new, READ));
    }

    #[test]
    fn an_event_during_a_call_survives_its_clearing() {
        let slots = Slots::new();
        let (token, slot) = slots.take().unwrap();
        slot.add(token, READ);
        let seen = slot.state();
        slot.add(token, READ);
        slot.clear(seen, READ);
        assert_ne!(slot.state() & READ, 0);
        slot.clear(slot.state(), READ);
        assert_eq!(slot.state() & READ, 0);
    }

    #[test]
    fn what_was_read_is_spent_until_the_next_event() {
        let slots = Slots::new();
        let (token, slot) = slots.take().unwrap();
        assert!(!may_read(slot.state(), 0));
        slot.add(token, READ);
        assert!(may_read(slot.state(), 0));
        let spent = slot.state();
        slot.clear(slot.state(), WRITE);
        assert!(!may_read(slot.state(), spent), "writing has nothing to do with it");
        slot.add(token, READ);
        assert!(may_read(slot.state(), spent));
        let spent = slot.state();
        slot.add(token, READ | READ_CLOSED);
        assert!(may_read(slot.state(), spent) && may_read(slot.state(), slot.state()), "its end is no data");
        slots.release(token);
        let (_, slot) = slots.take().unwrap();
        assert!(!may_read(slot.state(), spent));
    }

    #[test]
    fn the_oldest_offers_are_accepted() {
        assert_eq!(size_of::<Slot>(), 64, "a cache line");
        let slots = Slots::new();
        let now_ms = u64::from(u32::MAX) + 500;
        let taken: Vec<_> = (0..40).map(|_| slots.take().unwrap().1).collect();
        // The first ones are from before the counter began anew, the last five for later times.
        for (i, slot) in (0..).zip(&taken).skip(1) {
            let from_ms = now_ms - 1400 + i * 40 + if i < 35 { 0 } else { 400 };
            slot.reader.register(Waker::noop());
            assert_eq!(slot.offer(from_ms), Offer::Standing);
        }
        let reclaimed = |slot: &&Slot| slot.idle.load(Ordering::Relaxed) == RECLAIMED;
        taken[1].take_back_offer();
        assert_eq!(slots.reclaim(now_ms, 8, 32), 4, "an eighth of 33");
        assert!(taken[2..6].iter().all(reclaimed));
        assert_eq!(taken.iter().filter(|slot| reclaimed(slot)).count(), 4);
        assert_eq!(taken[2].offer(now_ms), Offer::Accepted);
        taken[2].take_back_offer();
        assert_eq!(slots.reclaim(now_ms, 1, 3), 3);
        assert!(taken[3..9].iter().all(reclaimed) && !reclaimed(&taken[2]));
        while slots.reclaim(now_ms, 8, 32) > 0 {}
        assert!(taken[3..35].iter().all(reclaimed));
        assert!(!taken[35..].iter().any(reclaimed), "their time has not come");
    }

    #[test]
    fn slots_are_told_apart_across_threads() {
        let slots = Slots::new();
        let held = std::sync::Mutex::new(std::collections::HashSet::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let (token, _) = slots.take().unwrap();
                        assert!(held.lock().unwrap().insert(token.index()));
                        assert!(held.lock().unwrap().remove(&token.index()));
                        slots.release(token);
                    }
                });
            }
        });
        assert!(slots.grown.load(Ordering::Relaxed) <= 4);
    }
}
