//! Certificates whose names have variables in them, as they were read (`…_ssl_certificate_cache`). Any loop
//! looks for them without waiting; what is not there, or may be too old, a pool's thread reads.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use clearway_tls::Pair;
use clearway_tls::files::PairNames;

/// `max=`, `inactive=` and `valid=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheRule {
    /// How many there are at most.
    pub(crate) entries_max: usize,
    /// One that nobody has asked for so long goes.
    pub(crate) inactive_ms: u64,
    /// After so long it is looked whether its files have changed.
    pub(crate) valid_ms: u64,
}

/// See the file's head.
pub(crate) struct PairCache {
    rule: CacheRule,
    entries: ArcSwap<HashMap<PairName, Arc<Entry>>>,
    /// Taken by threads of pools alone.
    change: Mutex<()>,
}

/// Names of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PairName {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl PairName {
    pub(crate) fn names(&self) -> PairNames<'_> {
        PairNames { certificate: &self.certificate, key: &self.key }
    }
}

struct Entry {
    pair: Arc<Pair>,
    /// What both files were when they were read.
    stamps: Vec<Stamp>,
    checked_ms: AtomicU64,
    used_ms: AtomicU64,
}

/// What tells that a file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) inode: u64,
    pub(crate) changed_s: i64,
}

impl PairCache {
    pub(crate) fn new(rule: CacheRule) -> Self {
        Self { rule, entries: ArcSwap::default(), change: Mutex::new(()) }
    }

    /// One that need not be looked at. Any thread.
    pub(crate) fn find(&self, name: &PairName, now_ms: u64) -> Option<Arc<Pair>> {
        let entries = self.entries.load();
        let entry = entries.get(name)?;
        let is_fresh = now_ms.saturating_sub(entry.checked_ms.load(Ordering::Relaxed)) < self.rule.valid_ms;
        is_fresh.then(|| {
            entry.used_ms.store(now_ms, Ordering::Relaxed);
            Arc::clone(&entry.pair)
        })
    }

    /// The same behind a look at the files, or as they are read now. A pool's thread: **blocks.**
    ///
    /// # Errors
    /// What `read` says.
    pub(crate) fn renew(
        &self,
        name: &PairName,
        now_ms: u64,
        stamp: impl Fn(&[u8]) -> io::Result<Stamp>,
        read: impl FnOnce() -> Result<Pair, String>,
    ) -> Result<Arc<Pair>, String> {
        let stamps: Vec<Stamp> =
            [&name.certificate, &name.key].into_iter().filter_map(|file| stamp(file).ok()).collect();
        let known = self.entries.load().get(name).cloned();
        if let Some(entry) = known.filter(|entry| entry.stamps == stamps) {
            entry.checked_ms.store(now_ms, Ordering::Relaxed);
            entry.used_ms.store(now_ms, Ordering::Relaxed);
            return Ok(Arc::clone(&entry.pair));
        }
        let pair = Arc::new(read()?);
        let entry = Entry {
            pair: Arc::clone(&pair),
            stamps,
            checked_ms: AtomicU64::new(now_ms),
            used_ms: AtomicU64::new(now_ms),
        };
        self.insert(name.clone(), Arc::new(entry), now_ms);
        Ok(pair)
    }

    fn insert(&self, name: PairName, entry: Arc<Entry>, now_ms: u64) {
        let _guard = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = HashMap::clone(&self.entries.load());
        let used_ms = |entry: &Entry| entry.used_ms.load(Ordering::Relaxed);
        entries.retain(|_, entry| now_ms.saturating_sub(used_ms(entry)) < self.rule.inactive_ms);
        while entries.len() >= self.rule.entries_max {
            let oldest = entries.iter().min_by_key(|(_, entry)| used_ms(entry));
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { break };
            entries.remove(&oldest);
        }
        entries.insert(name, entry);
        self.entries.store(Arc::new(entries));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/ecdsa.pem");
    const KEY: &[u8] = include_bytes!("../../../tls/tests/data/ecdsa.key");

    fn name(text: &str) -> PairName {
        PairName { certificate: text.into(), key: text.into() }
    }

    fn cache(entries_max: usize) -> PairCache {
        PairCache::new(CacheRule { entries_max, inactive_ms: 10_000, valid_ms: 60_000 })
    }

    /// Whether it was read.
    fn renew(cache: &PairCache, text: &str, now_ms: u64, inode: u64) -> bool {
        let mut was_read = false;
        let stamp = |_: &[u8]| Ok(Stamp { inode, changed_s: 0 });
        let read = || {
            was_read = true;
            Ok(Pair::read(CERTIFICATE, KEY, &[]).unwrap())
        };
        cache.renew(&name(text), now_ms, stamp, read).unwrap();
        was_read
    }

    #[test]
    fn files_are_read_again_when_they_have_changed() {
        let cache = cache(10);
        assert!(cache.find(&name("a"), 0).is_none());
        assert!(renew(&cache, "a", 0, 1));
        assert!(cache.find(&name("a"), 59_999).is_some());
        assert!(cache.find(&name("a"), 60_000).is_none());
        assert!(!renew(&cache, "a", 60_000, 1));
        assert!(cache.find(&name("a"), 60_001).is_some());
        assert!(renew(&cache, "a", 120_000, 2));
    }

    #[test]
    fn there_are_so_many_at_most() {
        let cache = cache(2);
        for (at, text) in ["a", "b", "c"].into_iter().enumerate() {
            renew(&cache, text, at as u64, 1);
        }
        let is_there = ["a", "b", "c"].map(|text| cache.find(&name(text), 5).is_some());
        assert_eq!(is_there, [false, true, true]);
        renew(&cache, "d", 20_000, 1);
        let is_there = ["b", "c", "d"].map(|text| cache.find(&name(text), 20_000).is_some());
        assert_eq!(is_there, [false, false, true]);
    }
}
