//! A fixed number of slots that any thread of any process may look up, change and fill, without locks.
//! A key is known by 112 bits of its keyed hash, and may stand in any slot of two buckets of eight.
//!
//! Rules. A slot is two key words, values where the table has any, and a state word (`slot.rs`); each ends in
//! the version of the slot's present use, and is believed only if a live state word has the same.
//! 1. A live slot is changed by one compare-and-swap of its state word.
//! 2. To fill one: read all its words, reserve it by a compare-and-swap of its state word to the next version
//!    (what it held is gone), obey rule 3, swap the other words from what was read, then the state word to
//!    live. A filler that fails anywhere gives the slot up: one that was cancelled changes nothing later.
//! 3. Between reserving and publishing, behind a SeqCst fence, look at the other slots of both buckets: if
//!    the key is there, give up; cancel other reservations. So of two that fill for a key one sees the other.
//! 4. Nobody waits for a reservation: that of a process that died is cancelled by the next one that fills.
//! 5. A value is changed by one compare-and-swap of its word, which holds if the slot is found live in the
//!    same version behind it; all of them at once by filling the slot anew: a death meanwhile takes the key
//!    away.

use crate::slot::{PAYLOAD_MAX, SlotState, VALUE_MAX, half_of, is_half, value_of};
use crate::sync::{AtomicU64, Ordering, back_off, fence};

/// Slots of a bucket: one cache line for each of their words.
pub(crate) const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
/// Words of a bucket without values: the first halves of all its keys, the second halves, the states.
pub(crate) const BUCKET_WORDS: usize = bucket_words(0);

/// Words of a bucket whose slots have so many values, which stand before the states.
pub(crate) const fn bucket_words(values: usize) -> usize {
    (3 + values) * WAYS
}

/// Words of a page: what the system gives memory at once.
const PAGE_WORDS: usize = 512;
/// Marks stand in whole cache lines, so that buckets do.
const LINE_WORDS: usize = 8;

/// Buckets that have one mark: about a page of them.
const fn page_buckets(values: usize) -> usize {
    let buckets = PAGE_WORDS / bucket_words(values);
    if buckets == 0 { 1 } else { buckets }
}

/// Words for the marks of a table in so many words; none for a table of a few pages.
const fn mark_words(words: usize, values: usize) -> usize {
    let pages = words / (page_buckets(values) * bucket_words(values));
    if pages < LINE_WORDS { 0 } else { (pages + 1).div_ceil(u64::BITS as usize).next_multiple_of(LINE_WORDS) }
}

/// How often a change is tried before it is given up. Each failure is another thread's success or
/// cancellation in the same sixteen slots, which cannot be provoked without the secret.
pub(crate) const ATTEMPTS_MAX: u32 = 1000;

/// A key as the table knows it: its hash with the zone's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash([u64; 2]);

impl KeyHash {
    /// Makes a key hash of the two halves of a uniformly distributed hash.
    #[must_use]
    pub const fn new(halves: [u64; 2]) -> Self {
        Self(halves)
    }

    /// The two halves.
    #[must_use]
    pub const fn halves(self) -> [u64; 2] {
        self.0
    }
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// Nothing: the caller wanted no change.
    Unchanged,
    /// The key was there and has another payload now.
    Changed,
    /// The key is new, in a slot that was free.
    Inserted,
    /// The key is new, in a slot whose key is forgotten for it: both buckets were full.
    Evicted,
    /// Nothing: the key would be new, both buckets are full, and no key may be forgotten.
    Full,
}

/// Which slots a new key may have.
#[derive(Clone, Copy)]
struct Room {
    /// Slots with a smaller payload count as free.
    free_below: u64,
    when_full: WhenFull,
}

/// The fate of a new key where both buckets are full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// It takes the place of another one.
    Forget,
    Refuse,
}

/// The key could not be put anywhere, since others were always faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contended;

/// The slots of a zone. What they hold, the payload, is a number from 1 to [`PAYLOAD_MAX`]; where a
/// bucket is full the smallest payload is forgotten first, so that it should say until when it matters.
/// Beside it a slot may have values, numbers up to [`VALUE_MAX`].
#[derive(Clone, Copy)]
pub struct Table<'a, const VALUES: usize = 0> {
    words: &'a [AtomicU64],
    /// A mark for each page of buckets, made before a slot of the page is reserved for the first time and
    /// never taken away. A page without one holds nothing, and a look through all slots does not read it:
    /// reading it would have the system give it memory. Empty: each page counts as marked.
    marks: &'a [AtomicU64],
    buckets: usize,
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<const VALUES: usize> {
    /// The number that says how long it matters.
    pub payload: u64,
    /// All of one filling, or changed since one by one.
    pub values: [u64; VALUES],
}

/// The words of one slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a, const VALUES: usize = 0> {
    key: [&'a AtomicU64; 2],
    pub(crate) values: [&'a AtomicU64; VALUES],
    state: &'a AtomicU64,
}

/// A slot that is to be filled, as it was read.
struct Victim<'a, const VALUES: usize> {
    slot: Slot<'a, VALUES>,
    key: [u64; 2],
    values: [u64; VALUES],
    state: SlotState,
}

impl<'a, const VALUES: usize> Table<'a, VALUES> {
    /// The table in this memory, which is zeroed or holds a table already.
    ///
    /// # Panics
    /// If there is no room for a bucket.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let buckets = words.len() / bucket_words(VALUES);
        assert!(buckets > 0, "a table has room for a bucket");
        Self { words, marks: &[], buckets }
    }

    /// A table with marks of the pages that are in use: for a large one that is scanned by [`Table::at`]
    /// while it is nearly empty. All users of the memory have to make it so.
    ///
    /// # Panics
    /// If there is no room for a bucket.
    #[must_use]
    pub fn with_marks(words: &'a [AtomicU64]) -> Self {
        let (marks, words) = words.split_at(mark_words(words.len(), VALUES));
        Self { marks, ..Self::new(words) }
    }

    /// How many keys it can hold at most.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.buckets * WAYS
    }

    /// The payload of a key.
    #[must_use]
    pub fn get(&self, key: KeyHash) -> Option<u64> {
        self.find(key).map(|(_, state)| state.payload())
    }

    /// The payload and the values of a key.
    #[must_use]
    pub fn read(&self, key: KeyHash) -> Option<Entry<VALUES>> {
        (0..ATTEMPTS_MAX).find_map(|attempt| {
            let Some((slot, state)) = self.find(key) else { return Some(None) };
            let entry = slot.read_values(state);
            if entry.is_none() {
                back_off(attempt);
            }
            entry.map(Some)
        })?
    }

    /// Puts a key into the table with a payload and values; those that it had are replaced. Slots with
    /// payloads below `free_below` count as free.
    ///
    /// # Errors
    /// When others were faster a thousand times.
    pub fn put(&self, key: KeyHash, free_below: u64, entry: Entry<VALUES>) -> Result<Updated, Contended> {
        let entry = Entry { payload: entry.payload.clamp(1, PAYLOAD_MAX), ..entry };
        for attempt in 0..ATTEMPTS_MAX {
            let put = match self.find(key) {
                Some((slot, state)) => {
                    self.fill(key, slot.read_all(state), |_| entry).map(|()| Updated::Changed)
                }
                None => self.insert(key, Room { free_below, when_full: WhenFull::Forget }, |_| entry),
            };
            match put {
                Some(updated) => return Ok(updated),
                None => back_off(attempt),
            }
        }
        Err(Contended)
    }

    /// Changes one value of a key: `change` gets the present one and returns the new one (`None`: it stays).
    /// Returns `None` if the key is not there.
    ///
    /// # Errors
    /// When others were faster a thousand times.
    ///
    /// # Panics
    /// If slots have not so many values.
    pub fn update_value(
        &self,
        key: KeyHash,
        at: usize,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<Option<Updated>, Contended> {
        for attempt in 0..ATTEMPTS_MAX {
            let Some((slot, state)) = self.find(key) else { return Ok(None) };
            let word = slot.values[at].load(Ordering::Relaxed);
            if !state.version().is_of(word) {
                back_off(attempt);
                continue;
            }
            let Some(value) = change(value_of(word)) else { return Ok(Some(Updated::Unchanged)) };
            if slot.swap_value(at, word, state.version().value_word(value)) && slot.is_still(state) {
                return Ok(Some(Updated::Changed));
            }
            back_off(attempt);
        }
        Err(Contended)
    }

    /// Forgets a key; whether it was there.
    pub fn remove(&self, key: KeyHash) -> bool {
        while let Some((slot, state)) = self.find(key) {
            if slot.swap_state(state, state.emptied()) {
                return true;
            }
        }
        false
    }

    /// Changes the payload of a key: `change` gets the present payload (`None`: there is none) and
    /// returns the new one (`None`: nothing is to be changed). It is called again when another thread was
    /// faster, and its last answer holds. Slots with payloads below `free_below` count as free.
    ///
    /// # Errors
    /// When others were faster a thousand times.
    pub fn update(
        &self,
        key: KeyHash,
        free_below: u64,
        change: impl FnMut(Option<u64>) -> Option<u64>,
    ) -> Result<Updated, Contended> {
        self.try_update(key, Room { free_below, when_full: WhenFull::Forget }, change)
    }

    /// As [`update`](Self::update), but where both buckets are full no key is forgotten ([`Updated::Full`]).
    ///
    /// # Errors
    /// As `update`.
    pub fn update_if_room(
        &self,
        key: KeyHash,
        free_below: u64,
        change: impl FnMut(Option<u64>) -> Option<u64>,
    ) -> Result<Updated, Contended> {
        self.try_update(key, Room { free_below, when_full: WhenFull::Refuse }, change)
    }

    fn try_update(
        &self,
        key: KeyHash,
        room: Room,
        mut change: impl FnMut(Option<u64>) -> Option<u64>,
    ) -> Result<Updated, Contended> {
        for attempt in 0..ATTEMPTS_MAX {
            let found = self.find(key);
            let Some(payload) = change(found.map(|(_, state)| state.payload())) else {
                return Ok(Updated::Unchanged);
            };
            let payload = payload.clamp(1, PAYLOAD_MAX);
            match found {
                Some((slot, seen)) => {
                    if slot.swap_state(seen, seen.holding(payload)) {
                        return Ok(Updated::Changed);
                    }
                }
                None => match self.insert(key, room, |_| Entry { payload, values: [0; VALUES] }) {
                    Some(inserted) => return Ok(inserted),
                    None => back_off(attempt),
                },
            }
        }
        Err(Contended)
    }

    /// The slot of a key, and its state word as it was when the key was found in it.
    pub(crate) fn find(&self, key: KeyHash) -> Option<(Slot<'a, VALUES>, SlotState)> {
        self.slots_of(key).find_map(|slot| {
            if !is_half(slot.key[0].load(Ordering::Relaxed), key.0[0]) {
                return None;
            }
            let state = slot.read_state();
            slot.is_of(key, state).then_some((slot, state))
        })
    }

    /// Inserts a key that is not in the table; `entry` gets the number of its slot. `None`: begin anew.
    pub(crate) fn insert_with(
        &self,
        key: KeyHash,
        free_below: u64,
        entry: impl FnOnce(usize) -> Entry<VALUES>,
    ) -> Option<Updated> {
        let room = Room { free_below, when_full: WhenFull::Forget };
        let clamped = |slot| {
            let entry = entry(slot);
            Entry { payload: entry.payload.clamp(1, PAYLOAD_MAX), ..entry }
        };
        self.insert(key, room, clamped)
    }

    /// Rule 2. `None`: begin anew.
    fn insert(
        &self,
        key: KeyHash,
        room: Room,
        entry: impl FnOnce(usize) -> Entry<VALUES>,
    ) -> Option<Updated> {
        let victim = self.find_victim(key, room.free_below)?;
        let was_free = is_free(victim.state, room.free_below);
        if !was_free && room.when_full == WhenFull::Refuse {
            return Some(Updated::Full);
        }
        self.fill(key, victim, entry)?;
        Some(if was_free { Updated::Inserted } else { Updated::Evicted })
    }

    fn fill(
        &self,
        key: KeyHash,
        victim: Victim<'_, VALUES>,
        entry: impl FnOnce(usize) -> Entry<VALUES>,
    ) -> Option<()> {
        let reserved = self.reserve(&victim)?;
        let published = self.is_alone(key, victim.slot) && victim.write_key(key, reserved) && {
            let entry = entry(self.number_of(&victim.slot));
            victim.write_values(entry.values, reserved)
                && victim.slot.swap_state(reserved, reserved.holding(entry.payload))
        };
        if !published {
            // Where this fails, somebody has cancelled it already.
            victim.slot.swap_state(reserved, reserved.emptied());
        }
        published.then_some(())
    }

    fn reserve(&self, victim: &Victim<'_, VALUES>) -> Option<SlotState> {
        self.mark(self.number_of(&victim.slot) / WAYS);
        let reserved = victim.state.reserved();
        let first = victim.slot.swap_state(victim.state, reserved);
        // If two threads reserve at the same time, one sees the other's reservation in `is_alone`.
        fence(Ordering::SeqCst);
        first.then_some(reserved)
    }

    /// The mark of a bucket's page: its word and bit.
    fn mark_of(&self, bucket: usize) -> Option<(&'a AtomicU64, u64)> {
        let page = bucket / page_buckets(VALUES);
        let word = self.marks.get(page / u64::BITS as usize)?;
        Some((word, 1 << (page % u64::BITS as usize)))
    }

    /// Marks a bucket's page. A thread that learns of a key from its inserter sees the mark as well.
    fn mark(&self, bucket: usize) {
        if let Some((word, bit)) = self.mark_of(bucket)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn is_marked(&self, bucket: usize) -> bool {
        self.mark_of(bucket).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Rule 3. `false`: the key is there already.
    fn is_alone(&self, key: KeyHash, own: Slot<'_, VALUES>) -> bool {
        self.slots_of(key).filter(|slot| !std::ptr::eq(slot.state, own.state)).all(|slot| {
            loop {
                let state = slot.read_state();
                if !state.is_reserved() {
                    return !slot.is_of(key, state);
                }
                if slot.swap_state(state, state.emptied()) {
                    return true;
                }
            }
        })
    }

    /// The slot to fill: a free one in the bucket that has more of them, else the one with the smallest
    /// payload of both.
    fn find_victim(&self, key: KeyHash, free_below: u64) -> Option<Victim<'a, VALUES>> {
        let [first, second] = self.buckets_of(key).map(|bucket| self.survey(bucket, free_below));
        let (slot, state) = match (first, second) {
            (Some(first), Some(second)) => {
                let second_is_better = match (first.free, second.free) {
                    (0, 0) => second.state.payload() < first.state.payload(),
                    (first, second) => second > first,
                };
                let better = if second_is_better { second } else { first };
                (better.slot, better.state)
            }
            (first, second) => first.or(second).map(|only| (only.slot, only.state))?,
        };
        if slot.is_of(key, state) {
            // The key was inserted after the caller had looked for it.
            return None;
        }
        Some(slot.read_all(state))
    }

    fn survey(&self, bucket: usize, free_below: u64) -> Option<Survey<'a, VALUES>> {
        let mut survey: Option<Survey<'a, VALUES>> = None;
        for slot in self.slots_in(bucket) {
            let state = slot.read_state();
            if state.is_reserved() {
                continue;
            }
            let survey = survey.get_or_insert(Survey { slot, state, free: 0 });
            survey.free += usize::from(is_free(state, free_below));
            if state.payload() < survey.state.payload() {
                (survey.slot, survey.state) = (slot, state);
            }
        }
        survey
    }

    /// The numbers of the two buckets that a key may be in, which differ where there are two.
    fn buckets_of(&self, key: KeyHash) -> [usize; 2] {
        let scale = |half: u64| ((u128::from(half) * self.buckets as u128) >> 64) as usize;
        let [first, second] = key.0.map(scale);
        if first == second { [first, (first + 1) % self.buckets] } else { [first, second] }
    }

    fn slots_of(&self, key: KeyHash) -> impl Iterator<Item = Slot<'a, VALUES>> + use<'a, VALUES> {
        let table = *self;
        table.buckets_of(key).into_iter().flat_map(move |bucket| table.slots_in(bucket))
    }

    /// The contents of the slot with this number, and its key without the last eight bits of its halves, if
    /// it is used: to look at all slots in turn. Memory that was never used is not touched where the table
    /// has marks.
    #[must_use]
    pub fn at(&self, number: usize) -> Option<([u64; 2], Entry<VALUES>)> {
        if !self.is_marked(number / WAYS) {
            return None;
        }
        let slot = self.slot_at(number)?;
        let state = slot.read_state();
        let key = slot.key.map(|word| word.load(Ordering::Relaxed));
        let entry = slot.read_values(state).filter(|_| state.is_live())?;
        // The words of the key were read behind the state, and perhaps of a use that came since.
        let is_whole = key.iter().all(|&word| state.version().is_of(word)) && slot.is_still(state);
        is_whole.then(|| (key.map(half_of), entry))
    }

    /// The number of a slot among all of the table; found from where it stands, so that no look pays for it.
    pub(crate) fn number_of(&self, slot: &Slot<'_, VALUES>) -> usize {
        let offset = std::ptr::from_ref(slot.state) as usize - self.words.as_ptr() as usize;
        let at = offset / size_of::<AtomicU64>();
        let (bucket, within) = (at / bucket_words(VALUES), at % bucket_words(VALUES));
        bucket * WAYS + within % WAYS
    }

    /// The slot with this number.
    pub(crate) fn slot_at(&self, number: usize) -> Option<Slot<'a, VALUES>> {
        (number < self.slots()).then(|| self.slots_in(number / WAYS).nth(number % WAYS))?
    }

    fn slots_in(&self, bucket: usize) -> impl Iterator<Item = Slot<'a, VALUES>> + use<'a, VALUES> {
        let words = &self.words[bucket * bucket_words(VALUES)..][..bucket_words(VALUES)];
        let (first, rest) = words.split_at(WAYS);
        let (second, rest) = rest.split_at(WAYS);
        let (values, states) = rest.split_at(VALUES * WAYS);
        let keys = first.iter().zip(second).enumerate();
        keys.zip(states).map(move |((way, (first, second)), state)| Slot {
            key: [first, second],
            values: std::array::from_fn(|at| &values[at * WAYS + way]),
            state,
        })
    }
}

/// The state of a bucket: its slot with the smallest payload, and how many are free.
struct Survey<'a, const VALUES: usize> {
    slot: Slot<'a, VALUES>,
    state: SlotState,
    free: usize,
}

fn is_free(state: SlotState, free_below: u64) -> bool {
    state.payload() < free_below.max(1)
}

impl<'a, const VALUES: usize> Slot<'a, VALUES> {
    pub(crate) fn read_state(&self) -> SlotState {
        SlotState(self.state.load(Ordering::Acquire))
    }

    /// Whether it held this key when its state word was read as `state`. The words of a use are written
    /// before its state word becomes live, which `read_state` has acquired.
    fn is_of(&self, key: KeyHash, state: SlotState) -> bool {
        let expected = key.0.map(|half| state.version().key_word(half));
        state.is_live() && self.key.map(|word| word.load(Ordering::Relaxed)) == expected
    }

    pub(crate) fn swap_state(&self, from: SlotState, to: SlotState) -> bool {
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn swap_value(&self, at: usize, from: u64, to: u64) -> bool {
        self.values[at].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it is live in the use in which its state word was read. What was done to its other words
    /// before has been done in that use.
    pub(crate) fn is_still(&self, seen: SlotState) -> bool {
        fence(Ordering::SeqCst);
        let now = self.read_state();
        now.is_live() && now.version() == seen.version()
    }

    fn read_all(self, state: SlotState) -> Victim<'a, VALUES> {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Victim { slot: self, key: self.key.map(read), values: self.values.map(read), state }
    }

    /// `None`: they are of another use by now.
    fn read_values(&self, state: SlotState) -> Option<Entry<VALUES>> {
        let words = self.values.map(|word| word.load(Ordering::Acquire));
        let is_whole = words.iter().all(|&word| state.version().is_of(word));
        is_whole.then(|| Entry { payload: state.payload(), values: words.map(value_of) })
    }
}

impl<const VALUES: usize> Victim<'_, VALUES> {
    /// `false`: somebody else has written there since.
    fn write_key(&self, key: KeyHash, reserved: SlotState) -> bool {
        self.write_half(0, key, reserved) && self.write_half(1, key, reserved)
    }

    /// The same for all values.
    fn write_values(&self, values: [u64; VALUES], reserved: SlotState) -> bool {
        (0..VALUES).all(|at| {
            let to = reserved.version().value_word(values[at].min(VALUE_MAX));
            self.slot.swap_value(at, self.values[at], to)
        })
    }

    fn write_half(&self, half: usize, key: KeyHash, reserved: SlotState) -> bool {
        let (from, to) = (self.key[half], reserved.version().key_word(key.0[half]));
        self.slot.key[half].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
impl<const VALUES: usize> Table<'_, VALUES> {
    /// The numbers of the slots that a key may be in.
    pub(crate) fn slots_for(&self, key: KeyHash) -> impl Iterator<Item = usize> {
        self.slots_of(key).map(|slot| self.number_of(&slot))
    }

    /// In how many slots a key is live.
    pub(crate) fn occurrences(&self, key: KeyHash) -> usize {
        self.slots_of(key).filter(|slot| slot.is_of(key, slot.read_state())).count()
    }

    /// Does what a process does that dies while it fills a slot, after as much of rule 2 as `Death` says.
    pub(crate) fn die_while_filling(&self, key: KeyHash, death: Death) {
        let victim = self.find_victim(key, 0).expect("nobody else is there");
        let reserved = self.reserve(&victim).expect("nobody else is there");
        let halves = match death {
            Death::Reserved => 0,
            Death::HalfAKey => 1,
            Death::WholeKey => 2,
        };
        for half in 0..halves {
            assert!(victim.write_half(half, key, reserved), "nobody else is there");
        }
    }
}

/// How far a process gets that dies.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    Reserved,
    HalfAKey,
    WholeKey,
}
