//! A hierarchical timing wheel (Varghese and Lauck, 1987): six levels of 64 slots, one millisecond
//! at the lowest. Owner-only data of a loop. Insertion and removal are O(1).

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: u64 = 1 << SLOT_BITS;
const NONE: u32 = u32::MAX;

/// The list of what is due, as a level with one slot.
const DUE: usize = LEVELS;

/// The distance (about two years) that the wheel tells apart; what lies beyond is sorted again when
/// almost that much has passed.
const RANGE: u64 = 1 << (SLOT_BITS * LEVELS as u32);

/// Entries that are allocated together.
const CHUNK: usize = 64;

/// Names an item in the wheel until it is removed or has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u32);

/// The wheel; times are milliseconds on any clock that does not go back.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    elapsed: u64,
    /// The levels, and behind them the list of what is due.
    levels: [Level; LEVELS + 1],
    entries: Entries<T>,
    free: u32,
    /// The result of [`Wheel::next_slot`], if it was asked since the last change. Timers are armed again far
    /// more often than they fire, and a loop asks twice in a turn.
    first: Option<Option<First>>,
}

/// The first slot that time will reach, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct First {
    level: usize,
    slot: usize,
    when: u64,
}

#[derive(Debug)]
struct Level {
    occupied: u64,
    heads: [u32; SLOTS as usize],
}

#[derive(Debug)]
struct Entry<T> {
    item: Option<T>,
    when: u64,
    previous: u32,
    next: u32,
    level: u8,
    slot: u8,
}

/// In chunks, which stay where they are: a vector that grows to tens of thousands leaves as many behind.
#[derive(Debug)]
struct Entries<T> {
    chunks: Vec<Vec<Entry<T>>>,
}

impl<T> Entries<T> {
    fn at(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn add(&mut self, entry: Entry<T>) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("there is one with room");
        chunk.push(entry);
        (before + chunk.len() - 1) as u32
    }
}

impl<T> Wheel<T> {
    pub(crate) fn new(now: u64) -> Self {
        let levels = std::array::from_fn(|_| Level { occupied: 0, heads: [NONE; SLOTS as usize] });
        Self { elapsed: now, levels, entries: Entries { chunks: Vec::new() }, free: NONE, first: None }
    }

    /// Has `item` fire at the first `advance` to `when` or later.
    pub(crate) fn insert(&mut self, when: u64, item: T) -> Key {
        let entry = Entry { item: Some(item), when, previous: NONE, next: NONE, level: 0, slot: 0 };
        let index = if self.free == NONE {
            self.entries.add(entry)
        } else {
            let index = self.free;
            self.free = self.entries.at(index).next;
            *self.entries.at(index) = entry;
            index
        };
        self.link(index);
        Key(index)
    }

    /// Takes an item out before it fires.
    pub(crate) fn remove(&mut self, key: Key) -> T {
        self.unlink(key.0);
        self.release(key.0)
    }

    /// When `advance` has something to do next (to fire, or only to sort finer).
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.levels[DUE].occupied != 0 {
            return Some(self.elapsed);
        }
        self.first().map(|first| first.when)
    }

    /// Moves time forward and takes out one item that is due; `None` when there is none left.
    pub(crate) fn advance(&mut self, now: u64) -> Option<T> {
        loop {
            let due = self.levels[DUE].heads[0];
            if due != NONE {
                self.unlink(due);
                return Some(self.release(due));
            }
            match self.first() {
                Some(First { level, slot, when }) if when <= now => {
                    // The whole slot at once, as of the time at which it begins: what is due goes to
                    // the list above, the rest to lower levels.
                    self.elapsed = when;
                    while self.levels[level].heads[slot] != NONE {
                        let index = self.levels[level].heads[slot];
                        self.unlink(index);
                        self.link(index);
                    }
                }
                _ => {
                    self.elapsed = self.elapsed.max(now);
                    return None;
                }
            }
        }
    }

    fn release(&mut self, index: u32) -> T {
        let entry = self.entries.at(index);
        entry.next = std::mem::replace(&mut self.free, index);
        entry.item.take().expect("a key names an item until it is removed or fires")
    }

    fn link(&mut self, index: u32) {
        let entry = self.entries.at(index);
        let when = entry.when.min(self.elapsed + RANGE - RANGE / SLOTS);
        let differing = (self.elapsed ^ when) | (SLOTS - 1);
        let mut level = ((63 - differing.leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let mut slot = (when >> (level * SLOT_BITS)) % SLOTS;
        if when <= self.elapsed {
            (level, slot) = (DUE as u32, 0);
        } else if self.first.is_some_and(|first| first.is_none_or(|first| when < first.when)) {
            self.first = None;
        }
        (entry.level, entry.slot) = (level as u8, slot as u8);
        let level = &mut self.levels[level as usize];
        let head = std::mem::replace(&mut level.heads[slot as usize], index);
        level.occupied |= 1 << slot;
        (entry.previous, entry.next) = (NONE, head);
        if head != NONE {
            self.entries.at(head).previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let &mut Entry { previous, next, level, slot, .. } = self.entries.at(index);
        if next != NONE {
            self.entries.at(next).previous = previous;
        }
        if previous != NONE {
            self.entries.at(previous).next = next;
            return;
        }
        let level = &mut self.levels[level as usize];
        level.heads[slot as usize] = next;
        if next == NONE {
            level.occupied &= !(1 << slot);
            self.first = None;
        }
    }

    fn first(&mut self) -> Option<First> {
        let first = self.first.unwrap_or_else(|| self.next_slot());
        debug_assert_eq!(first, self.next_slot());
        self.first = Some(first);
        first
    }

    /// The first slot that time will reach, and the time at which it begins.
    fn next_slot(&self) -> Option<First> {
        (0..LEVELS).find_map(|level| {
            let shift = level as u32 * SLOT_BITS;
            let occupied = self.levels[level].occupied;
            if occupied == 0 {
                return None;
            }
            let position = (self.elapsed >> shift) % SLOTS;
            let ahead = u64::from(occupied.rotate_right(position as u32).trailing_zeros());
            let slot = (position + ahead) % SLOTS;
            let start = self.elapsed >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
            let mut when = start + (slot << shift);
            if slot < position {
                when += SLOTS << shift;
            }
            Some(First { level, slot: slot as usize, when })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small deterministic generator (xorshift64).
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Against a plain list: what fires when, with random insertions, removals and jumps of time.
    #[test]
    fn behaves_like_a_sorted_list() {
        for seed in 1..200_u64 {
            let (mut state, mut now) = (seed, seed * 977);
            let mut wheel = Wheel::new(now);
            let mut list: Vec<(u64, u64, Key)> = Vec::new();
            for id in 0..300_u64 {
                let distance = random(&mut state) % (1 << (random(&mut state) % 40));
                let when = now + distance;
                list.push((when, id, wheel.insert(when, id)));
                if random(&mut state).is_multiple_of(4) {
                    let victim = random(&mut state) as usize % list.len();
                    let (_, id, key) = list.swap_remove(victim);
                    assert_eq!(wheel.remove(key), id);
                }
                now += random(&mut state) % (1 << (random(&mut state) % 24));
                let mut fired: Vec<u64> = std::iter::from_fn(|| wheel.advance(now)).collect();
                fired.sort_unstable();
                let (due, rest): (Vec<_>, Vec<_>) = list.into_iter().partition(|&(when, ..)| when <= now);
                let mut expected: Vec<u64> = due.into_iter().map(|(_, id, _)| id).collect();
                expected.sort_unstable();
                list = rest;
                assert_eq!(fired, expected, "seed {seed}");
                if let (Some(next), Some(first)) = (wheel.next(), list.iter().map(|e| e.0).min()) {
                    assert!(next > now && next <= first, "seed {seed}: {next} {first} {now}");
                }
            }
        }
    }
}
