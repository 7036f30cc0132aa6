//! Bytes under keys: values of any length in cells of a zone's memory, found through a table. Any thread of
//! any process, without locks; a process that dies loses the change that it was making and nothing else.
//!
//! Rules. A key's value word names a chain of cells by the first one and its version.
//! 1. A cell is taken by a compare-and-swap of its first word: to the next version, with the number of the
//!    process, as one that is being written. Up to rule 3 it is the thread's that took it.
//! 2. Slot, name, next cell and bytes are written, then the chain is published by one compare-and-swap, of
//!    the slot's value word or, with a new key, of its state word. What was named before is nobody's now.
//! 3. Behind that, or where nothing was published, each cell is sealed.
//! 4. A cell may be taken if its slot does not name its chain, and it is sealed or its process has no place
//!    in the zone any more. No chain is named twice, as its name has a version.
//! 5. A reader copies a chain and looks again, behind a fence: if it is still named, no cell of it was taken.
//! 6. If many cells were looked at and none could be taken, one key is forgotten: of the keys whose cells
//!    were met, that with the smallest payload.

use crate::slot::{SlotState, value_of};
use crate::sync::{AtomicU64, Ordering, back_off, fence};
use crate::table::{ATTEMPTS_MAX, Contended, Entry, KeyHash, Slot, Table, Updated, WAYS, bucket_words};
use crate::workers::{Worker, Workers};

/// Words of a cell that name its owner.
const HEAD_WORDS: usize = 4;
/// Words of bytes in a cell.
const BODY_WORDS: usize = if cfg!(loom) { 1 } else { 28 };
pub(crate) const CELL_WORDS: usize = HEAD_WORDS + BODY_WORDS;
/// Bytes that a cell holds.
pub(crate) const CELL_BYTES: usize = BODY_WORDS * size_of::<u64>();
/// Words in front of all cells. One of them is in use: the cell at which the next search begins.
const FRONT_WORDS: usize = if cfg!(loom) { 1 } else { 8 };

/// The parts of the first word: the version, two bits of [`Phase`], the process.
const VERSION_BITS: u32 = 28;
const PHASE_SHIFT: u32 = VERSION_BITS;
const WORKER_SHIFT: u32 = 32;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
/// Cells at most: their numbers, from 1, have as many bits.
const CELLS_MAX: usize = VERSION_MASK as usize - 1;

const NAME_AT: usize = 1;
/// The slot's number in the lower half, the number of the next cell, from 1, in the upper one.
const LINK_AT: usize = 2;
/// In the first cell: how many bytes there are.
const LENGTH_AT: usize = 3;

/// One value may take at most this part of all cells.
const VALUE_PART: usize = if cfg!(loom) { 2 } else { 8 };
/// After so many cells that could not be taken a key is forgotten (rule 6).
const LOOKS_MAX: usize = if cfg!(loom) { 6 } else { 16 };

/// Why a value could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// It is larger than an eighth of the store.
    TooLarge,
    /// Other threads were faster a thousand times.
    Contended,
}

impl From<Contended> for Unkept {
    fn from(_: Contended) -> Self {
        Self::Contended
    }
}

/// A store: bytes under keys. The smallest payload is forgotten first, as in a [`Table`].
#[derive(Clone, Copy)]
pub struct Store<'a> {
    hand: &'a AtomicU64,
    index: Table<'a, 1>,
    cells: &'a [AtomicU64],
    workers: Workers<'a>,
    own: Worker,
}

/// Whether a cell is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sealed = 0,
    Written = 1,
}

/// The first word of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head(u64);

impl Head {
    fn taken_by(self, worker: Worker) -> Self {
        let version = (self.0 + 1) & VERSION_MASK;
        Self(u64::from(worker.number()) << WORKER_SHIFT | (Phase::Written as u64) << PHASE_SHIFT | version)
    }

    fn sealed(self) -> Self {
        Self(self.0 & VERSION_MASK)
    }

    fn phase(self) -> Phase {
        if self.0 >> PHASE_SHIFT & 1 == 0 { Phase::Sealed } else { Phase::Written }
    }

    fn worker(self) -> u32 {
        (self.0 >> WORKER_SHIFT) as u32
    }

    /// The name of a chain that begins with this cell.
    fn name(self, cell: usize) -> u64 {
        (cell as u64 + 1) << VERSION_BITS | self.0 & VERSION_MASK
    }
}

/// The state of a cell that was looked at.
enum Found<'a> {
    Free(Head),
    /// The cell belongs to the key in this slot, which is live in this state.
    Used(Slot<'a, 1>, SlotState),
    Busy,
}

/// Cells that a thread has taken; sealed when this is dropped.
struct Chain<'s, 'a> {
    store: &'s Store<'a>,
    cells: Vec<(usize, Head)>,
}

impl<'a> Store<'a> {
    /// The store in this memory, which is zeroed or holds one already; `own` is this process.
    ///
    /// # Panics
    /// If there is no room for a bucket and a cell.
    pub(crate) fn new(words: &'a [AtomicU64], workers: Workers<'a>, own: Worker) -> Self {
        let (front, words) = words.split_at(FRONT_WORDS);
        // Three slots for two cells, as a table is full at seven tenths, and small values have one cell.
        let per_bucket = bucket_words(1) + CELL_WORDS * WAYS * 2 / 3;
        let buckets = (words.len() / per_bucket).max(1);
        let (index, cells) = words.split_at(buckets * bucket_words(1));
        let count = (cells.len() / CELL_WORDS).min(CELLS_MAX);
        assert!(count > 0, "a store has room for a cell");
        let cells = &cells[..count * CELL_WORDS];
        Self { hand: &front[0], index: Table::new(index), cells, workers, own }
    }

    /// How many bytes all values can have together at most, each rounded up to 224.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.cells() * CELL_BYTES
    }

    /// Appends the value of a key to `out`, and returns its payload. `None`: there is no such key.
    #[must_use]
    pub fn get(&self, key: KeyHash, out: &mut Vec<u8>) -> Option<u64> {
        self.read(key, out).ok().flatten().map(|(_, state, _)| state.payload())
    }

    /// Stores a value under a key, in place of a previous one.
    ///
    /// # Errors
    /// See [`Unkept`].
    pub fn put(&self, key: KeyHash, free_below: u64, payload: u64, value: &[u8]) -> Result<Updated, Unkept> {
        self.update(key, free_below, payload, |_, out| {
            out.extend_from_slice(value);
            true
        })
    }

    /// Changes the value of a key: `change` is told the present one (`None`: there is none), appends another
    /// one to what it is given and says whether it did. It is asked again when another thread was faster,
    /// and what it said last holds. Of a key that was there value and payload change one after the other.
    ///
    /// # Errors
    /// See [`Unkept`].
    pub fn update(
        &self,
        key: KeyHash,
        free_below: u64,
        payload: u64,
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<Updated, Unkept> {
        let (mut present, mut value) = (Vec::new(), Vec::new());
        for attempt in 0..ATTEMPTS_MAX {
            present.clear();
            value.clear();
            let found = self.read(key, &mut present)?;
            if !change(found.map(|_| &present[..]), &mut value) {
                return Ok(Updated::Unchanged);
            }
            let mut chain = self.take(value.len().div_ceil(CELL_BYTES).max(1))?;
            let updated = match found {
                Some((slot, state, word)) => {
                    let name = chain.write(self.index.number_of(&slot), &value);
                    let is_new = slot.swap_value(0, word, state.version().value_word(name));
                    (is_new && slot.is_still(state)).then_some(Updated::Changed)
                }
                None => self.index.insert_with(key, free_below, |slot| Entry {
                    payload,
                    values: [chain.write(slot, &value)],
                }),
            };
            drop(chain);
            match updated {
                Some(Updated::Changed) => {
                    self.index.update(key, free_below, |present| present.map(|_| payload))?;
                    return Ok(Updated::Changed);
                }
                Some(updated) => return Ok(updated),
                None => back_off(attempt),
            }
        }
        Err(Unkept::Contended)
    }

    /// Forgets a key. Returns whether it was there.
    pub fn remove(&self, key: KeyHash) -> bool {
        self.index.remove(key)
    }

    /// Rule 5. The slot, its state and its value word as they were.
    fn read(
        &self,
        key: KeyHash,
        out: &mut Vec<u8>,
    ) -> Result<Option<(Slot<'a, 1>, SlotState, u64)>, Contended> {
        let start = out.len();
        for attempt in 0..ATTEMPTS_MAX {
            let Some((slot, state)) = self.index.find(key) else { return Ok(None) };
            let word = slot.values[0].load(Ordering::Acquire);
            if state.version().is_of(word) && self.copy(value_of(word), out) {
                fence(Ordering::Acquire);
                if slot.values[0].load(Ordering::Relaxed) == word && slot.is_still(state) {
                    return Ok(Some((slot, state, word)));
                }
            }
            out.truncate(start);
            back_off(attempt);
        }
        Err(Contended)
    }

    /// Copies a chain; what comes of it is believed only if it was named all the time. `false`: it was not.
    fn copy(&self, name: u64, out: &mut Vec<u8>) -> bool {
        let mut next = name >> VERSION_BITS;
        let mut left = None;
        loop {
            let Some(cell) = (next as usize).checked_sub(1).filter(|&cell| cell < self.cells()) else {
                return false;
            };
            let words = self.cell(cell);
            let read = |at: usize| words[at].load(Ordering::Relaxed);
            let length = left.unwrap_or_else(|| read(LENGTH_AT) as usize);
            if length > self.value_max_bytes() {
                return false;
            }
            let here = length.min(CELL_BYTES);
            for at in 0..here.div_ceil(size_of::<u64>()) {
                let bytes = read(HEAD_WORDS + at).to_le_bytes();
                out.extend_from_slice(&bytes[..(here - at * bytes.len()).min(bytes.len())]);
            }
            if length == here {
                return true;
            }
            left = Some(length - here);
            next = read(LINK_AT) >> 32;
        }
    }

    /// Rules 1, 4 and 6.
    fn take(&self, count: usize) -> Result<Chain<'_, 'a>, Unkept> {
        if count * CELL_BYTES > self.value_max_bytes() {
            return Err(Unkept::TooLarge);
        }
        let mut chain = Chain { store: self, cells: Vec::with_capacity(count) };
        let mut oldest: Option<(usize, Slot<'a, 1>, SlotState)> = None;
        let mut looks = 0;
        for _ in 0..count * ATTEMPTS_MAX as usize {
            if chain.cells.len() == count {
                return Ok(chain);
            }
            let cell = (self.hand.fetch_add(1, Ordering::Relaxed) % self.cells() as u64) as usize;
            match self.look(cell) {
                Found::Free(head) => {
                    if chain.try_take(cell, head) {
                        (oldest, looks) = (None, 0);
                    }
                    continue;
                }
                Found::Used(slot, state) => {
                    if oldest.as_ref().is_none_or(|(_, _, than)| state.payload() < than.payload()) {
                        oldest = Some((cell, slot, state));
                    }
                }
                Found::Busy => {}
            }
            looks += 1;
            if looks >= LOOKS_MAX
                && let Some((cell, slot, state)) = oldest.take()
            {
                looks = 0;
                slot.swap_state(state, state.emptied());
                if let Found::Free(head) = self.look(cell) {
                    chain.try_take(cell, head);
                }
            }
        }
        Err(Unkept::Contended)
    }

    /// Rule 4.
    fn look(&self, cell: usize) -> Found<'a> {
        let words = self.cell(cell);
        let head = Head(words[0].load(Ordering::Acquire));
        let (name, link) = (words[NAME_AT].load(Ordering::Relaxed), words[LINK_AT].load(Ordering::Relaxed));
        let slot = self.index.slot_at(link as u32 as usize);
        let named = slot.and_then(|slot| {
            let word = slot.values[0].load(Ordering::Acquire);
            let state = slot.read_state();
            let is_named = state.is_live() && word == state.version().value_word(name);
            (name != 0 && is_named).then_some((slot, state))
        });
        match (named, head.phase()) {
            (_, Phase::Written) if self.is_alive(head.worker()) => Found::Busy,
            (Some((slot, state)), _) => Found::Used(slot, state),
            (None, _) => Found::Free(head),
        }
    }

    fn is_alive(&self, worker: u32) -> bool {
        worker == self.own.number() || self.workers.all().any(|one| one.number() == worker)
    }

    fn value_max_bytes(&self) -> usize {
        (self.cells() / VALUE_PART).max(1) * CELL_BYTES
    }

    fn cells(&self) -> usize {
        self.cells.len() / CELL_WORDS
    }

    fn cell(&self, at: usize) -> &'a [AtomicU64] {
        &self.cells[at * CELL_WORDS..][..CELL_WORDS]
    }
}

impl Chain<'_, '_> {
    fn try_take(&mut self, cell: usize, head: Head) -> bool {
        let taken = head.taken_by(self.store.own);
        let word = &self.store.cell(cell)[0];
        let is_ours = word.compare_exchange(head.0, taken.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ours {
            self.cells.push((cell, taken));
        }
        is_ours
    }

    /// Rule 2: what the chain is called.
    fn write(&mut self, slot: usize, value: &[u8]) -> u64 {
        // A reader of what is written from here on sees that the cells were nobody's.
        fence(Ordering::Release);
        let (first, head) = self.cells[0];
        let name = head.name(first);
        let pieces = value.chunks(CELL_BYTES).chain(std::iter::once(&[][..]));
        let next = self.cells.iter().skip(1).map(|(cell, _)| *cell as u64 + 1).chain(std::iter::once(0));
        for (((cell, _), next), piece) in self.cells.iter().zip(next).zip(pieces) {
            let words = self.store.cell(*cell);
            words[NAME_AT].store(name, Ordering::Relaxed);
            words[LINK_AT].store(next << 32 | slot as u64, Ordering::Relaxed);
            words[LENGTH_AT].store(value.len() as u64, Ordering::Relaxed);
            for (word, bytes) in words[HEAD_WORDS..].iter().zip(piece.chunks(size_of::<u64>())) {
                let mut whole = [0; size_of::<u64>()];
                whole[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
            }
        }
        name
    }
}

impl Drop for Chain<'_, '_> {
    /// Rule 3.
    fn drop(&mut self) {
        for (cell, head) in &self.cells {
            self.store.cell(*cell)[0].store(head.sealed().0, Ordering::Release);
        }
    }
}

#[cfg(test)]
impl<'a> Store<'a> {
    /// Acts as a process that dies while it stores a value, before or after the publishing.
    pub(crate) fn die_while_keeping(&self, key: KeyHash, value: &[u8], death: DeathInStore) {
        let mut chain = self.take(value.len().div_ceil(CELL_BYTES).max(1)).expect("there is room");
        match (self.index.find(key), death) {
            (_, DeathInStore::Taken) => {}
            (Some((slot, state)), _) => {
                let name = chain.write(self.index.number_of(&slot), value);
                let word = slot.values[0].load(Ordering::Relaxed);
                if death == DeathInStore::Published {
                    assert!(slot.swap_value(0, word, state.version().value_word(name)));
                }
            }
            (None, _) => {
                let slot = self.index.slots_for(key).next().expect("it has some");
                chain.write(slot, value);
            }
        }
        // A dead process seals nothing.
        chain.cells.clear();
    }

    /// How many cells could be taken.
    pub(crate) fn free_cells(&self) -> usize {
        (0..self.cells()).filter(|&cell| matches!(self.look(cell), Found::Free(_))).count()
    }
}

/// The step at which a process dies.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeathInStore {
    Taken,
    Filled,
    Published,
}
