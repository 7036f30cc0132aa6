//! Entries of a dictionary: chains of those whose hashes share a bucket, the order in which they were used,
//! and how they go. Chains are read by anybody, everything else by the holder of the lock.

use crate::dict::layout::{
    EPOCH_AT, HEEDED_AT, LRU_AT, ORPHANS_AT, RING, RING_AT, TOUCHES_AT, WORD, high, low, pair, stripe_of,
};
use crate::dict::lock::{Memory, Writer};
use crate::dict::{Key, Kind, Value};
use crate::sync::Ordering;

/// The next entry of the chain in the lower half; above it the length of the key, and the kind.
const LINK: usize = 0;
const KEY_LEN_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 48;
const HASH: usize = 1;
/// The entry that was used next after this one in the lower half, the one before in the upper.
const LRU: usize = 2;
/// Milliseconds since 1970; 0: never.
const EXPIRES: usize = 3;
/// The value's length in bytes, or how many items a list has; the flags above it.
const SIZE: usize = 4;
const EPOCH: usize = 5;
/// The key, and from the next whole word on the value.
const DATA: usize = 6;

/// The bytes of an entry with an empty key and value in nginx; here they are fewer.
const NODE_BYTES: usize = 68;
/// nginx's bytes in a list's entry beside its key.
const LIST_BYTES: usize = 16;

/// Entries of a chain at most that a reader follows, which may be led astray.
const STEPS_MAX: usize = if cfg!(loom) { 4 } else { 100_000 };
/// A touch is not noted again that is among so many last ones.
const TOUCHES_LOOKED_AT: u64 = if cfg!(loom) { 1 } else { 4 };

/// An expiry that has passed: that of what was flushed.
const PASSED_MS: u64 = 1;

/// Bytes that an entry is given, as with nginx.
pub(crate) fn node_bytes(key: usize, value: usize) -> usize {
    NODE_BYTES + key + value
}

pub(crate) fn list_node_bytes(key: usize) -> usize {
    (NODE_BYTES + key + LIST_BYTES).next_multiple_of(WORD)
}

/// Where an entry is, and the word that leads to it.
#[derive(Clone, Copy)]
pub(crate) struct EntryPlace {
    pub(crate) at: usize,
    holder: usize,
}

/// The fields of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) at: usize,
    pub(crate) kind: u8,
    pub(crate) key_len: usize,
    /// The number of items of a list.
    pub(crate) len: usize,
    pub(crate) flags: u32,
    /// Milliseconds since 1970; 0: never.
    pub(crate) expires_ms: u64,
}

impl Entry {
    pub(crate) fn value_at(&self) -> usize {
        self.at + DATA + self.key_len.div_ceil(WORD)
    }

    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }

    pub(crate) fn is_list(&self) -> bool {
        self.kind == Kind::List as u8
    }
}

/// The parts of a value when it is written.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'v> {
    pub(crate) kind: Kind,
    pub(crate) bytes: &'v [u8],
    /// The number for `SIZE`: of a list the number of items.
    pub(crate) len: usize,
    pub(crate) flags: u32,
    /// Milliseconds since 1970; 0: never.
    pub(crate) expires_ms: u64,
}

impl Memory<'_> {
    /// Where a key is. Of use to a reader only if its stripe was unchanged.
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<EntryPlace> {
        let mut holder = self.layout.bucket_of(key.hash);
        for _ in 0..STEPS_MAX {
            let at = low(self.peek(holder)) as usize;
            if at == 0 || !self.layout.is_chunk(at) {
                return None;
            }
            if self.peek(at + HASH) == key.hash && self.has_key(at, key.bytes) {
                return Some(EntryPlace { at, holder });
            }
            holder = at + LINK;
        }
        None
    }

    fn has_key(&self, at: usize, key: &[u8]) -> bool {
        let key_len = (self.peek(at + LINK) >> KEY_LEN_SHIFT) as u16;
        let is_same = |(word, bytes): (usize, &[u8])| {
            self.peek(at + DATA + word).to_le_bytes()[..bytes.len()] == *bytes
        };
        usize::from(key_len) == key.len() && key.chunks(WORD).enumerate().all(is_same)
    }

    pub(crate) fn entry(&self, at: usize) -> Entry {
        let (link, size) = (self.peek(at + LINK), self.peek(at + SIZE));
        let is_flushed = self.peek(at + EPOCH) != self.peek(EPOCH_AT);
        Entry {
            at,
            kind: (link >> KIND_SHIFT) as u8,
            key_len: usize::from((link >> KEY_LEN_SHIFT) as u16),
            len: low(size) as usize,
            flags: high(size),
            expires_ms: if is_flushed { PASSED_MS } else { self.peek(at + EXPIRES) },
        }
    }

    /// Appends so many bytes from a word on; `false`: there are not as many.
    pub(crate) fn copy(&self, at: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let Some(words) = self.words.get(at..).and_then(|words| words.get(..len.div_ceil(WORD))) else {
            return false;
        };
        let start = out.len();
        out.reserve(words.len() * WORD);
        out.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()));
        out.truncate(start + len);
        true
    }

    /// Notes that an entry was used, for the next holder of the lock.
    pub(crate) fn touch(&self, at: usize, hash: u64) {
        let noted = self.words[TOUCHES_AT].load(Ordering::Relaxed);
        let heeded = self.words[HEEDED_AT].load(Ordering::Relaxed);
        let touch = pair(at as u32, high(hash));
        let ring = |position: u64| &self.words[RING_AT + position as usize % RING];
        let last = noted.saturating_sub(TOUCHES_LOOKED_AT).max(heeded)..noted;
        if last.rev().any(|position| ring(position).load(Ordering::Relaxed) == touch) {
            return;
        }
        let position = self.words[TOUCHES_AT].fetch_add(1, Ordering::Relaxed);
        ring(position).store(touch, Ordering::Relaxed);
    }
}

impl Writer<'_> {
    /// Entries that were read since the last change become the newest, in that order.
    pub(crate) fn heed_touches(&mut self) {
        let noted = self.memory.words[TOUCHES_AT].load(Ordering::Relaxed);
        let heeded = self.read(HEEDED_AT).max(noted.saturating_sub(RING as u64));
        for position in heeded..noted {
            let touch = self.read(RING_AT + position as usize % RING);
            if self.is_entry(low(touch) as usize, high(touch)) {
                self.refresh(low(touch) as usize);
                self.commit();
            }
        }
        self.fill(HEEDED_AT, noted);
    }

    /// Whether an entry of such a hash begins there.
    fn is_entry(&self, wanted: usize, hash_high: u32) -> bool {
        let mut holder = self.memory.layout.bucket_of(pair(0, hash_high));
        loop {
            match low(self.read(holder)) as usize {
                0 => return false,
                at if at == wanted => return high(self.read(at + HASH)) == hash_high,
                at => holder = at + LINK,
            }
        }
    }

    pub(crate) fn oldest(&self) -> Option<usize> {
        Some(high(self.read(LRU_AT)) as usize).filter(|&at| at != 0)
    }

    /// The entry that was used next after this one.
    pub(crate) fn newer(&self, at: usize) -> Option<usize> {
        Some(low(self.read(at + LRU)) as usize).filter(|&at| at != 0)
    }

    /// Makes an entry the newest.
    pub(crate) fn refresh(&mut self, at: usize) {
        if low(self.read(LRU_AT)) as usize != at {
            self.leave_order(at);
            self.enter_order(at);
        }
    }

    fn leave_order(&mut self, at: usize) {
        let links = self.read(at + LRU);
        let (newer, older) = (low(links), high(links));
        match newer as usize {
            0 => self.write(LRU_AT, pair(older, high(self.read(LRU_AT)))),
            next => self.write(next + LRU, pair(low(self.read(next + LRU)), older)),
        }
        match older as usize {
            0 => self.write(LRU_AT, pair(low(self.read(LRU_AT)), newer)),
            next => self.write(next + LRU, pair(newer, high(self.read(next + LRU)))),
        }
    }

    fn enter_order(&mut self, at: usize) {
        let ends = self.read(LRU_AT);
        let (newest, oldest) = (low(ends), high(ends));
        self.write(at + LRU, pair(0, newest));
        match newest as usize {
            0 => self.write(LRU_AT, pair(at as u32, at as u32)),
            next => {
                self.write(next + LRU, pair(at as u32, high(self.read(next + LRU))));
                self.write(LRU_AT, pair(at as u32, oldest));
            }
        }
    }

    /// Writes an entry into memory that nothing names.
    pub(crate) fn fill_entry(&self, at: usize, key: &Key<'_>, contents: Contents<'_>) {
        let link = (contents.kind as u64) << KIND_SHIFT | (key.bytes.len() as u64) << KEY_LEN_SHIFT;
        self.fill(at + LINK, link);
        self.fill(at + HASH, key.hash);
        self.fill(at + EXPIRES, contents.expires_ms);
        self.fill(at + SIZE, pair(contents.len as u32, contents.flags));
        self.fill(at + EPOCH, self.read(EPOCH_AT));
        self.fill_bytes(at + DATA, key.bytes);
        self.fill_bytes(at + DATA + key.bytes.len().div_ceil(WORD), contents.bytes);
    }

    pub(crate) fn fill_bytes(&self, at: usize, bytes: &[u8]) {
        for (word, bytes) in bytes.chunks(WORD).enumerate() {
            self.fill(at + word, word_of(bytes));
        }
    }

    /// Puts an entry that was filled into its chain and the order.
    pub(crate) fn link(&mut self, at: usize, key: &Key<'_>) {
        let bucket = self.memory.layout.bucket_of(key.hash);
        self.write_next(at, low(self.read(bucket)));
        self.write(bucket, at as u64);
        self.enter_order(at);
    }

    /// Takes an entry out of its chain and the order and frees it; the items of a list are orphans then.
    pub(crate) fn unlink(&mut self, place: EntryPlace) {
        let next = low(self.read(place.at + LINK));
        self.write_next(place.holder, next);
        self.leave_order(place.at);
        let entry = self.memory.entry(place.at);
        if entry.is_list() {
            self.write(ORPHANS_AT, u64::from(low(self.read(entry.value_at()))));
        }
        self.free(place.at);
    }

    fn write_next(&mut self, at: usize, next: u32) {
        self.write(at, pair(next, high(self.read(at))));
    }

    /// Frees the items of a list that has gone, one after the other.
    pub(crate) fn free_orphans(&mut self) {
        while let at @ 1.. = self.read(ORPHANS_AT) as usize {
            let next = low(self.read(at));
            self.free(at);
            self.write(ORPHANS_AT, u64::from(next));
            self.commit();
        }
    }

    /// Removes an entry, for good.
    pub(crate) fn evict(&mut self, at: usize, kept: Option<usize>) {
        let hash = self.read(at + HASH);
        let mut holder = self.memory.layout.bucket_of(hash);
        while low(self.read(holder)) as usize != at {
            holder = low(self.read(holder)) as usize + LINK;
        }
        self.hold(stripe_of(hash));
        self.unlink(EntryPlace { at, holder });
        self.commit();
        self.free_orphans();
        self.release_but(kept);
    }

    /// Removes the oldest entries: with `Oldest::Any` one whatever it is, then up to two that have expired;
    /// how many.
    pub(crate) fn expire(&mut self, oldest: Oldest, now_ms: u64, kept: Option<usize>) -> u32 {
        let mut freed = 0;
        for turn in oldest as u32..3 {
            let Some(at) = self.oldest() else { break };
            if turn != 0 && !self.memory.entry(at).is_expired(now_ms) {
                break;
            }
            self.evict(at, kept);
            freed += 1;
        }
        freed
    }

    /// Changes what an entry says besides its key.
    pub(crate) fn set_contents(&mut self, entry: Entry, contents: Contents<'_>) {
        let link = self.read(entry.at + LINK) & !(0xff << KIND_SHIFT);
        self.write(entry.at + LINK, link | (contents.kind as u64) << KIND_SHIFT);
        self.write(entry.at + SIZE, pair(contents.len as u32, contents.flags));
        self.set_expires(entry.at, contents.expires_ms);
        for (word, bytes) in contents.bytes.chunks(WORD).enumerate() {
            self.write(entry.value_at() + word, word_of(bytes));
        }
    }

    pub(crate) fn set_expires(&mut self, at: usize, expires_ms: u64) {
        self.write(at + EXPIRES, expires_ms);
        self.write(at + EPOCH, self.read(EPOCH_AT));
    }

    pub(crate) fn set_len(&mut self, entry: Entry, len: usize) {
        self.write(entry.at + SIZE, pair(len as u32, entry.flags));
    }

    /// The key of an entry.
    pub(crate) fn copy_key(&self, entry: Entry, out: &mut Vec<u8>) {
        let is_there = self.memory.copy(entry.at + DATA, entry.key_len, out);
        debug_assert!(is_there, "an entry is whole");
    }
}

/// Which entries `Writer::expire` removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oldest {
    Any = 0,
    Expired = 1,
}

fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

impl Value<'_> {
    /// Its kind, and its bytes, for which there is room in `number`.
    pub(crate) fn parts<'b>(&'b self, number: &'b mut [u8; WORD]) -> (Kind, &'b [u8]) {
        match self {
            Value::Text(text) => (Kind::Text, text),
            Value::Number(value) => {
                *number = value.to_bits().to_le_bytes();
                (Kind::Number, number)
            }
            Value::Boolean(value) => {
                number[0] = u8::from(*value);
                (Kind::Boolean, &number[..1])
            }
        }
    }
}
