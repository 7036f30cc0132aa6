//! The operations that change a dictionary, but for lists.

use crate::dict::layout::{EPOCH_AT, FREE_PAGES_AT, MADE_AT, PAGE_BYTES, WORD, stripe_of};
use crate::dict::lock::{Memory, Writer};
use crate::dict::nodes::{Contents, Entry, EntryPlace, Oldest, node_bytes};
use crate::dict::{Change, Dict, Key, Kind, Mode, Refusal, Room, Setting, Value};
use crate::sync::Ordering;

/// A value of up to so many bytes is changed where it is, if its length stays.
const IN_PLACE_BYTES: usize = if cfg!(loom) { 8 } else { 256 };
/// Entries that go for one that finds no room, each with up to two that have expired.
const EVICTIONS_MAX: u32 = 30;
/// How often a stripe is tried before the lock is taken.
const TRIES_MAX: u32 = if cfg!(loom) { 1 } else { 16 };

/// The lock, and a key's stripe.
pub(crate) struct Held<'a> {
    pub(crate) writer: Writer<'a>,
    stripe: usize,
}

impl Held<'_> {
    pub(crate) fn stripe(&self) -> Option<usize> {
        Some(self.stripe)
    }

    pub(crate) fn find(&self, key: &Key<'_>) -> Option<(EntryPlace, Entry)> {
        let place = self.writer.memory.find(key)?;
        Some((place, self.writer.memory.entry(place.at)))
    }
}

impl<'a> Memory<'a> {
    /// The lock, with what others have left to do done.
    pub(crate) fn begin(&self) -> Writer<'a> {
        let mut writer = self.lock();
        writer.free_orphans();
        writer.heed_touches();
        writer
    }
}

impl<'a> Dict<'a> {
    pub(crate) fn held(&self, key: &Key<'_>) -> Held<'a> {
        let mut writer = self.memory.begin();
        let stripe = stripe_of(key.hash);
        writer.hold(stripe);
        Held { writer, stripe }
    }

    /// Makes a dictionary of zeroed memory; `name_len` is the length of its name, for which nginx has room in
    /// it.
    pub(crate) fn make(memory: &Memory<'a>, name_len: usize) {
        /// nginx's own data in a dictionary: the roots of its tree and list, and a text for its log.
        const ROOTS_BYTES: usize = 80;
        const LOG_TEXT_BYTES: usize = 28;
        if memory.words[MADE_AT].load(Ordering::Acquire) != 0 {
            return;
        }
        let mut writer = memory.lock();
        if writer.read(MADE_AT) == 0 {
            writer.make_slab();
            if !cfg!(loom) {
                let kept = writer.alloc(ROOTS_BYTES).and_then(|_| writer.alloc(LOG_TEXT_BYTES + name_len));
                debug_assert!(
                    kept.is_some() || writer.memory.layout.pages < 2,
                    "the smallest have two pages"
                );
            }
            writer.write(MADE_AT, 1);
            writer.commit();
        }
    }

    /// Stores a value, or with `None` removes a key.
    pub fn store(&self, key: &Key<'_>, value: Option<Value<'_>>, setting: Setting, now_ms: u64) -> Change {
        let mut held = self.held(key);
        held.writer.expire(Oldest::Expired, now_ms, held.stripe());
        let found = held.find(key);
        let is_live = found.is_some_and(|(_, entry)| !entry.is_expired(now_ms));
        match setting.mode {
            Mode::Replace if !is_live => return Change::refused(Refusal::NotFound),
            Mode::Add if is_live => return Change::refused(Refusal::Exists),
            _ => {}
        }
        let Some(value) = value else {
            if let Some((place, _)) = found {
                held.remove(place);
            }
            return Change::done(0);
        };
        let mut number = [0; WORD];
        let (kind, bytes) = value.parts(&mut number);
        let expires_ms = if setting.ttl_ms == 0 { 0 } else { now_ms.saturating_add(setting.ttl_ms) };
        let contents = Contents { kind, bytes, len: bytes.len(), flags: setting.flags, expires_ms };
        held.put(key, found, contents, setting.room, now_ms)
    }

    /// Adds to a number, and says what it is then. Where the key is not there it begins with `init`, if that
    /// is given, for `init_ttl_ms` (0: for ever).
    pub fn incr(
        &self,
        key: &Key<'_>,
        amount: f64,
        init: Option<(f64, u64)>,
        now_ms: u64,
    ) -> (Result<f64, Refusal>, Change) {
        if let Some(sum) = self.incr_live(key, amount, now_ms) {
            return (Ok(sum), Change::done(0));
        }
        let mut held = self.held(key);
        held.writer.expire(Oldest::Expired, now_ms, held.stripe());
        let found = held.find(key);
        if let Some((_, entry)) = found.filter(|(_, entry)| !entry.is_expired(now_ms)) {
            let Some(present) = held.number(entry) else {
                return (Err(Refusal::NotNumber), Change::refused(Refusal::NotNumber));
            };
            let sum = present + amount;
            held.writer.write(entry.value_at(), sum.to_bits());
            held.writer.refresh(entry.at);
            held.writer.commit();
            return (Ok(sum), Change::done(0));
        }
        let Some((init, ttl_ms)) = init else {
            return (Err(Refusal::NotFound), Change::refused(Refusal::NotFound));
        };
        let sum = init + amount;
        let expires_ms = if ttl_ms == 0 { 0 } else { now_ms.saturating_add(ttl_ms) };
        let bytes = &sum.to_bits().to_le_bytes();
        let contents = Contents { kind: Kind::Number, bytes, len: WORD, flags: 0, expires_ms };
        let change = held.put(key, found, contents, Room::Force, now_ms);
        (change.result.map(|()| sum), change)
    }

    /// Rule 5: a number that is there, by one store under its stripe.
    fn incr_live(&self, key: &Key<'_>, amount: f64, now_ms: u64) -> Option<f64> {
        let memory = &self.memory;
        let stripe = (0..TRIES_MAX).find_map(|attempt| {
            memory.try_stripe(stripe_of(key.hash)).or_else(|| {
                crate::sync::back_off(attempt);
                None
            })
        })?;
        let entry = memory.entry(memory.find(key)?.at);
        let is_number = entry.kind == Kind::Number as u8 && entry.len == WORD;
        if !is_number || entry.is_expired(now_ms) {
            return None;
        }
        let word = &memory.words[entry.value_at()];
        let sum = f64::from_bits(word.load(Ordering::Relaxed)) + amount;
        word.store(sum.to_bits(), Ordering::Release);
        drop(stripe);
        memory.touch(entry.at, key.hash);
        Some(sum)
    }

    /// Sets when a key expires: so many milliseconds from now, 0: never. `false`: it is not there.
    #[must_use]
    pub fn set_ttl(&self, key: &Key<'_>, ttl_ms: u64, now_ms: u64) -> bool {
        let mut held = self.held(key);
        let Some((place, _)) = held.find(key) else { return false };
        let expires_ms = if ttl_ms == 0 { 0 } else { now_ms.saturating_add(ttl_ms) };
        held.writer.set_expires(place.at, expires_ms);
        held.writer.commit();
        true
    }

    /// Has everything expire, by one store; the oldest three entries go.
    pub fn flush_all(&self, now_ms: u64) {
        let mut writer = self.memory.begin();
        let epoch = writer.read(EPOCH_AT);
        (0..crate::dict::layout::STRIPES).for_each(|stripe| writer.hold(stripe));
        writer.write(EPOCH_AT, epoch + 1);
        writer.commit();
        writer.release_but(None);
        writer.expire(Oldest::Any, now_ms, None);
    }

    /// Removes what has expired, the oldest first, up to `max` entries (0: all); how many.
    pub fn flush_expired(&self, max: u32, now_ms: u64) -> u32 {
        let mut writer = self.memory.begin();
        let (mut next, mut freed) = (writer.oldest(), 0);
        while let Some(at) = next {
            next = writer.newer(at);
            if writer.memory.entry(at).is_expired(now_ms) {
                writer.evict(at, None);
                freed += 1;
                if freed == max {
                    break;
                }
            }
        }
        freed
    }

    /// Tells each key that has not expired, the oldest first, up to `max` (0: all).
    pub fn keys(&self, max: usize, now_ms: u64, mut tell: impl FnMut(&[u8])) {
        let writer = self.memory.begin();
        let (mut next, mut told, mut key) = (writer.oldest(), 0, Vec::new());
        while let Some(at) = next {
            next = writer.newer(at);
            let entry = writer.memory.entry(at);
            if !entry.is_expired(now_ms) {
                key.clear();
                writer.copy_key(entry, &mut key);
                tell(&key);
                told += 1;
                if told == max {
                    return;
                }
            }
        }
    }

    /// Bytes of pages that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.memory.words[FREE_PAGES_AT].load(Ordering::Relaxed) * PAGE_BYTES as u64
    }
}

impl Held<'_> {
    fn number(&self, entry: Entry) -> Option<f64> {
        let is_number = entry.kind == Kind::Number as u8 && entry.len == WORD;
        is_number.then(|| f64::from_bits(self.writer.read(entry.value_at())))
    }

    fn remove(&mut self, place: EntryPlace) {
        self.writer.unlink(place);
        self.writer.commit();
        self.writer.free_orphans();
    }

    fn put(
        &mut self,
        key: &Key<'_>,
        found: Option<(EntryPlace, Entry)>,
        contents: Contents<'_>,
        room: Room,
        now_ms: u64,
    ) -> Change {
        if let Some((_, entry)) = found
            && !entry.is_list()
            && entry.len == contents.len
            && contents.bytes.len() <= IN_PLACE_BYTES
        {
            self.writer.set_contents(entry, contents);
            self.writer.refresh(entry.at);
            self.writer.commit();
            return Change::done(0);
        }
        let bytes = node_bytes(key.bytes.len(), contents.bytes.len());
        let mut allocated = self.writer.alloc(bytes);
        match found {
            Some((place, _)) if allocated.is_some() => self.writer.unlink(place),
            // Only what it had makes room for it, so that a death in between takes both.
            Some((place, _)) => {
                self.remove(place);
                allocated = self.writer.alloc(bytes);
            }
            None => {}
        }
        let mut evicted = 0;
        while allocated.is_none() && room == Room::Force && evicted < EVICTIONS_MAX {
            if self.writer.expire(Oldest::Any, now_ms, self.stripe()) == 0 {
                break;
            }
            evicted += 1;
            allocated = self.writer.alloc(bytes);
        }
        let Some(at) = allocated else { return Change { result: Err(Refusal::NoMemory), evicted } };
        self.writer.fill_entry(at, key, contents);
        self.writer.link(at, key);
        self.writer.commit();
        self.writer.free_orphans();
        Change::done(evicted)
    }
}
