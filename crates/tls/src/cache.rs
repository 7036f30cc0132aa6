//! Sessions that the server keeps (`ssl_session_cache shared:…`, `builtin`), and the ticket keys that all
//! worker processes share. Both are in the memory of a zone, so they outlive configurations and workers. Any
//! thread; no locks.
//!
//! A session is found by its id, or by the first bytes of the ticket that a client of TLS 1.3 has, until it
//! expires. Where there is no room, the session that expires first is evicted. The ticket keys are one record
//! in the same zone. It is changed by one compare-and-swap (`zone::Store`), so all processes agree on the
//! current key, the previous and the next one.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_zone::{PAYLOAD_MAX, Unkept, Updated, Zone, Zones};

use crate::engine::{Kept, kept_key};
use crate::hello::Hello;
use crate::sys::random;
use crate::tickets::{KeyRing, RANDOM_LENGTH, TicketKey};

/// The module's name in declarations of zones: another module cannot use a zone of this one.
pub const ZONE_MODULE: &str = "ssl";

/// Bytes of a private cache for each session: twice a cell for its content and its share of the index, since
/// sessions with client certificates are longer.
const BUILTIN_SESSION_BYTES: u64 = 1024;

/// The key of the record of ticket keys. Keys of sessions are longer, so none is equal to it.
const TICKET_KEYS: &[u8] = b"ticket keys";

/// Sessions in a zone.
pub struct SessionCache {
    zone: Arc<Zone>,
}

impl SessionCache {
    /// A cache in a zone that the configuration names. The zone has to be open before sessions are stored or
    /// looked up.
    #[must_use]
    pub fn shared(zone: Arc<Zone>) -> Self {
        Self { zone }
    }

    /// A cache in memory of its own for about `sessions` sessions (`builtin`). It is not shared, and ends
    /// with the configuration. Called while a configuration is loaded, off the loops.
    ///
    /// # Errors
    /// The system's error if it gives no memory.
    pub fn builtin(sessions: u32) -> Result<Self, Vec<u8>> {
        let zones = Zones::create(None);
        let bytes = u64::from(sessions.max(1)).saturating_mul(BUILTIN_SESSION_BYTES);
        let zone = zones.declare(b"builtin", bytes, ZONE_MODULE)?;
        zones.open()?;
        Ok(Self { zone })
    }

    /// The zone's name, for the log.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.zone.name()
    }

    /// The session that a client asks for with its hello, if it is stored and not expired at `now_s`, seconds
    /// since 1970. A session of TLS 1.3 is removed by this: it is good for one connection. If several clients
    /// ask for it at once, one of them gets it.
    #[must_use]
    pub fn find(&self, hello: &Hello, now_s: u64) -> Option<Kept> {
        let key = kept_key(hello)?;
        if hello.identity().is_some() { self.take(key, now_s) } else { self.read(key, now_s) }
    }

    /// The session under a key; it stays in the cache.
    #[must_use]
    pub fn read(&self, key: &[u8], now_s: u64) -> Option<Kept> {
        let mut content = Vec::new();
        let expires_s = self.zone.store()?.get(self.zone.hash(key), &mut content)?;
        (expires_s > now_s).then(|| Kept { key: key.to_vec(), content })
    }

    /// Removes the session under a key and returns it; of several callers one gets it.
    #[must_use]
    pub fn take(&self, key: &[u8], now_s: u64) -> Option<Kept> {
        let kept = self.read(key, now_s)?;
        self.remove(key).then_some(kept)
    }

    /// Stores a session; it expires `timeout_s` seconds after `now_s`.
    ///
    /// # Errors
    /// If the session is larger than an eighth of the cache, or too many threads change the cache at the same
    /// time.
    pub fn keep(&self, kept: &Kept, timeout_s: u32, now_s: u64) -> Result<(), Unkept> {
        let store = self.zone.store().ok_or(Unkept::Contended)?;
        debug_assert!(!kept.key.is_empty(), "a session is kept under a key");
        debug_assert_ne!(&kept.key[..], TICKET_KEYS, "sessions have longer names");
        let expires_s = (now_s + u64::from(timeout_s)).min(PAYLOAD_MAX - 1);
        store.put(self.zone.hash(&kept.key), now_s + 1, expires_s, &kept.content).map(|_: Updated| ())
    }

    /// Removes a session. Returns whether it was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.zone.store().is_some_and(|store| store.remove(self.zone.hash(key)))
    }

    /// Rotates the keys if that is due and returns the record.
    fn rotate_keys(&self, now_s: u64, needed_until_s: u64) -> Result<KeyRecord, Unkept> {
        let store = self.zone.store().ok_or(Unkept::Contended)?;
        let mut record = None;
        // The record has the latest possible expiry, so it is evicted after all sessions.
        store.update(self.zone.hash(TICKET_KEYS), now_s, PAYLOAD_MAX, |present, out| {
            let (next, is_changed) = match present.and_then(KeyRecord::read) {
                Some(present) => present.rotated(now_s, needed_until_s),
                None => (KeyRecord::first(needed_until_s), true),
            };
            next.write(out);
            record = Some(next);
            is_changed
        })?;
        record.ok_or(Unkept::Contended)
    }
}

/// One context's view of the ticket keys in a cache. Contexts with the same cache have the same keys.
pub struct SharedKeys {
    cache: Arc<SessionCache>,
    timeout_s: u32,
    /// When the record is to be read again, seconds since 1970.
    due_s: AtomicU64,
}

impl SharedKeys {
    /// `timeout_s` is `ssl_session_timeout`: a key opens tickets for at least so long after it encrypted the
    /// last one.
    #[must_use]
    pub fn new(cache: Arc<SessionCache>, timeout_s: u32) -> Self {
        Self { cache, timeout_s, due_s: AtomicU64::new(0) }
    }

    /// The keys to begin with. Makes the record of keys if there is none yet.
    ///
    /// # Errors
    /// Those of [`SessionCache::keep`].
    pub fn ring(&self, now_s: u64) -> Result<KeyRing, Unkept> {
        self.due_s.store(now_s + self.slack_s(), Ordering::Relaxed);
        self.look(now_s)
    }

    /// Called at each handshake: returns a new ring when it is time to read the record. Nearly always this
    /// costs one load. Of several threads that call it at once, one reads the record. The others go on with
    /// the ring that they have: it contains the next key, so it opens tickets of the new ring as well.
    #[must_use]
    pub fn rotated(&self, now_s: u64) -> Option<KeyRing> {
        let due_s = self.due_s.load(Ordering::Relaxed);
        if now_s < due_s {
            return None;
        }
        let next_s = now_s + self.slack_s().max(1);
        let is_ours =
            self.due_s.compare_exchange(due_s, next_s, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // If the record cannot be read, the present keys stay in use: their tickets are good.
        if is_ours { self.look(now_s).ok() } else { None }
    }

    fn look(&self, now_s: u64) -> Result<KeyRing, Unkept> {
        // The time until the next regular read is added, so that reads in between do not change the record.
        let needed_until_s = now_s + u64::from(self.timeout_s) + self.slack_s();
        let record = self.cache.rotate_keys(now_s, needed_until_s)?;
        self.due_s.fetch_min(record.previous.needed_until_s + 1, Ordering::Relaxed);
        Ok(record.ring())
    }

    /// The time between two reads of the record, seconds; 0 means every second.
    fn slack_s(&self) -> u64 {
        const SLACK_PART: u64 = 16;
        u64::from(self.timeout_s) / SLACK_PART
    }
}

/// A key, and the time until which clients may show its tickets; 0: it has not encrypted any.
#[derive(Clone, PartialEq, Eq)]
struct DatedKey {
    needed_until_s: u64,
    secret: [u8; RANDOM_LENGTH],
}

const DATED_LENGTH: usize = size_of::<u64>() + RANDOM_LENGTH;

/// The keys of a zone. The current key encrypts; the previous and the next one only open tickets. A process
/// that has not read the record since the last rotation still encrypts with the previous key. It opens
/// tickets of the current one, which it knows as its next key.
#[derive(Clone, PartialEq, Eq)]
struct KeyRecord {
    current: DatedKey,
    previous: DatedKey,
    next: DatedKey,
}

impl KeyRecord {
    fn first(needed_until_s: u64) -> Self {
        let current = DatedKey { needed_until_s, ..DatedKey::fresh() };
        Self { previous: current.clone(), current, next: DatedKey::fresh() }
    }

    /// Rotates once the previous key is not needed any more: the next key becomes the current one. Returns
    /// the record, and whether it has changed.
    fn rotated(mut self, now_s: u64, needed_until_s: u64) -> (Self, bool) {
        let is_over = self.previous.needed_until_s < now_s;
        if is_over {
            self = Self { previous: self.current, current: self.next, next: DatedKey::fresh() };
        }
        let is_longer = self.current.needed_until_s < needed_until_s;
        self.current.needed_until_s = self.current.needed_until_s.max(needed_until_s);
        debug_assert!(self.next.needed_until_s == 0, "the next key has encrypted nothing");
        assert!(self.next.secret != self.current.secret, "a key that encrypts is not drawn twice");
        (self, is_over || is_longer)
    }

    fn ring(&self) -> KeyRing {
        let mut keys = vec![TicketKey::from_random(&self.current.secret)];
        if self.previous.secret != self.current.secret {
            keys.push(TicketKey::from_random(&self.previous.secret));
        }
        keys.push(TicketKey::from_random(&self.next.secret));
        KeyRing::new(keys).expect("there is a key")
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (current, rest) = bytes.split_first_chunk()?;
        let (previous, rest) = rest.split_first_chunk()?;
        let (next, _) = rest.split_first_chunk()?;
        let [current, previous, next] = [current, previous, next].map(DatedKey::read);
        Some(Self { current: current?, previous: previous?, next: next? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let before = out.len();
        for key in [&self.current, &self.previous, &self.next] {
            out.extend_from_slice(&key.needed_until_s.to_le_bytes());
            out.extend_from_slice(&key.secret);
        }
        assert_eq!(out.len() - before, 3 * DATED_LENGTH, "a record is as long as it is read");
    }
}

impl DatedKey {
    fn fresh() -> Self {
        Self { needed_until_s: 0, secret: random() }
    }

    fn read(bytes: &[u8; DATED_LENGTH]) -> Option<Self> {
        let (date, secret) = bytes.split_first_chunk()?;
        Some(Self { needed_until_s: u64::from_le_bytes(*date), secret: *secret.first_chunk()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const TIMEOUT_S: u32 = 300;

    fn kept(byte: u8, length: usize) -> Kept {
        Kept { key: vec![byte; 32], content: vec![byte; length] }
    }

    fn zone(zones: &Zones) -> Arc<Zone> {
        let zone = zones.declare(b"sessions", 65_536, ZONE_MODULE).unwrap();
        zones.open().unwrap();
        zone
    }

    #[test]
    fn sessions_stay_until_they_expire() {
        let cache = SessionCache::builtin(100).unwrap();
        let session = kept(1, 200);
        assert_eq!(cache.read(&session.key, NOW_S), None);
        cache.keep(&session, TIMEOUT_S, NOW_S).unwrap();
        assert_eq!(cache.read(&session.key, NOW_S + 299), Some(session.clone()));
        assert_eq!(cache.read(&session.key, NOW_S + 300), None);
        assert!(cache.remove(&session.key) && !cache.remove(&session.key));
        assert_eq!(cache.read(&session.key, NOW_S), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads that a test starts and waits for")]
    fn a_session_is_taken_once() {
        let cache = Arc::new(SessionCache::builtin(100).unwrap());
        for round in 0..50 {
            let session = kept(round, 500);
            cache.keep(&session, TIMEOUT_S, NOW_S).unwrap();
            let takers: Vec<_> = (0..3)
                .map(|_| {
                    let (cache, key) = (Arc::clone(&cache), session.key.clone());
                    std::thread::spawn(move || cache.take(&key, NOW_S).is_some())
                })
                .collect();
            let taken = takers.into_iter().map(|taker| taker.join().unwrap()).filter(|taken| *taken);
            assert_eq!(taken.count(), 1);
        }
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room() {
        let zones = Zones::create(None);
        let cache = SessionCache::shared(zone(&zones));
        let id = |number: u64| [&number.to_le_bytes()[..], &[7; 24]].concat();
        for number in 0..5000 {
            let session = Kept { key: id(number), content: vec![1; 400] };
            cache.keep(&session, TIMEOUT_S, NOW_S + number).unwrap();
        }
        let is_there = |number: &u64| cache.read(&id(*number), NOW_S).is_some();
        assert!(is_there(&4999));
        assert_eq!((0..4000).filter(is_there).count(), 0, "old ones are gone");
        let young = (4950..5000).filter(is_there).count();
        assert!(young >= 45, "{young} of the last 50 are there");
        let all = Kept { key: id(1), content: vec![1; 40_000] };
        assert_eq!(cache.keep(&all, TIMEOUT_S, NOW_S), Err(Unkept::TooLarge));
    }

    #[test]
    fn another_configuration_has_the_sessions_and_keys() {
        let zones = Zones::create(None);
        let cache = Arc::new(SessionCache::shared(zone(&zones)));
        let session = kept(3, 1000);
        cache.keep(&session, TIMEOUT_S, NOW_S).unwrap();
        let ring = SharedKeys::new(cache, TIMEOUT_S).ring(NOW_S).unwrap();

        let reloaded = Zones::create(Some(&zones));
        let cache = Arc::new(SessionCache::shared(zone(&reloaded)));
        assert_eq!(cache.read(&session.key, NOW_S), Some(session));
        assert_eq!(SharedKeys::new(cache, TIMEOUT_S).ring(NOW_S + 1).unwrap(), ring);
    }

    #[test]
    fn keys_rotate_when_the_one_before_is_not_needed() {
        let cache = Arc::new(SessionCache::builtin(100).unwrap());
        let keys = SharedKeys::new(Arc::clone(&cache), TIMEOUT_S);
        let late = SharedKeys::new(cache, TIMEOUT_S);
        let mut ring = keys.ring(NOW_S).unwrap();
        let mut known = late.ring(NOW_S).unwrap();
        assert_eq!(ring, known);
        let mut rotations = 0;
        for now_s in NOW_S..NOW_S + 3000 {
            let Some(next) = keys.rotated(now_s) else { continue };
            // A process that has not read the record yet opens tickets that are encrypted now.
            assert!(known.keys().contains(&next.keys()[0]), "at {}", now_s - NOW_S);
            if next.keys()[0] != ring.keys()[0] {
                rotations += 1;
                assert!(next.keys().contains(&ring.keys()[0]), "the previous one opens");
            }
            ring = next;
            known = late.rotated(now_s).unwrap_or(known);
        }
        assert!((4..=10).contains(&rotations), "{rotations}");
    }

    #[test]
    fn a_key_opens_as_long_as_its_tickets_are_good() {
        let keys = SharedKeys::new(Arc::new(SessionCache::builtin(100).unwrap()), TIMEOUT_S);
        let mut ring = keys.ring(NOW_S).unwrap();
        let mut encrypted: Vec<(u64, TicketKey)> = Vec::new();
        for now_s in (NOW_S..NOW_S + 2000).step_by(7) {
            ring = keys.rotated(now_s).unwrap_or(ring);
            encrypted.push((now_s, ring.keys()[0].clone()));
            encrypted.retain(|(at_s, _)| at_s + u64::from(TIMEOUT_S) >= now_s);
            assert!(encrypted.iter().all(|(_, key)| ring.keys().contains(key)));
        }
    }

    #[test]
    fn keys_are_looked_at_rarely() {
        let keys = SharedKeys::new(Arc::new(SessionCache::builtin(100).unwrap()), TIMEOUT_S);
        keys.ring(NOW_S).unwrap();
        let looks = (0..180).filter(|after_s| keys.rotated(NOW_S + after_s).is_some()).count();
        assert!((1..=10).contains(&looks), "{looks}");
        let at_once = (0..100).filter(|_| keys.rotated(NOW_S + 200).is_some()).count();
        assert_eq!(at_once, 1);
    }
}
