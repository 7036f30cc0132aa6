//! The event table of a loop: one slot per registered descriptor, named by index and generation.
//! Slots are recycled, never freed (rule 11 of word.rs): a late event meets another generation.
//!
//! 1. `state` is generation (32 bits), tick (24), bits (8). Only the generation that epoll's token
//!    names may add readiness; each time the tick moves.
//! 2. A call that would block clears its bit by one swap of the value seen before it: an event that came
//!    meanwhile moved the tick, and the bit stays. A reader that has read all there was keeps that value
//!    instead, and ignores [`READ`] until the tick has moved: that costs no swap.
//! 3. Releasing a slot moves the generation, withdraws the offer of rule 4, empties the wakers and puts the
//!    slot on the free list. Only the owner of the socket does it, when nobody else has the socket.
//! 4. `idle` is written by the task of the socket, with one exception: `reclaim` changes a time to
//!    [`RECLAIMED`] and then wakes the task. The task may overrule that, since something has come for it.
//! 5. The task that makes ADDING of neither calls epoll_ctl(ADD), then makes ADDED of it, or neither if the
//!    call failed. The other task registers its waker before it looks; where it finds ADDING it sets AWAITED
//!    and waits, and the one that adds wakes it. A failed slot stays with its socket, for another attempt.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::task::Waker;

use clearway_os::epoll::EventFlags;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::task::waker_cell::WakerCell;

/// Slots of a page, and pages at most; models have few.
const PAGE: usize = if cfg!(loom) { 2 } else { 256 };
const PAGES: usize = if cfg!(loom) { 2 } else { 4096 };

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
/// epoll watches the descriptor (rule 5).
pub(crate) const ADDED: u64 = 32;
/// A task is about to add the descriptor to epoll.
const ADDING: u64 = 64;
/// Another task waits until it is added.
const AWAITED: u64 = 128;

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

/// The purpose of a registration: the events that epoll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the end.
    Read,
    /// That, and room for writing, of which there is none now.
    Write,
}

impl Interest {
    /// The bits of a slot whose descriptor is about to be added.
    fn adding(self) -> u64 {
        match self {
            Self::Read => ADDING | WRITE,
            Self::Write => ADDING | WRITE_WATCHED,
        }
    }
}

/// The thread whose turn it is to add a descriptor to epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adding {
    /// The caller's, which says how it went ([`Slot::end_add`]).
    Ours,
    /// Another task is about to do it; it will wake the caller, whose waker is registered.
    Theirs,
    /// The descriptor is added.
    Done,
}

/// The result of an attempt to add a descriptor to epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Yes,
    No,
}

/// The state of the offer to do without a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Standing,
    Accepted,
}

/// The value that epoll carries: index and generation. Never 0, since generations begin at 1.
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

    /// Ends an offer. Returns its state by then.
    pub(crate) fn end_offer(&self) -> Offer {
        match self.idle.swap(BUSY, Ordering::AcqRel) {
            RECLAIMED => Offer::Accepted,
            _ => Offer::Standing,
        }
    }

    /// Whether the socket is to be closed.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.idle.load(Ordering::Acquire) == RECLAIMED
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

    /// Notes that writing is not watched, since epoll_ctl(2) failed.
    pub(crate) fn note_write_unwatched(&self) {
        self.state.fetch_and(!WRITE_WATCHED, Ordering::AcqRel);
    }

    /// Rule 5, of a slot that may be another task's to add as well. The caller has registered its waker.
    pub(crate) fn begin_add(&self, interest: Interest) -> Adding {
        let mut now = self.state();
        loop {
            let (new, turn) = match now & (ADDED | ADDING) {
                0 => (now & !(WRITE | WRITE_WATCHED) | interest.adding(), Adding::Ours),
                ADDING => (now | AWAITED, Adding::Theirs),
                _ => return Adding::Done,
            };
            match self.state.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return turn,
                Err(changed) => now = changed,
            }
        }
    }

    /// Rule 5: whether epoll has the descriptor now, said by the task whose turn it was.
    pub(crate) fn end_add(&self, added: Added) {
        let change = if added == Added::Yes { ADDING | ADDED } else { ADDING };
        let before = self.state.fetch_xor(change, Ordering::AcqRel);
        debug_assert_eq!(before & (ADDING | ADDED), ADDING, "nobody else adds it");
        if before & AWAITED != 0 {
            [&self.reader, &self.writer].into_iter().filter_map(WakerCell::take).for_each(Waker::wake);
        }
    }
}

/// Whether `state` is worth a read by a reader that has read all there was at the state `spent` (rule 2; 0:
/// none has yet).
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

    /// Takes a free slot; `None` when [`SLOTS_MAX`] are in use. It is the caller's turn to add the descriptor
    /// (rule 5). A socket can be written to at first, unless its writer has found that it cannot.
    pub(crate) fn take(&self, interest: Interest) -> Option<(Token, &Slot)> {
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
                    debug_assert_eq!(slot.idle.load(Ordering::Relaxed), BUSY, "rule 3");
                    let state = u64::from(generation) << 32 | interest.adding();
                    slot.state.store(state, Ordering::Release);
                    return Some((Token::new(index, generation), slot));
                }
                Err(changed) => free = changed,
            }
        }
    }

    /// The slot of a socket, named by its `token` (0: it has none yet); `None` when [`SLOTS_MAX`] are in use.
    /// [`Adding::Ours`] if the socket got it just now; else the caller asks [`Slot::begin_add`].
    pub(crate) fn attach(&self, token: &AtomicU64, interest: Interest) -> Option<(&Slot, Adding)> {
        let mut present = token.load(Ordering::Acquire);
        if present == 0 {
            let (new, slot) = self.take(interest)?;
            match token.compare_exchange(0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((slot, Adding::Ours)),
                Err(theirs) => {
                    // The other direction was faster; nobody has seen this slot.
                    self.release(new);
                    present = theirs;
                }
            }
        }
        Some((self.find(Token(present))?, Adding::Theirs))
    }

    /// Rule 3.
    pub(crate) fn release(&self, token: Token) {
        let Some(slot) = self.find(token) else { return };
        let next_generation = token.generation().checked_add(1).unwrap_or(1);
        // Swaps, since others swap at the same time: an event of this life, or `reclaim`.
        slot.state.swap(u64::from(next_generation) << 32, Ordering::AcqRel);
        slot.idle.swap(BUSY, Ordering::AcqRel);
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
        // Against the one in `Runtime::wake_all`: it sees the page, or the task that registers in it sees
        // what was changed before.
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
        // One that has been closed meanwhile, or is being read from, is no gain: the next one goes for it.
        let reclaimed = oldest.into_iter().filter(|&(Reverse(age), index)| {
            let slot = self.slot(index as u32);
            slot.filter(|slot| slot.reclaim(now_ms, age))
                .and_then(|slot| slot.reader.take())
                .map(Waker::wake)
                .is_some()
        });
        reclaimed.take(wanted).count()
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_late_event_does_not_reach_the_next_life() {
        let slots = Slots::new();
        let (old, slot) = slots.take(Interest::Read).unwrap();
        assert!(slot.add(old, READ));
        slots.release(old);
        let (new, slot) = slots.take(Interest::Read).unwrap();
        assert_eq!(old.index(), new.index());
        assert!(!slot.add(old, READ));
        assert_eq!(slot.state() & READ, 0);
        assert!(slot.add(new, READ));
    }

    #[test]
    fn an_event_during_a_call_survives_its_clearing() {
        let slots = Slots::new();
        let (token, slot) = slots.take(Interest::Read).unwrap();
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
        let (token, slot) = slots.take(Interest::Read).unwrap();
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
        let (_, slot) = slots.take(Interest::Read).unwrap();
        assert!(!may_read(slot.state(), spent));
    }

    #[test]
    fn the_oldest_offers_are_accepted() {
        assert_eq!(size_of::<Slot>(), 64, "a cache line");
        let slots = Slots::new();
        let now_ms = u64::from(u32::MAX) + 500;
        let taken: Vec<_> = (0..40).map(|_| slots.take(Interest::Read).unwrap().1).collect();
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
                        let (token, _) = slots.take(Interest::Read).unwrap();
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use loom::sync::{Arc, Notify};
    use loom::thread;
    use std::task::Wake;

    /// A waker that ends a wait; loom reports one that never ends as a deadlock.
    struct Unpark(Notify);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    /// A table with its first page.
    fn slots() -> Arc<Slots> {
        let slots = Slots::new();
        slots.grow().unwrap();
        Arc::new(slots)
    }

    /// Two that take and release at once never have the same slot, and an event of an earlier life, which may
    /// come at any moment, never reaches a later one.
    #[test]
    fn loom_slots_have_one_owner_and_their_own_events() {
        loom::model(|| {
            let slots = slots();
            let held: Arc<[AtomicBool; PAGE]> = Arc::new([const { 0 }; PAGE].map(|_| AtomicBool::new(false)));
            let live = |slots: &Slots, held: &[AtomicBool; PAGE]| {
                let (token, slot) = slots.take(Interest::Read).unwrap();
                assert!(!held[token.index() as usize].swap(true, SeqCst), "two have it");
                assert_eq!(slot.state() & (READ | ADDED), 0, "it begins anew");
                (token, slot.state())
            };
            let (first, _) = live(&slots, &held);
            let event = {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.find(first).unwrap().add(first, READ))
            };
            let other = {
                let (slots, held) = (Arc::clone(&slots), Arc::clone(&held));
                thread::spawn(move || {
                    let (token, _) = live(&slots, &held);
                    held[token.index() as usize].store(false, SeqCst);
                    slots.release(token);
                })
            };
            held[first.index() as usize].store(false, SeqCst);
            slots.release(first);
            let (second, _) = live(&slots, &held);
            event.join().unwrap();
            other.join().unwrap();
            assert_ne!(first, second);
            assert_eq!(slots.find(second).unwrap().state() & READ, 0, "an event of an earlier life");
        });
    }

    /// A reader and a writer of the same socket register at once, and the first epoll_ctl(2) fails: it is
    /// called again, never succeeds twice, and nobody waits for ever.
    #[test]
    fn loom_two_sides_register() {
        loom::model(|| {
            struct Socket {
                slots: Arc<Slots>,
                token: AtomicU64,
                fails: AtomicBool,
                is_added: AtomicBool,
            }
            /// `false`: epoll_ctl(2) failed, which is told to this task.
            fn register(socket: &Socket, interest: Interest) -> bool {
                let unpark = std::sync::Arc::new(Unpark(Notify::new()));
                let waker = Waker::from(std::sync::Arc::clone(&unpark));
                loop {
                    let (slot, mut turn) = socket.slots.attach(&socket.token, interest).unwrap();
                    if turn != Adding::Ours {
                        let cell = if interest == Interest::Read { &slot.reader } else { &slot.writer };
                        cell.register(&waker);
                        turn = slot.begin_add(interest);
                    }
                    match turn {
                        Adding::Ours => {
                            let is_added = !socket.fails.swap(false, SeqCst);
                            assert!(!(is_added && socket.is_added.swap(true, SeqCst)), "EEXIST");
                            slot.end_add(if is_added { Added::Yes } else { Added::No });
                            return is_added;
                        }
                        Adding::Theirs => unpark.0.wait(),
                        Adding::Done => {
                            assert!(socket.is_added.load(SeqCst), "ENOENT");
                            return true;
                        }
                    }
                }
            }
            let new = Socket {
                slots: slots(),
                token: AtomicU64::new(0),
                fails: AtomicBool::new(true),
                is_added: AtomicBool::new(false),
            };
            let socket = Arc::new(new);
            let writer = {
                let socket = Arc::clone(&socket);
                thread::spawn(move || register(&socket, Interest::Write))
            };
            let read = register(&socket, Interest::Read);
            let written = writer.join().unwrap();
            assert!(read != written, "one of them is told of the failure");
            let slot = socket.slots.find(Token(socket.token.load(Ordering::Relaxed))).unwrap();
            assert_eq!(slot.state() & (ADDED | ADDING), ADDED);
            let (token, _) = socket.slots.take(Interest::Read).expect("what was taken in vain is free");
            assert_ne!(token.0, socket.token.load(Ordering::Relaxed));
        });
    }

    /// A socket that was offered is closed, and another one takes its slot and is offered since later, while
    /// the oldest are reclaimed: the new one is left alone, and nothing stands of the old one's offer.
    #[test]
    fn loom_reclaim_against_drop() {
        const NOW_MS: u64 = 1000;
        loom::model(|| {
            let slots = slots();
            let (token, slot) = slots.take(Interest::Read).unwrap();
            slot.reader.register(Waker::noop());
            assert_eq!(slot.offer(100), Offer::Standing);
            let reclaiming = {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.reclaim(NOW_MS, 8, 1))
            };
            slots.release(token);
            let (_, slot) = slots.take(Interest::Read).unwrap();
            let unpark = std::sync::Arc::new(Unpark(Notify::new()));
            slot.reader.register(&Waker::from(unpark));
            let first = slot.offer(500);
            assert_eq!(first, Offer::Standing, "it was made just now");
            let reclaimed = reclaiming.join().unwrap();
            assert!(reclaimed <= 1);
            let (standing, left) = (slot.offer(500) == Offer::Standing, slots.reclaim(NOW_MS, 8, 2));
            assert!(left <= usize::from(standing), "the old one's offer stands");
            assert!(standing || reclaimed == 1, "it was told so");
        });
    }
}
